"""Where the puts lie that a stream has, or a stage: what was put to another one too, under the same counter, is there
already; and what lies behind a later put of its client is known.

A whole topic is read for that, so they lie close together: of each client in the order of its counters. Only what came
from another server, after the client had put here, is out of that order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection

from .putting import DIGEST_SIZE


class KnownPuts:
    """Owns places by client, counter, and the body's digest."""

    def __init__(self) -> None:
        """None is known."""
        self._by_client: dict[str, tuple[array[int], array[int], bytearray]] = {}
        self._others: dict[tuple[str, int, bytes], int] = {}
        self._disordered: dict[str, None] = {}

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
            self._disordered[client] = None

    @property
    def clients(self) -> Collection[str]:
        """Who put any."""
        return self._by_client.keys()

    @property
    def disordered(self) -> Collection[str]:
        """Whose puts do not lie in the order of their counters."""
        return self._disordered

    def puts_of(self, client: str, first: int) -> list[tuple[int, int]]:
        """Place and counter of each put of a client that lies from `first` on, in any order."""
        counters, places, _ = self._by_client.get(client, (array("q"), array("q"), b""))
        index = bisect_left(places, first)
        found = list(zip(places[index:], counters[index:], strict=True))
        if client in self._disordered:
            others = ((place, counter) for (name, counter, _), place in self._others.items() if name == client)
            found += [put for put in others if put[0] >= first]
        return found

    def highest_of(self, client: str, first: int, end: int) -> int:
        """The highest counter of a client's puts that lie from `first` to before `end`, -1 where none does."""
        if client in self._disordered:
            return max((counter for place, counter in self.puts_of(client, first) if place < end), default=-1)
        counters, places, _ = self._by_client.get(client, (array("q"), array("q"), b""))
        index = bisect_left(places, end) - 1
        return counters[index] if index >= 0 and places[index] >= first else -1

    def may_follow(self, others: KnownPuts, client: str) -> bool:
        """Whether a client's puts here, behind those that others have of it, are in the order of their counters."""
        own, before = self._by_client.get(client), others._by_client.get(client)
        if own is None or client in self.disordered or client in others.disordered:
            return False
        return before is None or before[0][-1] < own[0][0]

    def place_of(self, client: str, counter: int, digest: bytes) -> int | None:
        """Where the same put lies, None where it lies nowhere."""
        counters, places, digests = self._by_client.get(client, ((), (), b""))
        index = bisect_left(counters, counter)
        if index < len(counters) and counters[index] == counter:
            start = index * DIGEST_SIZE
            if digests[start : start + DIGEST_SIZE] == digest:
                return places[index]
        return self._others.get((client, counter, digest))
