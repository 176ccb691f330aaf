"""What is closed can be closed again: what a signal's handler raises meanwhile ends the wait alone, and who closes it
once more waits again, and is told.
"""

from __future__ import annotations

from collections.abc import Callable

from veredus.kernel.errors import VeredusError

from .loops import Begun, LoopThread, Work


class Closing:
    """Closes something by work in a loop, which goes on to its end."""

    __slots__ = ("_begun", "_thread")

    def __init__(self, thread: LoopThread) -> None:
        """Nothing is being closed."""
        self._thread = thread
        self._begun: Begun[None] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether it has begun, and nobody was told what came of it."""
        return self._begun is not None

    def begin(self, work: Work[None]) -> Begun[None]:
        """What closes it, which is begun once."""
        begun = self._begun = self._begun or Begun(self._thread.loop, work)
        return begun

    def wait(self, work: Work[None]) -> None:
        """Close it, and wait for that. Raises what `work` raises."""
        begun = self.begin(work)
        self._thread.see_to(begun)
        self._begun = None
        begun.result()


class Leaving:
    """Leaves something as soon as it is known what became of all that hangs on it."""

    __slots__ = ("_is_known",)

    def __init__(self) -> None:
        """Nobody leaves it yet."""
        self._is_known = False

    @property
    def is_begun(self) -> bool:
        """Whether nothing is waited for any more."""
        return self._is_known

    def leave(self, wait: Callable[[], object], go: Callable[[], None]) -> None:
        """Wait, and go, also where waiting raises a `VeredusError`; who is torn out of going goes again."""
        try:
            if not self._is_known:
                wait()
        except VeredusError:
            self._is_known = True
            go()
            raise
        self._is_known = True
        go()
