"""What waits to be written to the connections of one process: looked at now and then, and bounded over all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from veredus.node.sending import SendBudget, SendLimits, Waiting

from .hearing import once_read

ABANDONED = "peer-abandoned"
"""What the log calls it."""
LOOK_S = 0.5
"""How often it is looked who has taken what was sent."""
AWAY_S = 1.0
"""A look that comes so late says that this process was stopped: for so long nobody was slow."""


class Writing(Protocol):
    """A connection to which something is written."""

    @property
    def size_max(self) -> int:
        """How much may be unwritten."""
        ...

    @property
    def waiting(self) -> Waiting:
        """What waits to be written; no two connections have one number."""
        ...

    def set_size_max(self, size: int) -> None:
        """How much may be unwritten from now on."""
        ...

    def abort(self) -> None:
        """Close now."""
        ...


class Unwritten:
    """Owns which connections something waits to be written to, and the budget of that."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: SendLimits, tell: Callable[[int, str], object]) -> None:
        """Nothing waits; `limits` bound what does. `tell` hears which connection is closed for it, and why."""
        self.budget = SendBudget(limits)
        self._loop = loop
        self._tell = tell
        self._watched: dict[Writing, None] = {}
        self._sent_size = 0
        self._due_s = loop.time() + LOOK_S
        """When it is looked next."""
        self._timer: asyncio.TimerHandle | None = loop.call_at(self._due_s, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def watch(self, link: Writing) -> None:
        """Something waits to be written to the link."""
        self._watched[link] = None
        if link.size_max != self.budget.link_size_max:
            link.set_size_max(self.budget.link_size_max)

    def note_sent(self, size: int) -> None:
        """So many bytes were sent that may wait: where they are many, it is looked at once, and not after a while."""
        self._sent_size += size
        if self._sent_size >= self.budget.limits.size_max // 8:
            self._sent_size = 0
            once_read(self._loop, self._judge)

    def forget(self, link: Writing) -> None:
        """The link is gone."""
        self._watched.pop(link, None)

    def _look(self) -> None:
        late_s = self._loop.time() - self._due_s
        if late_s >= AWAY_S:
            self.budget.stand_still(int(late_s * 1e9))
        self._due_s = self._loop.time() + LOOK_S
        self._timer = self._loop.call_at(self._due_s, self._look)
        once_read(self._loop, self._judge)

    def _judge(self, heard_ns: int) -> None:
        by_number = {}
        found = []
        for link in list(self._watched):
            waiting = link.waiting
            if waiting.size:
                by_number[waiting.link] = link
                found.append(waiting)
            else:
                del self._watched[link]
        for order in self.budget.look(found, heard_ns):
            self._tell(order.link, order.reason)
            by_number[order.link].abort()
        for link in by_number.values():
            self.watch(link)
