"""The load's bodies, and what the witness says of them."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.load import POOL_COUNT, STAMP, Load
from benchmarks.scenarios import Scenario
from benchmarks.witness import Witness

BULK = Scenario("bulk", "Bulk", body_size=32)
PACED = Scenario("paced", "Paced", body_size=32, rate_hz=100_000)


def bodies_of(count: int) -> list[bytes]:
    return [body for chunk in Load(BULK, count).chunks(100) for body in chunk]


def test_a_load_is_published_whole_also_when_its_pool_wraps() -> None:
    bodies = bodies_of(POOL_COUNT + 150)
    assert len(bodies) == POOL_COUNT + 150
    assert bodies[POOL_COUNT] == bodies[0]
    assert len(set(bodies)) == POOL_COUNT
    assert {len(body) for body in bodies} == {32}


def test_no_paced_body_leaves_before_it_is_due() -> None:
    load = Load(PACED, 200)
    stamps = [STAMP.unpack_from(body) for body in load.paced()]
    assert [number for number, _ in stamps] == list(range(200))
    assert stamps[-1][1] - stamps[0][1] >= 199 * 10_000 - max(load.late_ns)
    assert len(load.late_ns) == 200
    assert min(load.late_ns) >= 0


def test_a_loop_paces_like_a_thread() -> None:
    async def collect(load: Load) -> list[bytes]:
        return [body async for body in load.paced_async()]

    load = Load(PACED, 50)
    assert [STAMP.unpack_from(body)[0] for body in asyncio.run(collect(load))] == list(range(50))
    assert min(load.late_ns) >= 0


def test_a_body_too_small_for_its_stamp_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        Load(Scenario("tiny", "Tiny", body_size=15), 1)


def test_a_witness_is_content_with_everything_in_order_also_over_the_wrap() -> None:
    bodies = bodies_of(2 * POOL_COUNT + 7)
    witness = Witness(BULK, len(bodies))
    for start in range(0, len(bodies), 1000):
        witness.take(bodies[start : start + 1000])
    assert witness.is_complete
    assert (witness.missing_count, witness.breaks_count) == (0, 0)


def test_a_witness_takes_a_block_longer_than_the_pool() -> None:
    bodies = bodies_of(2 * POOL_COUNT + 7)
    witness = Witness(BULK, len(bodies))
    witness.take_block(b"".join(bodies), len(bodies))
    assert (witness.received_count, witness.breaks_count) == (len(bodies), 0)


@pytest.mark.parametrize("cut", [1, 50, 99])
def test_a_lost_body_is_one_break_and_is_missing(cut: int) -> None:
    bodies = bodies_of(100)
    witness = Witness(BULK, 100)
    witness.take(bodies[: cut - 1])
    witness.take(bodies[cut:])
    assert witness.missing_count == 1
    assert witness.breaks_count == (cut < 100)
    assert not witness.is_complete


def test_a_doubled_body_is_a_break_also_across_chunks() -> None:
    bodies = bodies_of(10)
    witness = Witness(BULK, 11)
    witness.take(bodies[:5])
    witness.take(bodies[4:])
    assert witness.is_complete
    assert witness.breaks_count == 1


def test_swapped_bodies_are_breaks() -> None:
    bodies = bodies_of(10)
    bodies[3], bodies[4] = bodies[4], bodies[3]
    witness = Witness(BULK, 10)
    witness.take(bodies)
    assert witness.breaks_count == 3


def test_a_paced_witness_measures_and_sees_a_break() -> None:
    bodies = list(Load(PACED, 10).paced())
    witness = Witness(PACED, 10)
    for body in [*bodies[:4], *bodies[5:]]:
        witness.take([body])
    assert len(witness.latencies_ns) == 9
    assert min(witness.latencies_ns) > 0
    assert (witness.missing_count, witness.breaks_count) == (1, 1)


def test_a_body_of_a_wrong_size_is_not_overlooked() -> None:
    witness = Witness(BULK, 2)
    with pytest.raises(ValueError, match="2 bodies of 32 bytes expected, 63 bytes received"):
        witness.take([b"x" * 32, b"x" * 31])
