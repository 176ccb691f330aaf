"""Predicates over whole columns, in three-valued logic: every condition is answered by a pair of masks.

A condition that reads nothing but one dictionary column is tried once for each distinct value. A chain stops at the
condition after which nothing can change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import re2

from veredus.delivery.arrays import constant_octets, octets_array, octets_scalar
from veredus.kernel.arrow import pc
from veredus.kernel.errors import InvariantBroken
from veredus.matching.operands import (
    DTYPES,
    NUMBERS,
    OCTETS,
    Operand,
    Verdict,
    column_operand,
    compare,
    is_comparable,
    literal_operand,
    number_as,
    unknown,
    verdict_of,
)
from veredus.matching.operators import COMPARISONS, FUNCTIONS, JOINS, join, signed
from veredus.matching.selection import as_text, is_worth_spreading, mask_of, spread
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
    names_of,
)

_UNKNOWN, _TRUE, _FALSE = np.uint8(0), np.uint8(1), np.uint8(2)


def evaluate(condition: Condition, columns: Mapping[str, pa.Array], count: int) -> Verdict:
    """The answer of `condition` in each of `count` rows. Raises `Misuse("bad-column")` for a column of no use."""
    return _Batch(columns, count).verdict(condition)


class _Batch:
    """The columns of one batch, each made an operand once."""

    def __init__(self, columns: Mapping[str, pa.Array], count: int) -> None:
        self._columns = columns
        self._operands: dict[str, Operand] = {}
        self._count = count

    def verdict(self, condition: Condition) -> Verdict:
        match condition:
            case Conjunction(conditions):
                return self._all(conditions)
            case Disjunction(conditions):
                # a OR b is NOT (NOT a AND NOT b), and NOT but swaps the masks.
                swapped = self._all(tuple(Negation(one) for one in conditions))
                return Verdict(swapped.false, swapped.true)
            case Negation(inner):
                answer = self.verdict(inner)
                return Verdict(answer.false, answer.true)
            case _:
                return self._test_by_value(condition)

    def _all(self, conditions: tuple[Condition, ...]) -> Verdict:
        true, false = self.verdict(conditions[0])
        for condition in conditions[1:]:
            if false.all():
                break
            answer = self.verdict(condition)
            true, false = true & answer.true, false | answer.false
        return Verdict(true, false)

    def _test_by_value(self, condition: Condition) -> Verdict:
        names = names_of(condition)
        if len(names) != 1:
            return self._test(condition)
        (name,) = names
        column = self._columns.get(name)
        if column is None or len(column) != self._count or not is_worth_spreading(column):
            return self._test(condition)

        def flags_of(values: pa.Array) -> npt.NDArray[np.uint8]:
            answer = _Batch({name: values}, len(values)).verdict(condition)
            return np.where(answer.true, _TRUE, np.where(answer.false, _FALSE, _UNKNOWN))

        flags = spread(column, flags_of)
        return Verdict(flags == _TRUE, flags == _FALSE)

    def _test(self, condition: Condition) -> Verdict:
        handler = _TESTS.get(type(condition))
        if handler is None:
            raise InvariantBroken(f"no evaluation for {type(condition).__name__}")
        answer = handler(self, condition)
        if getattr(condition, "is_negated", False):
            return Verdict(answer.false, answer.true)
        return answer

    def _truth(self, condition: Truth) -> Verdict:
        operand = self.operand(condition.value)
        if operand.kind is not Kind.BOOL:
            return unknown(self._count)
        return verdict_of(np.broadcast_to(operand.values, (self._count,)), operand.valid)

    def _comparison(self, condition: Comparison) -> Verdict:
        left, right = self.operand(condition.left), self.operand(condition.right)
        return compare(COMPARISONS[condition.symbol], left, right, self._count)

    def _between(self, condition: Between) -> Verdict:
        value, low, high = (self.operand(one) for one in (condition.value, condition.low, condition.high))
        above = compare(COMPARISONS[">="], value, low, self._count)
        below = compare(COMPARISONS["<="], value, high, self._count)
        return Verdict(above.true & below.true, above.false | below.false)

    def _membership(self, condition: Membership) -> Verdict:
        operand = self.operand(condition.value)
        comparable = [one for one in condition.choices if is_comparable(operand.kind, one.kind)]
        if not comparable:
            return unknown(self._count)
        found = np.broadcast_to(_is_any_of(operand, comparable), (self._count,))
        answer = verdict_of(found, operand.valid)
        if len(comparable) < len(condition.choices):
            # Against a choice of another kind equality is unknown, and so is the whole unless another one is true.
            return Verdict(answer.true, np.zeros(self._count, np.bool_))
        return answer

    def _likeness(self, condition: Likeness) -> Verdict:
        operand = self.operand(condition.value)
        if operand.kind not in (Kind.TEXT, Kind.KEY):
            return unknown(self._count)
        if operand.is_single:
            operand = Operand(operand.kind, constant_octets(operand.values, self._count))
        return verdict_of(mask_of(_likeness_of(operand.values, condition.pattern, condition.escape)), operand.valid)

    def _nullness(self, condition: Nullness) -> Verdict:
        operand = self.operand(condition.value)
        if operand.kind is Kind.NULL:
            return Verdict(np.ones(self._count, np.bool_), np.zeros(self._count, np.bool_))
        if operand.valid is None:
            return Verdict(np.zeros(self._count, np.bool_), np.ones(self._count, np.bool_))
        return Verdict(~operand.valid, operand.valid)

    def operand(self, value: Value) -> Operand:
        match value:
            case Literal():
                return literal_operand(value)
            case Name(name):
                found = self._operands.get(name)
                if found is None:
                    found = self._operands[name] = column_operand(name, self._columns, self._count)
                return found
            case Sign(symbol, inner):
                return signed(symbol, self.operand(inner))
            case Arithmetic(first, rest):
                total = self.operand(first)
                for symbol, next_value in rest:
                    total = join(JOINS[symbol], total, self.operand(next_value))
                return total
            case Call(function, arguments):
                return FUNCTIONS[function].apply(*(self.operand(argument) for argument in arguments))


_TESTS: Final[dict[type, Callable[[Any, Any], Verdict]]] = {
    Truth: _Batch._truth,
    Comparison: _Batch._comparison,
    Between: _Batch._between,
    Membership: _Batch._membership,
    Likeness: _Batch._likeness,
    Nullness: _Batch._nullness,
}


def _is_any_of(operand: Operand, choices: list[Literal]) -> Any:
    """Where `operand` equals one of `choices`, all of which compare with it."""
    if operand.kind in OCTETS:
        wanted = [literal_operand(choice).values for choice in choices]
        if operand.is_single:
            return operand.values in wanted
        return mask_of(pc.is_in(operand.values, value_set=octets_array(wanted)))
    numbers: list[Any] = [choice.value for choice in choices]
    if operand.kind in NUMBERS:
        # A number that has no equal of this kind equals nothing in the column.
        numbers = [same for number in numbers if (same := number_as(number, operand.kind)) is not None]
    return np.isin(operand.values, np.array(numbers, DTYPES[operand.kind]))


def _likeness_of(values: pa.BinaryArray, pattern: str, escape: str | None) -> pa.BooleanArray:
    parts = _like_parts(pattern, escape)
    literals = [part for part in parts if isinstance(part, bytes)]
    match [part if isinstance(part, str) else "" for part in parts]:
        case []:
            return pc.equal(values, octets_scalar(b""))
        case [""]:
            return pc.equal(values, octets_scalar(literals[0]))
        case ["%"]:
            return pc.starts_with(values, b"")
        case ["", "%"]:
            return pc.starts_with(values, literals[0])
        case ["%", ""]:
            return pc.ends_with(values, literals[0])
        case ["%", "", "%"]:
            return pc.match_substring(values, literals[0])
    pieces = [_LIKE_REGEX[part] if isinstance(part, str) else re2.escape(part.decode()) for part in parts]
    return pc.match_substring_regex(as_text(values), rf"\A{''.join(pieces)}\z")


# `%` takes any octets, also those that are no UTF-8; `_` takes one character of UTF-8.
_LIKE_REGEX: Final = {"%": r"\C*", "_": "(?s:.)"}


def _like_parts(pattern: str, escape: str | None) -> list[bytes | str]:
    """The pattern as literal runs (bytes) and wildcards (`%` once for any number in a row, or `_`)."""
    parts: list[bytes | str] = []
    literal = ""
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == escape:
            index += 1
            literal += pattern[index]
        elif character in "%_":
            if literal:
                parts.append(literal.encode())
                literal = ""
            if not (character == "%" and parts and parts[-1] == "%"):
                parts.append(character)
        else:
            literal += character
        index += 1
    return [*parts, literal.encode()] if literal else parts
