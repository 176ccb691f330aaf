"""Who is behind each link of a node, and how many links each principal has.

    opened ── greeted, with a principal ──► counted as one of the principal's ──► closed
                       └── the principal has its limit: `too-many-connections`

Whom the transport has proved a peer to be counts from the greeting on, as any other: until then the peer has said
nothing.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple, TypeAlias

from msgspec import structs

from veredus.kernel.effects import Admit, Note
from veredus.kernel.events import LinkOpened
from veredus.protocols.zeps.orders import AskPrincipal, PrincipalKnown
from veredus.streams.rights import MULTICAST, NOBODY

from .admission import address_of


class Stranger(NamedTuple):
    """All links of one address whose peers have not said who they are."""

    address: str


def is_stranger(payer: object) -> bool:
    """Whether nobody has said whose the payer's links are."""
    return type(payer) is Stranger


Payer: TypeAlias = str | Stranger
"""Who pays for the work of a link: its principal or, until it has one, its address, however many links that has."""

_GONE = Stranger("")
"""Who pays for what is still done for a link that had no principal and is gone."""
PEER_FAULTS = ("handshake-failed", "peer-broke-protocol")
"""What is noted of peers that break a protocol."""


class Judged(NamedTuple):
    """What became of an answer to "who is it?": what the link is told, and what the node orders and notes."""

    told: PrincipalKnown
    orders: tuple[Admit | Note, ...]


class Connections:
    """Owns the address, the proof and the principal of each link, by its number.

    Invariants
        (1) A principal has at most `count_max` links.
        (2) A link counts as one of at most one principal's, the last that it was known as, and while it is open.
    """

    __slots__ = ("_counts", "_payers", "_peers", "_principals", "_proved", "count_max", "opened_count")

    def __init__(self, count_max: int) -> None:
        """Nobody is there yet; one principal may have `count_max` links."""
        self.count_max = count_max
        self.opened_count = 0
        """How many links came up."""
        self._counts: dict[str, int] = {}
        self._peers: dict[int, str] = {}
        self._payers: dict[int, Payer] = {}
        """Who pays for a link that has no principal: its address or, where the node feeds a group, `MULTICAST`."""
        self._principals: dict[int, str] = {}
        self._proved: dict[int, str] = {}
        """Whom the transport has proved the peers of links to be."""

    def open(self, event: LinkOpened) -> None:
        """A link came up; what its transport has proved is kept until its peer greets."""
        self.opened_count += 1
        self._peers[event.link] = event.peer
        is_group = event.door == MULTICAST
        self._payers[event.link] = MULTICAST if is_group else Stranger(address_of(event.peer))
        if event.principal:
            self._proved[event.link] = event.principal

    def close(self, link: int, reason: str) -> Note | None:
        """A link is gone; what is noted of that, None for one that had no principal."""
        self._peers.pop(link, None)
        self._payers.pop(link, None)
        self._proved.pop(link, None)
        principal = self._release(link)
        if principal is None:
            return None
        return Note("debug", "disconnected", {"link": link, "principal": principal, "reason": reason})

    def peer_of(self, link: int) -> str:
        """Where a link comes from, "" where it is gone."""
        return self._peers.get(link, "")

    def located(self, note: Note, link: int) -> Note:
        """A note of a session, with the link that it is about."""
        fields = {name: value for name, value in note.fields.items() if name != "session"}
        return structs.replace(note, fields={**fields, "link": link, "peer": self.peer_of(link)})

    def principal_of(self, link: int) -> str:
        """Who is behind a link, `NOBODY` until that is known."""
        return self._principals.get(link, NOBODY)

    def links_of(self, principals: Container[str]) -> list[int]:
        """The links of these principals."""
        return [link for link, principal in self._principals.items() if principal in principals]

    def payer_of(self, link: int) -> Payer:
        """Who pays for the work of a link."""
        return self._principals.get(link) or self._payers.get(link, _GONE)

    def known_without(self, event: AskPrincipal) -> PrincipalKnown | None:
        """The answer where the transport has proved the peer already, who has no token or key to be somebody else."""
        proved = self._proved.get(event.link)
        return None if proved is None or event.token is not None or event.key else PrincipalKnown(event.link, proved)

    def judge(self, event: PrincipalKnown, protocol: str) -> Judged:
        """It is known who a peer is; a principal that has its limit of links has no room for one more."""
        if event.principal is None or event.link not in self._peers:
            # Who has gone while it was found out who he is would count for ever.
            return Judged(event, ())
        orders: tuple[Admit | Note, ...] = ()
        if self._principals.get(event.link) != event.principal:
            if self._counts.get(event.principal, 0) >= self.count_max:
                reason = (
                    f"{event.principal} has reached its limit of {self.count_max} connections: close some, or raise"
                    " limits.connections_per_principal_max"
                )
                return Judged(PrincipalKnown(event.link, None, reason, "too-many-connections"), ())
            self._release(event.link)
            self._counts[event.principal] = self._counts.get(event.principal, 0) + 1
            self._principals[event.link] = event.principal
            who = {"link": event.link, "principal": event.principal, "protocol": protocol}
            orders = (Admit(event.link, event.principal), Note("debug", "connected", who))
        return Judged(event, orders)

    def _release(self, link: int) -> str | None:
        principal = self._principals.pop(link, None)
        if principal is not None:
            self._counts[principal] -= 1
            if not self._counts[principal]:
                del self._counts[principal]
        return principal

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        counts: dict[str, int] = {}
        for principal in self._principals.values():
            counts[principal] = counts.get(principal, 0) + 1
        assert counts == self._counts, "(2)"
        assert self._principals.keys() <= self._peers.keys(), "(2)"
        assert all(count <= self.count_max for count in counts.values()), "(1)"
