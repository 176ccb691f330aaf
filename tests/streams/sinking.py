"""A sink's steps at the streams floor, one call each."""

from tests.streams.rig import Rig, incarnation
from veredus.delivery.batch import BatchHeader
from veredus.delivery.content import Content
from veredus.sim.content import Identity, batch_record
from veredus.sim.ports import batch_offered
from veredus.streams import exchange as x

RUN = 50


def open_run(rig: Rig, who: int = 1, epoch: int = 0, session: int = RUN) -> x.GrantRun | x.Fence:
    """Begin or join a run of sink `sink`."""
    (answer,) = rig.do(x.RunOpenRequested(session, "local", "sink", incarnation(who), epoch))
    assert isinstance(answer, x.GrantRun | x.Fence)
    return answer


def open_stage(rig: Rig, session: int, epoch: int, stream: str = "s") -> x.GrantStage:
    """A new stage of the run."""
    said = rig.do(x.StageOpenRequested(session, "local", "sink", epoch, stream, incarnation(session)))
    (grant,) = [one for one in said if isinstance(one, x.GrantStage)]
    return grant


def write(rig: Rig, stage: x.GrantStage, first: int, count: int, is_carried_out: bool = True) -> None:
    """Offer rows of a stage."""
    rows = [Identity(f"stage-{stage.stage}", number) for number in range(first, first + count)]
    header = BatchHeader(0, 0, 0, 0, 0, stage.stream_id, 0, 0, 0, first, 0, 0)
    rig.tell(batch_offered(stage.session, batch_record(header, rows)))
    if is_carried_out:
        rig.carry_out()


def commit(
    rig: Rig,
    epoch: int,
    commit_id: int,
    *stages: x.GrantStage,
    request: int = 1,
    contents: tuple[Content, ...] = (),
) -> list[object]:
    """Ask for a commit; what was said."""
    numbers = tuple(stage.stage for stage in stages)
    return rig.do(x.CommitRequested(RUN, request, "local", "sink", epoch, commit_id, numbers, (), contents))


def staged(rig: Rig, epoch: int, *counts: int, session: int = 60) -> list[x.GrantStage]:
    """Stages for stream `s` with so many rows."""
    stages = [open_stage(rig, session + index, epoch) for index in range(len(counts))]
    for stage, count in zip(stages, counts, strict=True):
        if count:
            write(rig, stage, 1, count)
    return stages
