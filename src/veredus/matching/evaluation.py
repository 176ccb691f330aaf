"""Predicates over whole columns, in three-valued logic: every condition is answered by a pair of masks.

A condition that reads nothing but one dictionary column is tried once for each distinct value. A chain stops at the
condition after which nothing can change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import re2

from veredus.delivery.arrays import constant_octets, octets_array, octets_scalar
from veredus.kernel.errors import InvariantBroken
from veredus.kernel.lazily import pc
from veredus.matching.likeness import SEARCHED_SIZE_MIN, Search, like_parts
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
from veredus.matching.selection import Mask, as_text, has_octets, is_worth_spreading, mask_of, sizes_of, spread
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
    operation_count_of,
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
        return verdict_of(self._like(operand.values, condition), operand.valid)

    def _like(self, values: pa.BinaryArray, condition: Likeness) -> Mask:
        return mask_of(_likeness_of(values, condition.pattern, condition.escape))

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


class _Pause(Exception):  # nothing is wrong
    """The budget is spent."""


class Piecemeal:
    """A condition tried on a few rows, some terms at a time: what they answered is kept, and nothing of the rows."""

    def __init__(self, condition: Condition) -> None:
        """Nothing was tried yet."""
        self._condition = condition
        self._answers: dict[Condition, Verdict] = {}
        self._searches: dict[Condition, Search] = {}

    def go_on(self, columns: Mapping[str, pa.Array], count: int, budget_ns: int) -> tuple[Mask | None, int]:
        """Try further terms on the rows, the same at each call, at least one: where the condition is true, None where
        that is not known yet, and what was spent, in estimated nanoseconds.
        """
        rows = _Rows(columns, count, self._answers, self._searches, budget_ns)
        try:
            return rows.verdict(self._condition).true, rows.spent_ns
        except _Pause:
            return None, rows.spent_ns


class _Rows(_Batch):
    """A batch whose terms are tried while a budget lasts."""

    def __init__(
        self,
        columns: Mapping[str, pa.Array],
        count: int,
        answers: dict[Condition, Verdict],
        searches: dict[Condition, Search],
        budget_ns: int,
    ) -> None:
        super().__init__(columns, count)
        self._answers = answers
        self._searches = searches
        self._budget_ns = budget_ns
        self.spent_ns = 0

    def _test_by_value(self, condition: Condition) -> Verdict:
        answer = self._answers.get(condition)
        if answer is None:
            if self.spent_ns and self.spent_ns >= self._budget_ns:
                raise _Pause
            self.spent_ns += operation_count_of(condition) * TERM_NS + ROW_NS * self._count
            size = sum(octets_in(self._columns.get(name)) for name in names_of(condition))
            if not isinstance(condition, Likeness):
                self.spent_ns += size * OCTET_NS
            elif not self._is_long(size):
                self.spent_ns += like_compiling_cost(condition) + size * like_cost(condition)
            answer = self._answers[condition] = super()._test_by_value(condition)
        return answer

    def _is_long(self, size: int) -> bool:
        return self._count == 1 and size >= SEARCHED_SIZE_MIN

    def _like(self, values: pa.BinaryArray, condition: Likeness) -> Mask:
        if not self._is_long(octets_in(values)):
            return super()._like(values, condition)
        search = self._searches.get(condition)
        if search is None:
            search = self._searches[condition] = Search(condition.pattern, condition.escape)
        answer, spent_ns = search.go_on(memoryview(values[0].as_buffer()), self._budget_ns)
        self.spent_ns += spent_ns
        if answer is None:
            raise _Pause
        del self._searches[condition]
        return np.full(1, answer, np.bool_)


TERM_NS: Final = 8_000
"""What it costs to try one term of a filter on a batch, however few rows it has; measured, roughly."""
ROW_NS: Final = 5
"""What each row adds to that."""
OCTET_NS: Final = 1
"""What each octet of text costs that a term compares."""
_LIKE_CHARACTER_NS = 10_000
"""What each character of a pattern adds to a term with LIKE: Arrow compiles it at each call."""
_LIKE_OCTET_NS = 3
_LIKE_BLANKS_MAX = 8
_LIKE_BLANK_NS = 50


def like_compiling_cost(condition: Condition) -> int:
    """What it costs to make a pattern of LIKE ready to be tried, in nanoseconds; 0 for any other test."""
    return len(condition.pattern) * _LIKE_CHARACTER_NS if isinstance(condition, Likeness) else 0


def like_cost(condition: Likeness) -> int:
    """What each octet of a text costs RE2 that is tried with this pattern, in nanoseconds.

    RE2's automaton has a state for each set of places of the pattern that may be reached together: `_` behind a `%`
    doubles them, and where they are too many it goes on by trying all these places at each octet.
    """
    _, wildcard, rest = condition.pattern.partition("%")
    count = rest.count("_") if wildcard else 0
    return _LIKE_OCTET_NS if count <= _LIKE_BLANKS_MAX else _LIKE_BLANK_NS * count


def octets_in(column: pa.Array | None) -> int:
    """How many octets the texts of a column have that are tried: each of a dictionary once, where that pays."""
    if column is None or not has_octets(column.type):
        return 0
    return int(sizes_of(column.dictionary if is_worth_spreading(column) else column).sum())


def tests_of(condition: Condition) -> Iterator[Condition]:
    """The tests that a condition joins."""
    pending: list[Condition] = [condition]
    while pending:
        match pending.pop():
            case Conjunction(conditions) | Disjunction(conditions):
                pending += conditions
            case Negation(inner):
                pending.append(inner)
            case test:
                yield test


class OctetCost(NamedTuple):
    """What the texts of a column cost that a filter reads."""

    octet_ns: int
    """For each octet, in nanoseconds."""
    is_beside_others: bool
    """Whether a term reads it beside another column: a dictionary is written out for that."""


def octet_costs(condition: Condition) -> dict[str, OctetCost]:
    """By column what its texts cost."""
    costs: dict[str, OctetCost] = {}
    for test in tests_of(condition):
        names = names_of(test)
        octet_ns = like_cost(test) if isinstance(test, Likeness) else OCTET_NS
        for name in names:
            before, is_beside_others = costs.get(name, (0, False))
            costs[name] = OctetCost(before + octet_ns, is_beside_others or len(names) > 1)
    return costs


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
    parts = like_parts(pattern, escape)
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
