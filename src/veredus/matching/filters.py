"""What a subscription wants: some keys, and of these what a predicate says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from veredus.delivery.arrays import octets_array
from veredus.kernel.errors import Refused
from veredus.kernel.lazily import pc
from veredus.matching.evaluation import (
    OCTET_NS,
    TERM_NS,
    OctetCost,
    Piecemeal,
    like_compiling_cost,
    octet_costs,
    octets_in,
    tests_of,
)
from veredus.matching.patterns import (
    EVERY_KEY,
    LiteralPattern,
    Pattern,
    PrefixPattern,
    RegexPattern,
    compile_pattern,
)
from veredus.matching.predicate import Predicate, compile_predicate
from veredus.matching.selection import Mask, binary_of, is_worth_spreading, mask_of, spread
from veredus.matching.syntax import operation_count_of
from veredus.matching.wanted import Filter

PATTERN_COUNT_MAX = 256
"""The most key patterns in one filter."""
INSTRUCTION_COUNT_MAX = 16_384
"""The most instructions in all regular expressions of one filter: it is compiled in one piece."""
INSTRUCTIONS_PER_TERM = 16
"""So many instructions of regular expressions count as one more term: each holds hundreds of octets of memory."""
ONE_BY_ONE_COUNT_MAX = 16
"""Up to so many tries of a key against a pattern cost less than to have Arrow try them all at once."""


@dataclass(frozen=True)
class KeyUnion:
    """The keys that any of some patterns matches; patterns that add nothing to a prefix are left out."""

    patterns: tuple[Pattern, ...]
    _literals: pa.BinaryArray = field(repr=False, compare=False)

    @property
    def is_everything(self) -> bool:
        """Whether every key is among them."""
        return self.patterns == (EVERY_KEY,)

    def matches(self, key: bytes) -> bool:
        """Whether `key` is among them."""
        return any(pattern.matches(key) for pattern in self.patterns)

    def select(self, keys: pa.Array | Sequence[bytes]) -> Mask:
        """Which of `keys` are among them, as a mask of `len(keys)`; as `Pattern.select`; a list will do, too."""
        if self.is_everything:
            return np.ones(len(keys), np.bool_)
        if not isinstance(keys, pa.Array):
            if len(keys) * len(self.patterns) <= ONE_BY_ONE_COUNT_MAX:
                return np.array([self.matches(key) for key in keys], np.bool_)
            keys = octets_array(keys)
        if len(self.patterns) == 1:
            return self.patterns[0].select(keys)
        if pa.types.is_dictionary(keys.type):
            return spread(keys, self._scan) if is_worth_spreading(keys) else self._scan(keys.dictionary_decode())
        return self._scan(keys)

    def _scan(self, keys: pa.Array) -> Mask:
        keys = binary_of(keys)
        wanted = mask_of(pc.is_in(keys, value_set=self._literals))
        for pattern in self.patterns:
            if not isinstance(pattern, LiteralPattern):
                wanted = wanted | pattern.select(keys)
        return wanted


@dataclass(frozen=True)
class CompiledFilter:
    """A filter made ready."""

    keys: KeyUnion
    predicate: Predicate | None

    @property
    def is_everything(self) -> bool:
        """Whether no publication at all is left out, so that nothing needs to be looked at."""
        return self.predicate is None and self.keys.is_everything

    @cached_property
    def term_count(self) -> int:
        """How much there is to do for one record: key patterns to try, and operations of the condition; 0 for none."""
        patterns = 0 if self.keys.is_everything else len(self.keys.patterns)
        return patterns + (0 if self.predicate is None else operation_count_of(self.predicate.condition))

    @cached_property
    def size_in_terms(self) -> int:
        """How much is held for it: its terms, and what its regular expressions were compiled to."""
        instructions = sum(pattern.program_size for pattern in self.keys.patterns)
        return self.term_count + instructions // INSTRUCTIONS_PER_TERM

    @cached_property
    def trying_ns(self) -> int:
        """What it costs to try it on no rows, in estimated nanoseconds."""
        keys = 0 if self.keys.is_everything else sum(map(compiling_cost, self.keys.patterns))
        tests = () if self.predicate is None else tests_of(self.predicate.condition)
        return self.term_count * TERM_NS + keys + sum(map(like_compiling_cost, tests))

    @cached_property
    def octet_costs(self) -> dict[str, OctetCost]:
        """By column what its texts cost, `$key` for the keys."""
        costs = {} if self.predicate is None else octet_costs(self.predicate.condition)
        if not self.keys.is_everything:
            before, is_beside_others = costs.get("$key", (0, False))
            costs["$key"] = OctetCost(before + sum(map(octet_cost, self.keys.patterns)), is_beside_others)
        return costs

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that `select` reads besides the keys."""
        if self.predicate is None:
            return ()
        return tuple(name for name in self.predicate.names if name != "$key")

    def select(self, keys: pa.Array | Sequence[bytes], column_of: Callable[[str], pa.Array | None], count: int) -> Mask:
        """Which of `count` rows are wanted, as a mask.

        `keys`: binary, a dictionary of binary, or a list. `column_of` gives a column out of `names` as
        `Predicate.select` takes it, None where there is none; it is asked only where the keys leave something to ask.
        """
        wanted = self.keys.select(keys)
        if self.predicate is None or not wanted.any():
            return wanted
        columns = {name: column for name in self.names if (column := column_of(name)) is not None}
        if "$key" in self.predicate.names:
            columns["$key"] = keys if isinstance(keys, pa.Array) else octets_array(keys)
        return wanted & self.predicate.select(columns, count)


class Trial:
    """A filter tried on a few rows, some of it at a time; nothing of the rows is kept."""

    __slots__ = ("_condition", "_keys", "_pattern_index", "_wanted", "answer")

    def __init__(self, compiled: CompiledFilter) -> None:
        """Nothing was tried yet."""
        self._keys = compiled.keys
        self._pattern_index = 0
        self._wanted: Mask | None = None
        """Of the rows those whose keys match a pattern that was tried."""
        self._condition = None if compiled.predicate is None else Piecemeal(compiled.predicate.condition)
        self.answer: Mask | None = None
        """Which rows are wanted; None while that is not known."""

    def go_on(self, keys: pa.Array, columns_of: Callable[[], Mapping[str, pa.Array]], budget_ns: int) -> int:
        """Go on with the rows, which are the same each time: what was spent, in estimated nanoseconds."""
        spent_ns = 0
        while self._pattern_index < len(self._keys.patterns):
            if spent_ns >= budget_ns:
                return spent_ns
            pattern = self._keys.patterns[self._pattern_index]
            self._pattern_index += 1
            spent_ns += TERM_NS + compiling_cost(pattern) + octets_in(keys) * octet_cost(pattern)
            found = pattern.select(keys)
            self._wanted = found if self._wanted is None else self._wanted | found
        assert self._wanted is not None
        if self._condition is None or not self._wanted.any():
            self.answer = self._wanted
        elif spent_ns < budget_ns:
            found_or_none, more_ns = self._condition.go_on(columns_of(), len(keys), budget_ns - spent_ns)
            spent_ns += more_ns
            if found_or_none is not None:
                self.answer = self._wanted & found_or_none
        return spent_ns


_SMALL_PROGRAM_SIZE = 32
_INSTRUCTION_OCTET_NS = 10
_INSTRUCTION_NS = 5_000
"""What each instruction of a regular expression adds to a term: Arrow compiles it at each call."""


def compiling_cost(pattern: Pattern) -> int:
    """What it costs to make a pattern ready to be tried, in nanoseconds."""
    return pattern.program_size * _INSTRUCTION_NS


def octet_cost(pattern: Pattern) -> int:
    """What each octet of a key costs; of a regular expression by the instructions of its program, as RE2 may have to
    try as many at each octet where its automaton has too many states.
    """
    if isinstance(pattern, RegexPattern) and pattern.program_size > _SMALL_PROGRAM_SIZE:
        return _INSTRUCTION_OCTET_NS * pattern.program_size
    return OCTET_NS


def compile_filter(wanted: Filter) -> CompiledFilter:
    """The filter made ready.

    Raises `Refused`: `bad-pattern` or `bad-predicate` with the `position` where one does not parse, and `bad-filter`
    for more than `PATTERN_COUNT_MAX` patterns, or `INSTRUCTION_COUNT_MAX` instructions.
    """
    if len(wanted.keys) > PATTERN_COUNT_MAX:
        raise Refused(
            "bad-filter",
            f"a filter may have at most {PATTERN_COUNT_MAX} key patterns, this one has {len(wanted.keys)}",
            count_max=PATTERN_COUNT_MAX,
        )
    patterns = _compile_patterns(wanted.keys)
    predicate = None if wanted.where is None else compile_predicate(wanted.where)
    return CompiledFilter(union_of(patterns or [EVERY_KEY]), predicate)


def _compile_patterns(texts: Iterable[str]) -> list[Pattern]:
    patterns: list[Pattern] = []
    count = 0
    for text in dict.fromkeys(texts):
        pattern = compile_pattern(text)
        count += pattern.program_size
        check_program_size(count)
        patterns.append(pattern)
    return patterns


def check_program_size(count: int) -> None:
    """Raise `Refused("bad-filter")` where the regular expressions of one filter have `count` instructions: too many."""
    if count > INSTRUCTION_COUNT_MAX:
        raise Refused(
            "bad-filter",
            f"the regular expressions of one filter may have at most {INSTRUCTION_COUNT_MAX} instructions together,"
            " these have more: write shorter ones, or patterns of another scheme",
            instruction_count_max=INSTRUCTION_COUNT_MAX,
        )


def union_of(patterns: Iterable[Pattern]) -> KeyUnion:
    """The keys that any of `patterns` matches, each pattern once and in the order given."""
    distinct = dict.fromkeys(patterns)
    if any(pattern.is_everything for pattern in distinct):
        return KeyUnion((EVERY_KEY,), octets_array(()))
    prefixes = [pattern.prefix for pattern in distinct if isinstance(pattern, PrefixPattern)]
    kept = tuple(pattern for pattern in distinct if not _is_covered(pattern, prefixes))
    literals = [pattern.key for pattern in kept if isinstance(pattern, LiteralPattern)]
    return KeyUnion(kept, octets_array(literals))


def _is_covered(pattern: Pattern, prefixes: list[bytes]) -> bool:
    match pattern:
        case LiteralPattern(key):
            return any(key.startswith(prefix) for prefix in prefixes)
        case PrefixPattern(own):
            return any(own.startswith(prefix) for prefix in prefixes if prefix != own)
        case _:
            return False
