"""Bytes that are gathered and never joined, and their sum."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.gathered import PART_SIZE, Gathered, crc_of_both
from veredus.kernel.octets import crc32c


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_sum_of_two_runs_of_bytes_is_that_of_both_in_one(first: bytes, second: bytes) -> None:
    assert crc_of_both(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("size", [1 << 16, (3 << 20) + 5])
def test_the_sum_of_many_bytes_behind_others_is_that_of_both_in_one(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc_of_both(crc32c(b"head"), crc32c(data), size) == crc32c(b"head" + data)


@pytest.mark.parametrize("sizes", [[], [0], [5, 7], [PART_SIZE - 1, 1, 3], [3 * PART_SIZE, 1], [PART_SIZE // 3] * 8])
def test_what_was_added_is_there_in_order_with_its_size_and_its_sum(sizes: list[int]) -> None:
    added = [random.Random(place).randbytes(size) for place, size in enumerate(sizes)]
    gathered = Gathered()
    for data in added:
        gathered.add(data)
    whole = b"".join(added)
    assert (gathered.size, gathered.crc) == (len(whole), crc32c(whole))
    assert b"".join(gathered.buffers()) == whole
    assert gathered.crc == crc32c(whole)
    assert all(gathered.buffers()), "none is empty"


def test_what_it_begins_with_counts() -> None:
    gathered = Gathered(b"head")
    gathered.add(b"more")
    assert (gathered.size, gathered.crc) == (8, crc32c(b"headmore"))
    assert b"".join(gathered.buffers()) == b"headmore"


def test_no_part_is_much_larger_than_what_comes_at_once() -> None:
    gathered = Gathered(b"head")
    for _ in range(40):
        gathered.add(bytes(PART_SIZE // 10))
    assert max(map(len, gathered.buffers())) <= PART_SIZE + PART_SIZE // 10
