"""Sums and runs are the same however the rows are cut, and differ where the rows do."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.audit.summaries import (
    BUCKET_BITS,
    Table,
    expanded,
    joined,
    merged_buckets,
    merged_runs,
    mixed,
    number_buckets,
    rising_runs,
)

ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 1 << 18), st.integers(1, 1 << 40)), min_size=1)


def texts_of(rows: list[tuple[str, int, int]]) -> dict[str, pa.Array]:
    return {"source": pa.array([row[0] for row in rows]), "stream": pa.array(["s"] * len(rows))}


def column(rows: list[tuple[str, int, int]], index: int) -> np.ndarray:
    return np.array([row[index] for row in rows], np.int64)


def rows_of(table: Table) -> list[tuple[object, ...]]:
    columns = [*(array.to_pylist() for array in table.texts.values()), *(a.tolist() for a in table.numbers.values())]
    return list(zip(*columns, strict=True))


def buckets_of(rows: list[tuple[str, int, int]]) -> Table:
    return number_buckets(texts_of(rows), column(rows, 1), by_content=mixed(column(rows, 1), column(rows, 2)))


def summed(table: Table) -> dict[tuple[object, ...], list[int]]:
    """Buckets that others interrupted, added up."""
    sums: dict[tuple[object, ...], list[int]] = {}
    for source, stream, bucket, count, first, last, low, high in rows_of(table):
        before = sums.setdefault((source, stream, bucket), [0, 1 << 62, 0, 0, 0])
        sums[source, stream, bucket] = [
            before[0] + count, min(before[1], first), max(before[2], last), before[3] + low, before[4] + high,
        ]  # fmt: skip
    return sums


@given(ROWS, st.integers(0, 100))
def test_buckets_that_are_merged_in_parts_are_those_merged_at_once(rows: list[tuple[str, int, int]], cut: int) -> None:
    parts = [part for part in (rows[:cut], rows[cut:]) if part]
    in_parts = merged_buckets(joined([buckets_of(part) for part in parts]))
    assert summed(in_parts) == summed(buckets_of(rows))


@given(ROWS, st.integers(0, 100))
def test_runs_that_are_merged_in_parts_are_those_merged_at_once(rows: list[tuple[str, int, int]], cut: int) -> None:
    def runs_of(part: list[tuple[str, int, int]]) -> Table:
        return rising_runs(texts_of(part), column(part, 1), column(part, 2), np.zeros(len(part), np.int64))

    parts = [part for part in (rows[:cut], rows[cut:]) if part]
    assert rows_of(merged_runs(joined([runs_of(part) for part in parts]))) == rows_of(runs_of(rows))


def test_a_run_ends_where_numbers_or_positions_do_not_rise() -> None:
    numbers, positions = np.array([1, 2, 2, 5, 4, 6]), np.array([1, 2, 3, 4, 5, 5])
    runs = rising_runs({"source": pa.array(["a"] * 6)}, numbers, positions, np.zeros(6, np.int64))
    ends = list(zip(runs.numbers["first_number"].tolist(), runs.numbers["last_number"].tolist(), strict=True))
    assert ends == [(1, 2), (2, 5), (4, 4), (6, 6)]
    assert runs.numbers["count"].tolist() == [2, 2, 1, 1]


def test_what_was_read_of_two_places_of_a_file_is_no_single_run() -> None:
    splits = np.array([1, 1, 2, 2])
    runs = rising_runs({"source": pa.array(["a"] * 4)}, np.array([1, 2, 8, 9]), np.array([1, 2, 8, 9]), splits)
    assert runs.numbers["first_number"].tolist() == [1, 8]


def test_sources_that_take_turns_have_a_run_each() -> None:
    sources = pa.array(["a", "b"] * 500)
    runs = rising_runs({"source": sources}, np.repeat(np.arange(500), 2), np.arange(1000), np.zeros(1000, np.int64))
    assert rows_of(runs) == [("a", 0, 500, 0, 499, 0, 998), ("b", 0, 500, 0, 499, 1, 999)]


@given(ROWS, st.data())
def test_a_row_that_is_changed_lost_or_doubled_changes_the_sums(
    rows: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    source, number, digest = rows[at]
    before = summed(buckets_of(rows))
    for spoiled in (
        [*rows[:at], (source, number, digest + 1), *rows[at + 1 :]],
        [*rows[:at], (source, number ^ 1, digest), *rows[at + 1 :]],
        [*rows, rows[at]],
    ):
        assert summed(buckets_of(spoiled)) != before
    if len(rows) > 1:
        assert summed(buckets_of([*rows[:at], *rows[at + 1 :]])) != before


def test_the_order_of_rows_does_not_change_the_sums() -> None:
    rows = [("a", number, number * 7) for number in range(1, 200)]
    assert summed(buckets_of(rows)) == summed(buckets_of(rows[::-1]))


def test_many_sources_are_told_apart() -> None:
    rows = [(f"source-{index % 50_000}", 1, index) for index in range(100_000)]
    assert len(summed(buckets_of(rows))) == 50_000


def test_groups_of_many_columns_are_told_apart_however_many_they_could_be() -> None:
    # Five columns of 65,536 words each could name 2^80 groups.
    words = [f"{index}" for index in range(1 << 16)]
    first, others = pa.array([*words, "0", "1"]), pa.array([*words, "5", "5"])
    texts = {"stream": first} | {f"text-{index}": others for index in range(4)}
    assert len(number_buckets(texts, np.ones(len(first), np.int64))) == len(first)


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 3 << BUCKET_BITS), ((1 << BUCKET_BITS) - 1, 1 << BUCKET_BITS)])
def test_ranges_are_expanded_across_buckets_with_their_sequences(first: int, last: int) -> None:
    chunks = list(expanded(np.array([first, 5]), np.array([last, 6]), np.array([1_000, 0])))
    of, numbers, sequences = (np.concatenate(columns) for columns in zip(*chunks, strict=True))
    assert numbers.tolist() == [*range(first, last + 1), 5, 6]
    assert of.tolist() == [0] * (last - first + 1) + [1, 1]
    assert sequences.tolist() == [*range(1_000, 1_000 + last - first + 1), 0, 0]


def test_a_long_range_comes_in_chunks_of_bounded_size() -> None:
    chunks = [len(numbers) for _, numbers, _ in expanded(np.array([1]), np.array([5_000_000]), np.array([1]))]
    assert sum(chunks) == 5_000_000
    assert max(chunks) <= (1 << 20) + (1 << BUCKET_BITS)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before it begins"):
        list(expanded(np.array([5]), np.array([4]), np.array([1])))
