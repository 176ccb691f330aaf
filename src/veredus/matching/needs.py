"""What each row that a filter wants must have: the parts of a filter that an index can look up.

A need is necessary, and all needs of a filter together need not be enough: a number is compared as a float64, which may
round it, and what no need says (NOT, OR, arithmetic, two columns) is left to the filter itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf, nextafter
from typing import Final, TypeAlias

from veredus.matching.filters import CompiledFilter, KeyUnion
from veredus.matching.likeness import like_parts
from veredus.matching.patterns import LiteralPattern, Pattern, PrefixPattern, RegexPattern, TokensPattern
from veredus.matching.syntax import (
    Between,
    Comparison,
    Condition,
    Conjunction,
    Kind,
    Likeness,
    Literal,
    Membership,
    Name,
)

_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NUMBERS: Final = (Kind.INTEGER, Kind.FLOAT, Kind.TIMESTAMP)
_WORDS: Final = (Kind.TEXT, Kind.BYTES)
_EXACT_BELOW: Final = float(1 << 53)
"""Below this a float64 tells each number from the next integer: what is not the same is not rounded to the same."""


@dataclass(frozen=True, slots=True)
class Span:
    """A number, or a time in µs, from `low` to `high`, both inclusive and rounded to float64."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these texts (as UTF-8), bytes or keys."""

    name: str
    words: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Begins:
    """A text (as UTF-8) or key that begins with one of these."""

    name: str
    prefixes: frozenset[bytes]


Need: TypeAlias = Span | OneOf | Begins


def needs_of(wanted: CompiledFilter) -> tuple[Need, ...]:
    """The needs of a filter, one for each column and kind of need at most; () where an index cannot help."""
    found: dict[tuple[type[Need], str], Need] = {}
    conditions = [] if wanted.predicate is None else list(_joined(wanted.predicate.condition))
    for need in (_need_of_keys(wanted.keys), *map(_need_of, conditions)):
        if need is not None:
            place = type(need), need.name
            found[place] = _both(found[place], need) if place in found else need
    return tuple(found.values())


def _joined(condition: Condition) -> Iterator[Condition]:
    """The conditions all of which must hold."""
    if isinstance(condition, Conjunction):
        for one in condition.conditions:
            yield from _joined(one)
    else:
        yield condition


def _both(one: Need, other: Need) -> Need:
    match one, other:
        case Span(name, low, high), Span(_, low2, high2):
            return Span(name, max(low, low2), min(high, high2))
        case OneOf(name, words), OneOf(_, words2):
            return OneOf(name, words & words2)
        case _:
            # Of two sets of prefixes the smaller one leaves out more, as a rule.
            return one


def _need_of_keys(keys: KeyUnion) -> Need | None:
    if keys.is_everything:
        return None
    if all(isinstance(pattern, LiteralPattern) for pattern in keys.patterns):
        return OneOf("$key", frozenset(pattern.key for pattern in keys.patterns if isinstance(pattern, LiteralPattern)))
    return _begins("$key", map(_prefix_of, keys.patterns))


def _prefix_of(pattern: Pattern) -> bytes:
    match pattern:
        case LiteralPattern(key):
            return key
        case PrefixPattern(prefix):
            return prefix
        case TokensPattern(tokens, has_tail):
            first = tokens[: tokens.index(None)] if None in tokens else tokens
            ends = has_tail or len(first) < len(tokens)
            return (
                b"".join(token + b"." for token in first if token is not None)
                if ends
                else b".".join(token for token in first if token is not None)
            )
        case RegexPattern():
            return pattern.required_prefix
        case _:
            return b""


def _begins(name: str, prefixes: Iterable[bytes]) -> Begins | None:
    kept = frozenset(prefixes)
    return None if b"" in kept else Begins(name, kept)


def _need_of(condition: Condition) -> Need | None:
    match condition:
        case Comparison(symbol, Name(name), Literal() as literal):
            return _need_of_comparison(name, symbol, literal)
        case Comparison(symbol, Literal() as literal, Name(name)):
            return _need_of_comparison(name, _MIRRORED.get(symbol, ""), literal)
        case Between(Name(name), Literal(low_kind, low), Literal(high_kind, high), False):
            if low_kind in _NUMBERS and high_kind in _NUMBERS:
                return Span(name, float(low), float(high))
        case Membership(Name(name), choices, False):
            return _need_of_membership(name, choices)
        case Likeness(Name(name), pattern, escape, False):
            return _need_of_likeness(name, pattern, escape)
        case _:
            pass
    return None


def _need_of_comparison(name: str, symbol: str, literal: Literal) -> Need | None:
    if symbol == "=" and literal.kind in _WORDS:
        return OneOf(name, frozenset({_octets_of(literal)}))
    if literal.kind not in _NUMBERS:
        return None
    number = float(literal.value)
    match symbol:
        case "=":
            return Span(name, number, number)
        case "<":
            return Span(name, -inf, nextafter(number, -inf) if abs(number) < _EXACT_BELOW else number)
        case "<=":
            return Span(name, -inf, number)
        case ">":
            return Span(name, nextafter(number, inf) if abs(number) < _EXACT_BELOW else number, inf)
        case ">=":
            return Span(name, number, inf)
        case _:
            return None


def _need_of_membership(name: str, choices: tuple[Literal, ...]) -> Need | None:
    if all(choice.kind in _WORDS for choice in choices):
        return OneOf(name, frozenset(map(_octets_of, choices)))
    if all(choice.kind in _NUMBERS for choice in choices):
        numbers = [float(choice.value) for choice in choices]
        return Span(name, min(numbers), max(numbers))
    return None


def _need_of_likeness(name: str, pattern: str, escape: str | None) -> Need | None:
    parts = like_parts(pattern, escape)
    if not parts:
        return OneOf(name, frozenset({b""}))
    first = parts[0]
    if not isinstance(first, bytes):
        return None
    return OneOf(name, frozenset({first})) if len(parts) == 1 else Begins(name, frozenset({first}))


def _octets_of(literal: Literal) -> bytes:
    value = literal.value
    return value if isinstance(value, bytes) else str(value).encode()
