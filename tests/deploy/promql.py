"""A small reader of PromQL: which metrics an expression names, with which labels, and in which functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

KEYWORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right"}
GROUPINGS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
FUNCTIONS = {"changes", "deriv", "increase", "label_values", "predict_linear", "rate", "sum", "time", "topk"}
"""Those that our files use; `label_values` is Grafana's."""
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<span>\[\w+\])|(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)"""
    r"""|(?P<name>[a-zA-Z_:][\w:]*)|(?P<sign>==|!=|=~|!~|<=|>=|[-+*/%^<>=(){},]))"""
)
_PAIRS = {")": "(", "}": "{"}


class Selector(NamedTuple):
    """A metric as an expression names it: the labels that it matches, and the functions around it, innermost last."""

    metric: str
    labels: tuple[str, ...]
    functions: tuple[str, ...]
    is_range: bool


class Read(NamedTuple):
    """What an expression names."""

    selectors: tuple[Selector, ...]
    grouped: tuple[str, ...]
    """The labels of `by`, `on` and the like, and of `label_values`."""


def read_promql(expression: str) -> Read:
    """Take an expression apart. Raises `ValueError` where it is none, or beyond what this reader knows."""
    tokens = list(_tokens(expression.replace("$__rate_interval", "5m")))
    selectors: list[Selector] = []
    grouped: list[str] = []
    opened: list[tuple[str, str]] = []
    place = 0
    while place < len(tokens):
        kind, text = tokens[place]
        following = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        place += 1
        if kind == "name" and text not in KEYWORDS:
            if following == "(":
                if text not in FUNCTIONS:
                    raise ValueError(f"{text} is no function that is known here: {expression}")
            elif _is_label([name for _, name in opened], following):
                grouped.append(text)
            else:
                labels, place = _labels(tokens, place, expression)
                is_range = place < len(tokens) and tokens[place][0] == "span"
                selectors.append(Selector(text, labels, tuple(name for _, name in opened if name), is_range))
        elif text == "(":
            before = tokens[place - 2] if place > 1 else ("", "")
            opened.append((text, before[1] if before[0] == "name" and before[1] in FUNCTIONS | GROUPINGS else ""))
        elif text in _PAIRS and (not opened or opened.pop()[0] != _PAIRS[text]):
            raise ValueError(f"{text} closes nothing: {expression}")
    if opened or not tokens:
        raise ValueError(f"it ends too early: {expression}")
    return Read(tuple(selectors), tuple(grouped))


def _is_label(functions: list[str], following: str) -> bool:
    is_last = functions[-1:] == ["label_values"] and following == ")"
    return is_last or any(name in GROUPINGS for name in functions)


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    place = 0
    while expression[place:].strip():
        found = _TOKEN.match(expression, place)
        if found is None:
            raise ValueError(f"{expression[place:]!r} is no PromQL")
        assert found.lastgroup is not None
        yield found.lastgroup, found[found.lastgroup]
        place = found.end()


def _labels(tokens: list[tuple[str, str]], place: int, expression: str) -> tuple[tuple[str, ...], int]:
    """The labels between braces at `place`, and the place behind them."""
    labels: list[str] = []
    if place == len(tokens) or tokens[place][1] != "{":
        return (), place
    place += 1
    while tokens[place][1] != "}":
        (kind, label), (_, relation), (value_kind, _) = tokens[place : place + 3]
        if (kind, value_kind) != ("name", "text") or relation not in ("=", "!=", "=~", "!~"):
            raise ValueError(f"{label} is matched by nothing: {expression}")
        labels.append(label)
        place += 3
        place += tokens[place][1] == ","
    return tuple(labels), place + 1
