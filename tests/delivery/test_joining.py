"""Batches of any layout, joined to one set of columns, hold what each of them held."""

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delivery.making import accept, batch_in, batch_of, publications, read_header_of
from veredus.delivery.batch import Layout
from veredus.delivery.joining import Signed, joined_columns
from veredus.delivery.payload import excerpt_record, read_columns
from veredus.delivery.publication import AttributeValue, Columns, Rows, microseconds_of
from veredus.kernel.errors import PeerFault

EVENT_TIME_US = 5
"""Of all rows of a batch that has no event times of its own."""


def signed_of(rows: Rows, layout: Layout) -> Signed:
    batch = batch_of(rows, layout)
    return batch, accept(batch)


def with_attributes(*attributes: dict[str, AttributeValue] | None) -> Rows:
    return Rows([b"k"] * len(attributes), [b"b"] * len(attributes), None, list(attributes))


def listed(columns: Columns) -> list[tuple[object, ...]]:
    """Key, body, event time and attributes of each row, what is null left out, in a form that has NaN equal itself."""
    attributes = pa.table(columns.attributes).to_pylist() or [{}] * len(columns.keys)
    assert columns.event_times_us is not None
    times = columns.event_times_us.to_pylist()
    return list(zip(columns.keys.to_pylist(), columns.bodies.to_pylist(), times, map(shown, attributes), strict=True))


def shown(attributes: dict[str, Any] | None) -> str:
    stamped = {
        name: microseconds_of(value) if isinstance(value, datetime) else value
        for name, value in (attributes or {}).items()
        if value is not None
    }
    return repr(sorted(stamped.items()))


@given(st.lists(st.tuples(publications(20), st.sampled_from(Layout)), min_size=1, max_size=5))
def test_joined_batches_hold_what_each_held(given_batches: list[tuple[Rows, Layout]]) -> None:
    renamed = [
        (rows._replace(attributes=rows.attributes and [_numbered(row, index) for row in rows.attributes]), layout)
        for index, (rows, layout) in enumerate(given_batches)
    ]
    signed = [signed_of(rows, layout) for rows, layout in renamed]
    expected = [
        row
        for rows, _ in renamed
        for row in zip(
            rows.keys,
            rows.bodies,
            rows.event_times_us or [EVENT_TIME_US] * len(rows.keys),
            map(shown, rows.attributes or [None] * len(rows.keys)),
            strict=True,
        )
    ]
    assert listed(joined_columns(signed)) == expected


def _numbered(row: dict[str, AttributeValue] | None, index: int) -> dict[str, AttributeValue] | None:
    return None if row is None else {f"{name} of batch {index}": value for name, value in row.items()}


@pytest.mark.parametrize("layouts", [[Layout.ROWS] * 3, [Layout.COLUMNS] * 3, [Layout.ROWS, Layout.COLUMNS] * 2])
def test_an_attribute_that_a_batch_has_not_is_null_there(layouts: list[Layout]) -> None:
    rows = [with_attributes({"a": index}, None) if index % 2 else Rows([b"k"], [b"b"]) for index in range(len(layouts))]
    columns = joined_columns([signed_of(*pair) for pair in zip(rows, layouts, strict=True)])
    expected: list[int | None] = []
    for index in range(len(layouts)):
        expected += [index, None] if index % 2 else [None]
    assert columns.attributes["a"].to_pylist() == expected
    assert columns.rows is None


@pytest.mark.parametrize("layouts", [[Layout.ROWS] * 2, [Layout.COLUMNS] * 2, [Layout.ROWS, Layout.COLUMNS]])
def test_an_attribute_of_two_types_is_refused_by_name(layouts: list[Layout]) -> None:
    rows = [with_attributes({"a": "text"}), with_attributes({"a": 1})]
    with pytest.raises(PeerFault, match="'a'") as caught:
        joined_columns([signed_of(*pair) for pair in zip(rows, layouts, strict=True)])
    assert caught.value.code == "mixed-types"


@pytest.mark.parametrize("layouts", [[Layout.ROWS] * 2, [Layout.COLUMNS] * 2, [Layout.ROWS, Layout.COLUMNS]])
def test_integers_beside_floats_are_floats_where_that_is_exact(layouts: list[Layout]) -> None:
    rows = [with_attributes({"a": 1}), with_attributes({"a": 0.5})]
    columns = joined_columns([signed_of(*pair) for pair in zip(rows, layouts, strict=True)])
    assert columns.attributes["a"].equals(pa.array([1.0, 0.5]))
    rows[0] = with_attributes({"a": (1 << 53) + 1})
    with pytest.raises(PeerFault, match="mixed-types"):
        joined_columns([signed_of(*pair) for pair in zip(rows, layouts, strict=True)])


def test_no_column_has_a_dictionary_and_times_are_always_there() -> None:
    same: dict[str, AttributeValue] = {"word": "same"}
    rows = with_attributes(*[same] * 300)
    columns = joined_columns([signed_of(rows, Layout.COLUMNS), signed_of(with_attributes({"word": "w"}), Layout.ROWS)])
    assert columns.keys.type == pa.binary()
    assert columns.attributes["word"].type == pa.string()
    assert columns.attributes["word"].to_pylist() == ["same"] * 300 + ["w"]
    assert columns.event_times_us is not None
    assert len(columns.event_times_us) == 301


@pytest.mark.parametrize("layout", list(Layout))
def test_of_an_excerpt_its_own_rows_are_joined(layout: Layout) -> None:
    batch, header = signed_of(Rows([b"k"] * 9, [b"%d" % index for index in range(9)]), layout)
    cut = excerpt_record(header, read_columns(batch, header), np.arange(9) % 2 == 0)
    columns = joined_columns([(batch_in(cut), read_header_of(cut)), (batch, header)])
    assert columns.bodies.to_pylist() == [b"0", b"2", b"4", b"6", b"8", *[b"%d" % index for index in range(9)]]
