"""Predicates as trees, and the canonical text of each: what is written parses back to the same tree.

A **value** stands for something in each row, or for null; a **condition** for true, false or unknown. Chains
(`a AND b AND c`, `a + b - c`) are one node, so that a tree is never deeper than its text is nested.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

import numpy as np


class Kind(Enum):
    """What an attribute, a literal or a pseudo-column may be."""

    BOOL = "bool"
    INTEGER = "int64"
    FLOAT = "float64"
    TEXT = "text"
    BYTES = "bytes"
    KEY = "key"
    TIMESTAMP = "timestamp"
    NULL = "null"


PSEUDO_COLUMNS: Final = {
    "$key": Kind.KEY,
    "$event_time": Kind.TIMESTAMP,
    "$append_time": Kind.TIMESTAMP,
    "$source": Kind.TEXT,
    "$sequence": Kind.INTEGER,
}
KEYWORDS: Final = ("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE")

# How tightly the written form of a node holds together; a looser one in a tighter place is put in parentheses.
_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGNED, _ATOM = range(8)

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class Literal:
    """A value that is written out. A timestamp's is an int: microseconds since 1970, UTC."""

    kind: Kind
    value: bool | int | float | str | bytes


@dataclass(frozen=True)
class Name:
    """An attribute, or a pseudo-column if it begins with `$`."""

    name: str


@dataclass(frozen=True)
class Sign:
    """`+` or `-` before a value that is not simply a number written out."""

    symbol: str
    operand: Value


@dataclass(frozen=True)
class Arithmetic:
    """Numbers joined from left to right, either by `+` and `-` or by `*` and `/`."""

    first: Value
    rest: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Call:
    """A function by its name in capitals, and its arguments."""

    function: str
    arguments: tuple[Value, ...]


@dataclass(frozen=True)
class Truth:
    """A bool attribute, or TRUE or FALSE, taken as a condition."""

    value: Name | Literal


@dataclass(frozen=True)
class Comparison:
    """`=`, `<>`, `<`, `<=`, `>` or `>=`."""

    symbol: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Between:
    """`value >= low AND value <= high`."""

    value: Value
    low: Value
    high: Value
    is_negated: bool = False


@dataclass(frozen=True)
class Membership:
    """`value IN (choices)`."""

    value: Value
    choices: tuple[Literal, ...]
    is_negated: bool = False


@dataclass(frozen=True)
class Likeness:
    """`value LIKE pattern`: `%` is any run of characters, `_` any one, unless `escape` stands before them."""

    value: Value
    pattern: str
    escape: str | None = None
    is_negated: bool = False


@dataclass(frozen=True)
class Nullness:
    """`value IS NULL`."""

    value: Value
    is_negated: bool = False


@dataclass(frozen=True)
class Negation:
    """`NOT condition`."""

    condition: Condition


@dataclass(frozen=True)
class Conjunction:
    """All of two or more conditions."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Disjunction:
    """Any of two or more conditions."""

    conditions: tuple[Condition, ...]


Value: TypeAlias = Literal | Name | Sign | Arithmetic | Call
Condition: TypeAlias = (
    Truth | Comparison | Between | Membership | Likeness | Nullness | Negation | Conjunction | Disjunction
)
Node: TypeAlias = Value | Condition


def text_of(node: Node) -> str:
    """The canonical text of `node`."""
    return _written(node)[0]


def names_of(node: Node) -> tuple[str, ...]:
    """The columns that `node` reads, each once, in the order in which they are written."""
    found: dict[str, None] = {}
    pending: list[Node] = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Name):
            found[current.name] = None
        else:
            pending.extend(reversed(children_of(current)))
    return tuple(found)


def operation_count_of(node: Node) -> int:
    """How many operations `node` asks for: all that is below it but names and literals."""
    count = 0
    pending: list[Node] = [node]
    while pending:
        current = pending.pop()
        if not isinstance(current, Literal | Name):
            count += 1
            pending.extend(children_of(current))
    return count


def children_of(node: Node) -> tuple[Node, ...]:
    """The nodes directly below `node`, from left to right."""
    match node:
        case Literal() | Name():
            return ()
        case Sign(_, operand):
            return (operand,)
        case Arithmetic(first, rest):
            return (first, *(value for _, value in rest))
        case Call(_, arguments):
            return arguments
        case Comparison(_, left, right):
            return (left, right)
        case Between(value, low, high):
            return (value, low, high)
        case Membership(value, choices):
            return (value, *choices)
        case Truth(value) | Likeness(value) | Nullness(value):
            return (value,)
        case Negation(condition):
            return (condition,)
        case Conjunction(conditions) | Disjunction(conditions):
            return conditions


def _written(node: Node) -> tuple[str, int]:
    match node:
        case Literal():
            return _written_literal(node)
        case Name(name):
            return _written_name(name), _ATOM
        case Sign(symbol, operand):
            # A bare number after a sign would be read as one literal.
            inner, level = _written(operand)
            is_number = isinstance(operand, Literal) and level == _ATOM
            return symbol + (f"({inner})" if is_number or level < _SIGNED else inner), _SIGNED
        case Arithmetic(first, rest):
            level = _SUM if rest[0][0] in "+-" else _PRODUCT
            tail = (f" {symbol} {_held(value, level + 1)}" for symbol, value in rest)
            return _held(first, level + 1) + "".join(tail), level
        case Call(function, arguments):
            return f"{function}({', '.join(text_of(argument) for argument in arguments)})", _ATOM
        case Truth(value):
            return text_of(value), _TEST
        case Negation(condition):
            return "NOT " + _held(condition, _NOT), _NOT
        case Conjunction(conditions):
            return " AND ".join(_held(condition, _AND + 1) for condition in conditions), _AND
        case Disjunction(conditions):
            return " OR ".join(_held(condition, _OR + 1) for condition in conditions), _OR
        case _:
            return _written_test(node), _TEST


def _written_test(node: Comparison | Between | Membership | Likeness | Nullness) -> str:
    if isinstance(node, Comparison):
        return f"{_held(node.left, _SUM)} {node.symbol} {_held(node.right, _SUM)}"
    value = _held(node.value, _SUM)
    negation = "NOT " if node.is_negated else ""
    match node:
        case Between(_, low, high):
            return f"{value} {negation}BETWEEN {_held(low, _SUM)} AND {_held(high, _SUM)}"
        case Membership(_, choices):
            return f"{value} {negation}IN ({', '.join(text_of(choice) for choice in choices)})"
        case Likeness(_, pattern, escape):
            suffix = "" if escape is None else f" ESCAPE {_quoted(escape)}"
            return f"{value} {negation}LIKE {_quoted(pattern)}{suffix}"
        case Nullness():
            return f"{value} IS {negation}NULL"


def _held(node: Node, level: int) -> str:
    text, own_level = _written(node)
    return text if own_level >= level else f"({text})"


def _written_literal(literal: Literal) -> tuple[str, int]:
    value = literal.value
    match literal.kind, value:
        case Kind.BOOL, _:
            return ("TRUE" if value else "FALSE"), _ATOM
        case Kind.TEXT, str():
            return _quoted(value), _ATOM
        case Kind.BYTES, bytes():
            return f"X'{value.hex()}'", _ATOM
        case Kind.TIMESTAMP, int():
            moment = str(np.datetime64(value, "us")).replace("T", " ")
            return f"TIMESTAMP '{moment}Z'", _ATOM
        case _:
            text = repr(value)
            return text, _SIGNED if text.startswith("-") else _ATOM


def _written_name(name: str) -> str:
    if name in PSEUDO_COLUMNS or (_PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS):
        return name
    return '"' + name.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
