"""A world: virtual time, what will happen when, and the story of what has happened.

    at(time, action) ──► queue ──► run: the earliest action, then the next; nothing ever waits for real
    tell(who, what)  ──► the story, and its digest: equal for equal seeds, under any PYTHONHASHSEED

Invariants
    (1) Time never goes back; actions of one time happen in the order in which they were planned.
    (2) Everything that happens follows from the seed.
Source: docs/internals/DESIGN.md, "Proof".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush

from veredus.kernel.engine import Now

from .dice import Dice

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
WALL_START_NS = 1_750_000_000 * SECOND
"""What an unskewed wall clock shows when a world begins."""

Action = Callable[[], None]


class Violation(Exception):
    """A guarantee does not hold; the message says which, and what was seen instead."""

    def __init__(self, oracle: str, message: str) -> None:
        """`oracle`: the short name of the guarantee."""
        super().__init__(f"{oracle}: {message}")
        self.oracle = oracle
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        return (Violation, (self.oracle, self.message))


class World:
    """Owns time, the queue and the story."""

    def __init__(self, seed: int, listen: Callable[[str], None] | None = None) -> None:
        """A world at time 0. `listen` hears each line of the story as it is told."""
        self.dice = Dice(seed)
        self.now_ns = 0
        self.counts: Counter[str] = Counter()
        """What happened, by kind: faults as `fault.<kind>`, work as `<noun>`."""
        self.is_forgetful = False
        """Whether a node may forget what it said: its syncs are late, or its disk damaged its memory and it said so."""
        self.has_owners = False
        """Whether players are principals of their own, and own their names; see `owners`."""
        self.principals: dict[str, str] = {}
        """Of peers, by name, that are somebody in particular."""
        self.vanishing: tuple[str, ...] = ()
        """Streams that somebody deletes now and then."""
        self.suspended: dict[str, None] = {}
        """Principals whom the rules allow nothing just now."""
        self.has_redrivers = False
        """Whether somebody moves dead letters back to their streams."""
        self._queue: list[tuple[int, int, Action]] = []
        self._planned_count = 0
        self._listen = listen
        self._digest = blake2b(digest_size=16)

    def at(self, at_ns: int, action: Action) -> None:
        """Let `action` happen at `at_ns`, or now if that is past."""
        self._planned_count = count = self._planned_count + 1
        heappush(self._queue, (at_ns if at_ns > self.now_ns else self.now_ns, count, action))

    def after(self, delay_ns: int, action: Action) -> None:
        """Let `action` happen `delay_ns` from now."""
        self._planned_count = count = self._planned_count + 1
        heappush(self._queue, (self.now_ns + delay_ns if delay_ns > 0 else self.now_ns, count, action))

    def run(self, until_ns: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Let things happen up to `until_ns`, or until `is_done`; returns whether it was done, True when not asked."""
        queue = self._queue
        while queue and queue[0][0] <= until_ns:
            self.now_ns, _, action = heappop(queue)
            action()
            if is_done is not None and is_done():
                return True
        self.now_ns = max(self.now_ns, until_ns)
        return is_done is None

    def may_forget(self, stream: str) -> bool:
        """Whether a node may know less of a stream than it said."""
        return self.is_forgetful or stream in self.vanishing

    def tell(self, who: str, what: str) -> None:
        """Add a line to the story."""
        line = f"{self.now_ns / SECOND:12.6f} {who:<14} {what}"
        self._digest.update(line.encode())
        if self._listen is not None:
            self._listen(line)

    @property
    def digest(self) -> str:
        """Of the story so far, in hexadecimal."""
        return self._digest.hexdigest()


class Clock:
    """A machine's two clocks: the monotonic one may drift, the wall clock may drift and be stepped."""

    def __init__(self, world: World, drift: float, offset_ns: int) -> None:
        """`drift`: how much faster than true time both run; `offset_ns`: how far the wall clock is off."""
        self._world = world
        self._drift = drift
        self._offset_ns = offset_ns

    def now(self) -> Now:
        """Both clocks, read at once."""
        passed_ns = self._world.now_ns + int(self._world.now_ns * self._drift)
        return Now(passed_ns + SECOND, WALL_START_NS + passed_ns + self._offset_ns)

    def true_ns(self, monotonic_ns: int) -> int:
        """When, in the world's time, the monotonic clock shows at least `monotonic_ns`."""
        return -int(-(monotonic_ns - SECOND) // (1 + self._drift)) + 1

    def step(self, step_ns: int) -> None:
        """Somebody sets the wall clock forward, or back."""
        self._offset_ns += step_ns
