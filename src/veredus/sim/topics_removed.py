"""What was asked to be removed in a world of topics, and which messages may be gone by that.

A topic that goes from a server while somebody asks to remove it there was removed, for all that is known; what may have
been there by then may be gone. It may have been where it was asked to be put, or in whatever was merged into that.
"""

from __future__ import annotations


class Removals:
    """Owns what is asked to be removed, by server and topic, and where merges may have brought messages."""

    def __init__(self) -> None:
        """Nothing was removed."""
        self.topics: dict[str, None] = {}
        """Those of which anything was removed."""
        self.kept: dict[tuple[str, str], None] = {}
        """Servers that may have taken a topic over from others."""
        self._asked: dict[tuple[str, str], int] = {}
        """How many requests may still be carried out."""

    def ask(self, server: str, topic: str) -> None:
        """Somebody is about to ask for it."""
        self._asked[server, topic] = self._asked.get((server, topic), 0) + 1

    def end(self, server: str, topic: str) -> None:
        """What was asked was answered: it is not carried out later."""
        self._asked[server, topic] -= 1

    def may_be(self, server: str, topic: str) -> bool:
        """Whether a topic that has gone from a server may have been removed."""
        return self._asked.get((server, topic), 0) > 0
