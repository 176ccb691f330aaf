"""The memory of what waits to be written, over all links: who takes nothing of it is let go, and the sum is bounded.

    waits ──► taken, all of it
      ├── some of it taken, or something received: slow, and not gone
      ├── neither for `silence_max_ns`, or nothing taken for `CLOSE_NS` by a link that is to be closed: abandoned
      ├── the sum above half of `size_max`: a link has `PRESSED_SIZE`
      └── the sum above `size_max`: abandoned, the unproven first, then who has taken nothing for longest

A quarter of what may wait for a link is for pushes, whose order a peer feels: an answer comes behind the pushes that
wait. The rest is for answers. What waits for several links and lies in memory once is counted once in the sum.

Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

CLOSE_NS = 5_000_000_000
"""How long a link that is to be closed may take nothing of what was said to it."""
GRACE_NS = 1_000_000_000
"""Who took something within this time is not abandoned for the sum, unless it is twice what it may be."""
PRESSED_SIZE = 64 << 10
SHARED_SIZE_MIN = 16 << 10
"""Smaller buffers are counted for each link: to keep account of them would cost more than they do."""


class SendLimits(NamedTuple):
    """How much may wait to be written, in bytes, and how long a peer may take nothing of it."""

    size_max: int = 256 << 20
    """Of all links."""
    link_size_max: int = 4 << 20
    """Of one link, until it is not read from."""
    silence_max_ns: int = 30_000_000_000


def push_size_of(link_size_max: int) -> int:
    """With how much waiting a link is congested: pushed nothing more, though it is still read from."""
    return link_size_max // 4


class Waiting(NamedTuple):
    """What waits on one link now: `taken_size` is what the peer's system has taken, `received_size` what came from it.

    `is_unheard`: the link is not read from, and its peer can do nothing about it. `shared` is how much of `size` lies
    in buffers that other links may hold, too, by the name of each buffer.
    """

    link: int
    size: int
    taken_size: int
    received_size: int
    is_unheard: bool
    is_closing: bool
    is_proven: bool
    shared: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close the link at once, with what waits on it."""

    link: int
    reason: str


@dataclass(slots=True)
class _Pace:
    taken_size: int
    taken_ns: int
    received_size: int
    active_ns: int


class _Held:
    """Owns the sum of what waits for all links, with each buffer that several of them hold counted once."""

    def __init__(self) -> None:
        self.size = 0
        self._links: dict[int, tuple[int, Mapping[int, int]]] = {}
        self._holders: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}
        """What is counted for each buffer: as much as waits of it for the slowest."""

    def add(self, link: int, size: int, shared: Mapping[int, int]) -> None:
        own_size = size - sum(shared.values())
        self._links[link] = own_size, shared
        self.size += own_size
        for buffer, shared_size in shared.items():
            self._holders[buffer] += 1
            more = shared_size - self._sizes.get(buffer, 0)
            if more > 0:
                self._sizes[buffer] = shared_size
                self.size += more

    def remove(self, link: int) -> int:
        """What is left once the link is closed: what others hold, too, stays in memory."""
        own_size, shared = self._links.pop(link)
        self.size -= own_size
        for buffer in shared:
            self._holders[buffer] -= 1
            if not self._holders[buffer]:
                self.size -= self._sizes[buffer]
        return self.size


class SendBudget:
    """Owns since when each link with something unwritten has taken nothing, and since when nothing came from it."""

    def __init__(self, limits: SendLimits) -> None:
        """Nothing waits."""
        self.limits = limits
        self.size = 0
        """What waited when it was looked last, in bytes."""
        self.abandoned_count = 0
        self.is_pressed = False
        """Whether less may wait for each link: half of what may wait does."""
        self._paces: dict[int, _Pace] = {}

    @property
    def link_size_max(self) -> int:
        """How much may wait for a link, now."""
        return min(PRESSED_SIZE, self.limits.link_size_max) if self.is_pressed else self.limits.link_size_max

    def look(self, waiting: Sequence[Waiting], now_ns: int) -> list[Abandon]:
        """What follows from all links on which something waits; the others are forgotten."""
        known, self._paces = self._paces, {}
        orders: list[Abandon] = []
        staying: list[tuple[bool, int, int, int]] = []
        held = _Held()
        for link, size, taken_size, received_size, is_unheard, is_closing, is_proven, shared in waiting:
            pace = known.get(link)
            if pace is None:
                pace = _Pace(taken_size, now_ns, received_size, now_ns)
            if taken_size > pace.taken_size:
                pace.taken_size, pace.taken_ns = taken_size, now_ns
            if is_unheard or received_size > pace.received_size or pace.taken_ns == now_ns:
                pace.received_size, pace.active_ns = received_size, now_ns
            idle_ns = now_ns - (pace.taken_ns if is_closing else pace.active_ns)
            if idle_ns >= (min(CLOSE_NS, self.limits.silence_max_ns) if is_closing else self.limits.silence_max_ns):
                orders.append(Abandon(link, f"the peer has read nothing for {(now_ns - pace.taken_ns) / 1e9:.0f} s"))
                self.abandoned_count += 1
                continue
            self._paces[link] = pace
            held.add(link, size, shared)
            staying.append((is_proven, pace.taken_ns, -size, link))
        self.size = held.size
        if self.size > self.limits.size_max:
            orders += self._shed(sorted(staying), held, now_ns)
        self.is_pressed = self.size > self.limits.size_max // 2
        return orders

    def stand_still(self, passed_ns: int) -> None:
        """So much time has passed in which nobody was written to or heard: it is no peer's silence."""
        for pace in self._paces.values():
            pace.taken_ns += passed_ns
            pace.active_ns += passed_ns

    def _shed(self, staying: list[tuple[bool, int, int, int]], held: _Held, now_ns: int) -> list[Abandon]:
        orders: list[Abandon] = []
        for _, taken_ns, _, link in staying:
            if self.size <= self.limits.size_max:
                break
            if now_ns - taken_ns < GRACE_NS and self.size <= 2 * self.limits.size_max:
                continue
            self.size = held.remove(link)
            del self._paces[link]
            self.abandoned_count += 1
            orders.append(Abandon(link, "too many bytes wait to be written to it"))
        return orders
