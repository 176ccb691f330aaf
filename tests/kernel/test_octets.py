"""Bytes: the checksum is the published one, and nothing is read that is not there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import ALIGNMENT, OctetsReader, aligned, crc32c, padding


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_the_checksum_is_that_of_rfc_3720_appendix_b_4(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc
    assert crc32c(bytearray(data)) == crc
    assert crc32c(memoryview(b"x" + data)[1:]) == crc


@given(st.integers(0, 1 << 40))
def test_an_aligned_size_is_the_least_multiple_that_holds_it(size: int) -> None:
    assert aligned(size) % ALIGNMENT == 0
    assert size <= aligned(size) < size + ALIGNMENT


@given(st.integers(0, 1000))
def test_padding_brings_a_size_to_its_aligned_one(size: int) -> None:
    assert size + len(padding(size)) == aligned(size)
    assert not any(padding(size))


@given(st.binary(max_size=40), st.lists(st.integers(0, 9), max_size=12))
def test_a_reader_gives_what_is_there_or_says_what_is_missing(data: bytes, sizes: list[int]) -> None:
    reader = OctetsReader(data)
    offset = 0
    for size in sizes:
        if offset + size > len(data):
            with pytest.raises(PeerFault, match="truncated"):
                reader.take(size)
            assert reader.offset == offset
        else:
            assert reader.take(size) == data[offset : offset + size]
            offset += size


@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=4))
def test_a_number_is_read_big_endian_from_any_place(number: int, before: bytes) -> None:
    reader = OctetsReader(before + number.to_bytes(4, "big"), len(before))
    assert reader.number(4) == number
    with pytest.raises(PeerFault):
        reader.number(1)


def test_a_claimed_size_of_terabytes_allocates_nothing() -> None:
    with pytest.raises(PeerFault, match="4 left"):
        OctetsReader(b"four").take(1 << 50)
