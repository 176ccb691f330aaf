"""Ranges against the sets of sequences that they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from veredus.delivery.settlement import Range
from veredus.streams.ranges import between, common, cursor_of, joined, raised, without

LAST = 40
loose = st.lists(st.tuples(st.integers(1, LAST), st.integers(0, 6)).map(lambda t: (t[0], t[0] + t[1])), max_size=8)
ascending = loose.map(joined)


def members(ranges: Iterable[Range]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(loose)
def test_joined_ranges_hold_the_same_and_do_not_touch(ranges: list[Range]) -> None:
    found = joined(ranges)
    assert members(found) == members(ranges)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))


@given(ascending, ascending)
def test_what_is_common_and_what_is_left_are_what_sets_say(some: tuple[Range, ...], others: tuple[Range, ...]) -> None:
    assert members(common(some, others)) == members(some) & members(others)
    left = without(some, others)
    assert members(left) == members(some) - members(others)
    assert list(left) == sorted(left)
    assert members(between(1, LAST, others)) == set(range(1, LAST + 1)) - members(others)


@given(st.integers(0, LAST), loose)
def test_a_cursor_has_done_with_all_up_to_its_floor_and_with_ranges_above_it(floor: int, settled: list[Range]) -> None:
    found, above = cursor_of(floor, settled)
    assert members(((1, found), *above)) == members(((1, floor), *settled))
    assert found + 1 not in members(above)


@given(st.integers(0, LAST), ascending)
def test_a_floor_is_raised_by_a_range_that_adjoins_it_alone(floor: int, settled: tuple[Range, ...]) -> None:
    above = tuple((max(first, floor + 1), last) for first, last in settled if last > floor)
    assert raised(floor, above) == cursor_of(floor, above)
