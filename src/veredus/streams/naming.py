"""The names of all streams that a principal may describe, for whoever asks for the whole of them again and again.

What is known is kept: the rules are asked of the streams that came since alone.
"""

from __future__ import annotations

from .rights import DESCRIBE, on_stream
from .tables import Tables


class Naming:
    """Owns the list of names that was given last."""

    __slots__ = ("_judged", "_names", "_principal", "_tables", "_version")

    def __init__(self, tables: Tables) -> None:
        """Nobody has asked yet."""
        self._tables = tables
        self._principal = ""
        self._names: list[str] = []
        self._judged: set[str] = set()
        """The names of which the rules were asked."""
        self._version = -1
        """Of the streams that there were then."""

    def forget(self) -> None:
        """The rules have changed."""
        self._names, self._judged, self._version = [], set(), -1

    def of(self, principal: str) -> list[str]:
        """The names in order, as a list that is not to be changed."""
        if principal != self._principal:
            self.forget()
            self._principal = principal
        tables = self._tables
        if self._version != tables.streams_version:
            self._version = tables.streams_version
            came, gone = tables.streams.keys() - self._judged, self._judged.difference(tables.streams)
            may = tables.rights.may
            seen = [name for name in sorted(came) if may(principal, DESCRIBE, on_stream(name))]
            kept = [name for name in self._names if name not in gone] if gone else self._names
            # Two lists that are in order each are sorted in one pass.
            self._names = sorted(kept + seen)
            self._judged = self._judged.difference(gone).union(came) if gone else self._judged | came
        return self._names
