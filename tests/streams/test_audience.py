"""Those who wait for what their filters want: one question for all of them, and each as if it had been asked alone."""

from __future__ import annotations

import pytest

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import commit, open_run, staged
from veredus.matching import Filter
from veredus.streams import examine
from veredus.streams import exchange as x
from veredus.streams.audience import Audience
from veredus.streams.cursors import CURSOR_INTERVAL_NS
from veredus.streams.feeding import PROGRESS_COUNT

HEAD = x.Start(x.StartKind.HEAD)
MODES = pytest.mark.parametrize("mode", list(x.SettleMode))


def above(number: int) -> Filter:
    """Numbers above this one."""
    return Filter(where=f"n > {number}")


def waiting(rig: Rig) -> list[int]:
    """The sessions that wait together."""
    return sorted(flow.session for flow in audience(rig))


def audience(rig: Rig) -> Audience:
    found = rig.floor.tables.streams["s"].audience
    assert found is not None
    return found


def floor_of(rig: Rig, name: str) -> int:
    (found,) = [s for s in rig.floor.tables.streams["s"].subscriptions.values() if s.subscriber == name]
    return found.floor


def test_each_of_many_is_pushed_what_it_wants_and_nothing_else() -> None:
    rig = Rig()
    grant = rig.attach(1)
    for session in range(10, 30):
        rig.subscribe(session, filter=above(session), start=HEAD)
    assert waiting(rig) == list(range(10, 30))
    for number in range(1, 40):
        rig.publish(grant, number)
        rig.give_turns()
    for session in range(10, 30):
        assert rig.pushed(session) == list(range(session + 1, 40))
    assert waiting(rig) == list(range(10, 30))
    assert audience(rig).position == 40


@MODES
def test_a_cursor_that_waits_moves_over_what_its_filter_rejects_and_a_crash_knows_it(mode: x.SettleMode) -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5, "ann", filter=above(100), mode=mode)
    rig.publish(grant, 1, 50)
    assert (waiting(rig), floor_of(rig, "ann")) == ([5], 50)
    rig.time_ns += CURSOR_INTERVAL_NS
    rig.carry_out()
    rig.restart()
    assert floor_of(rig, "ann") == 50


@MODES
def test_what_is_unsettled_stays_so_while_a_cursor_waits_with_others(mode: x.SettleMode) -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5, "ann", filter=above(2), mode=mode)
    rig.publish(grant, 1, 4)
    rig.publish(grant, 5, 2)
    assert rig.pushed(5) == [3, 4, 5, 6]
    rig.settle(5, (1, 4) if mode is x.SettleMode.IN_ORDER else (4, 4))
    assert floor_of(rig, "ann") == (4 if mode is x.SettleMode.IN_ORDER else 2)
    rig.restart()
    rig.subscribe(6, "ann", 2, mode=mode)
    assert rig.pushed(6) == ([5, 6] if mode is x.SettleMode.IN_ORDER else [3, 5, 6])


def test_who_takes_over_from_one_that_waits_gets_what_that_had_not_settled() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5, "ann", filter=above(3))
    rig.publish(grant, 1, 4)
    rig.publish(grant, 5)
    assert waiting(rig) == [5]
    rig.tell(x.SubscribeRequested(6, "local", "s", "ann", "main", incarnation=incarnation(2), credit=1 << 40))
    rig.publish(grant, 6)
    assert rig.pushed(6) == [4, 5, 6]
    assert waiting(rig) == [6]


@pytest.mark.parametrize("name", ["ann", ""])
def test_another_filter_counts_for_one_that_waits(name: str) -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5, name, filter=above(100), start=HEAD)
    rig.subscribe(6, filter=above(100), start=HEAD)
    rig.publish(grant, 1)
    rig.do(x.FilterChangeRequested(5, above(2), 2))
    rig.publish(grant, 2, 3)
    assert (rig.pushed(5), rig.pushed(6)) == ([3, 4], [])
    rig.do(x.FilterChangeRequested(5, above(100), 5))
    rig.publish(grant, 5)
    assert (rig.pushed(5), waiting(rig)) == ([3, 4], [5, 6])


def test_what_is_not_in_memory_any_more_is_asked_of_each() -> None:
    rig = Rig()
    rig.attach(1)
    run = open_run(rig)
    rig.subscribe(5, filter=Filter(where="n > 2"))
    rig.subscribe(6, filter=Filter(where="n > 100"))
    commit(rig, run.epoch, 1, *staged(rig, run.epoch, 4))
    assert [identity.number for _, identity in rig.rows(5)] == [3, 4]
    assert (rig.pushed(6), waiting(rig)) == ([], [5, 6])


def test_a_record_too_large_for_one_question_is_tried_filter_by_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "_ASKED_COUNT_MAX", 3)
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5, filter=above(4), start=HEAD)
    rig.subscribe(6, filter=above(100), start=HEAD)
    rig.publish(grant, 1, 6)
    rig.give_turns()
    assert (rig.pushed(5), rig.pushed(6), waiting(rig)) == ([5, 6], [], [5, 6])


def test_one_that_lacks_credit_or_whose_link_is_congested_does_not_wait() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5, filter=above(0), start=HEAD, credit=1)
    rig.subscribe(6, filter=above(0), start=HEAD)
    assert waiting(rig) == [5, 6]
    rig.publish(grant, 1)
    rig.follow(rig.floor.set_congested(6, True, rig.now))
    assert waiting(rig) == []
    rig.publish(grant, 2)
    rig.follow(rig.floor.set_congested(6, False, rig.now))
    rig.do(x.CreditGranted(5, 1 << 20))
    assert (rig.pushed(5), rig.pushed(6), waiting(rig)) == ([1, 2], [1, 2], [5, 6])


def test_one_that_waits_long_is_told_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5, filter=above(1 << 40), start=HEAD)
    for first in range(1, PROGRESS_COUNT + 5000, 1000):
        rig.time_ns += 1
        rig.publish(grant, first, 1000)
    (told,) = rig.said_to(5, x.PushProgress)
    assert told.position > PROGRESS_COUNT


def test_nothing_is_known_of_those_who_have_left() -> None:
    rig = Rig()
    grant = rig.attach(1)
    for session in range(10, 15):
        rig.subscribe(session, "ann" if session == 10 else "", filter=above(session // 2), start=HEAD)
    rig.publish(grant, 1, 20)
    for session in range(10, 15):
        rig.tell(x.SessionClosed(session))
    rig.carry_out()
    known = audience(rig)
    assert (known.count, len(known._index), known._known, known._members, known.durable) == (0, 0, {}, {}, {})


def test_a_question_for_many_is_paid_by_all_of_their_payers() -> None:
    rig = Rig()
    grant = rig.attach(1)
    for session in range(10, 14):
        rig.subscribe(session, principal="eve" if session < 13 else "bob", filter=above(session), start=HEAD)
    assert audience(rig).shares() == {"eve": 0.75, "bob": 0.25}
    rig.publish(grant, 1)
    assert audience(rig).shares() == {"eve": 0.75, "bob": 0.25}


def test_a_stream_that_nobody_asks_with_a_filter_keeps_no_index() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5)
    rig.subscribe(6, filter=Filter(where="NOT n > 5"))
    rig.publish(grant, 1)
    assert rig.floor.tables.streams["s"].audience is None
    assert (rig.pushed(5), rig.pushed(6)) == ([1], [1])


def test_who_asks_for_much_waits_for_a_turn_and_nobody_with_it() -> None:
    rig = Rig()
    grants = [rig.attach(1), rig.attach(2, "beta", stream="other")]
    for size in range(1, 51):
        rig.subscribe(10 + size, filter=Filter(where=f"$source LIKE '{'z' * size}%'"), start=HEAD, principal="eve")
    rig.subscribe(5, stream="other", filter=above(1), start=HEAD, principal="bob")
    for first in range(1, 3001, 1000):
        rig.publish(grants[0], first, 1000)
        rig.publish(grants[1], 1 + first // 10, 100, who="beta")
    assert audience(rig).position < 2002
    assert rig.pushed(5) == list(range(2, 301))
    assert rig.floor.deadline() is not None
    for _ in range(30):
        rig.time_ns += 1
        rig.wake()
    assert audience(rig).position == 3001


def test_what_is_too_much_for_a_turn_is_asked_for_one_by_one() -> None:
    rig = Rig()
    grant = rig.attach(1)
    for size in range(1, 201):
        rig.subscribe(10 + size, filter=Filter(where=f"$source LIKE '{'z' * size}%'"), start=HEAD)
    rig.publish(grant, 1, 1000)
    assert audience(rig).count < 200


def test_names_that_no_publication_has_cost_nothing() -> None:
    rig = Rig()
    grant = rig.attach(1)
    for session in range(10, 60):
        wheres = " AND ".join(f"x{session}_{place} > 1" for place in range(12))
        rig.subscribe(session, filter=Filter(where=wheres), start=HEAD)
    rig.publish(grant, 1)
    few_ns = audience(rig)._index.price(("n",), 1)
    assert few_ns < 1_000
    assert audience(rig).position == 2
