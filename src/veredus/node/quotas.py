"""Octets a second of each principal, in and out: who has used up his quota waits, and nobody else does.

A principal may have `BURST_NS` worth of its rate at once; what it uses beyond that is paid off by time. Meanwhile its
links are not read from (in), or are pushed nothing (out). Nothing is dropped.

Invariants
    (1) Over any time t a principal uses at most rate x (t + burst), and what one read or one push holds beyond.
    (2) A link that waits has a deadline at which it goes on.
Source: the generic cell rate algorithm (ITU-T I.371, appendix A).
"""

from __future__ import annotations

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import Send
from veredus.kernel.engine import Now
from veredus.kernel.events import Received

from .pacing import RECEIVED, SENT, Pacing

BURST_NS = 1_000_000_000
SECOND_NS = 1_000_000_000


class Quota:
    """Owns how far ahead of time each principal is, in one direction, and the links that wait for that."""

    __slots__ = ("_ahead_to_ns", "_rate", "_timers", "_waiting")

    def __init__(self, rate: int) -> None:
        """`rate` octets a second for each principal, 0 for no bound."""
        self._rate = rate
        self._ahead_to_ns: dict[str, int] = {}
        """Until when each principal's octets so far are paid for, monotonic nanoseconds; what is past is let go."""
        self._waiting: dict[str, dict[int, None]] = {}
        self._timers: Deadlines[str] = Deadlines()

    @property
    def is_set(self) -> bool:
        """Whether there is a bound at all."""
        return self._rate > 0

    @property
    def slowed_count(self) -> int:
        """How many principals have used up their quota, and wait."""
        return len(self._waiting)

    def use(self, principal: str, size: int, now: Now) -> None:
        """The principal has used `size` octets."""
        if not self._rate or not principal or not size:
            return
        until_ns = max(self._ahead_to_ns.get(principal, 0), now.monotonic_ns) + size * SECOND_NS // self._rate
        self._ahead_to_ns[principal] = until_ns
        self._timers.set(principal, until_ns - BURST_NS if self.is_over(principal, now) else until_ns)

    def is_over(self, principal: str, now: Now) -> bool:
        """Whether the principal has used up its quota, and is to wait."""
        return self._ahead_to_ns.get(principal, 0) - now.monotonic_ns > BURST_NS

    def spend(self, principal: str, link: int, size: int, now: Now) -> bool:
        """The principal has used `size` octets on a link; whether that link is to wait from now on."""
        self.use(principal, size, now)
        if not self.is_over(principal, now):
            return False
        waiting = self._waiting.setdefault(principal, {})
        is_new = link not in waiting
        waiting[link] = None
        return is_new

    def is_waiting(self, principal: str, link: int) -> bool:
        """Whether the link is to wait."""
        return link in self._waiting.get(principal, ())

    def forget(self, principal: str, link: int) -> None:
        """The link is gone."""
        waiting = self._waiting.get(principal)
        if waiting is not None and waiting.pop(link, 0) is None and not waiting:
            del self._waiting[principal]

    def deadline(self) -> int | None:
        """When somebody has waited long enough."""
        return self._timers.next_ns()

    def due(self, now: Now) -> list[int]:
        """The links that have waited long enough."""
        links: list[int] = []
        for principal in self._timers.due(now.monotonic_ns):
            links += self._waiting.pop(principal, {})
            until_ns = self._ahead_to_ns[principal]
            if until_ns > now.monotonic_ns:
                self._timers.set(principal, until_ns)
            else:
                del self._ahead_to_ns[principal]
        return links


class Quotas:
    """Owns the quotas of both directions, and holds links back while their principals wait."""

    __slots__ = ("_pacing", "received", "sent")

    def __init__(self, received_rate: int, sent_rate: int, pacing: Pacing) -> None:
        """So many octets a second that each principal may send, and be sent; 0 for no bound."""
        self.received, self.sent = Quota(received_rate), Quota(sent_rate)
        self._pacing = pacing

    def receive(self, principal: str, event: Received, now: Now) -> None:
        """A principal has sent something: over its quota, no more is read from the link."""
        if self.received.is_set and self.received.spend(principal, event.link, len(event.data), now):
            self._pacing.hold_back(event.link, RECEIVED)

    def send(self, principal: str, event: Send, now: Now) -> bool:
        """A principal is sent something; whether the link is congested by that, and is to be told."""
        is_congested = self._pacing.is_congested(event.link)
        if not (is_congested or self.sent.is_set):
            return False
        size = sum(map(len, event.buffers))
        if is_congested:
            self._pacing.answer(event.link, size)
        if not (self.sent.is_set and self.sent.spend(principal, event.link, size, now)):
            return False
        self._pacing.hold_back(event.link, SENT)
        return not is_congested

    def rested(self, now: Now) -> list[int]:
        """Let go the links that have waited long enough; those that are congested no more, and are to be told."""
        for link in self.received.due(now):
            self._pacing.let_go(link, RECEIVED)
        links = self.sent.due(now)
        for link in links:
            self._pacing.let_go(link, SENT)
        return [link for link in links if not self._pacing.is_congested(link)]

    def forget(self, principal: str, link: int) -> None:
        """The link is gone."""
        self.received.forget(principal, link)
        self.sent.forget(principal, link)

    def deadline(self) -> int | None:
        """When somebody has waited long enough."""
        return min((at for at in (self.received.deadline(), self.sent.deadline()) if at is not None), default=None)
