"""How much of a snapshot is taken in one turn: everybody else waits that long, whatever one principal has."""

import sys

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.delivery.settlement import Ledger
from veredus.node.checkpointing import Checkpointing
from veredus.streams import exchange as x
from veredus.streams.attempts import ReturnRequested
from veredus.streams.snapshot import decode_snapshot
from veredus.streams.tables import StreamsLimits

TOKEN = b"t" * 4096


def with_tokens(count: int, limits: StreamsLimits | None = None) -> Rig:
    """A stream with so many sources that have stored a resume token each."""
    rig = Rig(limits or StreamsLimits())
    for number in range(1, count + 1):
        rig.attach(number, f"source-{number}")
        rig.do(x.TokenStoreRequested(number, 1, 0, TOKEN))
    return rig


def sizes_of_turns(rig: Rig, count: int, size: int) -> list[int]:
    """What each turn takes, in bytes, when it is told to take no more than this."""
    taking = rig.floor.take_snapshot()
    sizes = []
    is_done = False
    while not is_done:
        before = taking.state.size
        is_done = taking.go_on(count, size)
        sizes.append(taking.state.size - before)
    return sizes


@pytest.mark.parametrize("size", [1, 10_000, 50_000])
def test_a_turn_takes_one_row_more_than_its_bytes_at_most_however_large_the_tokens_are(size: int) -> None:
    sizes = sizes_of_turns(with_tokens(40), sys.maxsize, size)
    assert max(sizes) <= size + len(TOKEN) + 200
    assert sum(sizes) > 40 * len(TOKEN)


def test_a_turn_takes_no_more_rows_than_it_is_told_to_of_whatever_kind() -> None:
    rig = Rig()
    for number in range(1, 81):
        rig.attach(number, f"source-{number}")
        rig.attach(100 + number, "source", stream=f"stream-{number}")
        rig.subscribe(200 + number, f"bob-{number}", who=number)
        rig.do(x.RunOpenRequested(300 + number, "local", f"sink-{number}", incarnation(1), 0))
    assert len(sizes_of_turns(rig, 10, sys.maxsize)) >= 4 * 80 // 10


def test_a_turn_takes_one_cursor_of_very_many_ranges() -> None:
    rig = Rig()
    count, ranges = 5, 16_000
    rig.publish(rig.attach(1), 1, 2 * ranges)
    for number in range(10, 10 + count):
        rig.subscribe(number, f"bob-{number}", mode=x.SettleMode.INDIVIDUAL)
        rig.give_turns()
        rig.settle(number, *((2 * place, 2 * place) for place in range(1, ranges + 1)))
        rig.give_turns()
    assert len(sizes_of_turns(rig, StreamsLimits().snapshot_rows_max, sys.maxsize)) >= count


def test_a_checkpoint_of_large_tokens_goes_on_in_a_turn_for_each_so_many_bytes() -> None:
    limits = StreamsLimits(snapshot_size_max=3 * len(TOKEN))
    checkpointing = Checkpointing(with_tokens(60, limits).floor)
    checkpointing.begin()
    turns = 0
    while checkpointing.is_under_way:
        checkpointing.go_on()
        turns += 1
    assert turns >= 20


def test_turns_of_any_size_give_the_same_snapshot() -> None:
    rig = with_tokens(20)
    rig.subscribe(50, "bob")
    whole = b"".join(rig.floor.snapshot().buffers())
    for count, size in ((1, 1), (3, sys.maxsize), (sys.maxsize, 5_000)):
        taking = rig.floor.take_snapshot()
        while not taking.go_on(count, size):
            pass
        assert b"".join(taking.state.buffers()) == whole


@pytest.mark.parametrize(("mode", "attempts_max"), [(0, 0), (1, 0), (1, 3)])
def test_subscriptions_are_taken_as_they_were_at_the_beginning_whatever_comes_meanwhile(
    mode: int, attempts_max: int
) -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.attach(2, stream="dead")
    rig.publish(grant, 1, 8)
    rig.subscribe(5, "bob", mode=mode, attempts_max=attempts_max, parked_to="dead" if attempts_max else "")
    rig.hand_out(5)
    rig.do(ReturnRequested(5, 2, is_retry=True))
    rig.settle(5, (4, 4), (6, 6)) if mode else rig.settle(5, (1, 1))
    (known,) = rig.floor.tables.streams["s"].subscriptions.values()
    then = known.opened()
    taking = rig.floor.take_snapshot()
    taking.go_on(1, 1)
    rig.do(ReturnRequested(5, 2, is_retry=True, is_taken=True), ReturnRequested(5, 3, is_retry=True))
    rig.settle(5, (1, 5))
    rig.publish(grant, 9, 3)
    rig.do(x.SessionClosed(5))
    assert known.opened() != then
    assert taking.go_on(sys.maxsize, sys.maxsize)
    stream, _ = decode_snapshot(b"".join(taking.state.buffers())).streams
    assert [(row.opened, row.is_attached) for row in stream.subscriptions] == [(then, True)]


def test_a_copy_of_a_ledger_stays_as_it_was() -> None:
    ledger = Ledger(2, is_ordered=False)
    ledger.push(3, 9)
    ledger.settle(5, 6)
    copied = ledger.copy()
    before = copied.floor, copied.position, copied.unsettled, copied.settled
    ledger.settle(3, 4)
    ledger.push(11, 12)
    assert (copied.floor, copied.position, copied.unsettled, copied.settled) == before
    copied.check()
