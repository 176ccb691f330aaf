"""Cursors that move with a commit, sources that are raised with it, and what a merge asks of streams beside."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, open_run, staged
from veredus.delivery.settlement import Ledger
from veredus.streams import exchange as x
from veredus.streams.facts import NOTHING_HAD, CursorMoved, Gone, Lost, Origin
from veredus.streams.ranges import cursor_of
from veredus.streams.subscription import Subscription
from veredus.streams.tables import StreamsLimits

INDIVIDUAL: dict[str, Any] = {"mode": x.SettleMode.INDIVIDUAL}


def shown(rig: Rig, subscriber: str = "bob", name: str = "main") -> dict[str, Any]:
    arguments: dict[str, object] = {"stream": "s", "subscriber": subscriber, "name": name}
    (answer,) = rig.do(x.AdminRequested(9, 1, "local", "subscription.show", arguments))
    assert isinstance(answer, x.AnswerAdmin), answer
    assert isinstance(answer.result, dict)
    return answer.result


def moved(stage: x.GrantStage, **more: Any) -> x.CursorMove:
    given: dict[str, Any] = {"opened_us": 5, "start": 2, "floor": 1, "kept_from": 2, **more}
    return x.CursorMove(stage.stage, "bob", "main", **given)


def commit(rig: Rig, epoch: int, stage: x.GrantStage, *moves: x.CursorMove, commit_id: int = 7) -> list[Any]:
    return rig.do(x.CommitRequested(RUN, 1, "local", "sink", epoch, commit_id, (stage.stage,), moves))


def committing(rig: Rig, count: int = 3) -> tuple[int, x.GrantStage]:
    """Two publications in the stream, and a stage."""
    rig.publish(rig.attach(1), 1, 2)
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, count)
    return run.epoch, stage


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_subscription_comes_into_being_with_a_commit_and_is_there_after_a_kill(is_checkpointed: bool) -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    gone = ((7, Lost(b"j" * 16, 1, 2)),)
    origin = x.MovedOrigin(b"i" * 16, 4, ((4, x.Place(row=1), 1), (6, x.Place(2), 2)), gone)
    commit(rig, epoch, stage, moved(stage, settled_rows=((1, 1),), origins=(origin,)))
    if is_checkpointed:
        rig.checkpoint()
    rig.restart()
    said = shown(rig)
    assert (said["floor"], said["settled"], said["opened_us"], said["start"]) == (1, ((4, 4),), 5, 2)
    assert [o.gone for o in said["origins"]] == [gone]
    assert [(o.incarnation, o.next_sequence, o.runs) for o in said["origins"]] == [
        (b"i" * 16, 4, ((4, 4, 1), (6, 2, 2)))
    ]
    rig.subscribe(5, "bob", **INDIVIDUAL)
    assert rig.pushed(5) == [2, 3, 5]


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_what_was_lost_before_a_commit_stays_to_be_told_until_it_is_known(is_checkpointed: bool) -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    here, there = b"i" * 16, b"j" * 16
    commit(rig, epoch, stage, moved(stage, lost=(Lost(here, 1, 4), Lost(there, 3, 9))))

    def kill() -> None:
        if is_checkpointed:
            rig.checkpoint()
        rig.restart()

    def tell(life: bytes, first: object, last: object) -> Any:
        named = {"stream": "s", "subscriber": "bob", "name": "main", "incarnation": life, "first": first, "last": last}
        (answer,) = rig.do(x.AdminRequested(9, 1, "local", "subscription.advance", named))
        return answer.code if isinstance(answer, x.Refuse) else answer.result

    kill()
    rig.subscribe(5, "bob", **INDIVIDUAL)
    assert shown(rig)["lost"] == (Lost(here, 1, 4), Lost(there, 3, 9))
    assert tell(there, 4, 6) == {"floor": 1}, "also while somebody is attached"
    assert tell(here, 0, 4) == {"floor": 1}
    assert tell(here, 1, None) == "bad-request"
    kill()
    assert shown(rig)["lost"] == (Lost(there, 3, 3), Lost(there, 7, 9))
    rig.subscribe(6, "bob", who=2, **INDIVIDUAL)
    assert rig.pushed(6) == [2, 3, 4, 5], "the cursor is where it was"
    remove: dict[str, object] = {"stream": "s", "subscriber": "bob", "name": "main"}
    rig.do(x.AdminRequested(9, 1, "local", "subscription.remove", remove))
    assert tell(there, 7, 9) == "unknown-subscription"
    rig.subscribe(7, "bob", who=3, **INDIVIDUAL)
    assert shown(rig)["lost"] == ()


def test_a_cursor_that_moves_back_keeps_what_it_had_settled_since_it_began() -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 4)
    rig.subscribe(5, "bob", start=x.Start(x.StartKind.HEAD), **INDIVIDUAL)
    rig.publish(rig.attach(2, "beta", 2), 1, 3, who="beta")
    rig.settle(5, (5, 5))
    rig.settle(5, (7, 7))
    rig.tell(x.SessionClosed(5))
    rig.carry_out()
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, 2)
    commit(
        rig, run.epoch, stage, moved(stage, floor=2, start=3, kept_from=5, settled=((4, 4),), settled_rows=((0, 0),))
    )
    for _ in range(2):
        assert (shown(rig)["floor"], shown(rig)["settled"]) == (2, ((4, 5), (7, 8)))
        rig.subscribe(6, "bob", who=2, **INDIVIDUAL)
        assert rig.pushed(6) == [3, 6, 9]
        rig.restart()


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_what_a_commit_settles_as_never_wanted_is_known_as_that_and_wanted_if_the_next_one_says_so(
    is_checkpointed: bool,
) -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 6)
    run = open_run(rig)
    first, second = staged(rig, run.epoch, 3, 2)
    never = {"start": 3, "floor": 2, "unwanted": ((5, 5),), "unwanted_rows": ((0, 1),)}
    commit(rig, run.epoch, first, moved(first, settled=((6, 6),), **never))
    if is_checkpointed:
        rig.checkpoint()
        rig.restart()
        run = open_run(rig, who=2)
        (second,) = staged(rig, run.epoch, 2)
    said = shown(rig)
    assert (said["floor"], said["settled"]) == (2, ((5, 8),))
    assert (said["start"], said["unwanted"]) == (3, ((5, 5), (7, 8)))
    commit(rig, run.epoch, second, moved(second, floor=1, start=2, kept_from=3, unwanted=((7, 7),)), commit_id=8)
    for _ in range(2):
        said = shown(rig)
        assert (said["floor"], said["settled"]) == (1, ((6, 7),)), "5 and 8 are wanted now"
        assert (said["start"], said["unwanted"]) == (2, ((7, 7),))
        rig.restart()


def test_a_commit_that_the_journal_refuses_moves_no_cursor() -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    rig.subscribe(5, "bob", **INDIVIDUAL)
    rig.is_full = True
    (refusal,) = commit(rig, epoch, stage, moved(stage), x.CursorMove(stage.stage, "new", "main", 5, 2, 1, 2))
    assert refusal.code == "disk-full"
    rig.is_full = False
    assert shown(rig)["floor"] == 0
    (refusal,) = rig.do(
        x.AdminRequested(9, 1, "local", "subscription.show", {"stream": "s", "subscriber": "new", "name": "main"})
    )
    assert refusal.code == "unknown-subscription"
    rig.settle(5, (1, 1))
    assert shown(rig)["floor"] == 1
    assert isinstance(commit(rig, epoch, stage, moved(stage, floor=1))[-1], x.ConfirmCommitted | x.Fence)


def test_whoever_owns_a_subscription_that_a_commit_moves_is_fenced() -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    rig.subscribe(5, "bob", **INDIVIDUAL)
    said = commit(rig, epoch, stage, moved(stage, kept_from=1))
    assert [one.session for one in said if isinstance(one, x.Fence)] == [5]
    assert rig.pushed(5) == [1, 2]


def test_what_was_pushed_before_a_crash_may_be_settled_behind_a_commit_and_another_crash() -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 2)
    rig.subscribe(5, "bob", **INDIVIDUAL)
    assert rig.pushed(5) == [1, 2]
    rig.restart()
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, 3)
    commit(rig, run.epoch, stage, moved(stage, floor=0, start=1, kept_from=1))
    for _ in range(2):
        assert shown(rig)["pushed_to"] >= 2
        rig.restart()


def test_what_is_settled_while_a_commit_is_on_its_way_is_neither_lost_nor_undoes_it() -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    rig.subscribe(5, "bob", **INDIVIDUAL)
    move = moved(stage, floor=0, kept_from=1, settled_rows=((0, 1),))
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", epoch, 7, (stage.stage,), (move,)))
    rig.tell(x.SettleRequested(5, ((2, 2),)))
    rig.carry_out()
    for _ in range(2):
        assert (shown(rig)["floor"], shown(rig)["settled"]) == (0, ((2, 4),))
        rig.restart()


def test_a_subscription_that_is_changing_is_not_moved_and_nothing_else_is() -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    rig.subscribe(5, "bob", **INDIVIDUAL)
    first = x.CursorMove(stage.stage, "ada", "main", 5, 2, 1, 2)
    arguments: dict[str, object] = {"stream": "s", "subscriber": "bob", "name": "main"}
    rig.tell(x.AdminRequested(9, 1, "local", "subscription.remove", arguments))
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", epoch, 7, (stage.stage,), (first, moved(stage))))
    assert [one.code for one in rig.said_to(RUN, x.Refuse)] == ["subscription-changing"]
    rig.carry_out()
    said = commit(rig, epoch, stage, first, moved(stage))
    assert isinstance(said[-1], x.ConfirmCommitted)
    assert (shown(rig, "ada")["floor"], shown(rig)["floor"]) == (1, 1)


def test_who_subscribes_while_a_commit_brings_the_same_subscription_finds_it() -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", epoch, 7, (stage.stage,), (moved(stage),)))
    assert rig.subscribe(5, "bob", **INDIVIDUAL).position == 2
    rig.restart()
    assert shown(rig)["floor"] == 1


def test_a_stream_that_goes_while_a_commit_is_on_its_way_keeps_nobody_waiting() -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    rig.tell(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", epoch, 7, (stage.stage,), (moved(stage),)))
    rig.tell(x.SubscribeRequested(5, "local", "s", "bob", "main", incarnation=incarnation(1)))
    rig.carry_out()
    assert [one.code for one in rig.said_to(5, x.Refuse)] or rig.said_to(5, x.GrantSubscription)
    rig.restart()


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_commit_ends_a_subscription_and_it_is_known_since_when(is_checkpointed: bool) -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    rig.subscribe(5, "bob", **INDIVIDUAL)
    said = commit(rig, epoch, stage, moved(stage, opened_us=77, is_removed=True, left=(x.MovedLeft("local", 77),)))
    assert [one.code for one in said if isinstance(one, x.Refuse)] == ["subscription-removed"]
    if is_checkpointed:
        rig.checkpoint()
    for _ in range(2):
        (answer,) = rig.do(x.AdminRequested(9, 1, "local", "subscription.list", {"stream": "s"}))
        assert answer.result == []
        (answer,) = rig.do(x.AdminRequested(9, 1, "local", "subscription.left", {"stream": "s", "name": "main"}))
        assert answer.result == [("bob", 77, 0, "local", NOTHING_HAD)]
        rig.restart()


def test_when_a_subscription_was_removed_is_known_after_a_kill_and_after_it_is_there_again() -> None:
    rig = Rig()
    rig.attach(1)
    rig.subscribe(5, "bob", **INDIVIDUAL)
    arguments: dict[str, object] = {"stream": "s", "subscriber": "bob", "name": "main"}
    rig.do(x.AdminRequested(9, 1, "local", "subscription.remove", arguments))
    removed_us = rig.now.wall_us
    rig.subscribe(6, "bob", **INDIVIDUAL)
    for _ in range(2):
        (answer,) = rig.do(x.AdminRequested(9, 1, "local", "subscription.left", {"stream": "s", "name": "main"}))
        assert [row[:4] for row in answer.result] == [("bob", removed_us, 0, "local")]
        rig.checkpoint()
        rig.restart()


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_when_somebody_left_elsewhere_is_known_with_the_commit_whether_or_not_they_are_here(
    is_checkpointed: bool,
) -> None:
    rig = Rig()
    epoch, stage = committing(rig)
    gone = x.CursorMove(
        stage.stage,
        "eve",
        "main",
        77,
        1,
        0,
        1,
        is_removed=True,
        left=(x.MovedLeft("", 77, 3), x.MovedLeft("eve", 70, 4)),
    )
    commit(rig, epoch, stage, moved(stage, left=(x.MovedLeft("bob", 66),)), gone)
    if is_checkpointed:
        rig.checkpoint()
    for _ in range(2):
        (answer,) = rig.do(x.AdminRequested(9, 1, "local", "subscription.left", {"stream": "s", "name": "main"}))
        assert [row[:4] for row in answer.result] == [("bob", 66, 0, "bob"), ("eve", 77, 3, ""), ("eve", 70, 4, "eve")]
        (answer,) = rig.do(x.AdminRequested(9, 1, "local", "subscription.list", {"stream": "s"}))
        assert [one["subscriber"] for one in answer.result] == ["bob"]
        rig.restart()


ranges = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 6)).map(lambda t: (t[0], t[0] + t[1])), max_size=5)


@given(st.integers(0, 12), ranges, st.integers(0, 12), ranges, st.integers(1, 20))
def test_a_moved_cursor_has_done_with_what_it_should_and_nothing_else(
    floor: int, settled: list[tuple[int, int]], before: int, had: list[tuple[int, int]], kept_from: int
) -> None:
    at, above = cursor_of(before, had)
    subscription = Subscription.moved_in(CursorMoved(1, "bob", "main", 0, 1, at, at + 1, above), 65_536)
    subscription.move(CursorMoved(1, "bob", "main", 0, 1, floor, kept_from, tuple(settled)), 65_536)
    places = range(1, 60)
    old = {p for p in places if p <= before or any(a <= p <= b for a, b in had)}
    wanted = {p for p in places if p <= floor or any(a <= p <= b for a, b in settled)}
    wanted |= {p for p in old if p >= kept_from}
    found = {p for p in places if p <= subscription.floor or any(a <= p <= b for a, b in subscription.settled_ranges())}
    assert found == wanted
    assert isinstance(subscription.ledger, Ledger)
    assert subscription.floor + 1 not in found


@given(st.integers(0, 12), ranges, ranges, st.integers(1, 20), st.integers(0, 40))
def test_a_subscription_that_a_commit_brings_along_stands_as_one_that_it_moves(
    floor: int, settled: list[tuple[int, int]], never: list[tuple[int, int]], kept_from: int, place: int
) -> None:
    below, unwanted = cursor_of(0, never)
    move = CursorMoved(
        1, "bob", "main", 5, below + 1, floor, kept_from, tuple(settled), (Origin(bytes(16), 5, ((5, place, 2),)),),
        unwanted=unwanted, renewed_us=7, wish=2, owner="bob", lost=(Lost(bytes(16), 3, 4),),
    )  # fmt: skip
    brought = Subscription.moved_in(move, 65_536)
    there = Subscription.moved_in(CursorMoved(1, "bob", "main", 0, 1, 0, 1, ()), 65_536)
    there.move(move, 65_536)
    assert brought.opened() == structs.replace(there.opened(), filter_sequence=floor + 1)
    assert (brought.is_attached, brought.session) == (there.is_attached, there.session) == (False, 0)


# ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def raise_sources(rig: Rig, *sources: tuple[str, int, bytes]) -> Any:
    (answer,) = rig.do(x.AdminRequested(9, 1, "local", "source.raise", {"stream": "s", "sources": list(sources)}))
    return answer


def attach_sparse(rig: Rig, session: int, source: str = "carol", who: int = 1) -> x.GrantSource:
    said = rig.do(x.SourceAttachRequested(session, "local", "s", source, incarnation(who), is_sparse=True))
    (grant,) = [one for one in said if isinstance(one, x.GrantSource)]
    return grant


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_raised_source_knows_its_number_and_token_after_a_kill(is_checkpointed: bool) -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 2)
    assert raise_sources(rig, ("carol", 7, b"seven")).result["head"] == 2
    if is_checkpointed:
        rig.checkpoint()
    rig.restart()
    grant = attach_sparse(rig, 4)
    assert (grant.last_number, grant.token, grant.token_number) == (7, b"seven", 7)
    assert rig.publish(grant, 7, who="carol").is_duplicate
    assert rig.publish(grant, 8, who="carol").first_sequence == 3


def test_no_source_is_raised_with_a_token_that_no_batch_may_have() -> None:
    rig = Rig(StreamsLimits(token_size_max=64))
    rig.publish(rig.attach(1), 1, 2)
    refusal = raise_sources(rig, ("carol", 7, bytes(64)), ("dora", 7, bytes(65)))
    assert (refusal.code, "'dora' has 65" in refusal.message) == ("too-large", True)
    assert attach_sparse(rig, 4).last_number == 0


def test_a_source_that_has_come_further_or_is_dense_stays_as_it_is() -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 2)
    rig.publish(attach_sparse(rig, 4), 9, token=b"nine", who="carol")
    raise_sources(rig, ("carol", 7, b"seven"), ("alpha", 70, b"seventy"), ("carol", 9, b"other"))
    grant = attach_sparse(rig, 5, who=2)
    assert (grant.last_number, grant.token) == (9, b"nine")
    assert rig.attach(6, who=2).last_number == 2


def test_a_publication_on_its_way_and_a_raise_above_it_both_count() -> None:
    rig = Rig()
    grant = attach_sparse(rig, 4)
    rig.offer(grant, 5, who="carol")
    rig.tell(x.AdminRequested(9, 1, "local", "source.raise", {"stream": "s", "sources": [("carol", 7, b"t")]}))
    rig.offer(grant, 6, who="carol")
    rig.carry_out()
    assert [(said.last_number, said.is_duplicate) for said in rig.said_to(4, x.ConfirmTaken)] == [(5, False), (6, True)]
    assert rig.floor.tables.streams["s"].sources["carol"].last_durable == 7


def test_a_raise_that_the_journal_refuses_raises_nothing() -> None:
    rig = Rig()
    grant = attach_sparse(rig, 4)
    rig.is_full = True
    assert raise_sources(rig, ("carol", 7, b"t"), ("dave", 3, b"")).code == "disk-full"
    rig.is_full = False
    assert not rig.publish(grant, 6, who="carol").is_duplicate


def test_sources_are_listed_page_by_page_with_where_they_stand() -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 2, token=b"two")
    raise_sources(rig, ("carol", 7, b"seven"))
    (answer,) = rig.do(x.AdminRequested(9, 1, "local", "source.list", {"stream": "s"}))
    told = [(one["name"], one["is_sparse"], one["last_number"], one["token"]) for one in answer.result]
    assert told == [("alpha", False, 2, b"two"), ("carol", True, 7, b"seven")]
    raise_sources(rig, *((f"source-{number}", 1, b"") for number in range(9, 0, -1)))
    counts, names, after = [], [], None
    while after is not None or not counts:
        arguments = {"stream": "s", "limit": 4, "after": after}
        (answer,) = rig.do(x.AdminRequested(9, 1, "local", "source.list", arguments))
        names += [one["name"] for one in answer.result["rows"]]
        counts.append(len(answer.result["rows"]))
        after = answer.result["next"]
        if len(counts) == 1:
            raise_sources(rig, ("a-late-one", 1, b""))
    assert counts == [4, 4, 4]
    assert names == ["alpha", "carol", *(f"source-{number}" for number in range(9, 0, -1)), "a-late-one"]
    (refused,) = rig.do(x.AdminRequested(9, 1, "local", "source.list", {"stream": "s", "limit": 4, "after": 1}))
    assert refused.code == "bad-request"


def test_a_source_without_a_number_or_too_many_of_them_are_refused() -> None:
    rig = Rig()
    rig.attach(1)
    assert raise_sources(rig, ("carol", 0, b"")).code == "bad-request"
    assert raise_sources(rig, ("not a name", 1, b"")).code == "bad-name"


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_is_deleted_at_the_head_that_is_named_and_not_when_it_went_on() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 2)
    rig.offer(grant, 3)
    (refusal,) = [
        one
        for one in rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s", "head": 2}))
        if one.session == 9
    ]
    assert refusal.code == "stream-moved-on"
    (answer,) = rig.do(x.AdminRequested(9, 1, "local", "stream.names"))
    assert answer.result == ["s"]
    rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s", "head": 3}))
    (answer,) = rig.do(x.AdminRequested(9, 1, "local", "stream.names"))
    assert answer.result == []


def test_a_sparse_source_whose_number_was_refused_has_not_published_those_below_it() -> None:
    rig = Rig()
    grant = attach_sparse(rig, 4)
    rig.publish(grant, 5, who="carol")
    rig.is_full = True
    rig.offer(grant, 9, who="carol")
    rig.offer(grant, 12, who="carol")
    rig.carry_out()
    rig.is_full = False
    assert rig.floor.tables.streams["s"].sources["carol"].last_assigned == 5
    assert not rig.publish(grant, 7, who="carol").is_duplicate


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_what_merges_took_and_did_not_bring_is_on_record_until_another_commit_says_it_also_after_a_kill(
    is_checkpointed: bool,
) -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 1)
    gone, life = (Gone(bytes(16), 1, 7, 99),), b"\x07" * 16
    before = gone, (bytes(16),)
    for commit_id, named in enumerate((before, None, ((*gone, Gone(bytes(16), 9, 9, 100)), (bytes(16), life)))):
        run = open_run(rig)
        (stage,) = staged(rig, run.epoch, 1)
        known = () if named is None else ((stage.stage, *named),)
        rig.do(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, commit_id, (stage.stage,), merged=known))
        if is_checkpointed:
            rig.checkpoint()
        rig.restart()
        grant = rig.subscribe(5)
        assert (grant.gone, grant.merged) == (named or before)
