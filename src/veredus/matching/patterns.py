r"""Which keys are wanted, written as text.

    literal:EWR.LAX.UA.15    that key
    prefix:EWR.              every key that begins so; `prefix:` alone, every key
    tokens:EWR.*.UA.>        by dot-separated tokens: `*` is any one of them, `>` any one or more at the end
    regex:(EWR|JFK)\..*      the whole key, as UTF-8, by RE2's linear-time regular expressions
    EWR.                     without one of these four schemes: a prefix, as in ZeroMQ's PUB-SUB

In the first three `\xNN` stands for any octet and `\\` for a backslash; an octet so written is never a wildcard. A bare
pattern and a regular expression are taken as they stand. docs/reference/filters.md has the whole of it.

Source: seed 004, detailed design notes ("ZEPS does not yet specify a matching style").
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import re2

from veredus.delivery.arrays import octets_scalar
from veredus.kernel.errors import Refused
from veredus.kernel.lazily import pc
from veredus.kernel.names import KEY_SIZE_MAX
from veredus.matching.selection import (
    Mask,
    as_text,
    binary_of,
    is_worth_spreading,
    spread,
    true_where_valid,
)

PATTERN_SIZE_MAX = len("literal:") + len(r"\x00") * KEY_SIZE_MAX
"""The most octets of UTF-8 in a pattern's text: each key can be said, though each octet of it takes four."""
REGEX_PROGRAM_SIZE_MAX = 2048
"""The most instructions in a compiled regular expression; what one octet of a key can cost grows with it."""
REGEX_MEMORY_SIZE_MAX = 1 << 20

_SCHEMES = ("literal", "prefix", "tokens", "regex")
_NEXT_PATTERN = re.compile(rf",\s*(?:{'|'.join(_SCHEMES)}):")
_ONE_BY_ONE_COUNT_MAX = 8
_EXCERPT_SIZE_MAX = 80


class Pattern(ABC):
    """A set of keys. Patterns are values: equal if they are written alike, and hashable."""

    @abstractmethod
    def __str__(self) -> str:
        """The canonical text, always with its scheme: `compile_pattern(str(p)) == p`."""

    @property
    def is_everything(self) -> bool:
        """Whether every key is known to match."""
        return False

    @property
    def program_size(self) -> int:
        """How many instructions it was compiled to; only a regular expression is."""
        return 0

    @abstractmethod
    def matches(self, key: bytes) -> bool:
        """Whether `key` is in the set."""

    def select(self, keys: pa.Array) -> Mask:
        """Which of `keys` match, as a mask of `len(keys)`; a null never does.

        `keys` is binary or text, or a dictionary of these, whose values are then tried once each.
        """
        if pa.types.is_dictionary(keys.type):
            if is_worth_spreading(keys):
                return spread(keys, self.select)
            keys = keys.dictionary_decode()
        return self._scan(binary_of(keys))

    @abstractmethod
    def _scan(self, keys: pa.BinaryArray) -> Mask: ...


@dataclass(frozen=True)
class LiteralPattern(Pattern):
    """One key."""

    key: bytes

    def __str__(self) -> str:
        return "literal:" + _escaped(self.key)

    def matches(self, key: bytes) -> bool:
        """Whether `key` is the one."""
        return key == self.key

    def _scan(self, keys: pa.BinaryArray) -> Mask:
        return true_where_valid(pc.equal(keys, octets_scalar(self.key)))


@dataclass(frozen=True)
class PrefixPattern(Pattern):
    """Every key that begins with `prefix`."""

    prefix: bytes

    def __str__(self) -> str:
        return "prefix:" + _escaped(self.prefix)

    @property
    def is_everything(self) -> bool:
        """Whether the prefix is empty."""
        return not self.prefix

    def matches(self, key: bytes) -> bool:
        """Whether `key` begins with the prefix."""
        return key.startswith(self.prefix)

    def _scan(self, keys: pa.BinaryArray) -> Mask:
        return true_where_valid(pc.starts_with(keys, self.prefix))


@dataclass(frozen=True)
class TokensPattern(Pattern):
    """Every key whose dot-separated tokens match, one by one.

    `tokens`: an octet string matches itself, None any one token. With `has_tail`, one or more tokens follow them.
    A key of n dots has n + 1 tokens, of which some may be empty.
    """

    tokens: tuple[bytes | None, ...]
    has_tail: bool
    _regex: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = [b"[^.]*" if token is None else cast(bytes, re2.escape(token)) for token in self.tokens]
        # With a tail the expression ends at the dot before it: whatever follows, be it nothing, is a tail.
        end = rb"\." if self.has_tail and parts else b"" if self.has_tail else rb"\z"
        object.__setattr__(self, "_regex", rb"\A" + rb"\.".join(parts) + end)

    def __str__(self) -> str:
        parts = ["*" if token is None else _escaped_token(token) for token in self.tokens]
        return "tokens:" + ".".join([*parts, ">"] if self.has_tail else parts)

    @property
    def is_everything(self) -> bool:
        """Whether this is `>` alone: every key has at least one token."""
        return self.has_tail and not self.tokens

    def matches(self, key: bytes) -> bool:
        """Whether the tokens of `key` match."""
        count = len(self.tokens)
        parts = key.split(b".")
        if len(parts) <= count if self.has_tail else len(parts) != count:
            return False
        return all(token is None or token == part for token, part in zip(self.tokens, parts, strict=False))

    def _scan(self, keys: pa.BinaryArray) -> Mask:
        # Over binary arrays Arrow's RE2 reads octets, not UTF-8: what is not UTF-8 matches here like the rest.
        return true_where_valid(pc.match_substring_regex(keys, self._regex))


@dataclass(frozen=True)
class RegexPattern(Pattern):
    r"""Every key that a regular expression matches from end to end.

    Keys are read as UTF-8; an octet that is not part of any is matched by `\C` alone.
    `required_prefix`: octets with which every matching key is known to begin, so that tables need not try the rest.
    """

    source: str
    _program: Any = field(repr=False, compare=False)
    required_prefix: bytes = field(repr=False, compare=False)

    def __str__(self) -> str:
        return "regex:" + self.source

    @property
    def program_size(self) -> int:
        """How many instructions it was compiled to."""
        return int(self._program.programsize)

    def matches(self, key: bytes) -> bool:
        """Whether the expression matches the whole of `key`."""
        return self._program.fullmatch(key) is not None

    def _scan(self, keys: pa.BinaryArray) -> Mask:
        # Arrow compiles the expression at every call, which for few keys costs more than it saves.
        if len(keys) <= _ONE_BY_ONE_COUNT_MAX:
            found = [key is not None and self.matches(key) for key in keys.to_pylist()]
            return np.array(found, np.bool_)
        return true_where_valid(pc.match_substring_regex(as_text(keys), _anchored(self.source)))


EVERY_KEY = PrefixPattern(b"")


def compile_pattern(text: str) -> Pattern:
    """The pattern that `text` says, bare (a prefix) or with a scheme.

    Raises `Refused("bad-pattern")` with the `pattern` and the `position` (a 0-based index into `text`) where it does
    not parse, is longer than `PATTERN_SIZE_MAX`, could match no key, or would cost too much.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise _refusal(text, error.start, "a lone surrogate is not text") from None
    if size > PATTERN_SIZE_MAX:
        raise _refusal(text, 0, f"a pattern may have at most {PATTERN_SIZE_MAX} bytes, this one has {size}")
    scheme, colon, rest = text.partition(":")
    start = len(scheme) + 1
    if not colon or scheme not in _SCHEMES:
        return PrefixPattern(_checked_size(text, text.encode(), 0))
    if scheme == "literal":
        return LiteralPattern(_checked_size(text, _unescaped(text, start, len(text)), start))
    if scheme == "prefix":
        return PrefixPattern(_checked_size(text, _unescaped(text, start, len(text)), start))
    if scheme == "tokens":
        return _compile_tokens(text, start)
    return _compile_regex(text, rest, start)


def has_bare_wildcards(text: str) -> bool:
    """Whether a pattern without a scheme has tokens that are or end with a wildcard: a prefix that few people mean."""
    scheme, colon, _ = text.partition(":")
    if colon and scheme in _SCHEMES:
        return False
    tokens = text.split(".")
    return any(token.endswith("*") for token in tokens) or tokens[-1] == ">"


def is_like_several(text: str) -> bool:
    """Whether one pattern is written like several with commas between; a comma may be a part of a key all the same."""
    scheme, colon, _ = text.partition(":")
    if not colon or scheme not in _SCHEMES:
        return "," in text
    return scheme != "regex" and _NEXT_PATTERN.search(text) is not None


def prefix_text(prefix: bytes) -> str:
    """The text of the pattern for keys that begin with `prefix`, whatever octets these are."""
    return str(PrefixPattern(prefix))


def _compile_tokens(text: str, start: int) -> TokensPattern:
    tokens: list[bytes | None] = []
    has_tail = False
    position = start
    for word in text[start:].split("."):
        if has_tail:
            raise _refusal(text, position, "`>` must be the last token, because it matches all remaining tokens")
        if word == ">":
            has_tail = True
        elif word == "*":
            tokens.append(None)
        else:
            tokens.append(_literal_token(text, position, position + len(word)))
        position += len(word) + 1
    _checked_size(text, b".".join([*(token or b"" for token in tokens), *([b""] if has_tail else [])]), start)
    return TokensPattern(tuple(tokens), has_tail)


def _literal_token(text: str, start: int, end: int) -> bytes:
    for position in range(start, end):
        if text[position] in "*>":
            raise _refusal(
                text, position, f"`{text[position]}` must be a token of its own; write the character as \\x2a or \\x3e"
            )
    token = _unescaped(text, start, end)
    if b"." in token:
        raise _refusal(text, start, "a token cannot contain a dot")
    return _checked_size(text, token, start)


def _compile_regex(text: str, source: str, start: int) -> RegexPattern:
    try:
        re2.compile(source, _regex_options())
    except re2.error as error:
        reason = _reason_of(error)
        raise _refusal(text, start + _fault_index(source, reason), _worded(reason)) from None
    try:
        program = re2.compile(_anchored(source), _regex_options())
    except re2.error:
        raise _refusal(text, len(text), r"\Q is not closed by \E, or the expression is too large") from None
    if program.programsize > REGEX_PROGRAM_SIZE_MAX:
        raise _refusal(
            text,
            start,
            f"the compiled expression has {program.programsize} instructions, and the limit is"
            f" {REGEX_PROGRAM_SIZE_MAX}",
        )
    return RegexPattern(source, program, _required_prefix(program))


def _anchored(source: str) -> str:
    return rf"\A(?:{source})\z"


def _regex_options() -> Any:
    options = re2.Options()
    options.max_mem = REGEX_MEMORY_SIZE_MAX
    options.log_errors = False
    options.never_capture = True
    return options


def _required_prefix(program: Any) -> bytes:
    try:
        low, high = program.possiblematchrange(KEY_SIZE_MAX)
    except re2.error:
        return b""
    size = 0
    while size < min(len(low), len(high)) and low[size] == high[size]:
        size += 1
    return cast(bytes, low[:size])


def _reason_of(error: Exception) -> str:
    reason = error.args[0]
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _worded(reason: str) -> str:
    kind, _, _ = reason.partition(":")
    if kind in ("missing )", "unexpected )"):
        return kind
    if kind.startswith("pattern too large"):
        return "the expression is too large"
    return reason


def _fault_index(source: str, reason: str) -> int:
    """Where in `source` RE2 gave up: it names a fragment, not a place.

    The shortest beginning that fails for the same reason ends with that fragment. Found by bisection, since trying each
    would let a hostile pattern buy a thousand compilations.
    """
    kind, _, fragment = reason.partition(": ")
    if kind == "missing )":
        return len(source)
    if kind not in ("unexpected )", "missing ]") and not fragment:
        return 0
    low, high = 0, len(source)
    while low < high:
        middle = (low + high) // 2
        if _fails_alike(source[:middle], kind, fragment):
            high = middle
        else:
            low = middle + 1
    if kind == "unexpected )":
        return max(high - 1, 0)
    return max(high - len(fragment), 0)


def _fails_alike(source: str, kind: str, fragment: str) -> bool:
    try:
        re2.compile(source, _regex_options())
    except re2.error as error:
        other_kind, _, other_fragment = _reason_of(error).partition(": ")
        return other_kind == kind and (kind == "unexpected )" or other_fragment == fragment)
    return False


def _escaped(octets: bytes) -> str:
    text = octets.replace(b"\\", rb"\\").decode("utf-8", "backslashreplace")
    return "".join(f"\\x{ord(c):02x}" if c < " " or c == "\x7f" else c for c in text)


def _escaped_token(token: bytes) -> str:
    return _escaped(token).replace("*", r"\x2a").replace(">", r"\x3e")


def _unescaped(text: str, start: int, end: int) -> bytes:
    octets = bytearray()
    position = start
    while position < end:
        character = text[position]
        if character != "\\":
            octets += character.encode()
            position += 1
            continue
        if text[position + 1 : min(position + 2, end)] == "\\":
            octets += b"\\"
            position += 2
            continue
        digits = text[position + 2 : min(position + 4, end)]
        is_octet = text[position + 1 : position + 2] == "x" and len(digits) == 2
        if not is_octet or any(c not in "0123456789abcdefABCDEF" for c in digits):
            raise _refusal(
                text, position, "a backslash must be followed by another one, or by x and two hexadecimal digits"
            )
        octets.append(int(digits, 16))
        position += 4
    return bytes(octets)


def _checked_size(text: str, octets: bytes, position: int) -> bytes:
    if len(octets) > KEY_SIZE_MAX:
        raise _refusal(text, position, f"no key can match: keys have at most {KEY_SIZE_MAX} bytes")
    return octets


def _refusal(text: str, position: int, reason: str) -> Refused:
    excerpt = text if len(text) <= _EXCERPT_SIZE_MAX else text[:_EXCERPT_SIZE_MAX] + "…"
    return Refused(
        "bad-pattern",
        f"key pattern {excerpt!r} at position {position}: {reason}",
        pattern=excerpt,
        position=position,
    )
