"""The way in: each client is a sparse source of the topic's stream, its counters the numbers less one.

    ATTACHING ── GrantSource ──► ATTACHED ── Fence: somebody took the source over ──► ATTACHING
                                    └── Refuse, or nobody asked for long ──► gone

The resume token of a put's batch is the digest of its body, so the node knows the body of a client's last counter as
long as it knows the source. A giver that does not know it gives none: then the row that came with the topic says it,
which may be the last of many, and where that is gone, all that is put under the last counter is the same put.

A counter above the last one is appended; the last one again, with the same body, is a duplicate; all others are refused
with the last one named. A put is answered when it is durable, and so is whoever asks for it meanwhile. A put of many
messages is one batch, and one put: its counter is that of its last message, its digest that of all.

Invariants
    (1) Each put is answered exactly once.
    (2) What is on its way to the journal has growing counters.
Source: seed 000, sections 2.4, 3.1.4 and 4; docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from veredus.delivery.batch import BatchHeader, signed_record
from veredus.delivery.payload import laid_out
from veredus.delivery.publication import Rows
from veredus.kernel.engine import Now
from veredus.kernel.errors import UNSTORED
from veredus.streams import exchange as x

from .many import count_of, unpack
from .messages import Put, PutMany, StatusWord

DIGEST_SIZE = 16
_PASSING = frozenset({"stream-deleted", "stream-replaced", "subscription-removed"})
"""What was there is gone, and whoever asks again is answered by what is there then."""
FENCES_MAX = 3
"""How often in a row a source is taken back from somebody else."""


class PutEnded(NamedTuple):
    """What became of a put that `peer` asked for; `last`: the last counter, where it was not above that."""

    peer: int
    status: StatusWord
    text: str = ""
    last: int | None = None


Effect: TypeAlias = PutEnded | x.SourceAttachRequested | x.BatchOffered | x.SessionClosed
Answer: TypeAlias = x.GrantSource | x.ConfirmTaken | x.RefuseBatch | x.Refuse | x.Fence


class _Asked(NamedTuple):
    """A put, and the numbers that it is to have: a counter is 0 at least, and a number 1."""

    peer: int
    put: Put | PutMany
    first: int
    last: int
    digest: bytes


@dataclass(slots=True)
class _OnItsWay:
    asked: _Asked
    peers: list[int]


@dataclass(slots=True)
class _Putter:
    """One client on one topic, as one principal."""

    session: int
    topic: str
    client: str
    principal: str
    grant: x.GrantSource | None = None
    last: int = 0
    digest: bytes | None = None
    """Of the body of the last durable put; b"" where its giver did not know it, None where the last was no put."""
    waiting: list[_Asked] = field(default_factory=list)
    """Until the source is attached."""
    on_its_way: dict[int, _OnItsWay] = field(default_factory=dict)
    """By the last counter of each."""
    fence_count: int = 0

    @property
    def asker(self) -> int:
        """Who waits for the source to be attached, 0 for nobody."""
        return self.waiting[0].peer if self.waiting else 0

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.on_its_way


class Puts:
    """Owns the clients that put, and what they put that is on its way to the journal."""

    def __init__(
        self,
        open_session: Callable[[], int],
        new_incarnation: Callable[[], bytes],
        body_size_max: int,
        putters_max: int,
    ) -> None:
        """Nobody has put yet. `open_session` gives sessions of the streams floor that nobody has."""
        self._open_session = open_session
        self._new_incarnation = new_incarnation
        self._body_size_max = body_size_max
        self._putters_max = putters_max
        self._putters: dict[tuple[str, str, str], _Putter] = {}
        """By topic, client and principal; who asked last stands last."""
        self._granted_last: dict[tuple[str, str], _Putter] = {}
        """By topic and client, who became the source last: one principal at a time is."""
        self.by_session: dict[int, _Putter] = {}
        """Who has which session that is open."""
        self._effects: list[Effect] = []

    def ask(self, peer: int, put: Put | PutMany, principal: str, now: Now) -> Sequence[Effect]:
        """A client puts, as `principal`."""
        effects: list[Effect] = []
        self._effects = effects
        if len(put.body) > self._body_size_max:
            said = f"the body has {len(put.body)} bytes, and the limit is {self._body_size_max}: put it in parts"
            return [PutEnded(peer, StatusWord.REFUSED, said)]
        key = (put.topic, put.sender, principal)
        putter = self._putters.pop(key, None)
        if putter is None:
            putter = _Putter(0, put.topic, put.sender, principal)
            self._make_room()
            self._attach(putter)
        self._putters[key] = putter
        first = put.counter + 1
        last = first if isinstance(put, Put) else first + count_of(put.body) - 1
        asked = _Asked(peer, put, first, last, digest_of(put.body))
        if putter.grant is None:
            putter.waiting.append(asked)
        else:
            self._judge(putter, asked, now)
        return effects

    def handle(self, event: Answer, now: Now) -> Sequence[Effect]:
        """The streams floor says something to one of the sessions."""
        effects: list[Effect] = []
        self._effects = effects
        putter = self.by_session.get(event.session)
        if putter is not None:
            match event:
                case x.GrantSource():
                    self._granted(putter, event, now)
                case x.ConfirmTaken():
                    self._taken(putter, event)
                case x.RefuseBatch():
                    self._not_taken(putter, event)
                case x.Refuse(_, code, message):
                    advice = ", and it is put to the topic that begins then"
                    self._end(putter, *answer_for(code, message, advice))
                case x.Fence():
                    self._fenced(putter, event)
        return effects

    def forget(self, topic: str) -> list[int]:
        """Let go whoever put to a topic, of which nothing is on its way; the sessions that are to be closed."""
        gone = [putter for putter in self._putters.values() if putter.topic == topic]
        for putter in gone:
            assert putter.is_idle
            self._forget(putter)
        return [putter.session for putter in gone]

    def learn(self, topic: str, client: str, counter: int, digest: bytes) -> None:
        """A client has put up to this counter, elsewhere: that holds for what it asks from now on."""
        putter = self._granted_last.get((topic, client))
        if putter is None or putter.grant is None:
            return
        if counter > putter.last or (counter == putter.last and digest and not putter.digest):
            putter.last, putter.digest = counter, digest

    def check(self) -> None:
        """The invariants of the module hold."""
        for putter in self._putters.values():
            counters = list(putter.on_its_way)
            assert counters == sorted(counters), "(2)"
            assert putter.grant is not None or not counters, "(2)"

    # ── the source ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _attach(self, putter: _Putter) -> None:
        """Be the source, whoever was it before."""
        putter.session, putter.grant = self._open_session(), None
        self.by_session[putter.session] = putter
        self._effects.append(
            x.SourceAttachRequested(
                putter.session, putter.principal, putter.topic, putter.client, self._new_incarnation(), 0,
                is_sparse=True,
            )
        )  # fmt: skip

    def _make_room(self) -> None:
        """Let go whoever asked the longest ago and waits for nothing."""
        if len(self._putters) >= self._putters_max:
            idle = next((putter for putter in self._putters.values() if putter.is_idle), None)
            if idle is not None:
                self._forget(idle)
                self._effects.append(x.SessionClosed(idle.session))

    def _forget(self, putter: _Putter) -> None:
        self.by_session.pop(putter.session, None)
        self._putters.pop((putter.topic, putter.client, putter.principal), None)
        if self._granted_last.get((putter.topic, putter.client)) is putter:
            del self._granted_last[putter.topic, putter.client]

    def _granted(self, putter: _Putter, grant: x.GrantSource, now: Now) -> None:
        putter.grant, putter.last = grant, grant.last_number
        self._granted_last[putter.topic, putter.client] = putter
        putter.digest = grant.token if grant.token_number == grant.last_number else None
        waiting, putter.waiting = putter.waiting, []
        for asked in waiting:
            self._judge(putter, asked, now)

    def _fenced(self, putter: _Putter, fence: x.Fence) -> None:
        """Take the source back; what was on its way is judged anew by what the next grant says of it."""
        if putter.is_idle:
            self._forget(putter)
            return
        del self.by_session[putter.session]
        putter.fence_count += 1
        if putter.fence_count > FENCES_MAX:
            self._end(putter, StatusWord.REFUSED, f"{fence.message}: only one may publish as {putter.client}")
            return
        again = [way.asked._replace(peer=peer) for way in putter.on_its_way.values() for peer in way.peers]
        putter.waiting = again + putter.waiting
        putter.on_its_way = {}
        self._attach(putter)

    def _end(self, putter: _Putter, status: StatusWord, text: str) -> None:
        """Whoever waits is told; whoever asks next begins anew."""
        self._forget(putter)
        peers = [peer for way in putter.on_its_way.values() for peer in way.peers]
        for peer in peers + [asked.peer for asked in putter.waiting]:
            self._effects.append(PutEnded(peer, status, text))

    # ── puts ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _judge(self, putter: _Putter, asked: _Asked, now: Now) -> None:
        way = putter.on_its_way.get(asked.last)
        newest = max(putter.last, next(reversed(putter.on_its_way), 0))
        if asked.first > newest:
            self._offer(putter, asked, now)
        elif way is not None and way.asked.digest == asked.digest:
            way.peers.append(asked.peer)
        elif asked.last == putter.last and _may_be(asked, putter.digest):
            self._effects.append(PutEnded(asked.peer, StatusWord.OK))
        else:
            text = _refusal(putter, asked, newest)
            self._effects.append(PutEnded(asked.peer, StatusWord.REFUSED, text, newest - 1))

    def _offer(self, putter: _Putter, asked: _Asked, now: Now) -> None:
        grant, put = putter.grant, asked.put
        assert grant is not None
        bodies = [put.body] if isinstance(put, Put) else unpack(put.body)
        layout, payload = laid_out(Rows([b""] * len(bodies), bodies))
        at_us = now.wall_us
        header = BatchHeader(
            int(layout), 0, sum(map(len, payload)), DIGEST_SIZE, len(bodies), grant.stream_id, grant.source_id,
            grant.epoch, len(bodies), asked.first, at_us, at_us,
        )  # fmt: skip
        putter.on_its_way[asked.last] = _OnItsWay(asked, [asked.peer])
        self._effects.append(x.BatchOffered(putter.session, signed_record(header, payload, asked.digest), header))

    def _taken(self, putter: _Putter, said: x.ConfirmTaken) -> None:
        way = putter.on_its_way.pop(said.last_number, None)
        if way is None:
            return
        putter.fence_count = 0
        if said.last_number > putter.last:
            putter.last, putter.digest = said.last_number, way.asked.digest
        self._effects.extend(PutEnded(peer, StatusWord.OK) for peer in way.peers)

    def _not_taken(self, putter: _Putter, said: x.RefuseBatch) -> None:
        way = next((way for way in putter.on_its_way.values() if way.asked.first == said.first_number), None)
        if way is not None:
            del putter.on_its_way[way.asked.last]
            text = f"{said.message} [{said.code}]"
            self._effects.extend(PutEnded(peer, StatusWord.INTERNAL_ERROR, text) for peer in way.peers)


def answer_for(code: str, message: str, advice: str) -> tuple[StatusWord, str]:
    """How what the streams floor refuses with this code is answered; `advice`: what to do where a topic was removed."""
    if code in _PASSING:
        return StatusWord.SERVER_UNAVAILABLE, f"{message} [{code}]: retry{advice}"
    return StatusWord.INTERNAL_ERROR if code in UNSTORED else StatusWord.REFUSED, f"{message} [{code}]"


def digest_of(body: bytes) -> bytes:
    """What tells the body of a put from another's."""
    return blake2b(body, digest_size=DIGEST_SIZE).digest()


def _may_be(asked: _Asked, digest: bytes | None) -> bool:
    """Whether this put is the one of which this is the digest, as far as that is known."""
    if digest in (b"", asked.digest):
        return True
    return isinstance(asked.put, PutMany) and digest == digest_of(unpack(asked.put.body)[-1])


def _refusal(putter: _Putter, asked: _Asked, newest: int) -> str:
    first, last, known = asked.first - 1, asked.last - 1, newest - 1
    who, advice = f"{putter.client} on {putter.topic}", f"under a counter above {known}"
    if last == known:
        return f"counter {last} of {who} was used for another body: put this body {advice}"
    if last > known:
        return f"counters {first} to {last} of {who} begin at or below its last one, {known}: put {advice}"
    return f"counter {last} of {who} is below its last one, {known}: it may be done; put another body {advice}"
