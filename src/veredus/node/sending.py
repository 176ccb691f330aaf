"""The memory of what waits to be written, over all links: who takes nothing of it is let go, and the sum is bounded.

    waits ──► taken, all of it
      ├── some of it taken: slow, and not gone
      ├── nothing taken for `silence_max_ns`, or for `CLOSE_NS` by a link that is to be closed: abandoned
      ├── the sum above half of `size_max`: congested with `PRESSED_SIZE` waiting
      └── the sum above `size_max`: abandoned, the unproven first, then who has taken nothing for longest

Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

CLOSE_NS = 5_000_000_000
"""How long a link that is to be closed may take nothing of what was said to it."""
GRACE_NS = 1_000_000_000
"""Who took something within this time is not abandoned for the sum, unless it is twice what it may be."""
PRESSED_SIZE = 64 << 10


class SendLimits(NamedTuple):
    """How much may wait to be written, in bytes, and how long a peer may take nothing of it."""

    size_max: int = 256 << 20
    """Of all links."""
    link_size_max: int = 4 << 20
    """Of one link, until it is congested."""
    silence_max_ns: int = 30_000_000_000


class Waiting(NamedTuple):
    """What waits on one link now: `taken_size` is what the peer's system has taken."""

    link: int
    size: int
    taken_size: int
    is_closing: bool
    is_proven: bool


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close the link at once, with what waits on it."""

    link: int
    reason: str


@dataclass(slots=True)
class _Pace:
    taken_size: int
    since_ns: int


class SendBudget:
    """Owns since when each link with something unwritten has taken nothing."""

    def __init__(self, limits: SendLimits) -> None:
        """Nothing waits."""
        self.limits = limits
        self.size = 0
        """What waited when it was looked last, in bytes."""
        self.abandoned_count = 0
        self.is_pressed = False
        """Whether links are congested early: half of what may wait does."""
        self._paces: dict[int, _Pace] = {}

    @property
    def link_size_max(self) -> int:
        """With how much waiting a link is congested, now."""
        return min(PRESSED_SIZE, self.limits.link_size_max) if self.is_pressed else self.limits.link_size_max

    def look(self, waiting: Sequence[Waiting], now_ns: int) -> list[Abandon]:
        """What follows from all links on which something waits; the others are forgotten."""
        known, self._paces = self._paces, {}
        orders: list[Abandon] = []
        staying: list[tuple[bool, int, int, int]] = []
        self.size = 0
        for link, size, taken_size, is_closing, is_proven in waiting:
            pace = known.get(link)
            if pace is None:
                pace = _Pace(taken_size, now_ns)
            elif taken_size > pace.taken_size:
                pace.taken_size, pace.since_ns = taken_size, now_ns
            silent_ns = now_ns - pace.since_ns
            if silent_ns >= (min(CLOSE_NS, self.limits.silence_max_ns) if is_closing else self.limits.silence_max_ns):
                orders.append(Abandon(link, f"the peer has read nothing for {silent_ns / 1e9:.0f} s"))
                self.abandoned_count += 1
                continue
            self._paces[link] = pace
            self.size += size
            staying.append((is_proven, pace.since_ns, -size, link))
        if self.size > self.limits.size_max:
            orders += self._shed(sorted(staying), now_ns)
        self.is_pressed = self.size > self.limits.size_max // 2
        return orders

    def _shed(self, staying: list[tuple[bool, int, int, int]], now_ns: int) -> list[Abandon]:
        orders: list[Abandon] = []
        for _, since_ns, size_negative, link in staying:
            if self.size <= self.limits.size_max:
                break
            if now_ns - since_ns < GRACE_NS and self.size <= 2 * self.limits.size_max:
                continue
            self.size += size_negative
            del self._paces[link]
            self.abandoned_count += 1
            orders.append(Abandon(link, "too many bytes wait to be written to it"))
        return orders
