"""What those who ask a listener of topics may have: connections, bytes a second, and requests in hand.

    asked ── over its quota, or its share is in hand ──► why not: it is told to try again, and nothing is counted
      └── counted for its payer ── in hand ── answered ──► its bytes are counted, and its share is free

A payer is a principal, also one that a proxy speaks for, or the connection of somebody who has proved nothing. What one
payer has in hand is at most what is left for all others: so one alone has half, and n that are greedy leave as much as
each of them has.

Invariants
    (1) What is in hand of all is counted with its payers, and of who asks nothing any more nothing is kept.
Source: dynamic thresholds (Choudhury and Hahne, 1998), as in `veredus.node.backlog`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from veredus.kernel.engine import Now
from veredus.kernel.events import LinkOpened
from veredus.protocols.zeps.orders import PrincipalKnown

from .connections import Connections
from .quotas import Quotas

Payer: TypeAlias = str | int
"""Who pays for what comes by a connection: its principal, or the connection itself, where it has proved nothing."""

P = TypeVar("P", bound=Hashable)


class Share(Generic[P]):
    """Owns how much each payer has of something of which there is `most`."""

    __slots__ = ("_held", "most", "size")

    def __init__(self, most: int) -> None:
        """Nobody has anything."""
        self.most = most
        self.size = 0
        """What all have together."""
        self._held: dict[P, int] = {}

    def held(self, payer: P) -> int:
        """How much the payer has."""
        return self._held.get(payer, 0)

    def has_room(self, payer: P, size: int) -> bool:
        """Whether the payer may have so much more: what it has then is at most what was left; the first always fits."""
        left, held = self.most - self.size, self.held(payer)
        return size <= left and (not held or held + size <= left)

    def take(self, payer: P, size: int) -> None:
        """The payer has so much more."""
        self._set(payer, self.held(payer) + size)
        self.size += size

    def give_back(self, payer: P, size: int) -> None:
        """The payer has so much less."""
        self._set(payer, self.held(payer) - size)
        self.size -= size

    def _set(self, payer: P, held: int) -> None:
        if held:
            self._held[payer] = held
        else:
            self._held.pop(payer, None)

    def check(self) -> None:
        """Raise `AssertionError` where the sums are wrong."""
        assert self.size == sum(self._held.values())
        assert all(held > 0 for held in self._held.values())


class InHand(NamedTuple):
    """A request that was counted: to be given back when it is answered."""

    payer: Payer
    principal: str
    size: int


class Accounts:
    """Owns what is in hand of each payer at one listener of topics; connections and quotas may be a whole node's."""

    def __init__(self, connections: Connections, quotas: Quotas, requests_max: int, size_max: int) -> None:
        """Nobody is there; at most `requests_max` requests are in hand, of `size_max` bytes together."""
        self._connections = connections
        self.quotas = quotas
        self._requests: Share[Payer] = Share(requests_max)
        self._sizes: Share[Payer] = Share(size_max)

    @property
    def has_quotas(self) -> bool:
        """Whether bytes are counted at all."""
        return self.quotas.received.is_set or self.quotas.sent.is_set

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────

    def admit(self, link: int, peer: str, principal: str) -> PrincipalKnown:
        """A peer has proved to be this principal, which is None in the answer where that has too many links.

        `link` is a number that no link of the node's has.
        """
        self._connections.open(LinkOpened(link, "topics", peer))
        known = self._connections.judge(PrincipalKnown(link, principal), "topics").told
        if known.principal is None:
            self._connections.close(link, known.reason)
        return known

    def forget(self, link: int) -> None:
        """The link is gone."""
        self._connections.close(link, "closed")

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def why_not(self, payer: Payer, principal: str, size: int, now: Now) -> str:
        """Why a request of so many bytes is not taken, "" where it is. `principal` is whose quota it counts in."""
        for quota, setting in ((self.quotas.received, "received"), (self.quotas.sent, "sent")):
            if quota.is_over(principal, now):
                return f"{principal} has used up limits.{setting}_per_principal_max: try again"
        if self._requests.has_room(payer, 1) and self._sizes.has_room(payer, size):
            return ""
        count, who = self._requests.held(payer), payer if isinstance(payer, str) else "this connection"
        return f"{count} requests of {who} are being handled, and others have their share: try again"

    def take(self, payer: Payer, principal: str, size: int, now: Now) -> InHand:
        """A request is in hand."""
        self.quotas.received.use(principal, size, now)
        self._requests.take(payer, 1)
        self._sizes.take(payer, size)
        return InHand(payer, principal, size)

    def answer(self, asked: InHand, size: int, now: Now) -> None:
        """It was answered by so many bytes."""
        self.quotas.sent.use(asked.principal, size, now)
        self._requests.give_back(asked.payer, 1)
        self._sizes.give_back(asked.payer, asked.size)

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        self._requests.check()
        self._sizes.check()
