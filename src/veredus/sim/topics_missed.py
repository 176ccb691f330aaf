"""What was trimmed in a world of topics, and who was told of it: a message that is owed is got, or is in a told gap."""

from __future__ import annotations

from collections.abc import Iterable

from veredus.protocols.topics.ids import read_id


class Missed:
    """Owns what may be gone, by the ids that it had at its servers, and what clients were told to be gone."""

    def __init__(self) -> None:
        """Nothing was trimmed."""
        self.trimmed: dict[bytes, None] = {}
        """Bodies that may be gone somewhere."""
        self._bodies: dict[tuple[str, int], bytes] = {}
        """By the life of a stream, as ids show it, and the sequence."""
        self._told: dict[tuple[str, str], dict[bytes, None]] = {}
        """By client and topic."""

    def trims(self, rows: Iterable[tuple[str, int, bytes]]) -> None:
        """Rows are about to be trimmed: their lives as ids show them, their sequences and their bodies."""
        for shown, sequence, body in rows:
            self.trimmed[body] = None
            self._bodies[shown, sequence] = body

    def tell(self, client: str, topic: str, message_id: str) -> None:
        """A client was told that what has this id is no longer there."""
        named = read_id(message_id)
        if named is not None:
            told = self._told.setdefault((client, topic), {})
            for sequence in range(named.first, named.last + 1):
                body = self._bodies.get((named.incarnation, sequence))
                if body is not None:
                    told[body] = None

    def is_told(self, client: str, topic: str, body: bytes) -> bool:
        """Whether a client was told that this is no longer there."""
        return body in self._told.get((client, topic), {})
