"""Batches out of lists: how keys are written."""

import pyarrow as pa
import pytest

from veredus.delivery.batch import BatchHeader, BatchLimits, Layout
from veredus.delivery.cutting import Cutting, Listed
from veredus.delivery.payload import list_of, read_columns, verify_payload
from veredus.delivery.record import ENVELOPE_SIZE

COUNT = 200


def columns_of(keys: list[bytes | str]) -> tuple[pa.Array, pa.Array]:
    """Keys and bodies as they come out of a batch, which a node would take."""
    bodies = [b"%d" % index for index in range(len(keys))]
    count = len(keys)
    header = BatchHeader(Layout.ROWS, 0, 0, 0, count, 1, 1, 1, count, 1, 0, 0)
    made = Cutting(None).record_of(Listed(list(keys), list(bodies)), header, b"", 0, BatchLimits())
    assert made is not None
    header, record = made
    batch = memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + header.size]
    verify_payload(batch, header, BatchLimits())
    columns = read_columns(batch, header)
    assert list_of(columns.bodies) == bodies
    return columns.keys, columns.bodies


def test_keys_that_are_all_equal_are_written_once() -> None:
    keys, _ = columns_of([b"same"] * COUNT)
    assert pa.types.is_dictionary(keys.type)
    assert len(keys.dictionary) == 1
    assert list_of(keys) == [b"same"] * COUNT
    assert list_of(keys.slice(7, 3)) == [b"same"] * 3


@pytest.mark.parametrize("index", [0, COUNT // 2, COUNT - 1])
def test_one_key_that_differs_is_kept(index: int) -> None:
    wanted = [b"same"] * COUNT
    wanted[index] = b"other"
    keys, _ = columns_of(list(wanted))
    assert list_of(keys) == wanted


def test_a_text_key_for_all_is_written_as_utf_8() -> None:
    keys, _ = columns_of(["schlüssel"] * COUNT)
    assert list_of(keys) == ["schlüssel".encode()] * COUNT
