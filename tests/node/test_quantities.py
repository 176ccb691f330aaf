"""Sizes, durations and counts are read as people write them, and written so that they can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.node.quantities import (
    format_duration,
    format_size,
    parse_count,
    parse_duration,
    parse_size,
    parse_switch,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64 MiB", 64 << 20), ("64MiB", 64 << 20), ("1.5 KiB", 1536), ("500 kB", 500_000), ("4_096", 4096), ("0", 0)],
)
def test_a_size_has_binary_or_decimal_units_or_none(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("5s", 5 * 10**9),
        ("250ms", 250 * 10**6),
        ("1h30m", 5400 * 10**9),
        ("0", 0),
        ("1.5 s", 1_500_000_000),
        ("2d", 172_800 * 10**9),
    ],
)
def test_a_duration_is_a_sum_of_numbers_with_units(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1 MBi", "1.3 B", "1e3", "٣", "64 MiB and more", "_1"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"64 MiB|whole number of bytes"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "5", "5 parsecs", "s", "-5s", "5s x", "0.5ns", "5s5"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"250ms|whole number of nanoseconds"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1__0", "ten", "1_"])
def test_what_is_no_count_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="10_000"):
        parse_count(text)


def test_a_switch_is_said_in_several_ways_and_nothing_else() -> None:
    assert [parse_switch(text) for text in ("true", "Yes", "on", "1")] == [True] * 4
    assert [parse_switch(text) for text in ("false", "NO", "off", "0")] == [False] * 4
    with pytest.raises(ValueError, match="neither true nor false"):
        parse_switch("maybe")


@given(st.integers(0, 1 << 62))
def test_every_size_is_read_back_as_it_was_written(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 1 << 62))
def test_every_duration_is_read_back_as_it_was_written(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns
