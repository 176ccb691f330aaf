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
        self._stopped_ns = 0
        """When it was stopped last."""
        self._stops: list[tuple[int, int]] = []
        """From when to when it was stopped before, in this life of the process."""

    def stop(self, duration_ns: int) -> None:
        """Do nothing for so long, or until `resume`."""
        self._stop_count += 1
        if not self.is_stopped:
            self.is_stopped, self._stopped_ns = True, self._world.now_ns
        number = self._stop_count
        self._world.after(duration_ns, lambda: self.resume() if number == self._stop_count else None)

    def resume(self) -> None:
        """Go on, first with what waits."""
        if self.is_stopped:
            self.is_stopped = False
            self._stops.append((self._stopped_ns, self._world.now_ns))
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
        self._stops.clear()
        self.is_stopped = False

    def at_work_since(self, duration_ns: int) -> int:
        """The moment since which the process was at work for so long: what it is stopped for does not count."""
        at_ns = self._stopped_ns if self.is_stopped else self._world.now_ns
        for began_ns, ended_ns in reversed(self._stops):
            if at_ns - ended_ns >= duration_ns:
                break
            duration_ns -= at_ns - ended_ns
            at_ns = began_ns
        return max(0, at_ns - duration_ns)
