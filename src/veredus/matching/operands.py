"""Columns as the evaluation sees them: a kind, values, and which of these are there.

Numbers, bools and timestamps are numpy arrays; text, bytes and keys are binary Arrow arrays, compared by their octets
(which for UTF-8 is the order of code points). A literal is one value that stands for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veredus.delivery.arrays import octets_scalar
from veredus.kernel.errors import Misuse
from veredus.kernel.lazily import pc
from veredus.matching.selection import Mask, binary_of, fixed_width, mask_of, validity_of
from veredus.matching.syntax import PSEUDO_COLUMNS, Kind, Literal

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

OCTETS: Final = (Kind.TEXT, Kind.BYTES, Kind.KEY)
NUMBERS: Final = (Kind.INTEGER, Kind.FLOAT)
DTYPES: Final[dict[Kind, npt.DTypeLike]] = {
    Kind.BOOL: np.bool_,
    Kind.INTEGER: np.int64,
    Kind.FLOAT: np.float64,
    Kind.TIMESTAMP: np.int64,
}


class Verdict(NamedTuple):
    """A condition's answer in each row: true, false, or neither, which is unknown."""

    true: Mask
    false: Mask


@dataclass(frozen=True)
class Operand:
    """A value in each row.

    `values`: by kind a numpy array, a `pa.BinaryArray`, or one number or `bytes` for all rows; None for kind NULL.
    `valid`: where it is not null, None for everywhere. What stands in `values` at a null means nothing.
    """

    kind: Kind
    values: Any = None
    valid: Mask | None = None

    @property
    def is_single(self) -> bool:
        """Whether one value stands for all rows."""
        return not isinstance(self.values, np.ndarray | pa.Array)


NOTHING: Final = Operand(Kind.NULL)


def unknown(count: int) -> Verdict:
    """Unknown in all of `count` rows."""
    return Verdict(np.zeros(count, np.bool_), np.zeros(count, np.bool_))


def verdict_of(answer: Mask, valid: Mask | None) -> Verdict:
    """`answer` where `valid`, unknown elsewhere."""
    return Verdict(answer, ~answer) if valid is None else Verdict(answer & valid, ~answer & valid)


def valid_both(left: Mask | None, right: Mask | None) -> Mask | None:
    """Where both are valid."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def literal_operand(literal: Literal) -> Operand:
    """A literal as an operand."""
    value = literal.value
    if isinstance(value, str):
        return Operand(literal.kind, value.encode())
    return Operand(literal.kind, value)


def column_operand(name: str, columns: Mapping[str, pa.Array], count: int) -> Operand:
    """The column called `name`, null in every row if there is none.

    Raises `Misuse("bad-column")` for a column of another length than `count` or of a type that no attribute has.
    """
    array = columns.get(name)
    if array is None:
        return NOTHING
    if len(array) != count:
        raise Misuse("bad-column", f"column {name} has {len(array)} rows, and the batch has {count}", column=name)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return NOTHING
    kind = _kind_of(name, array.type)
    if kind in OCTETS:
        return Operand(kind, binary_of(array), validity_of(array))
    if kind is Kind.BOOL:
        return Operand(kind, mask_of(array), validity_of(array))
    if kind in NUMBERS:
        array = _widened(name, array, kind)
    return Operand(kind, fixed_width(array, DTYPES[kind]), validity_of(array))


def _kind_of(name: str, kind: pa.DataType) -> Kind:
    types = pa.types
    if name == "$key":
        return Kind.KEY
    if types.is_integer(kind):
        return PSEUDO_COLUMNS.get(name, Kind.INTEGER)
    if types.is_floating(kind):
        return Kind.FLOAT
    if types.is_boolean(kind):
        return Kind.BOOL
    if types.is_timestamp(kind) and kind.unit == "us":
        return Kind.TIMESTAMP
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return Kind.TEXT
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        # A source's name is text, however the batch keeps it.
        return PSEUDO_COLUMNS.get(name, Kind.BYTES)
    raise Misuse("bad-column", f"column {name} has type {kind}, which attributes cannot have", column=name)


def _widened(name: str, array: pa.Array, kind: Kind) -> pa.Array:
    wanted = pa.int64() if kind is Kind.INTEGER else pa.float64()
    if array.type == wanted:
        return array
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid as error:
        raise Misuse("bad-column", f"column {name} does not fit in int64", column=name) from error


class Comparator(NamedTuple):
    """One way to compare, in each of its three homes: numpy, Arrow's binary arrays, and what NaN answers."""

    ufunc: Callable[..., Any]
    arrow: str
    with_nan: bool


def compare(comparator: Comparator, left: Operand, right: Operand, count: int) -> Verdict:
    """Compare in each row; kinds that do not compare are unknown.

    int64 and float64 compare as the numbers that they are, never by rounding one to the other.
    """
    if not is_comparable(left.kind, right.kind):
        return unknown(count)
    valid = valid_both(left.valid, right.valid)
    if left.kind in OCTETS:
        answer = _compare_octets(comparator, left.values, right.values)
    else:
        left, right = _narrowed(left, right.kind), _narrowed(right, left.kind)
        if left.kind is right.kind:
            answer = comparator.ufunc(left.values, right.values)
        elif left.kind is Kind.INTEGER:
            answer = _compare_mixed(comparator, left.values, right.values, 1)
        else:
            answer = _compare_mixed(comparator, right.values, left.values, -1)
    if np.ndim(answer) == 0:
        answer = np.full(count, answer, np.bool_)
    return verdict_of(answer, valid)


def is_comparable(left: Kind, right: Kind) -> bool:
    """Whether values of these kinds compare: alike, both numbers, or a key with text or bytes."""
    if left in NUMBERS:
        return right in NUMBERS
    if Kind.KEY in (left, right):
        return left in OCTETS and right in OCTETS
    return left is right and left is not Kind.NULL


def number_as(value: float, kind: Kind) -> int | float | None:
    """The number of this kind that equals `value`, or None if there is none."""
    if kind is Kind.INTEGER:
        if isinstance(value, int):
            return value
        return int(value) if value.is_integer() and INT64_MIN <= value <= INT64_MAX else None
    return float(value) if float(value) == value else None


def _narrowed(operand: Operand, kind: Kind) -> Operand:
    """A single number as the other side's kind where that is exact, so that the two compare in one step."""
    if not operand.is_single or operand.kind is kind or operand.kind not in NUMBERS:
        return operand
    value = number_as(operand.values, kind)
    return operand if value is None else Operand(kind, value, operand.valid)


def _compare_octets(comparator: Comparator, left: Any, right: Any) -> Any:
    if isinstance(left, bytes) and isinstance(right, bytes):
        return comparator.ufunc((left > right) - (left < right), 0)
    if isinstance(left, bytes):
        left = octets_scalar(left)
    elif isinstance(right, bytes):
        right = octets_scalar(right)
    return mask_of(getattr(pc, comparator.arrow)(left, right))


def _compare_mixed(comparator: Comparator, integers: Any, floats: Any, direction: int) -> Any:
    """Compare int64 with float64 exactly; `direction` is -1 if the integers stand on the right.

    Where the float has an integer part within int64 the integers decide, and on a tie the fraction does.
    """
    floats = np.asarray(floats, np.float64)
    integers = np.asarray(integers, np.int64)
    whole = np.floor(floats)
    is_above = floats >= 2.0**63
    is_below = floats < -(2.0**63)
    is_nan = np.isnan(floats)
    whole_integers = np.where(is_above | is_below | is_nan, 0.0, whole).astype(np.int64)
    order = (integers > whole_integers).astype(np.int8) - (integers < whole_integers).astype(np.int8)
    order = np.where((order == 0) & (floats > whole), -1, order)
    order = np.where(is_above, -1, np.where(is_below, 1, order))
    return np.where(is_nan, comparator.with_nan, comparator.ufunc(order * direction, 0))


def comparators() -> dict[str, Comparator]:
    """Every comparison by its symbol."""
    return {
        "=": Comparator(np.equal, "equal", False),
        "<>": Comparator(np.not_equal, "not_equal", True),
        "<": Comparator(np.less, "less", False),
        "<=": Comparator(np.less_equal, "less_equal", False),
        ">": Comparator(np.greater, "greater", False),
        ">=": Comparator(np.greater_equal, "greater_equal", False),
    }
