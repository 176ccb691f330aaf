"""Where the puts lie that a stream has: what was put to another one too, under the same counter, is there already.

A whole topic is read for that, so they lie close together: of each client in the order of its counters. Only what came
from another server, after the client had put here, is out of that order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from .putting import DIGEST_SIZE


class KnownPuts:
    """Owns places by client, counter, and the body's digest."""

    def __init__(self) -> None:
        """None is known."""
        self._by_client: dict[str, tuple[array[int], array[int], bytearray]] = {}
        self._others: dict[tuple[str, int, bytes], int] = {}

    def note(self, client: str, counter: int, digest: bytes, place: int) -> None:
        """A put lies here."""
        known = self._by_client.get(client)
        if known is None:
            known = self._by_client[client] = array("q"), array("q"), bytearray()
        counters, places, digests = known
        if not counters or counters[-1] < counter:
            counters.append(counter)
            places.append(place)
            digests += digest
        else:
            self._others.setdefault((client, counter, digest), place)

    def place_of(self, client: str, counter: int, digest: bytes) -> int | None:
        """Where the same put lies, None where it lies nowhere."""
        counters, places, digests = self._by_client.get(client, ((), (), b""))
        index = bisect_left(counters, counter)
        if index < len(counters) and counters[index] == counter:
            start = index * DIGEST_SIZE
            if digests[start : start + DIGEST_SIZE] == digest:
                return places[index]
        return self._others.get((client, counter, digest))
