"""The connections of a process by number, and where each comes from: what is noted of one says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple


class Known(NamedTuple):
    """By which listener a peer came, how it is shown (`address:port`), and the address that its connections share."""

    listener: str
    name: str
    address: str


class Peers:
    """Owns the numbers of one process's connections; used on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody is there yet."""
        self._loop = loop
        self._last = 0
        self._known: dict[int, Known] = {}

    def enter(self, listener: str, name: str, address: str) -> int:
        """Somebody has come; the number, from 1 on, which no other connection ever has."""
        self._last += 1
        self._known[self._last] = Known(listener, name, address)
        return self._last

    def leave(self, number: int) -> None:
        """Somebody has gone. What is noted in this turn of the loop says yet where he came from."""
        self._loop.call_soon(self._known.pop, number, None)

    def address_of(self, number: int) -> str:
        """The address that a connection has in common with others of its peer, "" where it is gone."""
        known = self._known.get(number)
        return "" if known is None else known.address

    def located(self, fields: Mapping[str, object]) -> dict[str, object]:
        """What happened on the connection `link`, with its listener and its peer."""
        link = fields.get("link")
        known = self._known.get(link) if isinstance(link, int) else None
        return dict(fields) if known is None else {**fields, "listener": known.listener, "peer": known.name}
