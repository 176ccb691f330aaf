"""What a process that is stopped (SIGSTOP, a long collection, a machine that sleeps) does not do.

    through(action) ──open──► action
                     ─stopped─► waits ──resume──► all that waits, in its order

The world goes on meanwhile: what arrives waits, clocks move on, and whoever wakes up believes what it knew before.
"""

from __future__ import annotations

from collections import deque

from .world import Action, World

FOR_EVER_NS = 1 << 62


class Gate:
    """Owns what waits in one process while it is stopped."""

    def __init__(self, world: World) -> None:
        """An open gate."""
        self._world = world
        self._waiting: deque[Action] = deque()
        self._stop_count = 0
        self.is_stopped = False

    def stop(self, duration_ns: int) -> None:
        """Do nothing for so long, or until `resume`."""
        self._stop_count += 1
        self.is_stopped = True
        number = self._stop_count
        self._world.after(duration_ns, lambda: self.resume() if number == self._stop_count else None)

    def resume(self) -> None:
        """Go on, first with what waits."""
        self.is_stopped = False
        while self._waiting and not self.is_stopped:
            self._waiting.popleft()()

    def through(self, action: Action) -> None:
        """Let `action` happen now, or behind what waits."""
        if self.is_stopped:
            self._waiting.append(action)
        else:
            action()

    def clear(self) -> None:
        """The process is gone, and with it all that waited: another one begins."""
        self._stop_count += 1
        self._waiting.clear()
        self.is_stopped = False
