"""How much of a snapshot is taken in one turn: everybody else waits that long, whatever one principal has."""

import sys

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.node.checkpointing import Checkpointing
from veredus.streams import exchange as x
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
