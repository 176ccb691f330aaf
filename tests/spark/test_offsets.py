"""Offsets are compared as text, and blocks are a function of the offsets alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.errors import Refused
from veredus.spark.offsets import Block, StreamOffset, blocks_of, check_range, limited_end, offset_of

HERE = StreamOffset("trades", "00ff", 1)


def at(sequence: int, stream: str = "trades", incarnation: str = "00ff") -> StreamOffset:
    return StreamOffset(stream, incarnation, sequence)


def test_an_offset_survives_spark_letter_by_letter() -> None:
    text = json.dumps(at(7).to_json())
    assert text == '{"incarnation": "00ff", "sequence": 7, "stream": "trades"}'
    assert json.dumps(offset_of(json.loads(text)).to_json()) == text


@pytest.mark.parametrize("stored", [{}, {"sequence": 3}, {"stream": "trades", "incarnation": "00", "sequence": "3"}])
def test_a_checkpoint_of_another_source_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(Refused, match="no offset of a Veredus stream"):
        offset_of(stored)


@pytest.mark.parametrize(
    ("start", "end", "code"),
    [
        (at(1, stream="quotes"), at(5, stream="quotes"), "stream-replaced"),
        (at(1, incarnation="01"), at(5, incarnation="01"), "stream-replaced"),
        (at(1), at(5, incarnation="01"), "stream-replaced"),
        (at(5), at(4), "bad-offset"),
        (at(5), at(12), "bad-offset"),
    ],
)
def test_a_range_that_is_not_this_streams_is_refused(start: StreamOffset, end: StreamOffset, code: str) -> None:
    with pytest.raises(Refused) as caught:
        check_range(start, end, "trades", "00ff", head=10)
    assert caught.value.code == code


def test_a_range_up_to_the_newest_row_can_be_read() -> None:
    check_range(at(1), at(11), "trades", "00ff", head=10)


def test_blocks_are_cut_behind_every_multiple_of_their_size() -> None:
    assert blocks_of(1, 9, 4) == [Block(1, 5), Block(5, 9)]
    assert blocks_of(3, 14, 4) == [Block(3, 5), Block(5, 9), Block(9, 13), Block(13, 14)]
    assert blocks_of(5, 5, 4) == []


@given(st.integers(1, 10_000), st.integers(0, 3_000), st.integers(1, 500), st.data())
def test_blocks_cover_a_range_once_and_share_their_edges_with_any_part_of_it(
    first: int, count: int, size: int, data: st.DataObject
) -> None:
    blocks = blocks_of(first, first + count, size)
    assert [n for block in blocks for n in range(block.first, block.until)] == list(range(first, first + count))
    part = data.draw(st.integers(first, first + count))
    edges = {block.first for block in blocks}
    assert {block.first for block in blocks_of(part, first + count, size)} <= edges | {part}


@given(st.integers(1, 10_000), st.integers(0, 3_000), st.integers(1, 1000), st.integers(1, 500))
def test_a_limited_range_is_within_its_limit_and_always_advances(first: int, count: int, limit: int, size: int) -> None:
    end = limited_end(first, first + count, limit, size)
    assert first <= end <= first + min(count, limit)
    assert (end > first) == (count > 0)


def test_a_limited_range_ends_at_a_blocks_edge() -> None:
    assert limited_end(3, 1000, 30, 8) == 33
    assert limited_end(3, 1000, 4, 8) == 7
