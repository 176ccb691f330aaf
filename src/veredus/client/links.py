"""How a connection finds its node, how far a link to it has come, and what the log hears of links."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass, field

from veredus.kernel.errors import VeredusError

from .addresses import Address

log = logging.getLogger("veredus")
log.addHandler(logging.NullHandler())  # who wants to read it says where
TIMEOUT_S = 10.0
REFUSED_S = 2.0
"""So long the first link is tried where every address refuses it at once: no process listens there."""


@dataclass(slots=True)
class ConnectionSettings:
    """How a connection finds its node and who it says it is."""

    addresses: tuple[Address, ...]
    client: str = ""
    """What the node calls this client in its logs."""
    token: str = ""
    tls: ssl.SSLContext | None = None
    timeout_s: float = TIMEOUT_S
    """How long requests wait for a node."""
    refused_s: float = REFUSED_S
    """How long `open` waits where every address refuses the link."""
    open_s: float = TIMEOUT_S
    """How long `open` waits for a node."""


@dataclass(slots=True)
class Outcome:
    """How far the link has come; `error` is why it ended."""

    address: Address | None = None
    is_welcome: bool = False
    is_nobody_there: bool = False
    """Whether the address refused the link: no process listens there."""
    error: VeredusError | None = None
    opened_s: float | None = None
    """When the connection was accepted, by the monotonic clock; None before."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class LinkLog:
    """Logs once that the link to a node is lost, however often it is tried anew, and once that there is one again."""

    __slots__ = ("_is_lost",)

    def __init__(self) -> None:
        """There was no link yet."""
        self._is_lost = False

    def tell_lost(self, where: str, why: str) -> None:
        """The link is lost, and the program has not closed it."""
        if not self._is_lost:
            self._is_lost = True
            log.warning("the connection to the node at %s is lost, and is tried again: %s", where, why)

    def tell_back(self, where: str) -> None:
        """There is a link."""
        if self._is_lost:
            self._is_lost = False
            log.info("the connection to the node at %s is back", where)
