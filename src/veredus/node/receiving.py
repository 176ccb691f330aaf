"""The memory of frames that are not whole yet, over all links: who has it, who waits for it, who held it too long.

    begun, small ─────────────────► GRANTED ──► whole
    begun, large ──► room? ── yes ──► ┘   └── later than its time, or too slow while others wait ──► given up
                       └── no ──► WAITING (not read from) ── room ──► GRANTED

A frame says in its head how large it will be. A large one is granted that much before it is read on; where there is no
room its link waits, with what has arrived of it. Those that wait are served by principal, whoever has least first.

Invariants
    (1) Large frames are granted at most `size_max` together, and those who wait hold at most as much; above that, and
        where small frames make it twice `size_max`, a link that begins a frame is given up at once.
    (2) Large frames of one principal are granted at most half of `size_max`, one frame excepted.
    (3) While a link waits, a frame that comes more slowly than whole in `PRESSED_NS` is given up after `GRACE_NS`.
    (4) A large frame that is not whole within `frame_timeout_ns` is given up.
    (5) While the node does not read from a link, the time of its frame stands still.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from veredus.protocols.links import Unfinished

SMALL_SIZE_MAX = 64 << 10
"""A frame of this size is read without asking for room."""
GRACE_NS = 1_000_000_000
PRESSED_NS = 5_000_000_000
LOOK_NS = 250_000_000
"""How often it is looked for slow frames while somebody waits."""


class ReceiveLimits(NamedTuple):
    """How much memory frames may take that are not whole, in bytes, and how long a large one may take."""

    size_max: int = 256 << 20
    frame_timeout_ns: int = 60_000_000_000


DEFAULT_LIMITS = ReceiveLimits()


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Read no more from the link: there is no room for its frame."""

    link: int


@dataclass(frozen=True, slots=True)
class ReadOn:
    """Read from the link again."""

    link: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the link: its frame took too long."""

    link: int
    message: str


Order = HoldBack | ReadOn | GiveUp


@dataclass(slots=True)
class _Frame:
    principal: str
    is_proven: bool
    size: int
    held_size: int
    since_ns: int

    @property
    def is_large(self) -> bool:
        return self.size > SMALL_SIZE_MAX

    def is_slow(self, now_ns: int) -> bool:
        """Whether less of it has come than would make it whole in `PRESSED_NS`."""
        took_ns = now_ns - self.since_ns
        return took_ns >= GRACE_NS and self.held_size * PRESSED_NS < self.size * took_ns

    def pace(self, now_ns: int) -> tuple[bool, float]:
        """Who goes first: the unproven, then the slowest."""
        return self.is_proven, self.held_size / (self.size * max(1, now_ns - self.since_ns))


class ReceiveBudget:
    """Owns the unfinished frames of all links, by link; see the module for the rules."""

    def __init__(self, limits: ReceiveLimits) -> None:
        """Nothing was begun yet."""
        self.limits = limits
        self.granted_size = 0
        self.waiting_size = 0
        """What those hold who wait, in bytes."""
        self.refused_count = 0
        """How many frames took too long."""
        self._granted: dict[int, _Frame] = {}
        """Oldest first."""
        self._unread: dict[int, tuple[_Frame, int]] = {}
        """Those granted whose links are not read from, and since when."""
        self._paused: set[int] = set()
        """Links that are not read from."""
        self._waiting: dict[int, _Frame] = {}
        self._share: dict[str, int] = {}
        """What large frames of each principal are granted."""
        self._look_ns: int | None = None

    @property
    def size(self) -> int:
        """What is granted, and what those hold who wait, in bytes."""
        return self.granted_size + self.waiting_size

    def __contains__(self, link: int) -> bool:
        return link in self._granted or link in self._waiting or link in self._unread

    def pace(self, link: int, is_read: bool, now_ns: int) -> None:
        """The link is read from again, or no more."""
        if not is_read:
            self._paused.add(link)
            frame = self._granted.pop(link, None)
            if frame is not None:
                self._unread[link] = frame, now_ns
            return
        self._paused.discard(link)
        if link in self._unread:
            frame, paused_ns = self._unread.pop(link)
            frame.since_ns += now_ns - paused_ns
            self._granted[link] = frame

    def note(self, link: int, principal: str, is_proven: bool, unfinished: Unfinished, now_ns: int) -> list[Order]:
        """A link has `unfinished` now; what follows for it and for others."""
        known = self._unread[link][0] if link in self._unread else self._granted.get(link)
        if known is not None and known.size == unfinished.frame_size and unfinished.held_size >= known.held_size:
            known.held_size = unfinished.held_size
            return []
        if link in self._waiting and unfinished.frame_size:
            # It was on its way when reading stopped.
            frame = self._waiting[link]
            self.waiting_size += unfinished.held_size - frame.held_size
            frame.held_size, frame.size = unfinished.held_size, unfinished.frame_size
            return []
        # What was on its way when reading stopped may have made the frame whole.
        orders: list[Order] = [ReadOn(link)] if link in self._waiting else []
        orders += self.forget(link, now_ns)
        if not unfinished.frame_size:
            return orders
        frame = _Frame(principal, is_proven, unfinished.frame_size, unfinished.held_size, now_ns)
        if frame.is_large and not self._has_room(frame):
            return [*orders, *self._hold_back(link, frame, now_ns)]
        self._grant(link, frame)
        if self.granted_size > self.limits.size_max:
            orders += self._press(now_ns)
        if self.granted_size > 2 * self.limits.size_max and link in self:
            orders += self._give_up(link, "the node has no memory left for incomplete frames: try again later")
        return orders

    def forget(self, link: int, now_ns: int) -> list[Order]:
        """The link's frame is whole, or given up; who may be read from again."""
        frame = self._unread.pop(link)[0] if link in self._unread else self._granted.pop(link, None)
        if frame is not None:
            self._take_back(frame)
        else:
            frame = self._waiting.pop(link, None)
            if frame is None:
                return []
            self.waiting_size -= frame.held_size
        return self._serve(now_ns)

    def leave(self, link: int, now_ns: int) -> list[Order]:
        """The link is gone; who may be read from again."""
        self._paused.discard(link)
        return self.forget(link, now_ns)

    def deadline(self) -> int | None:
        """When to look next."""
        if self._waiting:
            return self._look_ns
        frame = next((frame for frame in self._granted.values() if frame.is_large), None)
        return None if frame is None else frame.since_ns + self.limits.frame_timeout_ns

    def look(self, now_ns: int) -> list[Order]:
        """Refuse what took too long, or is too slow for those who wait."""
        late = [
            link
            for link, frame in self._granted.items()
            if frame.is_large and frame.since_ns + self.limits.frame_timeout_ns <= now_ns
        ]
        orders: list[Order] = []
        for link in late:
            seconds = self.limits.frame_timeout_ns / 1e9
            orders += self._give_up(link, f"a frame was not complete after {seconds:g} s")
        if self._waiting:
            self._look_ns = now_ns + LOOK_NS
            orders += self._press(now_ns)
        return orders + self._serve(now_ns)

    def _has_room(self, frame: _Frame) -> bool:
        share = self._share.get(frame.principal, 0)
        is_fair = not share or share + frame.size <= self.limits.size_max // 2
        return is_fair and self.granted_size + frame.size <= self.limits.size_max

    def _grant(self, link: int, frame: _Frame) -> None:
        if link in self._paused:
            self._unread[link] = frame, frame.since_ns
        else:
            self._granted[link] = frame
        self.granted_size += frame.size
        if frame.is_large:
            self._share[frame.principal] = self._share.get(frame.principal, 0) + frame.size

    def _take_back(self, frame: _Frame) -> None:
        self.granted_size -= frame.size
        if frame.is_large:
            self._share[frame.principal] -= frame.size
            if not self._share[frame.principal]:
                del self._share[frame.principal]

    def _hold_back(self, link: int, frame: _Frame, now_ns: int) -> list[Order]:
        if self.waiting_size + frame.held_size > self.limits.size_max:
            self.refused_count += 1
            return [GiveUp(link, "the node has no memory left for incomplete frames: try again later")]
        if not self._waiting:
            self._look_ns = now_ns + LOOK_NS
        self._waiting[link] = frame
        self.waiting_size += frame.held_size
        return [HoldBack(link)]

    def _serve(self, now_ns: int) -> list[Order]:
        """Grant what there is room for, to whoever's principal has least."""
        orders: list[Order] = []
        while self._waiting:
            fitting = [link for link, frame in self._waiting.items() if self._has_room(frame)]
            if not fitting:
                break
            link = min(fitting, key=lambda one: self._share.get(self._waiting[one].principal, 0))
            frame = self._waiting.pop(link)
            self.waiting_size -= frame.held_size
            frame.since_ns = now_ns
            self._grant(link, frame)
            orders.append(ReadOn(link))
        return orders

    def _press(self, now_ns: int) -> list[Order]:
        """Refuse slow frames, the slowest first, until somebody who waits can go on, or all are within the budget."""
        orders: list[Order] = []
        slow = [link for link, frame in self._granted.items() if frame.is_slow(now_ns)]
        for link in sorted(slow, key=lambda one: self._granted[one].pace(now_ns)):
            orders += self._give_up(link, "a frame arrived too slowly while other connections waited for its memory")
            if self.granted_size <= self.limits.size_max and (
                not self._waiting or any(map(self._has_room, self._waiting.values()))
            ):
                break
        return orders

    def _give_up(self, link: int, message: str) -> list[Order]:
        self._take_back(self._unread.pop(link)[0] if link in self._unread else self._granted.pop(link))
        self.refused_count += 1
        return [GiveUp(link, message)]

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        frames = [*self._granted.values(), *(frame for frame, _ in self._unread.values())]
        granted = sum(frame.size for frame in frames)
        waiting = sum(frame.held_size for frame in self._waiting.values())
        assert (self.granted_size, self.waiting_size) == (granted, waiting)
        assert self.waiting_size <= self.limits.size_max, "(1)"
        assert sum(self._share.values()) == sum(frame.size for frame in frames if frame.is_large)
        for principal, share in self._share.items():
            count = sum(frame.principal == principal and frame.is_large for frame in frames)
            assert share <= self.limits.size_max // 2 or count == 1, "(2)"
