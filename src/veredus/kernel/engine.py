"""The engine contract: facts in, orders out, time passed in.

An engine is a state machine with no hands. It reads no clock, throws no dice, touches no file or socket, starts no
thread and awaits nothing, so the asyncio host and the simulator can drive the same engine, unchanged.

Rules that every engine keeps (tests/laws repeats them):
    (1) Deterministic: the same events at the same times give the same effects, under any PYTHONHASHSEED.
    (2) Total: every event is answered in every phase; what a peer sends never raises out of `handle`.
    (3) An order with an outcome carries a token, and comes back as exactly one event with that token.
    (4) A due deadline, once delivered as `DeadlineReached`, is followed by one in the future or by None.
    (5) A spurious `DeadlineReached` is harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

_STEP_US = 1_000_000
_NEAR_US = 1_000
"""Numbers that are given one after the other may be ahead of the clock by so much."""


class Now(NamedTuple):
    """The two clocks, read once by the host per batch of events."""

    monotonic_ns: int
    wall_ns: int

    @property
    def wall_us(self) -> int:
        """Microseconds since the Unix epoch, UTC: the unit of event and append times."""
        return self.wall_ns // 1000

    def number_after(self, last: int) -> int:
        """A number above `last`, and none that was given behind `last` before, in what a return to a copy took back.

        The time in microseconds, or the next one where several are given at once. Where a clock was set back, `last`
        may be later: then a step of up to a second above it, which the time gives, so that two returns to one copy do
        not give the same.
        """
        ahead_us = last - self.wall_us
        if ahead_us < 0:
            return self.wall_us
        return last + 1 + (self.wall_us % _STEP_US if ahead_us > _NEAR_US else 0)


E_contra = TypeVar("E_contra", contravariant=True)
F_co = TypeVar("F_co", covariant=True)


class Engine(Protocol[E_contra, F_co]):
    """A state machine with no hands; see the module for the rules it keeps."""

    def handle(self, event: E_contra, now: Now) -> Sequence[F_co]:
        """Take one fact; return the orders that follow from it, in the order in which they must be carried out."""
        ...

    def deadline(self) -> int | None:
        """Monotonic nanoseconds at which to be woken with `DeadlineReached` if nothing happens before; None for
        never.
        """
        ...
