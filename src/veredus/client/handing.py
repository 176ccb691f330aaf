"""What is about to be handed out, where the node counts attempts: it hears so before."""

from __future__ import annotations

from collections.abc import Callable

from .loops import LoopThread, Signal


class Handing:
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
