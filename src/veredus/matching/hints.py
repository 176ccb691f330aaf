"""What is probably not meant in a condition that is valid: it would wait for ever for what never comes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from veredus.matching.lexer import NO_COMMENT, Token, TokenKind, date_at, double_minus_of, tokens_of
from veredus.matching.operands import NUMBERS, OCTETS, is_comparable
from veredus.matching.operators import COMPARISONS
from veredus.matching.parser import parse
from veredus.matching.syntax import (
    PSEUDO_COLUMNS,
    Arithmetic,
    Between,
    Call,
    Comparison,
    Kind,
    Likeness,
    Literal,
    Membership,
    Name,
    Node,
    Sign,
    Value,
    children_of,
    text_of,
)

_OTHER_PARTS: Final = ("body", "number", "attributes")
"""Parts of a publication that no condition reads."""
_HYPHENATED: Final = re.compile(r"[^\W\d]\w*(?:-[^\W\d]\w*)+")
_KINDS: Final = {Kind.TEXT: "text", Kind.KEY: "a key", Kind.BYTES: "bytes", Kind.TIMESTAMP: "a timestamp"}


def hints_of(where: str) -> list[str]:
    """A sentence for each name and test that is probably not meant, in their order, each once.

    A name in double quotes is meant. Raises `Refused("bad-predicate")` where the condition does not parse.
    """
    hints = [*_hints_on_minus(where), *_hints_on_names(where), *_hints_on_tests(parse(where))]
    return list(dict.fromkeys(hints))


def _hints_on_minus(where: str) -> Iterator[str]:
    tokens = tokens_of(where)
    if double_minus_of(tokens):
        yield f"{NO_COMMENT}: take it out, or write - (-x) with parentheses if it is meant"
    for token in tokens:
        date = date_at(where, token.position) if token.kind is TokenKind.INTEGER else ""
        if date:
            yield f"{date} is a number here, {date.replace('-', ' minus ')}: write TIMESTAMP '{date}'"
    for name in _hyphenated(where, tokens):
        parts = name.split("-")
        yield (
            f'{name} is {" minus ".join(parts)} here: write "{name}" in double quotes if this is one attribute, or'
            f" {' - '.join(parts)} with spaces"
        )


def _hyphenated(where: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Names with nothing but minus signs between them, as they are written."""
    end = 0
    for token in tokens:
        is_bare = token.kind is TokenKind.NAME and not token.is_quoted
        match = _HYPHENATED.match(where, token.position)
        if is_bare and match is not None and token.position >= end:
            end = match.end()
            yield match.group()


def _hints_on_names(where: str) -> Iterator[str]:
    before = ""
    for token in tokens_of(where):
        name, is_compared, before = str(token.value), before in COMPARISONS, str(token.value)
        if token.kind is not TokenKind.NAME or name in PSEUDO_COLUMNS:
            continue
        if token.is_quoted:
            if is_compared and name.isidentifier() and f"${name.lower()}" not in PSEUDO_COLUMNS:
                yield f"\"{name}\" is the name of an attribute: write text in single quotes, '{name}'"
            continue
        said = f"{name} is the name of an attribute here"
        otherwise = f'if this attribute is meant, write "{name}" in double quotes'
        if f"${name.lower()}" in PSEUDO_COLUMNS:
            yield f"{said}: write ${name.lower()} for the publication's own; {otherwise}"
        elif name.lower() in _OTHER_PARTS:
            yield f"{said}: a condition cannot read the {name.lower()} of a publication; {otherwise}"


def _hints_on_tests(node: Node) -> Iterator[str]:
    match node:
        case Comparison(_, left, right):
            pairs = [(left, right)]
        case Between(value, low, high):
            pairs = [(value, low), (value, high)]
        case Membership(value, choices):
            pairs = [(value, choice) for choice in choices]
        case Likeness(value) if _kind_of(value) not in (None, Kind.TEXT, Kind.KEY):
            yield f"{text_of(node)}: {_described(value)}, and LIKE needs text or $key"
            return
        case _:
            for child in children_of(node):
                yield from _hints_on_tests(child)
            return
    for left, right in pairs:
        if not _can_compare(left, right):
            advice = "; write TIMESTAMP '2013-07-01 00:00Z'" if _is_time_as_text(left, right) else ""
            yield f"{text_of(node)}: {_described(left)}, and {_described(right)}: these cannot be compared{advice}"


def _can_compare(left: Value, right: Value) -> bool:
    kinds = _kind_of(left), _kind_of(right)
    return kinds[0] is None or kinds[1] is None or is_comparable(kinds[0], kinds[1])


def _kind_of(value: Value) -> Kind | None:
    """What the value is in every row, None where that is up to the publications."""
    match value:
        case Literal(kind):
            return kind
        case Name(name):
            return PSEUDO_COLUMNS.get(name)
        case Sign() | Arithmetic() | Call():
            return Kind.FLOAT


def _described(value: Value) -> str:
    kind = _kind_of(value) or Kind.NULL
    return f"{text_of(value)} is {'a number' if kind in NUMBERS else _KINDS.get(kind, kind.value)}"


def _is_time_as_text(left: Value, right: Value) -> bool:
    kinds = {_kind_of(left), _kind_of(right)}
    return Kind.TIMESTAMP in kinds and bool(kinds & set(OCTETS))
