"""What one request does to many stages is said to the journal at once: nobody else waits while each is gone through."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.streams.rig import Rig
from tests.streams.sinking import RUN, commit, open_run, staged
from veredus.journal.log import Log
from veredus.kernel.engine import Now
from veredus.streams import exchange as x

FEW, MANY = 3, 40


def drop(rig: Rig, epoch: int, stages: Sequence[x.GrantStage]) -> None:
    (said,) = rig.do(x.StagesDropRequested(RUN, 2, "local", "sink", epoch, tuple(one.stage for one in stages)))
    assert said.result == {"dropped": [one.stage for one in stages]}


def fence(rig: Rig, epoch: int, stages: Sequence[x.GrantStage]) -> None:
    assert isinstance(open_run(rig, who=2, session=RUN + 1), x.GrantRun)


def show(rig: Rig, epoch: int, stages: Sequence[x.GrantStage]) -> None:
    assert commit(rig, epoch, 1, *stages)[-1].streams == (("s", 1, 2 * len(stages)),)


def drop_by_name(rig: Rig, epoch: int, stages: Sequence[x.GrantStage]) -> None:
    (said,) = rig.do(x.AdminRequested(3, 1, "local", "stage.drop", {"sink": "sink"}))
    assert said.result == {"dropped": [one.stage for one in stages]}


def give_up(rig: Rig, epoch: int, stages: Sequence[x.GrantStage]) -> None:
    rig.tell(x.SessionClosed(RUN), *(x.SessionClosed(one.session) for one in stages))
    rig.time_ns += rig.limits.stage_lease_ns
    rig.carry_out()


@pytest.mark.parametrize("act", [drop, fence, show, drop_by_name, give_up])
def test_what_goes_or_is_shown_together_is_one_order_to_the_journal(
    act: Callable[[Rig, int, Sequence[x.GrantStage]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Log.handle
    told: list[object] = []

    def noted(self: Log, event: Any, now: Now) -> Sequence[object]:
        told.append(event)
        return handle(self, event, now)

    monkeypatch.setattr(Log, "handle", noted)

    def count_of(count: int) -> int:
        rig = Rig()
        epoch = open_run(rig).epoch
        stages = staged(rig, epoch, *[2] * count)
        told.clear()
        act(rig, epoch, stages)
        assert rig.floor.tables.stages == {}
        assert len(rig.log._catalogue.stages) == (count if act is show else 0)
        rig.restart()
        assert rig.floor.tables.stages == {}
        return len(told)

    assert count_of(MANY) == count_of(FEW)
