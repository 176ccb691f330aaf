"""The values of a TOML document, and where its keys stand, so that a fault can be told with its line and column.

The standard library's reader gives values without places. This one walks a document that it has already accepted, and
so needs to know only where keys, strings, tables and arrays begin and end. Nor does that reader bound how deep a
document is: for a key of many parts it takes memory by their square. So the depth is looked at first.
Source: TOML 1.0.0, sections "Keys", "String", "Table" and "Array of Tables".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

NESTED_MAX: Final = 32
"""Arrays and tables in one line that may be nested in one another."""
PARTS_MAX: Final = 32
"""Parts that a key, or the name of a table, may have."""
Path = tuple[str | int, ...]
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_BLANK = re.compile(r"(?:[ \t]|#[^\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_STRINGS = {
    '"""': re.compile(r'"""(?:[^\\"]|\\.|"{1,2}(?!"))*+"{3,5}', re.DOTALL),
    "'''": re.compile(r"'''(?:[^']|'{1,2}(?!'))*+'{3,5}", re.DOTALL),
    '"': re.compile(r'"(?:[^\\"\n]|\\.)*+"'),
    "'": re.compile(r"'[^'\n]*'"),
}
"""By what they begin with, the longer one first."""
_MARK = re.compile(r"""[].,=\n#"'{}[]""")
_COMMENT = re.compile(r"[^\n]*")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")


class Place(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


class TooDeep(Exception):
    """A document is deeper than it may be; the place where it becomes so."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


def parsed_toml(text: str) -> dict[str, Any]:
    """The values of a document. Raises `TooDeep`, and what `tomllib.loads` raises."""
    _check_depth(text)
    return tomllib.loads(text)


def _check_depth(text: str) -> None:
    nested_count, parts_count = 0, 1
    for at in _marks(text):
        mark = text[at]
        if mark == ".":
            parts_count += 1
            if parts_count > PARTS_MAX:
                raise TooDeep(_place_of(text, at), f"a key may have at most {PARTS_MAX} parts that dots join")
            continue
        parts_count = 1
        if mark in "[{":
            nested_count += 1
            if nested_count > NESTED_MAX:
                raise TooDeep(_place_of(text, at), f"arrays and tables may be nested at most {NESTED_MAX} deep")
        elif mark in "]}":
            nested_count -= 1


def _marks(text: str) -> Iterator[int]:
    """Where brackets, dots, and what ends a key stand, outside of strings and comments; up to a string without an end,
    where the library's reader stops too.
    """
    found = _MARK.search(text)
    while found is not None:
        at, mark = found.span()[0], found[0]
        end = at + 1
        if mark == "#":
            comment = _COMMENT.match(text, at)
            assert comment is not None
            end = comment.end()
        elif mark in "\"'":
            string = _string_at(text, at)
            if string is None:
                return
            end = string.end()
        else:
            yield at
        found = _MARK.search(text, end)


def _string_at(text: str, at: int) -> re.Match[str] | None:
    return next((pattern.match(text, at) for quotes, pattern in _STRINGS.items() if text.startswith(quotes, at)), None)


def _place_of(text: str, at: int) -> Place:
    return Place(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))


def key_places(text: str) -> dict[Path, Place]:
    """The place of every key and of every table in an array of a valid document, by its path."""
    walk = _Walk(text)
    walk.document()
    return walk.places


class _Walk:
    """Owns the place that is being read; every method leaves it behind what it read."""

    def __init__(self, text: str) -> None:
        self.places: dict[Path, Place] = {}
        self._text = text
        self._at = 0
        self._lines = [0, *(match.end() for match in re.finditer(r"\n", text))]
        self._tables_count: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        self._skip(_BLANK_LINES)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK_LINES)

    def _header(self) -> Path:
        is_array = self._text.startswith("[[", self._at)
        start = self._at
        self._at += 2 if is_array else 1
        path: Path = ()
        parts = self._dotted()
        for index, part in enumerate(parts, 1):
            path = (*path, part)
            self._note(path, start)
            if path in self._tables_count and not (is_array and index == len(parts)):
                path = (*path, self._tables_count[path] - 1)
        self._at += 2 if is_array else 1
        if is_array:
            count = self._tables_count.get(path, 0)
            self._tables_count[path] = count + 1
            path = (*path, count)
            self._note(path, start)
        return path

    def _pair(self, table: Path) -> None:
        start = self._at
        path = table
        for part in self._dotted():
            path = (*path, part)
            self._note(path, start)
        self._at += 1
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        first = self._text[self._at : self._at + 1]
        if first in ("'", '"'):
            self._string()
        elif first == "[":
            self._elements(path)
        elif first == "{":
            self._at += 1
            self._skip(_BLANK_LINES)
            while self._text[self._at] != "}":
                self._pair(path)
                self._separator()
            self._at += 1
        else:
            self._skip(_SCALAR)

    def _elements(self, path: Path) -> None:
        self._at += 1
        self._skip(_BLANK_LINES)
        index = 0
        while self._text[self._at] != "]":
            self._note((*path, index), self._at)
            self._value((*path, index))
            self._separator()
            index += 1
        self._at += 1

    def _separator(self) -> None:
        self._skip(_BLANK_LINES)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_BLANK_LINES)

    def _dotted(self) -> list[str]:
        parts = []
        while True:
            self._skip(_BLANK)
            bare = _BARE_KEY.match(self._text, self._at)
            if bare:
                self._at = bare.end()
                parts.append(bare[0])
            else:
                parts.append(_plain(self._string()))
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return parts
            self._at += 1

    def _string(self) -> str:
        match = _string_at(self._text, self._at)
        if match is None:
            raise ValueError(f"no string at offset {self._at}")
        self._at = match.end()
        return match[0]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _note(self, path: Path, at: int) -> None:
        if path not in self.places:
            low, high = 0, len(self._lines)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._lines[middle] <= at else (low, middle)
            self.places[path] = Place(low + 1, at - self._lines[low] + 1)


def _plain(quoted: str) -> str:
    if quoted.startswith("'"):
        return quoted[1:-1]
    return _ESCAPE.sub(
        lambda match: chr(int(match[1] or match[2], 16)) if match[1] or match[2] else _ESCAPES[match[3]], quoted[1:-1]
    )
