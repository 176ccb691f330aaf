"""A source, cursor or sink belongs to the principal who made it, who alone takes it over, or whoever has that right."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.streams import exchange as x
from veredus.streams.rights import TAKE_OVER, Resource, on_stream
from veredus.streams.tables import StreamsLimits


def may(principal: str, verb: str, resource: Resource) -> bool:
    """Everybody may do all, but that `operator` alone takes over."""
    return verb != TAKE_OVER or principal == "operator"


@pytest.fixture
def rig() -> Rig:
    return Rig(may=may)


def attach(session: int, principal: str, who: int, epoch: int = 0) -> Any:
    return x.SourceAttachRequested(session, principal, "s", "alpha", incarnation(who), epoch)


def subscribe(session: int, principal: str, who: int, epoch: int = 0) -> Any:
    return x.SubscribeRequested(session, principal, "s", "reader", "main", incarnation=incarnation(who), epoch=epoch)


def open_run(session: int, principal: str, who: int, epoch: int = 0) -> Any:
    return x.RunOpenRequested(session, principal, "sink", incarnation(who), epoch)


def asked(rig: Rig, verb: str, principal: str = "local", **arguments: object) -> Any:
    return rig.do(x.AdminRequested(99, 1, principal, verb, arguments))[-1]


class Name(NamedTuple):
    """A kind of name: how it is taken, and who a list says that it belongs to."""

    take: Callable[..., Any]
    owner: Callable[[Rig], str]


SOURCE = Name(attach, lambda rig: asked(rig, "source.list", stream="s").result[0]["owner"])
CURSOR = Name(subscribe, lambda rig: asked(rig, "subscription.list", stream="s").result[0]["owner"])
SINK = Name(open_run, lambda rig: asked(rig, "sink.list").result[0]["owner"])
NAMES = pytest.mark.parametrize("name", [SOURCE, CURSOR, SINK], ids=["source", "cursor", "sink"])
GRANTS = (x.GrantSource, x.GrantSubscription, x.GrantRun)


@NAMES
@pytest.mark.parametrize("remembered", ["in memory", "behind a kill", "behind a checkpoint"])
def test_a_name_is_taken_over_by_who_owns_it_and_by_nobody_else(rig: Rig, name: Name, remembered: str) -> None:
    rig.do(name.take(1, "desk-1", 1))
    if remembered == "behind a checkpoint":
        rig.checkpoint()
    if remembered != "in memory":
        rig.restart()
    for epoch in (0, 1, 5):
        for who in (1, 7):
            (refusal,) = rig.do(name.take(2, "mallory", who, epoch))
            assert (type(refusal), refusal.code, refusal.details["verb"]) == (x.Refuse, "forbidden", "take-over")
    assert name.owner(rig) == "desk-1"
    assert not rig.said_to(1, x.Fence)
    said = rig.do(name.take(3, "desk-1", 2))
    assert [one.epoch for one in said if isinstance(one, GRANTS)] == [2]


@NAMES
def test_whoever_may_take_over_owns_the_name_from_then_on(rig: Rig, name: Name) -> None:
    rig.do(name.take(1, "desk-1", 1))
    rig.do(name.take(2, "operator", 2))
    assert name.owner(rig) == "operator"
    rig.restart()
    assert name.owner(rig) == "operator"
    assert [one.code for one in rig.do(name.take(3, "desk-1", 3))] == ["forbidden"]


@NAMES
@pytest.mark.parametrize("nobody", ["local", "anonymous"])
def test_what_peers_that_prove_nothing_have_made_belongs_to_whoever_comes_first(
    rig: Rig, name: Name, nobody: str
) -> None:
    rig.do(name.take(1, nobody, 1))
    assert name.owner(rig) == ""
    rig.do(name.take(2, "anonymous", 2))
    assert name.owner(rig) == ""
    rig.do(name.take(3, "desk-1", 3))
    assert name.owner(rig) == "desk-1"
    assert [one.code for one in rig.do(name.take(4, nobody, 4))] == ["forbidden"]


def taken_over(rig: Rig) -> list[tuple[object, ...]]:
    fields = ("what", "principal", "from", "epoch")
    return [tuple(note.fields[one] for one in fields) for note in rig.notes if note.event == "taken-over"]


@NAMES
@pytest.mark.parametrize("is_attached", [True, False])
def test_a_take_over_names_whom_the_name_is_taken_from_attached_or_not(
    request: pytest.FixtureRequest, rig: Rig, name: Name, is_attached: bool
) -> None:
    rig.do(name.take(1, "desk-1", 1))
    if not is_attached:
        rig.do(x.SessionClosed(1))
    rig.do(name.take(2, "operator", 2))
    what = request.node.callspec.id.split("-")[-1]
    assert taken_over(rig) == [(what, "operator", "desk-1", 2)]


@NAMES
@pytest.mark.parametrize("principal", ["desk-1", "local"])
def test_a_name_that_its_owner_has_again_is_not_taken_over(rig: Rig, name: Name, principal: str) -> None:
    for session in (1, 2):
        rig.do(name.take(session, principal, session))
    rig.do(x.SessionClosed(2))
    rig.do(name.take(3, principal, 3))
    assert taken_over(rig) == []


@NAMES
def test_a_name_that_nobody_owned_is_taken_over_from_nobody(rig: Rig, name: Name) -> None:
    rig.do(name.take(1, "local", 1))
    rig.do(name.take(2, "desk-1", 2))
    assert [said[1:] for said in taken_over(rig)] == [("desk-1", "", 2)]


@NAMES
def test_a_taking_over_that_the_journal_refuses_leaves_the_name_to_its_owner(rig: Rig, name: Name) -> None:
    rig.do(name.take(1, "desk-1", 1))
    rig.is_full = True
    assert rig.do(name.take(2, "operator", 2))[-1].code == "disk-full"
    rig.is_full = False
    assert name.owner(rig) == "desk-1"


def test_a_stage_is_opened_by_the_owner_of_its_sink(rig: Rig) -> None:
    rig.do(open_run(1, "desk-1", 1))
    (refusal,) = rig.do(x.StageOpenRequested(2, "mallory", "sink", 1, "s", incarnation(2)))
    assert (refusal.code, refusal.details["kind"], refusal.details["verb"]) == ("forbidden", "sink", "take-over")
    rig.do(x.StageOpenRequested(3, "desk-1", "sink", 1, "s", incarnation(3)))
    assert rig.said_to(3, x.GrantStage)


def test_a_cursor_and_a_sink_are_removed_by_their_owners(rig: Rig) -> None:
    rig.do(subscribe(1, "desk-1", 1))
    rig.do(open_run(2, "desk-1", 1))
    cursor = {"stream": "s", "subscriber": "reader", "name": "main"}
    for verb, arguments in (("subscription.remove", cursor), ("sink.remove", {"sink": "sink"})):
        refusal = asked(rig, verb, "mallory", **arguments)
        assert (refusal.code, refusal.details["verb"]) == ("forbidden", "take-over")
        assert asked(rig, verb, "desk-1", **arguments).result == {"removed": True}


def test_a_commit_moves_no_cursor_that_another_owns(rig: Rig) -> None:
    rig.do(subscribe(1, "desk-1", 1))
    rig.do(open_run(2, "mallory", 1))
    rig.do(x.StageOpenRequested(3, "mallory", "sink", 1, "s", incarnation(3)))
    (stage,) = rig.said_to(3, x.GrantStage)
    move = x.CursorMove(stage.stage, "reader", "main", 1, 1, 0, 0)
    (refusal,) = rig.do(x.CommitRequested(2, 1, "mallory", "sink", 1, 1, (stage.stage,), (move,)))
    assert (refusal.code, refusal.details["verb"]) == ("forbidden", "take-over")
    assert not rig.said_to(1, x.Fence)


def test_a_commit_moves_no_cursor_of_a_stream_that_the_sink_may_not_subscribe_to() -> None:
    rig = Rig(may=lambda principal, verb, resource: (principal, verb) != ("writer", "subscribe"))
    rig.do(open_run(2, "writer", 1))
    rig.do(x.StageOpenRequested(3, "writer", "sink", 1, "s", incarnation(3)))
    (stage,) = rig.said_to(3, x.GrantStage)
    move = x.CursorMove(stage.stage, "reader", "main", 1, 1, 0, 0)
    (refusal,) = rig.do(x.CommitRequested(2, 1, "writer", "sink", 1, 1, (stage.stage,), (move,)))
    assert (refusal.code, refusal.details["name"]) == ("forbidden", "s")


def raise_source(rig: Rig, principal: str = "operator", owner: str = "desk-1", number: int = 7) -> Any:
    return asked(rig, "source.raise", principal, stream="s", sources=[("alpha", number, b"")], owners={"alpha": owner})


def attach_sparse(session: int, principal: str, who: int, epoch: int = 0) -> Any:
    return x.SourceAttachRequested(session, principal, "s", "alpha", incarnation(who), epoch, is_sparse=True)


@pytest.mark.parametrize("remembered", ["in memory", "behind a kill", "behind a checkpoint"])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_source_that_nobody_owns_is_its_owners_of_elsewhere_once_it_is_raised(
    rig: Rig, remembered: str, is_known: bool
) -> None:
    rig.do(attach_sparse(1, "local", 1) if is_known else subscribe(1, "local", 1))
    assert raise_source(rig).result["head"] == 0
    if remembered == "behind a checkpoint":
        rig.checkpoint()
    if remembered != "in memory":
        rig.restart()
    assert SOURCE.owner(rig) == "desk-1"
    assert [one.code for one in rig.do(attach_sparse(2, "mallory", 2))] == ["forbidden"]
    (grant,) = [one for one in rig.do(attach_sparse(3, "desk-1", 3)) if isinstance(one, x.GrantSource)]
    assert grant.last_number == 7


def test_a_source_that_somebody_owns_stays_theirs_when_it_is_raised(rig: Rig) -> None:
    rig.do(attach_sparse(1, "desk-2", 1))
    raise_source(rig)
    assert SOURCE.owner(rig) == "desk-2"
    rig.restart()
    assert SOURCE.owner(rig) == "desk-2"


def test_whoever_names_the_owner_of_a_source_must_be_one_who_may_take_it_over(rig: Rig) -> None:
    rig.do(attach_sparse(1, "local", 1))
    for principal in ("mallory", "desk-1"):
        refusal = raise_source(rig, principal)
        assert (refusal.code, refusal.details["verb"]) == ("forbidden", "take-over")
    assert raise_source(rig, owner="a b").code == "bad-name"
    assert SOURCE.owner(rig) == ""


@pytest.mark.parametrize("is_known", [False, True])
def test_a_raise_that_the_journal_refuses_leaves_a_source_to_nobody(rig: Rig, is_known: bool) -> None:
    rig.do(attach_sparse(1, "local", 1) if is_known else subscribe(1, "local", 1))
    rig.is_full = True
    assert raise_source(rig).code == "disk-full"
    rig.is_full = False
    (grant,) = [one for one in rig.do(attach_sparse(2, "desk-2", 2)) if isinstance(one, x.GrantSource)]
    assert (grant.last_number, SOURCE.owner(rig)) == (0, "desk-2")


@pytest.mark.parametrize("is_first", [False, True])
def test_whoever_attaches_while_a_source_is_raised_goes_on_under_the_epoch_that_was_granted(
    rig: Rig, is_first: bool
) -> None:
    rig.do(subscribe(1, "local", 1))
    steps = [
        attach_sparse(2, "desk-1", 2),
        x.AdminRequested(9, 1, "operator", "source.raise", {"stream": "s", "sources": [("alpha", 7, b"")]}),
    ]
    for step in steps if is_first else steps[::-1]:
        rig.tell(step)
    rig.carry_out()
    (grant,) = rig.said_to(2, x.GrantSource)
    rig.do(x.SessionClosed(2))
    said = rig.do(attach_sparse(3, "desk-1", 2, grant.epoch))
    assert [(one.epoch, one.last_number) for one in said if isinstance(one, x.GrantSource)] == [(grant.epoch, 7)]
    assert SOURCE.owner(rig) == "desk-1"
    rig.restart()
    assert SOURCE.owner(rig) == "desk-1"


@pytest.mark.parametrize("before", ["", "desk-2"])
def test_a_cursor_that_comes_with_a_commit_is_whose_the_commit_says_whoever_owned_it(rig: Rig, before: str) -> None:
    if before:
        rig.do(subscribe(1, before, 1))
    rig.do(open_run(2, "operator", 1))
    rig.do(x.StageOpenRequested(3, "operator", "sink", 1, "s", incarnation(3)))
    (stage,) = rig.said_to(3, x.GrantStage)
    move = x.CursorMove(stage.stage, "reader", "main", 1, 1, 0, 0, owner="desk-1")
    rig.do(x.CommitRequested(2, 1, "operator", "sink", 1, 1, (stage.stage,), (move,)))
    for _ in range(2):
        assert CURSOR.owner(rig) == "desk-1"
        assert [one.code for one in rig.do(subscribe(4, "mallory", 4))] == ["forbidden"]
        rig.restart()


def test_a_cursor_that_a_commit_brings_counts_for_its_owner() -> None:
    rig = Rig(StreamsLimits(subscriptions_per_principal_max=1), may=may)
    rig.do(open_run(2, "operator", 1))
    rig.do(x.StageOpenRequested(3, "operator", "sink", 1, "s", incarnation(3)))
    (stage,) = rig.said_to(3, x.GrantStage)
    move = x.CursorMove(stage.stage, "reader", "main", 1, 1, 0, 0, owner="desk-1")
    rig.do(x.CommitRequested(2, 1, "operator", "sink", 1, 1, (stage.stage,), (move,)))
    other = x.SubscribeRequested(4, "desk-1", "s", "reader", "other", incarnation=incarnation(4))
    assert [one.code for one in rig.do(other)] == ["too-many-subscriptions"]


def test_a_new_source_asks_for_no_right_to_take_over() -> None:
    seen: list[tuple[str, Resource]] = []
    rig = Rig(may=lambda _, verb, resource: seen.append((verb, resource)) is None)
    rig.do(attach(1, "desk-1", 1))
    assert seen == [("publish", on_stream("s", source="alpha")), ("create", on_stream("s"))]


# ── how many sinks ───────────────────────────────────────────────────────────────────────────────────────────────────


def opened(rig: Rig, session: int, principal: str, sink: str) -> Any:
    return rig.do(x.RunOpenRequested(session, principal, sink, incarnation(session)))[-1]


def test_a_node_knows_as_many_sinks_as_it_may_and_one_that_is_removed_makes_room() -> None:
    rig = Rig(limits=StreamsLimits(sinks_max=2))
    for session, sink in ((1, "one"), (2, "two")):
        assert isinstance(opened(rig, session, f"desk-{session}", sink), x.GrantRun)
    refusal = opened(rig, 3, "desk-3", "three")
    assert (refusal.code, refusal.details) == ("too-many-sinks", {"sinks_max": 2})
    assert isinstance(opened(rig, 4, "desk-1", "one"), x.GrantRun), "who is known goes on"
    asked(rig, "sink.remove", "desk-1", sink="one")
    assert isinstance(opened(rig, 5, "desk-3", "three"), x.GrantRun)


def test_a_principal_owns_as_many_sinks_as_it_may_and_those_who_prove_nothing_count_as_one() -> None:
    rig = Rig(limits=StreamsLimits(sinks_per_principal_max=1))
    assert isinstance(opened(rig, 1, "desk-1", "one"), x.GrantRun)
    assert opened(rig, 2, "desk-1", "two").code == "too-many-sinks"
    assert isinstance(opened(rig, 3, "desk-2", "three"), x.GrantRun)
    assert isinstance(opened(rig, 4, "local", "four"), x.GrantRun)
    assert opened(rig, 5, "anonymous", "five").code == "too-many-sinks"


def test_a_sink_that_was_never_journaled_or_is_only_asked_after_takes_no_room() -> None:
    rig = Rig(limits=StreamsLimits(sinks_max=1))
    rig.attach(1)
    rig.is_full = True
    assert opened(rig, 2, "desk-1", "one").code == "disk-full"
    rig.is_full = False
    rig.do(x.RunOpenRequested(3, "desk-1", "two", incarnation(3), epoch=7))
    assert rig.floor.tables.runs == {}
    assert isinstance(opened(rig, 4, "desk-1", "three"), x.GrantRun)


@pytest.mark.parametrize("is_known", [False, True])
def test_all_who_wait_for_a_run_that_the_journal_refuses_are_told(is_known: bool) -> None:
    rig = Rig()
    rig.attach(1)
    if is_known:
        opened(rig, 4, "desk-1", "one")
    rig.is_full = True
    for session in (2, 3):
        rig.tell(x.RunOpenRequested(session, "desk-1", "one", incarnation(9)))
    before = len(rig.said)
    rig.carry_out()
    assert [(said.session, said.code) for said in rig.said[before:]] == [(2, "disk-full"), (3, "disk-full")]


def test_a_sink_belongs_to_who_committed_to_it_where_the_opening_of_its_run_was_damaged(rig: Rig) -> None:
    (file,) = [name for name in rig.disk.files if name.endswith(".segment")]
    before = bytes(rig.disk.files[file])
    rig.do(open_run(1, "desk-1", 1))
    written = [at for at, byte in enumerate(rig.disk.files[file]) if byte != before[at]]
    (said,) = rig.do(x.CommitRequested(1, 1, "desk-1", "sink", 1, 7, ()))
    assert isinstance(said, x.ConfirmCommitted)
    rig.disk.files[file][written[len(written) // 2]] ^= 1
    rig.restart()
    assert SINK.owner(rig) == "desk-1"
    for epoch in (0, 1):
        assert rig.do(open_run(2, "mallory", 1, epoch))[-1].code == "forbidden"
    assert rig.do(open_run(3, "desk-1", 1, 1))[-1].commit_id == 7
