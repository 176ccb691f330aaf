"""What a subscription wants: some keys, and of these what a predicate says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cursus.delivery.arrays import octets_array
from cursus.kernel.errors import Refused
from cursus.matching.patterns import EVERY_KEY, LiteralPattern, Pattern, PrefixPattern, compile_pattern
from cursus.matching.predicate import Predicate, compile_predicate
from cursus.matching.selection import Mask, binary_of, is_worth_spreading, mask_of, spread

PATTERN_COUNT_MAX = 256
"""The most key patterns in one filter."""


class Filter(msgspec.Struct, frozen=True):
    """A filter as it is written, sent and journaled: key patterns, any of which will do, and a condition.

    Without patterns every key will do, without a condition every publication of these keys.
    """

    keys: tuple[str, ...] = ()
    where: str | None = None


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

    def select(self, keys: pa.Array) -> Mask:
        """Which of `keys` are among them, as a mask of `len(keys)`; as `Pattern.select`."""
        if self.is_everything:
            return np.ones(len(keys), np.bool_)
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

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that `select` reads besides the keys."""
        if self.predicate is None:
            return ()
        return tuple(name for name in self.predicate.names if name != "$key")

    def select(self, keys: pa.Array, columns: Mapping[str, pa.Array], count: int) -> Mask:
        """Which of `count` rows are wanted, as a mask.

        `keys`: binary, or a dictionary of binary. `columns`: what `names` names, as `Predicate.select` takes it.
        """
        wanted = self.keys.select(keys)
        if self.predicate is None or not wanted.any():
            return wanted
        if "$key" in self.predicate.names:
            columns = {**columns, "$key": keys}
        return wanted & self.predicate.select(columns, count)


def compile_filter(wanted: Filter) -> CompiledFilter:
    """The filter made ready.

    Raises `Refused`: `bad-pattern` or `bad-predicate` with the `position` where one does not parse, and `bad-filter`
    for more than `PATTERN_COUNT_MAX` patterns.
    """
    if len(wanted.keys) > PATTERN_COUNT_MAX:
        raise Refused(
            "bad-filter",
            f"a filter has at most {PATTERN_COUNT_MAX} key patterns, this has {len(wanted.keys)}",
            count_max=PATTERN_COUNT_MAX,
        )
    patterns = [compile_pattern(text) for text in wanted.keys]
    predicate = None if wanted.where is None else compile_predicate(wanted.where)
    return CompiledFilter(union_of(patterns or [EVERY_KEY]), predicate)


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
