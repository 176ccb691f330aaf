"""Rows have one digest in whatever order and parts they come, and another when anything of them differs."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.client.digest import RowsDigest
from veredus.delivery.arrays import TIMESTAMP

ROWS = pa.RecordBatch.from_pydict(
    {
        "key": pa.array([b"a", b"b", b"a", b""], pa.binary()),
        "venue": pa.array(["x", None, "y", ""]),
        "size": pa.array([1, None, 0, -1], pa.int64()),
        "quote": pa.array([0.5, None, 0.0, float("nan")], pa.float64()),
        "firm": pa.array([True, False, None, True]),
        "seen": pa.array([1, 2, None, 4], TIMESTAMP),
    }
)


def digest_of(*parts: pa.RecordBatch) -> tuple[int, bytes]:
    digest = RowsDigest()
    for part in parts:
        digest.take(part)
    return digest.count, digest.digest


@given(st.permutations(range(4)), st.integers(0, 4))
def test_neither_order_nor_parts_change_it(order: list[int], cut: int) -> None:
    moved = ROWS.take(pa.array(order, pa.int64()))
    assert digest_of(moved.slice(0, cut), moved.slice(cut)) == digest_of(ROWS)
    digest = RowsDigest(*digest_of(moved.slice(0, cut)))
    digest.add(*digest_of(moved.slice(cut)))
    assert (digest.count, digest.digest) == digest_of(ROWS)


def test_neither_the_order_of_columns_nor_one_of_nulls_alone_changes_it() -> None:
    columns = [*reversed(ROWS.schema.names)]
    absent = pa.nulls(4, pa.int64())
    assert digest_of(ROWS.select(columns).append_column("absent", absent)) == digest_of(ROWS)


@pytest.mark.parametrize("name", ROWS.schema.names)
def test_another_value_anywhere_changes_it(name: str) -> None:
    index = ROWS.schema.get_field_index(name)
    values = ROWS.column(index)
    others = pa.concat_arrays([values.slice(1, 1), values.slice(1)])
    changed = ROWS.set_column(index, name, others)
    assert digest_of(changed)[1] != digest_of(ROWS)[1]
    renamed = ROWS.rename_columns([*ROWS.schema.names[:index], "another", *ROWS.schema.names[index + 1 :]])
    assert digest_of(renamed)[1] != digest_of(ROWS)[1]


def test_a_row_more_of_the_same_changes_it_and_none_has_a_digest_of_zeros() -> None:
    assert digest_of(ROWS, ROWS.slice(0, 1)) != digest_of(ROWS)
    assert digest_of(ROWS, ROWS)[1] != digest_of()[1] == bytes(16)


def test_values_that_change_places_change_it() -> None:
    def pair(key: bytes, body: bytes) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": [key], "body": [body]})

    assert digest_of(pair(b"a", b"b")) != digest_of(pair(b"b", b"a"))
    assert digest_of(pair(b"a", b"b"), pair(b"c", b"d")) != digest_of(pair(b"a", b"d"), pair(b"c", b"b"))


def test_it_is_the_same_in_every_process() -> None:
    assert digest_of(ROWS.slice(0, 1))[1].hex() == "d550693aee72f4665a333144f0663499"
