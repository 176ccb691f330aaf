"""A term: from where on what lies in a stream may be something else than it was."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import msgspec
import pytest

from tests.streams.rig import Rig, incarnation
from veredus.journal.exchange import SyncMode
from veredus.streams import exchange as x
from veredus.streams.facts import StreamConfig, StreamCreated
from veredus.streams.shares import Shares
from veredus.streams.stream import TERMS_MAX, Stream
from veredus.streams.tail import TailBudget

RAISED = 1_700_000_001_000_000
"""The first term that is raised: the time, in microseconds."""
SECOND = 1_000_000


def stream() -> Stream:
    return Stream(StreamCreated(1, "s", incarnation(1), StreamConfig(), 0, "local"), TailBudget(1 << 20), Shares())


def published(count: int) -> Rig:
    rig = Rig(wall_ns=1_700_000_000_000_000_000)
    rig.publish(rig.attach(1), 1, count)
    return rig


def raised(rig: Rig) -> Rig:
    """The same stream in a new term, of which nothing is there yet."""
    rig.follow(rig.floor.raise_terms(rig.now))
    return rig


def test_nothing_has_changed_for_who_knows_the_present_term_or_none() -> None:
    kept = stream()
    kept.raise_term(2, 50)
    assert (kept.changed_from(2), kept.changed_from(1)) == (0, 50)


def test_of_several_terms_the_least_first_sequence_counts() -> None:
    kept = stream()
    kept.raise_term(2, 50)
    kept.raise_term(3, 70)
    assert [kept.changed_from(term) for term in (1, 2, 3)] == [50, 70, 0]
    kept.raise_term(4, 60)
    assert [kept.changed_from(term) for term in (1, 2, 3, 4)] == [50, 60, 60, 0]
    kept.raise_term(5, 10)
    assert [kept.changed_from(term) for term in (1, 2, 3, 4)] == [10] * 4


def test_of_more_terms_than_are_kept_too_early_a_sequence_is_told_and_never_too_late_a_one() -> None:
    kept = stream()
    count = 3 * TERMS_MAX
    for term in range(2, count):
        kept.raise_term(term, 10 * term)
    assert len(kept.terms) == TERMS_MAX
    for term in range(1, count - 1):
        assert kept.changed_from(term) <= 10 * (term + 1)
    assert kept.changed_from(count - 2) == 10 * (count - 1)


def test_a_term_that_is_raised_is_later_than_any_that_was_lost_with_the_end_and_than_the_last_one() -> None:
    rig = published(5)
    terms = []
    for seconds in (1, 3601, 1, 1):
        rig.time_ns = seconds * 1_000_000_000
        terms.append(raised(rig).subscribe(10 + len(terms)).term)
    assert terms == [RAISED, RAISED + 3600 * SECOND, RAISED + 3600 * SECOND + 1, RAISED + 3600 * SECOND + 2]


@pytest.mark.parametrize("clock_ns", [0, -3600 * 1_000_000_000])
def test_two_returns_to_one_copy_begin_two_terms_also_within_a_second_and_where_a_clock_was_set_back(
    clock_ns: int,
) -> None:
    rig = raised(published(5))
    rig.checkpoint()
    rig.carry_out()
    copy = deepcopy(rig.disk)
    rig.wall_ns += clock_ns
    terms = []
    for _ in range(3):
        rig.time_ns += 1_000_000
        rig.disk = deepcopy(copy)
        rig.restart()
        terms.append(raised(rig).subscribe(10).term)
    assert len(set(terms)) == len(terms)
    assert min(terms) > RAISED


def test_a_subscriber_of_an_earlier_term_is_told_from_where_on_all_is_new() -> None:
    rig = raised(published(5))
    rig.publish(rig.attach(2, who=2), 6, 3)
    known = rig.subscribe(10, "sub", term=1)
    assert (known.term, known.changed_from) == (RAISED, 6)
    assert rig.subscribe(11, "new").changed_from == 0
    assert rig.subscribe(12, "sub", term=RAISED).changed_from == 0


def test_an_ephemeral_subscriber_of_an_earlier_term_begins_where_all_is_new() -> None:
    rig = raised(published(5))
    rig.publish(rig.attach(2, who=2), 6, 3)
    rig.subscribe(10, start=x.Start(x.StartKind.SEQUENCE, 8), term=1)
    rig.subscribe(11, start=x.Start(x.StartKind.SEQUENCE, 8), term=RAISED)
    rig.subscribe(12, start=x.Start(x.StartKind.SEQUENCE, 100), term=1)
    assert (rig.pushed(10), rig.pushed(11), rig.pushed(12)) == ([6, 7, 8], [8], [6, 7, 8])


def test_where_terms_began_is_known_again_from_the_journal_and_from_a_checkpoint() -> None:
    for has_checkpoint in (False, True):
        rig = raised(published(5))
        if has_checkpoint:
            rig.checkpoint()
        rig.restart()
        assert rig.subscribe(10, term=1).changed_from == 6


def test_a_snapshot_that_knows_no_beginnings_of_terms_is_taken_as_if_all_began_at_the_first_sequence() -> None:
    rig = raised(published(5))
    state = msgspec.msgpack.decode(b"".join(rig.floor.snapshot().buffers()))
    for row in state["streams"]:
        del row[-6:]
    rig.floor.tables.streams.clear()
    rig.floor.load(msgspec.msgpack.encode(state))
    assert rig.floor.tables.streams["s"].terms == [(RAISED, 1)]


def test_nobody_is_told_of_a_term_that_a_power_cut_could_give_again() -> None:
    rig = published(5)
    rig.settings = replace(rig.settings, sync=SyncMode.NONE)
    rig.restart()
    rig.order(rig.floor.raise_terms(rig.now))
    rig.tell(x.SubscribeRequested(5, "local", "s", credit=1 << 20))
    rig.wake()
    (group,) = rig.pending
    assert (group.is_synced, rig.said_to(5, x.GrantSubscription)) == (True, [])
    rig.carry_out()
    assert [grant.term for grant in rig.said_to(5, x.GrantSubscription)] == [RAISED]


def test_a_term_that_the_journal_refused_is_told_to_nobody_before_it_is_there() -> None:
    rig = published(5)
    rig.is_full = True
    raised(rig)
    (refusal,) = rig.do(x.SubscribeRequested(5, "local", "s", credit=1 << 20))
    assert refusal.code == "disk-full"
    rig.is_full = False
    assert rig.subscribe(6).term == RAISED
    rig.restart()
    assert rig.subscribe(7).term == RAISED


def test_whoever_says_which_terms_it_knew_is_told_where_these_and_those_of_the_stream_part() -> None:
    def told(ours: list[tuple[int, int]], theirs: tuple[tuple[int, int], ...]) -> int:
        kept = stream()
        kept.terms = ours
        return kept.changed_from(theirs[-1][0], theirs)

    assert told([(1, 1)], ((1, 1),)) == 0
    assert told([(1, 1), (5, 9)], ((1, 1),)) == 9
    assert told([(1, 1), (5, 9)], ((1, 1), (4, 9))) == 9
    # An older copy ran for a while, then a newer one.
    assert told([(1, 1), (3, 11), (7, 26)], ((1, 1), (5, 11))) == 11
    assert told([(1, 1), (3, 11), (7, 26)], ((1, 1), (5, 4))) == 4
    # Put back without a word.
    assert told([(1, 1)], ((1, 1), (5, 9))) == 9


def test_who_was_pushed_more_than_the_journal_remembers_may_settle_all_that_is_left_of_it() -> None:
    rig = published(1)
    grant = rig.attach(1)
    for number in range(2, 6):
        rig.publish(grant, number)
    rig.subscribe(5, "bob", credit=1)
    assert rig.pushed(5) == [1]
    rig.do(x.SessionClosed(5))
    raised(rig).subscribe(6, "bob", credit=1)
    rig.settle(6, (1, 5))
    assert rig.said_to(6, x.Refuse) == []
    assert rig.floor.tables.streams["s"].subscriptions["bob", "main"].cursor == (5, ())
