"""The table of operators and functions: what the grammar knows is what stands here, and a new one is a new row.

The parser takes symbols, precedence and arities from these rows, the evaluation their meaning. A function of a row's
values gives null where it has no result: operands of the wrong kind, division by zero, a result outside int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from veredus.kernel.lazily import pc
from veredus.matching.operands import (
    INT64_MAX,
    INT64_MIN,
    NOTHING,
    NUMBERS,
    OCTETS,
    Comparator,
    Operand,
    comparators,
    valid_both,
)
from veredus.matching.selection import Mask, fixed_width
from veredus.matching.syntax import Kind


class Precedence:
    """How tightly each kind of operator binds: a higher one first."""

    OR: Final = 10
    AND: Final = 20
    NOT: Final = 30
    TEST: Final = 40
    SUM: Final = 50
    PRODUCT: Final = 60
    SIGN: Final = 70


class Join(NamedTuple):
    """An operator between two numbers.

    `integers` and `floats` take two arrays (or single values) and return values and where these are a result, None for
    everywhere.
    """

    precedence: int
    integers: Callable[[Any, Any], tuple[Any, Mask | None]]
    floats: Callable[[Any, Any], tuple[Any, Mask | None]]


class Function(NamedTuple):
    """A function of `arity` values: `apply` takes that many operands and returns one."""

    arity: int
    apply: Callable[..., Operand]


def join(operator: Join, left: Operand, right: Operand) -> Operand:
    """`left operator right` in each row: int64 of two int64, float64 if either is; null for anything but numbers."""
    if left.kind not in NUMBERS or right.kind not in NUMBERS:
        return NOTHING
    valid = valid_both(left.valid, right.valid)
    if left.kind is right.kind is Kind.INTEGER:
        with np.errstate(all="ignore"):
            values, has_result = operator.integers(np.asarray(left.values), np.asarray(right.values))
        kind = Kind.INTEGER
    else:
        with np.errstate(all="ignore"):
            values, has_result = operator.floats(_as_floats(left), _as_floats(right))
        kind = Kind.FLOAT
    return _result(kind, values, valid_both(valid, has_result))


def signed(symbol: str, operand: Operand) -> Operand:
    """`+` or `-` before a number; null for anything else, and for the negation of the least int64."""
    if operand.kind not in NUMBERS:
        return NOTHING
    if symbol == "+":
        return operand
    zero = Operand(Kind.INTEGER, 0) if operand.kind is Kind.INTEGER else Operand(Kind.FLOAT, -0.0)
    return join(JOINS["-"], zero, operand)


def _as_floats(operand: Operand) -> Any:
    return np.asarray(operand.values, np.float64)


def _result(kind: Kind, values: Any, valid: Any) -> Operand:
    """An operand of computed values; a single one becomes plain again, and nothing if it is no result."""
    if np.ndim(values) == 0:
        if valid is None or np.ndim(valid) == 0:
            return Operand(kind, values.item()) if valid is None or valid else NOTHING
        values = np.broadcast_to(values, valid.shape)
    if valid is not None and np.ndim(valid) == 0:
        return Operand(kind, values) if valid else NOTHING
    return Operand(kind, values, valid)


def _add(left: Any, right: Any) -> tuple[Any, Mask]:
    total = left + right
    return total, ((left ^ total) & (right ^ total)) >= 0


def _subtract(left: Any, right: Any) -> tuple[Any, Mask]:
    difference = left - right
    return difference, ((left ^ right) & (left ^ difference)) >= 0


def _multiply(left: Any, right: Any) -> tuple[Any, Mask | None]:
    product = left * right
    if _reach(left) * _reach(right) <= INT64_MAX:
        return product, None
    # -1 is apart: the least int64 divided by it overflows as well.
    divisor = np.where((right == 0) | (right == -1), 1, right)
    return product, np.where(right == -1, left != INT64_MIN, (right == 0) | (product // divisor == left))


def _reach(values: Any) -> int:
    return max(abs(int(np.min(values))), abs(int(np.max(values)))) if np.size(values) else 0


def _divide(left: Any, right: Any) -> tuple[Any, Mask]:
    has_result = (right != 0) & ~((left == INT64_MIN) & (right == -1))
    divisor = np.where(has_result, right, 1)
    quotient = left // divisor
    # numpy rounds down, SQL towards zero.
    is_short = (left % divisor != 0) & ((left < 0) != (divisor < 0))
    return quotient + is_short, has_result


def _divide_floats(left: Any, right: Any) -> tuple[Any, Mask]:
    return left / right, right != 0


def _absolute(operand: Operand) -> Operand:
    if operand.kind not in NUMBERS:
        return NOTHING
    if operand.kind is Kind.FLOAT:
        return _result(Kind.FLOAT, np.abs(_as_floats(operand)), operand.valid)
    values = np.asarray(operand.values)
    with np.errstate(all="ignore"):
        return _result(Kind.INTEGER, np.abs(values), valid_both(operand.valid, values != INT64_MIN))


def _octet_length(operand: Operand) -> Operand:
    if operand.kind not in OCTETS:
        return NOTHING
    if operand.is_single:
        return Operand(Kind.INTEGER, len(operand.values))
    sizes = fixed_width(pc.binary_length(operand.values), np.int32).astype(np.int64)
    return Operand(Kind.INTEGER, sizes, operand.valid)


COMPARISONS: Final[dict[str, Comparator]] = comparators()

JOINS: Final[dict[str, Join]] = {
    "+": Join(Precedence.SUM, _add, lambda left, right: (left + right, None)),
    "-": Join(Precedence.SUM, _subtract, lambda left, right: (left - right, None)),
    "*": Join(Precedence.PRODUCT, _multiply, lambda left, right: (left * right, None)),
    "/": Join(Precedence.PRODUCT, _divide, _divide_floats),
}

FUNCTIONS: Final[dict[str, Function]] = {
    "ABS": Function(1, _absolute),
    "OCTET_LENGTH": Function(1, _octet_length),
}
