"""Which links are read from: none that reads no answers, none that has had its share, be it of the node or of the disk.

    Received ──► may go ──────────────────────────────► told to the link's engine, which may want a turn for the rest
                    ├─ its payer has had its share ────► held; the link is not read from ── its turn ──► told
                    └─ the peer does not read answers ─► held; the link is not read from ── drained, its turn ──► told

What waits to be written is of two kinds. Pushes are the node's to stop: a link that is congested is pushed nothing. So
whatever is sent to it meanwhile are answers, which its peer causes by sending: they have a room of their own, and while
that lasts a peer that reads nothing is heard all the same.

Invariants
    (1) What a link received is told to it in its order, and that it is gone comes last.
    (2) Once enough was done under one `now`, for whomever, nobody else gets his turn before the next: see `Turns`.
    (3) A link is not read from while anything of it waits, while its answers have used up their room, while there is no
        room for the frame that it has begun, or while its principal has used up its share of the disk or its quota; and
        is read from otherwise. So what waits to be written to a peer is bounded, whatever the peer asks for.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from veredus.kernel.effects import PauseReading, ResumeReading
from veredus.kernel.engine import Now
from veredus.kernel.events import LinkClosed, Received
from veredus.kernel.turns import CROWD_NS, Turns
from veredus.protocols.links import TurnGiven

from .connections import Payer, is_stranger

_ABSENT = object()
CROWDED, RECEIVED, SENT, BEHIND = 1, 2, 4, 8
"""Why a link is held back: no room for its frame, or its principal has used up what it may send, be sent, or have on
its way to the disk.
"""


class Pacing:
    """Owns what waits for a turn, by link, and whether each link is read from."""

    __slots__ = (
        "_changes", "_clogged", "_congested", "_crowded", "_held", "_slowed", "_turns", "_working",
    )  # fmt: skip

    def __init__(self) -> None:
        self._turns: Turns[Payer, int] = Turns(is_of_crowd=is_stranger)
        self._held: dict[int, deque[Received | LinkClosed]] = {}
        """By link what it has not been told: what was received, and at last that it is gone."""
        self._working: dict[int, None] = {}
        """Links that have not done all that they were told."""
        self._congested: dict[int, int] = {}
        """Links that are pushed nothing, and the room that is left for answers to each, in bytes."""
        self._clogged: dict[int, None] = {}
        """Those of them that have no such room left."""
        self._slowed: dict[int, None] = {}
        """Links of which something waits, or may be about to: they are not read from."""
        self._crowded: dict[int, int] = {}
        """Links that are held back, and why, as a sum."""
        self._changes: list[PauseReading | ResumeReading] = []

    def deadline(self) -> int | None:
        """When the next turn is due, monotonic nanoseconds."""
        return self._turns.deadline()

    def due(self, now: Now) -> Iterator[TurnGiven]:
        """The links whose turn it is, one by one, until enough was done; each is to be asked for by `next_of`."""
        for link in self._turns.each(now):
            yield TurnGiven(link)

    def charge(self, payer: Payer, cost_ns: int, now: Now) -> None:
        """Work was done for the payer."""
        self._turns.charge(payer, cost_ns, now)

    # ── what a link is told ──────────────────────────────────────────────────────────────────────────────────────────

    def may_tell(self, event: Received, payer: Payer, now: Now) -> bool:
        """Whether the link is told at once; it is held otherwise."""
        if event.link not in self._slowed and not self._is_stopped(event.link) and self._turns.may_go(payer, now):
            if is_stranger(payer):
                self._turns.charge(payer, CROWD_NS, now)
            return True
        self._held.setdefault(event.link, deque()).append(event)
        self._wait(event.link, payer)
        return False

    def may_close(self, event: LinkClosed, payer: Payer) -> bool:
        """Whether the link is told at once that it is gone; else behind what it said before, which comes first.

        A publisher that waits for no answer may end its link as soon as it has written.
        """
        link = event.link
        if not self._turns.is_waiting(link) and link not in self._held and link not in self._working:
            self._congested.pop(link, None)
            self._clogged.pop(link, None)
            self._slowed.pop(link, None)
            self._crowded.pop(link, None)
            return True
        self._held.setdefault(link, deque()).append(event)
        self.drain(link, payer)
        return False

    def want(self, link: int, payer: Payer, *, is_behind: bool = False) -> None:
        """The link has not done all that it was told; what is left may go behind what is held, if that `is_behind`."""
        if not (is_behind and link in self._held):
            self._working[link] = None
        self._wait(link, payer)

    def pause(self, link: int) -> None:
        """The link has not done all that it was told, and wants no turn before it has had answers."""
        self._working[link] = None
        self._slow(link)

    def held_size(self, link: int) -> int:
        """Bytes that were received and that the link has not been told."""
        return sum(len(event.data) for event in self._held.get(link, ()) if type(event) is Received)

    def _wait(self, link: int, payer: Payer) -> None:
        if not self._is_stopped(link):
            self._turns.wait(payer, link)
        self._slow(link)

    def _slow(self, link: int) -> None:
        if link not in self._slowed:
            if self._is_read(link):
                self._changes.append(PauseReading(link))
            self._slowed[link] = None

    def congest(self, link: int, room: int) -> None:
        """The peer does not read what it is sent: it may cause `room` bytes of answers at most until it does."""
        self._congested[link] = min(room, self._congested.get(link, room))
        self.answer(link, 0)

    def answer(self, link: int, size: int) -> None:
        """So much is sent to the link, which is asked for no more where that leaves no room."""
        if link in self._congested:
            self._congested[link] -= size
            if self._congested[link] <= 0 and link not in self._clogged:
                self._clogged[link] = None
                self._turns.forget(link)
                self._slow(link)

    def drain(self, link: int, payer: Payer) -> None:
        """The peer has read what it was sent."""
        self._congested.pop(link, None)
        if self._clogged.pop(link, _ABSENT) is None:
            self._go_on(link, payer)

    def _go_on(self, link: int, payer: Payer) -> None:
        if link in self._slowed and not self._is_stopped(link):
            if link in self._working or link in self._held:
                self._turns.wait(payer, link)
            else:
                self._ease(link)

    def stop(self, link: int) -> None:
        """Do not read from the link, nor give it a turn: what it has said already would add to what waits."""
        self.hold_back(link, BEHIND)
        self._turns.forget(link)

    def go_on(self, link: int, payer: Payer) -> None:
        """The disk has caught up, as far as this link's principal is concerned."""
        self.let_go(link, BEHIND)
        self._go_on(link, payer)

    def _is_stopped(self, link: int) -> bool:
        return link in self._clogged or bool(self._crowded.get(link, 0) & BEHIND)

    def _ease(self, link: int) -> None:
        del self._slowed[link]
        if self._is_read(link):
            self._changes.append(ResumeReading(link))

    def hold_back(self, link: int, why: int = CROWDED) -> None:
        """Read no more from the link: there is no room for the frame that it has begun, or a quota is used up."""
        if self._is_read(link):
            self._changes.append(PauseReading(link))
        self._crowded[link] = self._crowded.get(link, 0) | why

    def let_go(self, link: int, why: int = CROWDED) -> None:
        """There is room for it now, or it has waited long enough."""
        before = self._crowded.pop(link, 0)
        if before & ~why:
            self._crowded[link] = before & ~why
        elif before and self._is_read(link):
            self._changes.append(ResumeReading(link))

    def is_congested(self, link: int) -> bool:
        """Whether the peer does not read what it is sent, and is pushed nothing."""
        return link in self._congested

    def is_unheard(self, link: int) -> bool:
        """Whether the link is not read from, and its peer can do nothing about it."""
        return not self._is_read(link) and link not in self._clogged

    def _is_read(self, link: int) -> bool:
        return link not in self._slowed and link not in self._crowded

    def next_of(self, turn: TurnGiven) -> TurnGiven | Received | LinkClosed:
        """What a link is told in its turn: to go on with what it has, or the next that was held."""
        link = turn.link
        if link in self._working:
            del self._working[link]
            return turn
        held = self._held[link]
        event = held.popleft()
        if not held:
            del self._held[link]
        return event

    def end_turn(self, link: int, payer: Payer) -> None:
        """The link was told in its turn, and wants no other turn for that: what is held waits for the next."""
        if link in self._held:
            self._wait(link, payer)
        elif link in self._slowed and not self._is_stopped(link):
            self._ease(link)

    def take_changes(self) -> Iterator[PauseReading | ResumeReading]:
        """What is to be done about reading, once."""
        while self._changes:
            changes, self._changes = self._changes, []
            yield from changes
