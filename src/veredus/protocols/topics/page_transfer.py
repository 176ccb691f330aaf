"""A TRANSFER of the page's form alone, taken as one of ours would have come: in parts, one after the other.

    TRANSFER ──► Begin ──► RowsPart ──► End ──► OK

What the page has no place for is taken so that nothing is lost. It has no times: its messages count as put when they
come, so whoever is subscribed here gets them, and its subscribers as subscribed then, so they get of this server's what
is put from then on. Of its messages each gets those that it has yet to receive. They are known again by their giver and
their ids, so a TRANSFER that comes once more, with what was put since, doubles nothing. They are taken in the order in
which their giver would have given them, that of the subscribers' lines: the authors' program sends them in no order.
Source: seed 000, sections 3.1.6 and 3.1.7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, cast

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused
from veredus.kernel.names import checked_name
from veredus.streams.facts import Origin
from veredus.streams.ranges import cursor_of

from .desk import Desk
from .giving import name_of
from .ids import PAGE_MARK
from .keeping import Keeping
from .messages import StatusWord, Transfer
from .transfer import PAGE_SOURCE, Begin, End, Part, Row, Standing, decode_heard, encode_beyond, page_number, part_of
from .transfer_text import other_form


def page_incarnation(giver: str, topic: str) -> bytes:
    """What stands for the incarnation of a topic that a server from the page has."""
    return PAGE_MARK + blake2b(f"{giver} {topic}".encode(), digest_size=16 - len(PAGE_MARK)).digest()


def check_names(message: Transfer) -> None:
    """Raises `Refused("bad-name")` for a name that nothing can have here: nobody could ask for its messages; and
    "ambiguous-id" for an id by which a client could mean another message too.
    """
    checked_name("stream", message.topic)
    checked_name("source", PAGE_SOURCE + name_of(message.sender))
    for subscriber, _ in message.subscribers:
        checked_name("subscriber", subscriber)
    ids = {message_id for message_id, _ in message.messages}
    for message_id, _ in message.messages:
        if "/" in message_id and other_form(message_id) in ids:
            said = f"{message_id} and {other_form(message_id)} are two messages, and one id where / and * are escaped"
            raise Refused("ambiguous-id", f"{said}: let the subscribers get one of them first", message_id=message_id)


def in_order_of_lines(message: Transfer) -> tuple[tuple[str, bytes], ...]:
    """The messages so that each subscriber's line names them in this order; else they stay as they are."""
    places = {message_id: place for place, (message_id, _) in enumerate(message.messages)}
    pairs = dict.fromkeys(pair for _, ids in message.subscribers for pair in pairwise(places[one] for one in ids))
    if all(before < after for before, after in pairs):
        return message.messages
    following: dict[int, list[int]] = {}
    for before, after in pairs:
        following.setdefault(before, []).append(after)
    waits_for = Counter(after for _, after in pairs)
    order: list[int] = []
    ready = [place for place in places.values() if place not in waits_for]
    while ready:
        order.append(place := heappop(ready))
        for after in following.get(place, ()):
            waits_for[after] -= 1
            if not waits_for[after]:
                heappush(ready, after)
    if len(order) < len(message.messages):
        return message.messages
    return tuple(message.messages[place] for place in order)


class PageTransfer:
    """Owns what comes of one topic from a server that knows the page alone, until it is there."""

    def __init__(
        self, desk: Desk, message: Transfer, keep: Callable[[Desk, bytes], Keeping], over: Callable[[], None]
    ) -> None:
        """`keep` makes the keeper's part; `over` is called when the giver was answered."""
        self.message = message
        self._messages = in_order_of_lines(message)
        self._desk = desk
        self._over = over
        self._peers: list[int] = []
        self._now = Now(0, 0)
        self._steps = self._begin, self._send, self._end, self._finish
        self._step = 0
        self._incarnation = page_incarnation(message.sender, message.topic)
        self._before = 0
        """The last place that the giver's messages had so far."""
        self._keeping = keep(cast(Desk, _Relay(desk, self._hear)), self._incarnation)

    def take(self, peer: int, now: Now) -> None:
        """It came, or came again."""
        self._peers.append(peer)
        if len(self._peers) == 1:
            self._now = now
            self._steps[0](b"")

    @property
    def _head(self) -> int:
        return self._before + max(1, len(self._messages))

    def _hear(self, word: StatusWord, body: bytes) -> None:
        """The keeper's part says what became of a step."""
        if word != StatusWord.OK:
            self._answer(word, body)
            self._keeping.close()
            return
        self._step += 1
        self._steps[self._step](body)

    def _ask(self, part: Part, messages: tuple[tuple[str, bytes], ...] = ()) -> None:
        said = Transfer(self.message.sender, self.message.topic, (), messages, encode_beyond(part))
        self._keeping.take(0, part, said, self._now)

    def _begin(self, _: bytes) -> None:
        self._ask(Begin(self._incarnation))

    def _send(self, body: bytes) -> None:
        heard = decode_heard(body)
        assert heard is not None
        self._before = max(0, heard.committed, heard.staged)
        source = PAGE_SOURCE + name_of(self.message.sender)
        rows = [
            Row(place, self._now.wall_us, self._now.wall_us, b"", content, None, source, page_number(message_id))
            for place, (message_id, content) in enumerate(self._messages, self._before + 1)
        ]
        self._ask(part_of(self._incarnation, rows, (0, 0)), self._messages)

    def _end(self, _: bytes) -> None:
        places = {message_id: place for place, (message_id, _) in enumerate(self._messages, self._before + 1)}
        standings = {who: self._standing(ids, places) for who, ids in self.message.subscribers}
        self._ask(End(self._incarnation, self._head, (0, 0), standings))

    def _standing(self, ids: Sequence[str], places: Mapping[str, int]) -> Standing:
        """Of a subscriber that has yet to receive these messages, the first of which it may have and name."""
        waiting = {places[one] for one in ids}
        done = [(place, place) for place in range(self._before + 1, self._head + 1) if place not in waiting]
        floor, settled = cursor_of(self._before, done)
        numbers = [(page_number(one), places[one]) for one in ids[:1]]
        origins = tuple(Origin(self._incarnation, number, ((number, place, 1),)) for number, place in numbers)
        return Standing(self._now.wall_us, 1, floor, settled, origins)

    def _finish(self, _: bytes) -> None:
        self._answer(StatusWord.OK, b"")

    def _answer(self, word: StatusWord, body: bytes) -> None:
        peers, self._peers = self._peers, []
        for peer in peers:
            self._desk.answer(peer, word, body)
        self._over()


class _Relay:
    """The desk, but for answers: they are told to who stands between."""

    def __init__(self, desk: Desk, hear: Callable[[StatusWord, bytes], None]) -> None:
        self._desk = desk
        self._hear = hear

    def answer(self, peer: int, word: StatusWord, body: bytes = b"") -> None:
        self._hear(word, body)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk, name)
