"""Sinks without a name of their own that were left: which of them goes first where there is no room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator


class LeftSinks:
    """Owns the names of ephemeral sinks, in the order in which they were left: of all, and of each owner.

    Somebody may be there for some of them again. Whoever finds that takes these out: they come back when they are left,
    so that nobody passes over one twice.
    """

    __slots__ = ("_owners", "_queues")

    def __init__(self) -> None:
        """None was left yet."""
        self._owners: dict[str, str] = {}
        # An ordered one finds its first at once, however many before it have gone.
        self._queues: dict[str | None, OrderedDict[str, None]] = {}

    def put(self, sink: str, owner: str) -> None:
        """The sink was left after all others."""
        self.take(sink)
        self._owners[sink] = owner
        for whose in (None, owner):
            self._queues.setdefault(whose, OrderedDict())[sink] = None

    def take(self, sink: str) -> None:
        """The sink is gone, or in use again."""
        if sink not in self._owners:
            return
        for whose in (None, self._owners.pop(sink)):
            del self._queues[whose][sink]
            if not self._queues[whose]:
                del self._queues[whose]

    def of(self, owner: str | None) -> Iterator[str]:
        """Those of an owner, or of anybody (None)."""
        return iter(self._queues.get(owner, ()))
