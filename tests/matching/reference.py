"""Predicates a row at a time, as plainly as they can be said: what the evaluation by columns must agree with.

A value is `(kind, python value)` or None for null; a condition is True, False, or None for unknown.
"""

import operator
from collections.abc import Mapping

from veredus.matching.syntax import (
    Arithmetic,
    Between,
    Call,
    Comparison,
    Condition,
    Conjunction,
    Disjunction,
    Kind,
    Likeness,
    Literal,
    Membership,
    Name,
    Negation,
    Nullness,
    Sign,
    Truth,
    Value,
)

Scalar = bool | int | float | bytes | str
Cell = tuple[Kind, Scalar] | None
Row = Mapping[str, Cell]

OCTETS = (Kind.TEXT, Kind.BYTES, Kind.KEY)
NUMBERS = (Kind.INTEGER, Kind.FLOAT)
SYMBOLS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def answer(condition: Condition, row: Row) -> bool | None:
    match condition:
        case Negation(inner):
            return negated(answer(inner, row))
        case Conjunction(conditions):
            answers = [answer(one, row) for one in conditions]
            return False if False in answers else None if None in answers else True
        case Disjunction(conditions):
            answers = [answer(one, row) for one in conditions]
            return True if True in answers else None if None in answers else False
        case Truth(value):
            cell = cell_of(value, row)
            return bool(cell[1]) if cell is not None and cell[0] is Kind.BOOL else None
        case Comparison(symbol, left, right):
            return compared(symbol, cell_of(left, row), cell_of(right, row))
        case _:
            found = tested(condition, row)
            return negated(found) if condition.is_negated else found


def tested(condition: Between | Membership | Likeness | Nullness, row: Row) -> bool | None:
    cell = cell_of(condition.value, row)
    match condition:
        case Nullness():
            return cell is None
        case Between(_, low, high):
            bounds = [compared(">=", cell, cell_of(low, row)), compared("<=", cell, cell_of(high, row))]
            return False if False in bounds else None if None in bounds else True
        case Membership(_, choices):
            answers = [compared("=", cell, (choice.kind, choice.value)) for choice in choices]
            return True if True in answers else None if None in answers else False
        case Likeness(_, pattern, escape):
            if cell is None or cell[0] not in (Kind.TEXT, Kind.KEY):
                return None
            return is_like(octets(cell[1]).decode("utf-8", "surrogateescape"), steps_of(pattern, escape))


def negated(found: bool | None) -> bool | None:
    return None if found is None else not found


def octets(value: Scalar) -> bytes:
    assert isinstance(value, bytes | str)
    return value.encode() if isinstance(value, str) else value


def compared(symbol: str, left: Cell, right: Cell) -> bool | None:
    if left is None or right is None:
        return None
    kinds = (left[0], right[0])
    if all(kind in OCTETS for kind in kinds):
        if kinds[0] is not kinds[1] and Kind.KEY not in kinds:
            return None
        return bool(SYMBOLS[symbol](octets(left[1]), octets(right[1])))
    if kinds[0] is kinds[1] or all(kind in NUMBERS for kind in kinds):
        return bool(SYMBOLS[symbol](left[1], right[1]))
    return None


def cell_of(value: Value, row: Row) -> Cell:
    match value:
        case Literal(kind, content):
            return kind, content
        case Name(name):
            return row.get(name)
        case Sign(symbol, operand):
            cell = cell_of(operand, row)
            if cell is None or cell[0] not in NUMBERS:
                return None
            return checked(cell[0], -cell[1] if symbol == "-" else cell[1])
        case Arithmetic(first, rest):
            cell = cell_of(first, row)
            for symbol, operand in rest:
                cell = joined(symbol, cell, cell_of(operand, row))
            return cell
        case Call("ABS", (argument,)):
            cell = cell_of(argument, row)
            return None if cell is None or cell[0] not in NUMBERS else checked(cell[0], abs(cell[1]))
        case Call("OCTET_LENGTH", (argument,)):
            cell = cell_of(argument, row)
            return None if cell is None or cell[0] not in OCTETS else (Kind.INTEGER, len(octets(cell[1])))
    raise AssertionError(value)


def checked(kind: Kind, number: float) -> Cell:
    return None if kind is Kind.INTEGER and not -(2**63) <= number < 2**63 else (kind, number)


def joined(symbol: str, left: Cell, right: Cell) -> Cell:
    if left is None or right is None or left[0] not in NUMBERS or right[0] not in NUMBERS:
        return None
    if symbol == "/" and right[1] == 0:
        return None
    if left[0] is right[0] is Kind.INTEGER:
        a, b = int(left[1]), int(right[1])
        quotient = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return checked(Kind.INTEGER, {"+": a + b, "-": a - b, "*": a * b, "/": quotient}[symbol])
    x, y = float(left[1]), float(right[1])
    return Kind.FLOAT, {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[symbol](x, y)


def steps_of(pattern: str, escape: str | None) -> list[tuple[bool, str]]:
    """Characters with whether each is a wildcard."""
    steps: list[tuple[bool, str]] = []
    characters = iter(pattern)
    for character in characters:
        steps.append((False, next(characters)) if character == escape else (character in "%_", character))
    return steps


def is_like(text: str, steps: list[tuple[bool, str]]) -> bool:
    if not steps:
        return not text
    (is_wild, character), rest = steps[0], steps[1:]
    if is_wild and character == "%":
        return any(is_like(text[start:], rest) for start in range(len(text) + 1))
    if not text:
        return False
    is_octet = "\udc80" <= text[0] <= "\udcff"
    return (not is_octet if is_wild else text[0] == character) and is_like(text[1:], rest)
