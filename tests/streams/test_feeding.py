"""Feeding: what a flow may examine now, how a reading becomes frames, and who is fed when room comes free."""

import sys
from functools import partial

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.journal.exchange import READ_SIZE_MIN, PlacedRecord, ReadBytes, ReadRequested
from veredus.kernel.turns import Turns
from veredus.matching import Filter
from veredus.streams import examine, feeding
from veredus.streams import exchange as x
from veredus.streams.examine import wanted_by
from veredus.streams.facts import StreamConfig, StreamCreated
from veredus.streams.flow import Flow
from veredus.streams.shares import Shares
from veredus.streams.stream import Stream
from veredus.streams.tables import StreamsLimits
from veredus.streams.tail import HELD_SIZE, Tail, TailBudget
from veredus.streams.told import Told

EVEN = Filter(where="even")


def test_a_flow_examines_nothing_that_is_still_on_its_way_to_the_journal() -> None:
    stream = Stream(StreamCreated(1, "s", incarnation(1), StreamConfig(), 0, "local"), TailBudget(1 << 20), Shares())
    stream.assign(3, 0)
    stream.become_durable(3)
    stream.assign(2, 0)
    flow = Flow(5, stream, wanted_by(x.EVERYTHING), 4, 0, 1 << 40)
    assert (flow.end, flow.is_live, flow.waits_for) == (4, True, "publications")
    stream.become_durable(5)
    assert (flow.end, flow.is_live, flow.waits_for) == (6, False, "")


def test_of_a_reading_that_fills_several_frames_each_record_is_pushed_once() -> None:
    rig = Rig(StreamsLimits(tail_size_max=1, push_size_max=4 * READ_SIZE_MIN))
    grant = rig.attach(1)
    for number in range(1, 6):
        rig.publish(grant, number)
    rig.subscribe(5)
    assert rig.pushed(5) == [1, 2, 3, 4, 5]
    assert [len(push.buffers) for push in rig.pushes(5)] == [4, 1], "one reading, two frames"


def test_a_subscriber_told_of_a_hundred_thousand_sources_takes_some_kilobytes() -> None:
    told = Told()
    assert [number for number in (*range(100_000), *range(100_000)) if told.tell(number)] == [*range(1, 100_000)]
    assert sys.getsizeof(told._bits) < 16 << 10


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_records_that_are_small_are_pushed_a_few_at_a_time(is_in_memory: bool) -> None:
    most = 4 * READ_SIZE_MIN
    rig = Rig(StreamsLimits(tail_size_max=1 << 20 if is_in_memory else 1, push_size_max=most))
    grant = rig.attach(1)
    for number in range(1, 40):
        rig.publish(grant, number)
    rig.subscribe(5)
    assert rig.pushed(5) == [*range(1, 40)]
    assert max(len(push.buffers) for push in rig.pushes(5)) == 4


def test_what_holds_the_newest_records_counts_as_their_bytes_do() -> None:
    budget = TailBudget(100 * (HELD_SIZE + 10))
    tail = Tail(budget)
    for number in range(1, 1001):
        tail.add(PlacedRecord(number, 1, 0, memoryview(bytes(10))))
    assert (budget.count, budget.size) == (100, budget.size_max)
    tail.forget()
    assert (budget.count, budget.size) == (0, 0)


def test_a_subscriber_that_had_too_much_unsettled_is_fed_again_when_it_settles() -> None:
    rig = Rig(StreamsLimits(unsettled_max=2))
    rig.publish(rig.attach(1), 1, 4)
    rig.publish(rig.attach(1), 5, 4)
    rig.subscribe(5, "bob", filter=EVEN, mode=x.SettleMode.INDIVIDUAL)
    assert (rig.pushed(5), rig.floor.flows[5].waits_for) == ([2, 4], "settlement")
    rig.settle(5, (2, 2))
    assert rig.pushed(5) == [2, 4, 6]
    rig.settle(5, (4, 4))
    assert rig.pushed(5) == [2, 4, 6, 8]


def test_a_filter_is_asked_anew_about_each_streams_records() -> None:
    rig = Rig()
    first, second = rig.attach(1), rig.attach(2, source="beta", stream="t")
    rig.subscribe(5, filter=EVEN)
    rig.subscribe(6, filter=EVEN, stream="t")
    rig.publish(first, 1, 3)
    rig.publish(second, 1, 3, who="beta")
    assert [(sequence, row.who) for session in (5, 6) for sequence, row in rig.rows(session)] == [
        (2, "alpha"),
        (2, "beta"),
    ]


def test_the_journal_is_asked_for_no_more_than_there_is_credit_for_where_nothing_is_left_out() -> None:
    rig = Rig(StreamsLimits(tail_size_max=1, push_size_max=500))
    rig.publish(rig.attach(1), 1, 4)

    def asked(session: int, filter_: Filter) -> list[int]:
        orders = rig.floor.handle(x.SubscribeRequested(session, "local", "s", filter=filter_, credit=100), rig.now)
        return [order.size_max for order in orders if isinstance(order, ReadRequested)]

    assert (asked(5, x.EVERYTHING), asked(6, EVEN)) == ([100], [1000])


COSTLY = Filter(where=" or ".join(f"even and n > {number}" for number in range(-150, 0)))


def test_subscribers_with_costly_filters_are_fed_in_turns_and_one_without_a_filter_at_once() -> None:
    rig = Rig()
    grant = rig.attach(1)
    costly = (5, 6, 7, 9, 10)
    for session in costly:
        rig.subscribe(session, filter=Filter(where=f"{COSTLY.where} or n > {session + 100}"))
    rig.subscribe(8)
    rig.publish(grant, 1, 4)
    assert rig.pushed(8) == [1, 2, 3, 4]
    assert [session for session in costly if rig.pushed(session)] == [5, 6], "the others wait for their turns"
    assert rig.give_turns() > 2
    assert [rig.pushed(session) for session in costly] == [[2, 4]] * len(costly)


def test_a_costly_filter_that_matches_nothing_leaves_off_in_the_middle_of_what_it_reads() -> None:
    rig = Rig()
    grant = rig.attach(1)
    for number in range(1, 21):
        rig.publish(grant, number)
    rig.subscribe(5, filter=Filter(where=" or ".join(f"n = {number}" for number in range(-50, 0))))
    position = rig.floor.flows[5].position
    assert 1 < position < 20
    while rig.floor.flows[5].position <= 20:
        rig.time_ns += 1
        rig.carry_out()
        assert position <= rig.floor.flows[5].position
        position = rig.floor.flows[5].position


@pytest.mark.parametrize("tail_size", [1, 1 << 20])
@pytest.mark.parametrize("where", ["even", " and ".join(f"n > {number}" for number in range(-40, 0)) + " and even"])
def test_one_record_that_asks_for_more_than_a_turn_is_examined_in_several(
    monkeypatch: pytest.MonkeyPatch, tail_size: int, where: str
) -> None:
    monkeypatch.setattr(examine, "QUANTUM_NS", 20_000)
    monkeypatch.setattr(examine, "ROW_NS", 10_000)
    monkeypatch.setattr(feeding, "Turns", partial(Turns, 20_000))
    rig = Rig(StreamsLimits(tail_size_max=tail_size))
    grant = rig.attach(1)
    rig.publish(grant, 1, 40)
    rig.publish(grant, 41, 3)
    rig.subscribe(5, filter=Filter(where=where))
    position = rig.floor.flows[5].position
    assert position < 40, "it leaves off within the record"
    turns = 0
    while rig.floor.flows[5].position < 44:
        rig.time_ns += 1
        rig.carry_out()
        turns += 1
        assert turns < 5000
    assert turns > 3
    assert rig.pushed(5) == list(range(2, 43, 2))


def test_the_filters_of_one_principal_have_so_many_terms_together_and_no_more() -> None:
    rig = Rig(StreamsLimits(filter_terms_per_principal_max=500))
    rig.attach(1)
    rig.subscribe(5, filter=COSTLY)
    before = len(rig.said)
    rig.do(x.SubscribeRequested(6, "local", "s", "", "", COSTLY))
    (refused,) = [said for said in rig.said[before:] if isinstance(said, x.Refuse)]
    assert refused.code == "too-many-terms"
    (refused,) = rig.do(x.FilterChangeRequested(5, Filter(where=COSTLY.where + " or even")))
    assert (refused.code, refused.is_final, refused.details["filter"]) == ("too-many-terms", False, True)
    rig.do(x.SessionClosed(5))
    rig.subscribe(7, filter=COSTLY)


def test_a_large_regular_expression_counts_as_many_terms() -> None:
    rig = Rig(StreamsLimits(filter_terms_per_principal_max=100))
    rig.attach(1)
    large = Filter(("regex:(a|b)*a(a|b){700}",))
    rig.subscribe(5, filter=large)
    before = len(rig.said)
    rig.do(x.SubscribeRequested(6, "local", "s", "", "", Filter((*large.keys, "regex:(a|b){700}"))))
    (refused,) = [said for said in rig.said[before:] if isinstance(said, x.Refuse)]
    assert refused.code == "too-many-terms"


@pytest.mark.parametrize("tail_size_max", [1, 1 << 20])
def test_credit_without_end_is_pushed_a_share_in_each_turn(tail_size_max: int) -> None:
    rig = Rig(StreamsLimits(tail_size_max=tail_size_max, push_size_max=200))
    grant = rig.attach(1)
    for number in range(1, 21):
        rig.publish(grant, number)
    rig.subscribe(5, octet_ns=100_000)
    pushed = []
    while rig.pushed(5) != list(range(1, 21)):
        before = rig.pushes(5)
        rig.time_ns += 1
        rig.carry_out()
        new = rig.pushes(5)[len(before) :]
        assert len(new) <= feeding.READ_COUNT
        pushed.append(len(new))
    assert len(pushed) > 5
    assert rig.floor.deadline() != rig.time_ns + 1, "nothing waits for a turn any more"


def test_many_flows_of_one_principal_that_push_little_share_a_turn() -> None:
    rig = Rig()
    for session in range(5, 15):
        rig.subscribe(session, octet_ns=3_000)
    grant = rig.attach(1)
    rig.publish(grant, 1)
    waited = 0
    while not all(rig.pushed(session) for session in range(5, 15)):
        rig.time_ns += 1
        rig.carry_out()
        waited += 1
    assert 1 <= waited < 5


def test_what_one_principal_is_pushed_keeps_no_other_waiting() -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1)
    rig.subscribe(5, octet_ns=1_000_000_000)
    rig.subscribe(6, octet_ns=1_000_000_000)
    rig.subscribe(7, principal="other")
    assert [rig.pushed(session) for session in (5, 6, 7)] == [[1], [], [1]]


def test_who_reads_nothing_is_pushed_no_more_in_its_next_turn() -> None:
    rig = Rig(StreamsLimits(push_size_max=200))
    grant = rig.attach(1)
    for number in range(1, 21):
        rig.publish(grant, number)
    rig.subscribe(5, octet_ns=100_000)
    before = rig.pushed(5)
    rig.order(rig.floor.set_congested(5, True, rig.now))
    for _ in range(1000):
        rig.time_ns += 1
        rig.carry_out()
    assert rig.pushed(5) == before
    assert len(before) < 20


def test_the_journal_is_read_for_a_few_flows_at_a_time_and_for_one_of_each_principal_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeding, "READS_SIZE_MAX", 2_500)
    rig = Rig(StreamsLimits(tail_size_max=1, push_size_max=500))
    grant = rig.attach(1)
    for number in range(1, 6):
        rig.publish(grant, number)
    asked = [x.SubscribeRequested(session, "eve", "s", credit=1 << 40) for session in range(5, 25)]
    rig.tell(*asked, x.SubscribeRequested(25, "bob", "s", credit=1 << 40), x.SessionClosed(20))
    reads = [order for order in rig.pending if isinstance(order, ReadBytes)]
    assert 0 < len(reads) <= 2
    rig.carry_out()
    rig.give_turns()
    assert [rig.pushed(session) for session in (*range(5, 20), *range(21, 26))] == [[1, 2, 3, 4, 5]] * 20
    first_of_bob = next(at for at, said in enumerate(rig.said) if isinstance(said, x.Push) and said.session == 25)
    first_of_last = next(at for at, said in enumerate(rig.said) if isinstance(said, x.Push) and said.session == 24)
    assert first_of_bob < first_of_last
