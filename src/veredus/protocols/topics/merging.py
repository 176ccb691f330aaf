"""Topics that two servers have: which of them are given away here, and which are taken over.

    MERGE ──► Giving ──► TRANSFER … ──► the keeper          TRANSFER … ──► Keeping ──► the streams floor

A topic goes to the server with the lower id, so nothing goes round in a circle. What was marked as given by an earlier
process is given on when this one begins.
Source: seed 000, sections 3.1.6, 3.1.7 and 4.
"""

from __future__ import annotations

from typing import Any

from veredus.kernel.absence import was_away
from veredus.kernel.addresses import check_reached
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault, Refused
from veredus.streams import exchange as x
from veredus.streams.removed import GIVEN

from .desk import Desk
from .giving import Giving, address_of
from .keeping import QUIET_NS, Keeping
from .messages import UNDER_WAY, Merge, StatusWord, Transfer
from .page_transfer import PageTransfer, check_names
from .transfer import Begin, decode_part

GIVINGS_MAX = 16
"""Topics that are copied at once; the proxies ask again for the others."""
KEEPINGS_MAX = 64
"""Topics that come at once, of one giver as many as it gives."""
FAILURES_MAX = 1000
"""Topics of which is known why they could not be given."""


class Merging:
    """Owns the topics that move."""

    def __init__(self, desk: Desk, servers: tuple[str, ...]) -> None:
        """`servers`: whom topics may go to and come from; with none, anybody."""
        self._desk = desk
        self._servers = servers
        self._givings: dict[str, Giving] = {}
        self._keepings: dict[str, Keeping] = {}
        self._failures: dict[tuple[str, str], tuple[str, tuple[str, int]]] = {}
        """By topic and keeper, why the last attempt to give it failed, and what the log has; the latest last."""
        self._pages: dict[str, PageTransfer] = {}

    def begin(self) -> None:
        """Find what an earlier process had given and was not told of."""

        def answered(answer: x.AnswerAdmin | x.Refuse, now: Now) -> None:
            if isinstance(answer, x.Refuse):
                self._desk.note("error", "topics-not-listed", reason=f"{answer.message} [{answer.code}]")
                return
            assert isinstance(answer.result, list)
            self._found(answer.result, now)

        self._desk.administer("subscription.list", {"name": GIVEN}, answered)

    def _found(self, listed: list[Any], now: Now) -> None:
        for one in listed:
            if one["stream"] not in self._givings:
                self._give(one["stream"], address_of(one["subscriber"]), True, now)

    def deadline(self) -> int | None:
        """When a topic is to be given once more, a giver to be forgotten, or a merge goes on that takes turns."""
        if not self._givings and not self._keepings:
            return None
        dues = [giving.retry_at_ns for giving in self._givings.values() if giving.retry_at_ns is not None]
        dues += [keeping.heard_ns + QUIET_NS for keeping in self._keepings.values()]
        dues += [keeping.turn_ns for keeping in self._keepings.values() if keeping.turn_ns is not None]
        return min(dues, default=None)

    def wake(self, now: Now) -> None:
        """Try again what is due, go on with what takes turns, and forget who went quiet."""
        for giving in list(self._givings.values()):
            if giving.retry_at_ns is not None and giving.retry_at_ns <= now.monotonic_ns:
                giving.begin(now)
        for keeping in list(self._keepings.values()):
            if keeping.turn_ns is not None and keeping.turn_ns <= now.monotonic_ns:
                keeping.give_turn(now)
            quiet_at_ns = keeping.heard_ns + QUIET_NS
            if quiet_at_ns > now.monotonic_ns:
                continue
            if keeping.is_working or was_away(quiet_at_ns, now.monotonic_ns, QUIET_NS):
                # It waits for us, or what it said lies unread, or has to be said once more.
                keeping.heard_ns = now.monotonic_ns
            else:
                self._desk.note("warning", "giver-quiet", topic=keeping.topic, giver=keeping.giver)
                keeping.close()

    # ── away ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def merge(self, peer: int, message: Merge, now: Now) -> None:
        """A proxy asks to give a topic away; it is told at once that this is under way, or why the last try failed."""
        topic, keeper, own = message.topic, message.other, self._desk.server_id
        try:
            check_reached(keeper)
        except ValueError as error:
            self._refuse(peer, f"{own} is asked to give {topic} to nobody: {error}")
            return
        if keeper == own:
            self._refuse(peer, f"{own} is asked to give {topic} to itself: name another server")
        elif keeper > own:
            self._refuse(peer, f"{own} gives topics to servers with a lower id only, and the id {keeper} is not lower")
        elif self._servers and keeper not in self._servers:
            self._refuse(peer, f"{keeper} is not one of the servers of {own}: list it under topics.servers")
        elif topic in self._keepings:
            self._wait(peer, f"{topic} is moving to {own} from {self._keepings[topic].giver}: try again")
        elif topic not in self._givings and len(self._givings) >= GIVINGS_MAX:
            self._wait(peer, f"{len(self._givings)} topics are already moving: try again")
        else:
            giving = self._givings.get(topic) or self._give(topic, keeper, False, now)
            if giving.failure:
                self._desk.answer(peer, StatusWord.TRANSFER_TOPIC_ERROR, giving.failure.encode())
            else:
                self._desk.answer(peer, StatusWord.OK, UNDER_WAY)

    def _give(self, topic: str, keeper: str, is_marked: bool, now: Now) -> Giving:
        def over() -> None:
            del self._givings[topic]
            if giving.failure:
                self._failures[topic, keeper] = giving.failure, giving.noted
                if len(self._failures) > FAILURES_MAX:
                    del self._failures[next(iter(self._failures))]

        giving = self._givings[topic] = Giving(self._desk, topic, keeper, is_marked, over)
        giving.failure, giving.noted = self._failures.pop((topic, keeper), ("", ("", 0)))
        giving.begin(now)
        return giving

    # ── here ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def transfer(self, peer: int, message: Transfer, now: Now) -> None:
        """A server gives a topic, or a part of it."""
        topic, giver, own = message.topic, message.sender, self._desk.server_id
        if not message.beyond:
            self._transfer_of_page(peer, message, now)
            return
        try:
            part = decode_part(message)
        except (PeerFault, Refused) as fault:
            self._desk.answer(peer, StatusWord.BAD_MESSAGE, fault.message.encode(errors="backslashreplace"))
            return
        keeping = self._keepings.get(topic)
        is_known = keeping is not None and (keeping.giver, keeping.incarnation) == (giver, part.incarnation)
        if giver == own:
            self._refuse(peer, f"{own} is given {topic} by itself: two servers have this id, give each its own")
        elif self._servers and giver not in self._servers:
            self._refuse(peer, f"{giver} is not one of the servers of {own}: list it under topics.servers")
        elif topic in self._givings:
            self._wait(peer, f"{topic} is moving from {own} to {self._givings[topic].keeper}: try again")
        elif keeping is not None and is_known:
            keeping.take(peer, part, message, now)
        elif keeping is not None:
            self._wait(peer, f"{topic} is moving to {own} from {keeping.giver}: try again")
        elif not isinstance(part, Begin):
            self._wait(peer, f"{own} has not begun to take {topic} from {giver}: begin again")
        elif not self._has_room(giver):
            self._wait(peer, f"{len(self._keepings)} topics are already moving to this server: try again")
        else:
            self._keep(topic, giver, part.incarnation).take(peer, part, message, now)

    def _transfer_of_page(self, peer: int, message: Transfer, now: Now) -> None:
        """A server that knows the page alone gives a topic, all at once."""
        topic, giver, own = message.topic, message.sender, self._desk.server_id
        coming = self._pages.get(topic)
        try:
            check_names(message)
        except Refused as fault:
            self._refuse(peer, f"{fault.message} [{fault.code}]")
            return
        if giver == own:
            self._refuse(peer, f"{own} is given {topic} by itself: two servers have this id, give each its own")
        elif self._servers and giver not in self._servers:
            self._refuse(peer, f"{giver} is not one of the servers of {own}: list it under topics.servers")
        elif coming is not None and coming.message == message:
            coming.take(peer, now)
        elif topic in self._givings or topic in self._keepings:
            self._wait(peer, f"{topic} is already moving: try again")
        elif len(self._keepings) >= KEEPINGS_MAX:
            self._wait(peer, f"{len(self._keepings)} topics are already moving to this server: try again")
        else:

            def keep(desk: Desk, incarnation: bytes) -> Keeping:
                return self._keep(topic, giver, incarnation, desk)

            def over() -> None:
                self._pages.pop(topic, None)

            coming = self._pages[topic] = PageTransfer(self._desk, message, keep, over)
            coming.take(peer, now)

    def _has_room(self, giver: str) -> bool:
        """Whether one more topic of a giver's may come.

        It gives so many at once: one more tells that one of them, the one that it spoke of the longest ago, is over.
        """
        theirs = [keeping for keeping in self._keepings.values() if keeping.giver == giver]
        if len(theirs) >= GIVINGS_MAX:
            quiet = min(theirs, key=lambda keeping: (keeping.is_working, keeping.heard_ns))
            if quiet.is_working:
                return False
            quiet.close()
        return len(self._keepings) < KEEPINGS_MAX

    def _keep(self, topic: str, giver: str, incarnation: bytes, desk: Desk | None = None) -> Keeping:
        def over() -> None:
            self._keepings.pop(topic, None)

        keeping = Keeping(desk or self._desk, topic, giver, incarnation, over, desk is not None)
        self._keepings[topic] = keeping
        return keeping

    def _refuse(self, peer: int, said: str) -> None:
        self._desk.answer(peer, StatusWord.REFUSED, said.encode(errors="backslashreplace"))

    def _wait(self, peer: int, said: str) -> None:
        self._desk.answer(peer, StatusWord.SERVER_UNAVAILABLE, said.encode())
