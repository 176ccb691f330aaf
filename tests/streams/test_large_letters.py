"""What is small because it is compressed stays small as a dead letter, and is moved when it is its principal's turn."""

import pytest

from tests.streams.rig import Rig
from veredus.delivery.batch import CODEC_FLAGS, BatchHeader, Layout, compressed, signed_record
from veredus.delivery.publication import Rows
from veredus.delivery.rows import encode_rows
from veredus.sim.ports import batch_offered
from veredus.streams import exchange as x
from veredus.streams.tables import StreamsLimits

COUNT, BODY_SIZE = 20, 1 << 20
TAIL_SIZES = pytest.mark.parametrize("tail_size_max", [1 << 20, 0], ids=["in memory", "in the journal"])


def rig_of(tail_size_max: int, **subscription: object) -> Rig:
    """`COUNT` records of a megabyte each once they are decompressed, and a subscriber who was handed all of them."""
    rig = Rig(StreamsLimits(tail_size_max=tail_size_max))
    grant = rig.attach(1)
    rig.attach(2, stream="dead")
    payload = compressed(encode_rows(Rows([b"k"], [bytes(BODY_SIZE)], None, None)), "zstd")
    for number in range(1, COUNT + 1):
        header = BatchHeader(
            int(Layout.ROWS), CODEC_FLAGS["zstd"], 0, 0, 1, grant.stream_id, grant.source_id, grant.epoch,
            1, number, 5, 5,
        )  # fmt: skip
        rig.do(batch_offered(1, signed_record(header, [payload])))
    rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL, parked_to="dead", **subscription)
    rig.hand_out(5)
    return rig


def letter_sizes(rig: Rig, session: int) -> list[int]:
    rig.subscribe(session, stream="dead")
    return [len(memory) for push in rig.pushes(session) for memory in push.buffers]


def turns_until_all_are_letters(rig: Rig, wanted: int = COUNT) -> int:
    turns = 0
    while rig.floor.tables.streams["dead"].head_durable < wanted:
        rig.time_ns += 1
        rig.carry_out()
        turns += 1
        assert turns < 2_000
    return turns


@TAIL_SIZES
def test_what_is_rejected_stays_as_small_as_it_was_and_takes_turns(tail_size_max: int) -> None:
    rig = rig_of(tail_size_max)
    rig.tell(*(x.ReturnRequested(5, sequence, is_retry=False, reason="no") for sequence in range(1, COUNT + 1)))
    rig.tell(x.ReturnRequested(5, COUNT, is_retry=False, reason="said again while it waits"))
    rig.carry_out()
    assert rig.floor.tables.streams["dead"].head_durable < COUNT // 2
    assert turns_until_all_are_letters(rig) > COUNT // 4
    answered = [said.sequence for said in rig.said_to(5, x.ConfirmReturned)]
    assert sorted(answered) == list(range(1, COUNT + 1))
    assert max(letter_sizes(rig, 90)) < 4096


@TAIL_SIZES
def test_what_was_tried_too_often_stays_as_small_as_it_was_and_takes_turns(tail_size_max: int) -> None:
    rig = rig_of(tail_size_max, attempts_max=1)
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", who=6, mode=x.SettleMode.INDIVIDUAL, parked_to="dead", attempts_max=1)
    assert rig.floor.tables.streams["dead"].head_durable < COUNT // 2
    assert turns_until_all_are_letters(rig) > COUNT // 4
    assert rig.pushed(6) == []
    assert max(letter_sizes(rig, 90)) < 4096


def test_who_gives_back_much_keeps_no_other_principal_waiting() -> None:
    rig = rig_of(1 << 20)
    rig.subscribe(7, "ann", mode=x.SettleMode.INDIVIDUAL, parked_to="dead", principal="ann")
    rig.tell(*(x.ReturnRequested(5, sequence, is_retry=False, reason="no") for sequence in range(1, COUNT + 1)))
    rig.do(x.ReturnRequested(7, 1, is_retry=False, reason="no"))
    assert rig.said_to(7, x.ConfirmReturned) == [x.ConfirmReturned(7, 1, is_parked=True)]


def test_what_waits_for_its_turn_when_its_session_ends_is_not_moved_for_the_next_one() -> None:
    rig = rig_of(1 << 20)
    rig.tell(*(x.ReturnRequested(5, sequence, is_retry=False, reason="no") for sequence in range(1, COUNT + 1)))
    rig.carry_out()
    moved = rig.floor.tables.streams["dead"].head_durable
    rig.do(x.SessionClosed(5))
    rig.subscribe(5, "bob", who=5, mode=x.SettleMode.INDIVIDUAL, parked_to="dead")
    for _ in range(100):
        rig.time_ns += 1
        rig.carry_out()
    assert rig.floor.tables.streams["dead"].head_durable == moved < COUNT
