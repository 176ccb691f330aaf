"""Who waits for the disk: while more is on its way to it than is allowed, those do who have more than their share.

    on its way > size_max ──► each principal with more than size_max / principals ──► its links are not read from,
                                                                                      and get no turns
            ◄── it has half of that, or of all half as much as is allowed is on its way ──┘

Whoever has proved nothing has one share together. A link that carries the questions of many waits while one of those
waits for whom it has asked: what it brings next may be that one's.

Invariants
    (1) Those who do not wait have at most `size_max` bytes on their way to the disk together, but for what the node
        itself appends and what came by one call.
    (2) A principal that waits has something on its way, and adds nothing to it: it goes on, whatever the others do.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from veredus.streams.rights import ANONYMOUS, NOBODY, UNPROVEN

from .connections import Connections
from .pacing import Pacing


class DiskShare:
    """Owns who waits for the disk, and the links of each that are not read from meanwhile."""

    __slots__ = ("_connections", "_pacing", "_shared", "_size_max", "_stopped", "_waiting")

    def __init__(self, size_max: int, connections: Connections, pacing: Pacing) -> None:
        """Nobody waits; `size_max` bytes may be on their way to the disk."""
        self._size_max = size_max
        self._connections = connections
        self._pacing = pacing
        self._waiting: dict[str, set[int]] = {}
        """By principal its links; `ANONYMOUS` is all that have proved nothing."""
        self._shared: dict[int, Collection[str]] = {}
        """Links that carry the questions of many, and for whom each has asked."""
        self._stopped: set[int] = set()
        """Those of them that are not read from."""

    @property
    def waiting_count(self) -> int:
        """How many principals wait for the disk."""
        return len(self._waiting)

    def regulate(self, size: int, by_payer: Mapping[str | None, int]) -> None:
        """So much is on its way to the disk, in all and of each payer, None for the node itself; in bytes."""
        if size <= self._size_max and not self._waiting:
            return
        by_principal = _by_principal(by_payer)
        share = self._size_max // max(1, len(by_principal))
        is_enough = size <= self._size_max // 2
        for principal in [p for p in self._waiting if is_enough or by_principal.get(p, 0) <= share // 2]:
            for link in self._waiting.pop(principal):
                self._pacing.go_on(link, self._connections.payer_of(link))
        if size > self._size_max:
            for principal, amount in by_principal.items():
                if amount > share and principal not in self._waiting:
                    self._hold(principal, self._connections.links_of(_names_of(principal)))
        for link in self._shared:
            self._pace_shared(link)

    def share(self, link: int, askers: Collection[str]) -> None:
        """This link carries the questions of many; `askers` are their principals, as they become known."""
        self._shared[link] = askers

    def forget(self, link: int) -> None:
        """The link is gone."""
        self._shared.pop(link, None)
        self._stopped.discard(link)

    def know(self, link: int, principal: str) -> None:
        """A link became one of the principal's."""
        if principal != NOBODY and (principal := _principal_of(principal)) in self._waiting:
            self._hold(principal, (link,))

    def _pace_shared(self, link: int) -> None:
        askers = self._shared[link]
        is_behind = any(name in askers for principal in self._waiting for name in _names_of(principal))
        if is_behind and link not in self._stopped:
            self._stopped.add(link)
            self._pacing.stop(link)
        elif not is_behind and link in self._stopped:
            self._stopped.remove(link)
            self._pacing.go_on(link, self._connections.payer_of(link))

    def _hold(self, principal: str, links: Iterable[int]) -> None:
        waiting = self._waiting.setdefault(principal, set())
        for link in links:
            waiting.add(link)
            self._pacing.stop(link)


def _principal_of(payer: str) -> str:
    return ANONYMOUS if payer in UNPROVEN else payer


def _names_of(principal: str) -> tuple[str, ...]:
    return UNPROVEN if principal == ANONYMOUS else (principal,)


def _by_principal(by_payer: Mapping[str | None, int]) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for payer, size in by_payer.items():
        if payer is not None and size:
            name = _principal_of(payer)
            sizes[name] = sizes.get(name, 0) + size
    return sizes
