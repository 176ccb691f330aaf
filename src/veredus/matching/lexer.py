"""The words of a predicate, each with the place where it begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

import numpy as np

from veredus.kernel.errors import Refused
from veredus.matching.operands import INT64_MAX
from veredus.matching.syntax import KEYWORDS, PSEUDO_COLUMNS

_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?) ?(Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?!\d)", re.ASCII)
_YEARS = (np.datetime64("0001-01-01", "us"), np.datetime64("9999-12-31T23:59:59.999999", "us"))
_SYMBOLS: Final = ("<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "(", ")", ",")
NO_COMMENT = "-- begins no comment, but is minus twice"
_HINTS: Final = {
    "!": "for not-equal, write <>",
    "%": "put a pattern in single quotes",
    "`": "put a name with unusual characters in double quotes",
    ";": "a predicate has one condition",
    "&": "write AND",
    "|": "write OR",
    ":": "a date and time is written TIMESTAMP '2013-07-01 05:15'",
}


class TokenKind(Enum):
    """What a word of a predicate is."""

    INTEGER = "a whole number"
    FLOAT = "a decimal number"
    TEXT = "text"
    BYTES = "bytes"
    TIMESTAMP = "a timestamp"
    NAME = "a name"
    KEYWORD = "a keyword"
    SYMBOL = "a symbol"
    END = "the end"


@dataclass(frozen=True)
class Token:
    """One word: `value` is a number, text, bytes, a name, or a keyword or symbol as the grammar writes it."""

    kind: TokenKind
    value: int | float | str | bytes
    position: int
    is_quoted: bool = False


def refusal(position: int, reason: str) -> Refused:
    """The error for what stands at `position`, a 0-based index into the text."""
    return Refused("bad-predicate", f"predicate at position {position}: {reason}", position=position)


def tokens_of(text: str) -> list[Token]:
    """The words of `text`, the last of which is its end. Raises `Refused("bad-predicate")` with the position."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise refusal(error.start, "a lone surrogate is not text") from None
    tokens: list[Token] = []
    position = 0
    while True:
        while position < len(text) and text[position] in " \t\r\n\f":
            position += 1
        if position == len(text):
            tokens.append(Token(TokenKind.END, "", position))
            return tokens
        token, position = _next_token(text, position)
        tokens.append(token)


def date_at(text: str, position: int) -> str:
    """The date that is written at `position` in `text` without quotes, "" for none."""
    match = _DATE.match(text, position)
    return "" if match is None else match.group()


def double_minus_of(tokens: Sequence[Token]) -> bool:
    """Whether two minus signs follow one another without a space: what begins a comment elsewhere."""
    return any(
        (left.value, right.value) == ("-", "-") and left.kind is right.kind is TokenKind.SYMBOL
        for left, right in pairwise(tokens)
        if right.position == left.position + 1
    )


def _next_token(text: str, start: int) -> tuple[Token, int]:
    character = text[start]
    if character == "'":
        content, end = _quoted(text, start)
        return Token(TokenKind.TEXT, content, start), end
    if character == '"':
        return _quoted_name(text, start)
    if character in "0123456789" or (character == "." and text[start + 1 : start + 2].isdigit()):
        return _number(text, start)
    if character in "xX" and text[start + 1 : start + 2] == "'":
        return _octets(text, start)
    if character == "$" or _is_name_part(character):
        return _word(text, start)
    if text.startswith("==", start):
        raise refusal(start, "'==' has no meaning here; write = for equality")
    for symbol in _SYMBOLS:
        if text.startswith(symbol, start):
            return Token(TokenKind.SYMBOL, symbol, start), start + len(symbol)
    hint = _HINTS.get(character) or _hint_on_dots(text, start)
    raise refusal(start, f"{character!r} has no meaning here" + (f"; {hint}" if hint else ""))


def _is_name_part(character: str) -> bool:
    return ("_" + character).isidentifier()


def _hint_on_dots(text: str, start: int) -> str:
    """What to write for a name with dots, one of which is at `start`; "" where there is none."""
    first, end = start, start
    while first and _is_name_part(text[first - 1]):
        first -= 1
    while end < len(text) and (text[end] == "." or _is_name_part(text[end])):
        end += 1
    is_name = text[start] == "." and first < start
    return f'put a name with dots in double quotes: "{text[first:end]}"' if is_name else ""


def _quoted(text: str, start: int) -> tuple[str, int]:
    """What stands between the quote at `start` and its partner, in which a doubled quote is one; and where it ends."""
    quote = text[start]
    parts: list[str] = []
    position = start + 1
    while True:
        end = text.find(quote, position)
        if end < 0:
            raise refusal(start, f"the closing {quote} is missing")
        parts.append(text[position:end])
        if not text.startswith(quote, end + 1):
            return quote.join(parts), end + 1
        position = end + 2


def _quoted_name(text: str, start: int) -> tuple[Token, int]:
    name, end = _quoted(text, start)
    if not name:
        raise refusal(start, "a name needs at least one character; put text in single quotes")
    if name.startswith("$"):
        raise refusal(start, f"names that begin with $ are reserved: {', '.join(PSEUDO_COLUMNS)}")
    return Token(TokenKind.NAME, name, start, is_quoted=True), end


def _number(text: str, start: int) -> tuple[Token, int]:
    match = _NUMBER.match(text, start)
    if match is None:
        raise refusal(start, "expected a number")
    digits, end = match.group(), match.end()
    if end < len(text) and _is_name_part(text[end]):
        date = date_at(text, end - 10) if end >= 10 else ""
        hint = f"; a date and time is written TIMESTAMP '{date} 05:15'" if date else ""
        raise refusal(end, f"{text[end]!r} cannot follow a number{hint}")
    if digits.isdigit():
        # One above the greatest may stand after a minus; the parser knows. Many digits are never converted.
        value = int(digits) if len(digits.lstrip("0")) <= 19 else INT64_MAX + 2
        if value > INT64_MAX + 1:
            raise refusal(start, "the number is outside int64; with a decimal point it is a float64")
        return Token(TokenKind.INTEGER, value, start), end
    number = float(digits)
    if number == float("inf"):
        raise refusal(start, "the number is outside float64")
    return Token(TokenKind.FLOAT, number, start), end


def _octets(text: str, start: int) -> tuple[Token, int]:
    digits, end = _quoted(text, start + 1)
    for index, digit in enumerate(digits):
        if digit not in "0123456789abcdefABCDEF":
            raise refusal(start + 2 + index, f"{digit!r} is not a hexadecimal digit")
    if len(digits) % 2:
        raise refusal(start, "a byte needs two hexadecimal digits")
    return Token(TokenKind.BYTES, bytes.fromhex(digits), start), end


def _word(text: str, start: int) -> tuple[Token, int]:
    end = start + 1
    while end < len(text) and _is_name_part(text[end]):
        end += 1
    word = text[start:end]
    if word.startswith("$"):
        if word not in PSEUDO_COLUMNS:
            raise refusal(start, f"{word} is unknown; known: {', '.join(PSEUDO_COLUMNS)}")
        return Token(TokenKind.NAME, word, start), end
    if not word[0].isidentifier():
        raise refusal(start, f"a name cannot begin with {word[0]!r}")
    capitals = word.upper()
    if capitals in KEYWORDS:
        return Token(TokenKind.KEYWORD, capitals, start), end
    if capitals == "TIMESTAMP":
        quote = end
        while quote < len(text) and text[quote] in " \t\r\n\f":
            quote += 1
        if text.startswith("'", quote):
            content, end = _quoted(text, quote)
            return Token(TokenKind.TIMESTAMP, _microseconds(content, quote), start), end
    return Token(TokenKind.NAME, word, start), end


def _microseconds(text: str, position: int) -> int:
    """Microseconds since 1970, UTC, of a moment as in ISO 8601; without an offset it is UTC."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise refusal(position, "write a timestamp as 'YYYY-MM-DD HH:MM:SS.ffffff+HH:MM' or a shorter form of it")
    day, clock, offset = match.groups()
    try:
        moment = np.datetime64(f"{day}T{clock or '00:00'}", "us")
    except ValueError:
        raise refusal(position, f"{text!r} is not a valid date and time") from None
    if offset not in (None, "Z"):
        hours, minutes = int(offset[1:3]), int(offset[4:6])
        if hours > 18 or minutes > 59:
            raise refusal(position, f"{offset} is not a valid offset")
        shift = np.timedelta64(hours * 60 + minutes, "m")
        moment = moment + shift if offset[0] == "-" else moment - shift
    if not _YEARS[0] <= moment <= _YEARS[1]:
        raise refusal(position, "a timestamp must be in the years 1 to 9999")
    return int(moment.astype(np.int64))
