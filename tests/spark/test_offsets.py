"""Offsets are compared as text, and blocks are a function of the offsets alone."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.errors import Refused
from veredus.spark.offsets import (
    Block,
    StreamOffset,
    blocks_of,
    check_range,
    limited_end,
    offsets_of,
    shares_of,
    started_as,
    stored_of,
)


def at(sequence: int, stream: str = "trades", incarnation: str = "00ff", began: int = 1) -> StreamOffset:
    return StreamOffset(stream, incarnation, sequence, began)


def test_offsets_survive_spark_letter_by_letter_in_the_order_of_their_names() -> None:
    text = json.dumps(stored_of({"trades": at(7), "quotes": at(3, stream="quotes")}))
    trades = '"trades": {"began": 1, "incarnation": "00ff", "sequence": 7}'
    assert text == f'{{"streams": {{"quotes": {{"began": 1, "incarnation": "00ff", "sequence": 3}}, {trades}}}}}'
    assert json.dumps(stored_of(offsets_of(json.loads(text)))) == text


def test_an_offset_says_that_its_stream_was_passed_over_and_one_of_an_older_version_that_it_was_not() -> None:
    passed = replace(at(7), is_passed=True)
    text = json.dumps(stored_of({"trades": passed}))
    assert text == '{"streams": {"trades": {"began": 1, "incarnation": "00ff", "sequence": 7, "passed": true}}}'
    assert offsets_of(json.loads(text)) == {"trades": passed}
    assert not offsets_of(stored_of({"trades": at(7)}))["trades"].is_passed


def test_a_range_begins_where_its_end_says_that_the_query_began() -> None:
    assert started_as(at(50, began=50), at(40, began=3)) == at(3, began=3), "trimmed since, before it was committed"
    assert started_as(at(7, began=3), at(9, began=3)) == at(7, began=3)
    assert started_as(None, at(9, began=3)) == at(3, began=3), "a stream that was not there before"
    assert started_as(at(7, incarnation="01"), at(9, began=3)) == at(3, began=3), "another one had its name before"


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10_000), min_size=1), st.integers(1, 5_000))
def test_streams_share_a_batch_by_what_each_has_waiting(waiting: dict[str, int], most: int) -> None:
    shares = shares_of(waiting, most)
    assert shares.keys() == waiting.keys()
    assert all(1 <= shares[name] <= waiting[name] for name in waiting)
    assert sum(shares.values()) <= most + len(waiting)


@pytest.mark.parametrize("stored", [{}, {"sequence": 3}, {"streams": {"trades": {"incarnation": "00", "sequence": 3}}}])
def test_a_checkpoint_of_another_source_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(Refused, match="not an offset of a Veredus stream"):
        offsets_of(stored)


@pytest.mark.parametrize(("start", "end"), [(at(5), at(4)), (at(5), at(12))])
def test_a_range_that_the_stream_does_not_have_is_refused(start: StreamOffset, end: StreamOffset) -> None:
    with pytest.raises(Refused) as caught:
        check_range(start, end, head=10)
    assert caught.value.code == "bad-offset"


def test_a_range_up_to_the_newest_row_can_be_read() -> None:
    check_range(at(1), at(11), head=10)


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
