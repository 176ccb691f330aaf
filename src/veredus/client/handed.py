"""Who waits until the node knows what is about to be handed out; see invariant (2) of `veredus.client.feed`."""

from __future__ import annotations

from collections.abc import Callable

from .loops import LoopThread, Signal
from .publishing import Waiter


class Handed:
    """Owns up to where the node knows what was handed out, and who waits for that; lives in the loop."""

    __slots__ = ("_waiters", "known_to")

    def __init__(self) -> None:
        """The node knows of nothing."""
        self.known_to = 0
        self._waiters: list[tuple[int, Waiter]] = []

    def wait(self, sequence: int, tell: Waiter) -> None:
        """Call `tell` once the node knows that all up to `sequence` is about to be handed out; at once if it does."""
        self._waiters.append((sequence, tell))
        self._tell(lambda wanted: wanted <= self.known_to)

    def know(self, sequence: int) -> None:
        """The node knows up to there."""
        self.known_to = max(self.known_to, sequence)
        self._tell(lambda wanted: wanted <= self.known_to)

    def lose_from(self, sequence: int) -> None:
        """What lies from there on is gone, or all of it with 0: the node never knows, and nobody waits for it."""
        self.known_to = min(self.known_to, max(0, sequence - 1))
        self._tell(lambda wanted: wanted >= sequence)

    def _tell(self, is_over: Callable[[int], bool]) -> None:
        over = [tell for wanted, tell in self._waiters if is_over(wanted)]
        self._waiters = [waiter for waiter in self._waiters if not is_over(waiter[0])]
        for tell in over:
            tell()


class HandedWait:
    """What is about to be handed out: the node is told so once, however often it is asked for."""

    __slots__ = ("_add_waiter", "_is_known", "_signal", "sequence")

    def __init__(self, sequence: int, add_waiter: Callable[[Callable[[], None]], None]) -> None:
        """All up to `sequence`; `add_waiter` says so, and then calls back."""
        self.sequence = sequence
        self._add_waiter: Callable[[Callable[[], None]], None] | None = add_waiter
        self._is_known = False
        self._signal = Signal()

    def say(self) -> None:
        """See that the node is told, in the loop."""
        add_waiter, self._add_waiter = self._add_waiter, None
        if add_waiter is not None:
            add_waiter(self._know)

    def _know(self) -> None:
        self._is_known = True
        self._signal.tell()

    def wait(self, thread: LoopThread, timeout_s: float | None) -> bool:
        """Wait until the node has heard so; whether it has, in time."""
        return self._is_known or thread.wait(self._signal, timeout_s)
