"""The union of what one version 1 client has subscribed to, walked in legs so that each sequence is delivered once.

An interest is a pattern and the last sequence that the client knows. Those that stand at the same place walk together,
in order, until they come to where another one already is; from there they walk on together.

    interest A   latest 0  ███████████████████▶ at 800                A goes on at 800
    interest B   latest 500, asked for now: first leg, B alone, from 501 to before 800; then A and B together from 800

Invariants
    (1) An interest has delivered, and only then, what it matches above its `latest` and below its `position`; what was
        examined and waits for credit counts as delivered, until it is recalled (`retreat`).
    (2) On a leg, a row that an interest which does not walk along has delivered is left out.
    (3) Within a leg sequences only grow; they fall only where the client itself asks for what lies behind.
Source: docs/internals/DESIGN.md, "ZEPS 1".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from veredus.kernel.errors import Refused
from veredus.matching import PATTERN_COUNT_MAX, Pattern, check_program_size


class Interest(NamedTuple):
    """A pattern, the last sequence known when it was asked for, and the next one to be examined for it."""

    pattern: Pattern
    latest: int
    position: int

    def covers(self, sequence: int, key: bytes) -> bool:
        """Whether this interest has brought that publication."""
        return self.latest < sequence < self.position and self.pattern.matches(key)


Covered: TypeAlias = tuple[Interest, ...]
"""Interests as they stood when something was pushed for others."""


class Leg(NamedTuple):
    """Examine from `start` (0: from everything kept) to before `until` (0: for ever) for these key patterns."""

    start: int
    until: int
    keys: tuple[str, ...]


class Interests:
    """Owns a client's interests, and which of them walk on the present leg."""

    __slots__ = ("_others", "_start", "_walking")

    def __init__(self) -> None:
        self._walking: list[Interest] = []
        self._others: list[Interest] = []
        self._start = 0
        """Where the present leg began."""

    @property
    def covered(self) -> Covered:
        """The interests that may have brought already what this leg brings."""
        return tuple(other for other in self._others if other.latest + 1 < other.position)

    def check_room(self, more: Iterable[Pattern]) -> None:
        """Raises `Refused("bad-filter")` where interests in `more` patterns are too many, or too large."""
        patterns = [interest.pattern for interest in self._walking + self._others]
        patterns.extend(more)
        if len(patterns) > PATTERN_COUNT_MAX:
            raise Refused(
                "bad-filter", f"one client may have at most {PATTERN_COUNT_MAX} subscriptions at the same time"
            )
        check_program_size(sum(pattern.program_size for pattern in set(patterns)))

    def add(self, pattern: Pattern, latest: int) -> None:
        """One more interest; the present leg ends where it is, and `next_leg` says how to go on."""
        self._others.append(Interest(pattern, latest, latest + 1))

    def advance(self, position: int) -> None:
        """The leg has examined everything below `position`."""
        self._walking = [interest._replace(position=position) for interest in self._walking]

    def retreat(self, position: int) -> None:
        """Nothing from `position` on has been delivered on this leg: those who walk stand there, or where it began."""
        self.advance(max(position, self._start))

    def next_leg(self) -> Leg:
        """Begin the leg of those that are furthest behind."""
        everyone = self._walking + self._others
        start = self._start = min(interest.position for interest in everyone)
        self._walking = [interest for interest in everyone if interest.position == start]
        self._others = [interest for interest in everyone if interest.position > start]
        until = min((interest.position for interest in self._others), default=0)
        keys = tuple(dict.fromkeys(str(interest.pattern) for interest in self._walking))
        is_from_floor = any(interest.latest == 0 for interest in self._walking) and start == 1
        return Leg(0 if is_from_floor else start, until, keys)

    def check(self) -> None:
        """Repeat the invariants."""
        assert len({interest.position for interest in self._walking}) <= 1
        assert all(other.position > self._walking[0].position for other in self._others if self._walking)
