"""A commit is known by what it holds, too: the same number with other rows, or for another stream, is refused."""

from dataclasses import replace

import pytest

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, commit, open_run, open_stage, staged, write
from veredus.delivery.content import DIGEST_SIZE_MAX, Content
from veredus.streams import exchange as x

DIGEST, OTHER = b"\x01" * 16, b"\x02" * 16


def held(count: int, digest: bytes = b"", stream: str = "s") -> tuple[Content, ...]:
    return (Content(stream, count, digest),)


def reopened(rig: Rig, kill: str) -> x.GrantRun:
    """The sink's next run: of this node, of one that was killed, or of one that read it from its checkpoint."""
    if kill == "checkpoint":
        rig.checkpoint()
        rig.carry_out()
    if kill != "no":
        rig.restart()
    return open_run(rig, who=2)


KILLS = pytest.mark.parametrize("kill", ["no", "kill", "checkpoint"])


@KILLS
def test_the_same_commit_with_the_same_contents_is_a_duplicate(kill: str) -> None:
    rig = Rig()
    run = open_run(rig)
    commit(rig, run.epoch, 7, *staged(rig, run.epoch, 3), contents=held(3, DIGEST))
    epoch = reopened(rig, kill).epoch
    for contents in (held(3, DIGEST), held(3), ()):
        (said,) = commit(rig, epoch, 7, contents=contents)
        assert said.is_duplicate
        assert said.streams == (("s", 1, 3),)


@KILLS
@pytest.mark.parametrize("contents", [held(4, DIGEST), held(3, OTHER)])
def test_the_same_commit_with_other_rows_is_refused_with_both_contents(
    kill: str, contents: tuple[Content, ...]
) -> None:
    rig = Rig()
    run = open_run(rig)
    commit(rig, run.epoch, 7, *staged(rig, run.epoch, 3), contents=held(3, DIGEST))
    epoch = reopened(rig, kill).epoch
    (refusal,) = commit(rig, epoch, 7, contents=contents)
    assert (refusal.code, refusal.is_final) == ("commit-other-rows", False)
    ((name, incarnation, count, digest),) = refusal.details["committed"]
    assert (name, count, digest) == ("s", 3, DIGEST.hex())
    assert refusal.details["asked"] == [[name, incarnation, contents[0].row_count, contents[0].digest.hex()]]
    assert DIGEST.hex() in refusal.message
    assert contents[0].digest.hex() in refusal.message


def test_a_commit_that_was_staged_anew_with_other_counts_is_refused_without_digests_too() -> None:
    rig = Rig()
    run = open_run(rig)
    commit(rig, run.epoch, 7, *staged(rig, run.epoch, 3))
    again = staged(rig, run.epoch, 2, 2, session=70)
    (refusal,) = commit(rig, run.epoch, 7, *again, request=2)
    assert refusal.code == "commit-other-rows"
    assert len(rig.floor.tables.stages) == 2, "whoever asked drops them, or asks under an id of their own"
    assert commit(rig, run.epoch, 8, *again, request=3)[-1].streams == (("s", 4, 4),)


@KILLS
def test_the_same_commit_for_another_stream_is_refused(kill: str) -> None:
    rig = Rig()
    run = open_run(rig)
    commit(rig, run.epoch, 7, *staged(rig, run.epoch, 3), contents=held(3, DIGEST))
    epoch = reopened(rig, kill).epoch
    stage = open_stage(rig, 80, epoch, stream="t")
    write(rig, stage, 1, 3)
    for contents in (held(3, DIGEST, stream="t"), ()):
        (refusal,) = commit(rig, epoch, 7, stage, contents=contents)
        assert refusal.code == "commit-other-streams"
        assert "'s' (incarnation" in refusal.message
        assert "'t' (incarnation" in refusal.message


def test_the_same_commit_for_a_stream_that_was_made_again_is_refused() -> None:
    rig = Rig()
    run = open_run(rig)
    commit(rig, run.epoch, 7, *staged(rig, run.epoch, 3), contents=held(3, DIGEST))
    rig.do(x.AdminRequested(90, 1, "local", "stream.delete", {"name": "s"}))
    rig.do(x.AdminRequested(90, 2, "local", "stream.create", {"name": "s"}))
    (refusal,) = commit(rig, run.epoch, 7, request=2, contents=held(3, DIGEST))
    assert refusal.code == "commit-other-streams"


def test_a_commit_without_rows_may_name_a_stream_that_is_made_later() -> None:
    rig = Rig()
    run = open_run(rig)
    commit(rig, run.epoch, 7, contents=held(0, DIGEST, stream="later"))
    rig.do(x.AdminRequested(90, 1, "local", "stream.create", {"name": "later"}))
    assert commit(rig, run.epoch, 7, request=2, contents=held(0, DIGEST, stream="later"))[-1].is_duplicate


@pytest.mark.parametrize(
    "contents", [held(4), held(3, stream="t"), (*held(3), *held(3)), held(3, b"x" * (DIGEST_SIZE_MAX + 1))]
)
def test_contents_that_are_not_what_was_staged_are_refused(contents: tuple[Content, ...]) -> None:
    rig = Rig()
    run = open_run(rig)
    stages = staged(rig, run.epoch, 3)
    (refusal,) = commit(rig, run.epoch, 7, *stages, contents=contents)
    assert refusal.code == "bad-contents"
    assert commit(rig, run.epoch, 7, *stages, request=2, contents=held(3))[-1].streams == (("s", 1, 3),)


def test_contents_that_name_a_stream_which_one_may_not_publish_to_are_refused_and_nothing_is_learnt() -> None:
    rig = Rig(may=lambda principal, verb, resource: principal != "mallory" or resource.name in ("sink", "s"))
    rig.do(x.AdminRequested(90, 1, "local", "stream.create", {"name": "secret"}))
    (granted,) = rig.do(x.RunOpenRequested(RUN, "mallory", "sink", incarnation(1)))
    done = x.CommitRequested(RUN, 1, "mallory", "sink", granted.epoch, 7, ())
    rig.do(done)
    for name in ("secret", "nothing"):
        (refusal,) = rig.do(replace(done, contents=held(0, DIGEST, stream=name)))
        assert refusal.code == "forbidden"
        assert "incarnation" not in str(refusal.details)


@pytest.mark.parametrize("other", [0, 30, 49])
def test_a_refusal_names_few_of_many_streams_from_the_first_that_differs(other: int) -> None:
    rig = Rig()
    run = open_run(rig)
    names = [f"s{index:02d}" for index in range(50)]
    contents = tuple(Content(name, 0, DIGEST) for name in names)
    commit(rig, run.epoch, 7, contents=contents)
    asked = tuple(one._replace(digest=OTHER) if one.stream == names[other] else one for one in contents)
    anew = (*contents[:other], Content(names[other] + "x", 0), *contents[other + 1 :])
    for code, wrong in (("commit-other-rows", asked), ("commit-other-streams", anew)):
        (refusal,) = commit(rig, run.epoch, 7, request=2, contents=wrong)
        assert refusal.code == code
        assert len(refusal.details["committed"]) == len(refusal.details["asked"]) == 8
        assert names[other] in [row[0] for row in refusal.details["committed"]]
        assert (refusal.details["committed_count"], refusal.details["asked_count"]) == (50, 50)
        assert repr(names[other]) in refusal.message
        assert len(refusal.message) < 1_500
    (refusal,) = commit(rig, run.epoch, 7, request=3, contents=contents[:other] or held(0, stream="a"))
    assert (refusal.code, refusal.details["committed_count"]) == ("commit-other-streams", 50)
