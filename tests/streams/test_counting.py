"""A count that is confirmed is never taken back: what is said of attempts is in the journal before it is answered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.journal.rig import recover_from
from tests.streams.rig import Rig
from tests.streams.test_returning import OWN, give_back, letters, rig_of
from veredus.delivery.record import RecordKind
from veredus.streams import exchange as x
from veredus.streams.cursors import CURSOR_INTERVAL_NS
from veredus.streams.facts import SubscriptionSettled, decode_fact, encode_fact

COUNTED = OWN | {"attempts_max": 3}


def take_again(rig: Rig, session: int, sequence: int) -> Any:
    return rig.do(x.ReturnRequested(session, sequence, is_retry=True, is_taken=True))[-1]


def counts_of(rig: Rig) -> tuple[list[tuple[int, int, int]], list[int]]:
    """How often what is unsettled was tried, and what of it waits to be taken again."""
    subscription = rig.floor.tables.streams["s"].subscriptions["bob", "main"]
    return list(subscription.tries), sorted(subscription.tries.returned)


def facts_of(rig: Rig) -> list[SubscriptionSettled]:
    """What the journal has of cursors that moved."""
    views = recover_from(rig.disk, rig.settings).views
    facts = [decode_fact(view.payload) for view in views if view.envelope.kind == RecordKind.FACT]
    return [fact for fact in facts if isinstance(fact, SubscriptionSettled)]


def test_each_attempt_whose_end_was_confirmed_counts_however_often_the_node_is_killed() -> None:
    rig = rig_of(2)
    for life in range(5, 7):
        rig.subscribe(life, "bob", who=5, **COUNTED)
        assert not give_back(rig, life, 1, is_retry=True).is_parked
        take_again(rig, life, 1)
        rig.restart()
        assert counts_of(rig) == ([(1, 1, life - 4)], [])
    rig.subscribe(7, "bob", who=5, **COUNTED)
    assert give_back(rig, 7, 1, is_retry=True).is_parked
    (letter,) = letters(rig, 90)
    assert (letter["sequence"], letter["attempts"]) == (1, 3)


def test_an_attempt_whose_beginning_was_confirmed_counts_though_node_and_application_die_together() -> None:
    rig = rig_of(2)
    rig.subscribe(5, "bob", **COUNTED)
    rig.hand_out(5)
    give_back(rig, 5, 1, is_retry=True)
    give_back(rig, 5, 2, is_retry=True)
    take_again(rig, 5, 1)
    rig.restart()
    rig.subscribe(6, "bob", who=6, **COUNTED)
    assert counts_of(rig)[0] == [(1, 1, 2), (2, 2, 1)], "2 had not been taken again"
    rig.do(x.HandedOut(6, 1))
    rig.restart()
    rig.subscribe(7, "bob", who=7, **COUNTED)
    assert (rig.pushed(7), [letter["sequence"] for letter in letters(rig, 90)]) == ([2], [1])


@pytest.mark.parametrize("is_taken", [False, True])
def test_nothing_is_answered_before_the_journal_has_it_and_what_a_power_cut_takes_was_not(is_taken: bool) -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", **COUNTED)
    give_back(rig, 5, 1, is_retry=True)
    before, known = len(rig.said), counts_of(rig)
    rig.tell(x.ReturnRequested(5, 1 if is_taken else 2, is_retry=True, is_taken=is_taken))
    assert rig.said[before:] == []
    assert counts_of(rig) != known
    rig.restart()
    assert counts_of(rig) == known


def test_what_the_journal_has_counts_though_its_answer_was_lost_and_who_asks_again_is_not_counted_twice() -> None:
    rig = rig_of(2)
    rig.subscribe(5, "bob", who=5, **COUNTED)
    rig.tell(x.ReturnRequested(5, 1, is_retry=True))
    rig.kill_behind_the_disk()
    assert counts_of(rig) == ([(1, 1, 1)], [1])
    rig.subscribe(6, "bob", who=5, **COUNTED)
    assert not give_back(rig, 6, 1, is_retry=True).is_parked
    assert counts_of(rig) == ([(1, 1, 1)], [1])


@pytest.mark.parametrize("own", [OWN, COUNTED], ids=["without a limit", "with a limit"])
def test_on_a_full_disk_it_is_refused_and_who_asks_again_is_counted_once(own: dict[str, Any]) -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", **own)
    rig.is_full = True
    for _ in range(4):
        refused = give_back(rig, 5, 2, is_retry=True)
        assert (refused.code, refused.is_final, refused.details) == ("disk-full", False, {"returned": 2})
    rig.is_full = False
    for sequence in (3, 2):
        assert not give_back(rig, 5, sequence, is_retry=True).is_parked
    assert counts_of(rig)[0] == [(2, 3, 1)]
    take_again(rig, 5, 2)
    give_back(rig, 5, 2, "bad")
    assert [letter["attempts"] for letter in letters(rig, 90)] == [2]


def test_what_was_refused_goes_with_the_next_that_the_journal_takes() -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", **COUNTED)
    rig.is_full = True
    give_back(rig, 5, 2, is_retry=True)
    rig.is_full = False
    rig.settle(5, (3, 3))
    assert [fact.attempts for fact in facts_of(rig)] == [((2, 2, 1, True),)]


def test_what_is_rejected_on_a_full_disk_was_tried_once_however_often_that_is_said() -> None:
    rig = rig_of(2)
    rig.subscribe(5, "bob", **OWN)
    rig.is_full = True
    for _ in range(3):
        assert give_back(rig, 5, 1, "bad").code == "disk-full"
    rig.is_full = False
    give_back(rig, 5, 1, "bad")
    assert [letter["attempts"] for letter in letters(rig, 90)] == [1]


def test_what_is_handed_out_on_a_full_disk_is_confirmed_when_it_counts() -> None:
    rig = rig_of(3)
    rig.subscribe(5, "bob", **COUNTED)
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", who=6, **COUNTED)
    rig.is_full = True
    assert rig.do(x.HandedOut(6, 1)) == []
    assert rig.do(x.HandedOut(6, 2)) == []
    rig.is_full = False
    rig.time_ns += CURSOR_INTERVAL_NS
    assert rig.do() == [x.ConfirmHanded(6, 2)]
    rig.restart()
    rig.subscribe(7, "bob", who=7, **COUNTED)
    assert counts_of(rig)[0] == [(1, 2, 1)]


def test_many_that_are_given_back_together_are_one_range_of_one_fact() -> None:
    rig = rig_of(300)
    rig.subscribe(5, "bob", **COUNTED)
    rig.do(*(x.ReturnRequested(5, sequence, is_retry=True) for sequence in range(1, 301)))
    assert len(rig.said_to(5, x.ConfirmReturned)) == 300
    assert [fact.attempts for fact in facts_of(rig)] == [((1, 1, 1, True),), ((2, 300, 1, True),)]


def test_what_is_settled_after_it_was_tried_is_not_counted_behind_a_restart() -> None:
    rig = rig_of(4)
    rig.subscribe(5, "bob", **COUNTED)
    for sequence in (2, 3):
        give_back(rig, 5, sequence, is_retry=True)
    rig.settle(5, (2, 2))
    rig.restart()
    assert counts_of(rig) == ([(3, 3, 1)], [3])


def test_facts_that_say_nothing_of_attempts_are_read_as_before() -> None:
    fact = SubscriptionSettled(1, "bob", "main", 3, ((5, 6),), 8)
    older = msgspec.msgpack.decode(encode_fact(fact), type=dict[str, Any])
    del older["attempts"]
    assert decode_fact(msgspec.msgpack.encode(older)) == fact
