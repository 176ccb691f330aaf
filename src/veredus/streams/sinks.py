"""The sinks of a node by name, in order, and those of each owner: who counts his own looks at no other's."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .listing import InOrder

if TYPE_CHECKING:
    from .tables import Run


class Sinks(InOrder[str, "Run"]):
    """A table of runs by their sink.

    Invariants
        (1) Each run is known as its owner's, from `note_owner` on, or since it is in the table.
    """

    __slots__ = ("_by_owner", "_owners")

    def __init__(self) -> None:
        """No sink yet."""
        super().__init__()
        self._owners: dict[str, str] = {}
        self._by_owner: dict[str, dict[str, Run]] = {}

    def __setitem__(self, sink: str, run: Run) -> None:
        super().__setitem__(sink, run)
        self._forget_owner(sink)
        self._own(run)

    def __delitem__(self, sink: str) -> None:
        super().__delitem__(sink)
        self._forget_owner(sink)

    def note_owner(self, run: Run) -> None:
        """The sink may be another's now; nothing changes for a run that is not in the table."""
        if self.get(run.sink) is run and self._owners[run.sink] != run.owner:
            self._forget_owner(run.sink)
            self._own(run)

    def of(self, owner: str) -> Collection[Run]:
        """The runs of an owner's sinks; "" for those that are nobody's in particular."""
        return self._by_owner.get(owner, {}).values()

    def _own(self, run: Run) -> None:
        self._owners[run.sink] = run.owner
        self._by_owner.setdefault(run.owner, {})[run.sink] = run

    def _forget_owner(self, sink: str) -> None:
        owner = self._owners.pop(sink, None)
        if owner is not None:
            theirs = self._by_owner[owner]
            del theirs[sink]
            if not theirs:
                del self._by_owner[owner]

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        found = {sink: owner for owner, runs in self._by_owner.items() for sink in runs}
        assert found == self._owners == {sink: run.owner for sink, run in self.items()}, "a sink is another's"
