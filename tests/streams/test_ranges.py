"""Ranges against the sets of sequences that they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from veredus.delivery.settlement import Range
from veredus.streams.ranges import FEW, between, common, cursor_of, joined, raised, touched, with_more, without

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


@given(ascending, loose, st.sampled_from([0, FEW]))
def test_some_more_ranges_are_joined_to_others_where_they_belong(
    some: tuple[Range, ...], more: list[Range], repeated: int
) -> None:
    assert with_more(some, more + more[:1] * repeated) == joined((*some, *more))


@given(ascending, ascending)
def test_the_ranges_that_others_touch_hold_all_of_them_that_is_there_and_no_range_beside(
    ranges: tuple[Range, ...], by: tuple[Range, ...]
) -> None:
    assert touched(ranges, by) == tuple(one for one in ranges if members([one]) & members(by))
    assert touched(ranges, by * (FEW + 1)) == (ranges if by else ())


def test_a_range_more_is_joined_to_very_many_without_a_look_at_all_of_them() -> None:
    looks = 0

    class Looked(tuple[int, int]):
        def __getitem__(self, at: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().__getitem__(at)

        def __lt__(self, other: Any) -> bool:
            nonlocal looks
            looks += 1
            return super().__lt__(other)

    some = tuple(Looked((place, place)) for place in range(2, 40_000, 2))
    assert len(with_more(some, ((20_001, 20_001),))) == len(some) - 1
    assert looks < 100


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
