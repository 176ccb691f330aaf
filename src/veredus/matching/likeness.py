"""LIKE on one long text, some of it at a time: in time that is linear in the text, whatever the pattern.

    pattern     'ab%c_d%e'      segments between the `%`
    segments    ab | c_d | e    the first stands at the beginning, the last at the end, and each between them as soon as
                                it can, behind the one before

Taking each segment as soon as it can be had leaves the most for those behind it, so nothing is ever tried again.
"""

from __future__ import annotations

from typing import Final

import numpy as np

SEARCHED_SIZE_MIN: Final = 512
"""Shorter texts are left to RE2, whose automaton may cost some microseconds an octet. No key is as long."""
_WINDOW_SIZE: Final = 64 << 10
_TAKING_NS: Final = 4
"""What each octet of a window costs: it is copied, decoded and looked through."""
_CHARACTER_NS: Final = 1
"""What each octet of a window costs beside that for each character of a segment that has a `_`."""


def like_parts(pattern: str, escape: str | None) -> list[bytes | str]:
    """The pattern as literal runs (bytes) and wildcards (`%` once for any number in a row, or `_`)."""
    parts: list[bytes | str] = []
    literal = ""
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == escape:
            index += 1
            literal += pattern[index]
        elif character in "%_":
            if literal:
                parts.append(literal.encode())
                literal = ""
            if not (character == "%" and parts and parts[-1] == "%"):
                parts.append(character)
        else:
            literal += character
        index += 1
    return [*parts, literal.encode()] if literal else parts


class _Segment:
    """What stands between two `%`: characters, None for any one."""

    __slots__ = ("characters", "literal")

    def __init__(self, parts: list[bytes | str]) -> None:
        self.characters: list[str | None] = []
        for part in parts:
            self.characters += [None] if isinstance(part, str) else list(part.decode())
        self.literal = b"".join(part for part in parts if isinstance(part, bytes)) if "_" not in parts else None

    @property
    def cost_ns(self) -> int:
        """What it costs to look for it at one octet."""
        return _TAKING_NS if self.literal is not None else _TAKING_NS + _CHARACTER_NS * len(self.characters)

    def matches(self, text: str) -> bool:
        """Whether this is what `text` is."""
        return len(text) == len(self.characters) and all(
            wanted is None or wanted == character for wanted, character in zip(self.characters, text, strict=True)
        )

    def find(self, text: str) -> int:
        """Where in `text` it begins first, as an index of characters; -1 for nowhere."""
        count = len(text) - len(self.characters) + 1
        if count <= 0:
            return -1
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        fits = np.ones(count, np.bool_)
        for offset, wanted in enumerate(self.characters):
            if wanted is not None:
                fits &= points[offset : offset + count] == ord(wanted)
        found = int(fits.argmax())
        return found if fits[found] else -1


class Search:
    """Where it has come to in one text, in octets; the text itself is given at each step."""

    __slots__ = ("_first", "_last", "_middle", "_position")

    def __init__(self, pattern: str, escape: str | None) -> None:
        """Nothing was looked at yet."""
        segments: list[list[bytes | str]] = [[]]
        for part in like_parts(pattern, escape):
            if part == "%":
                segments.append([])
            else:
                segments[-1].append(part)
        self._first: _Segment | None = _Segment(segments[0])
        self._middle = [_Segment(parts) for parts in segments[1:-1]]
        self._middle.reverse()
        self._last = _Segment(segments[-1]) if len(segments) > 1 else None
        self._position = 0

    def go_on(self, text: memoryview, budget_ns: int) -> tuple[bool | None, int]:
        """Look at the next windows of `text`, at least at one, which is UTF-8: the answer, None where there is none
        yet, and what was spent, in estimated nanoseconds.
        """
        if self._first is not None:
            head = _head(text, len(self._first.characters))
            if not self._first.matches(head):
                return False, 0
            self._position = len(head.encode())
            self._first = None
        if self._last is None:
            return self._position == len(text), 0
        spent_ns = 0
        while self._middle:
            if spent_ns and spent_ns >= budget_ns:
                return None, spent_ns
            segment = self._middle[-1]
            spent_ns += min(_WINDOW_SIZE, len(text) - self._position) * segment.cost_ns
            if self._look_for(segment, text):
                self._middle.pop()
            elif self._position >= len(text):
                return False, spent_ns
        tail = _tail(text, len(self._last.characters))
        is_behind = len(text) - len(tail.encode()) >= self._position
        return is_behind and self._last.matches(tail), spent_ns

    def _look_for(self, segment: _Segment, text: memoryview) -> bool:
        """Look for the segment in the next window; the position is then behind it, or where it may still begin."""
        start = self._position
        # A window is looked through for all places in it where the segment may begin: it may end beyond.
        end = min(len(text), start + _WINDOW_SIZE)
        reach = end + 4 * len(segment.characters)
        octets = bytes(text[start : min(len(text), reach)])
        if segment.literal is not None:
            at = octets.find(segment.literal)
            size = len(segment.literal)
        else:
            characters = octets.decode(errors="ignore")
            index = segment.find(characters)
            at = -1 if index < 0 else len(characters[:index].encode())
            size = len(characters[index : index + len(segment.characters)].encode())
        if at >= 0:
            self._position = start + at + size
            return True
        self._position = _boundary(text, end)
        return False


def _head(text: memoryview, count: int) -> str:
    """The first `count` characters, or all."""
    return bytes(text[: 4 * count]).decode(errors="ignore")[:count]


def _tail(text: memoryview, count: int) -> str:
    """The last `count` characters, or all."""
    return bytes(text[_boundary(text, max(0, len(text) - 4 * count)) :]).decode()[-count:] if count else ""


def _boundary(text: memoryview, position: int) -> int:
    """The first place from `position` on where a character begins, or the end."""
    while position < len(text) and text[position] & 0xC0 == 0x80:
        position += 1
    return position
