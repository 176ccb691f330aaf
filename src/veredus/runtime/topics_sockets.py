"""The sockets of a proxy or a server of the topic service: a ROUTER for whoever asks, a DEALER to each that is asked.

    REQ ──► ROUTER: envelope, data ──► engine ──► DEALER: token, "", data ──► REP or ROUTER of the other
                                         ◄────────── the same token ◄────────┘

Whoever asks may be a REQ, as the page has it, or anything that sends an envelope and takes it back. A DEALER takes
nothing while the other is not connected: what nobody waits for any more is not said when it comes back. Both are played
by the engine of ZMTP, so what a peer may send is bounded before memory is taken for it; what all who ask have begun to
send is bounded together, with shares by principal, or else by address. Who asks for much leaves room for others: see
`veredus.node.accounts`.

A proxy that has proved who it is says for whom it asks, in a frame of the envelope: token, "for PRINCIPAL", "". What is
no member there may not say that; a server from the page returns it like the rest of the envelope.
Source: seed 000, section 3.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from veredus.kernel.addresses import split_address
from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets
from veredus.node import receiving
from veredus.node.accounts import Accounts, InHand
from veredus.node.accounts import Payer as Holder
from veredus.node.admission import origin_of
from veredus.node.backlog import READ_SIZE_MAX, Backlog
from veredus.node.connections import Stranger
from veredus.node.onward import Onward
from veredus.node.receiving import ReceiveBudget
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked, LateAnswer, Meet
from veredus.protocols.topics.messages import StatusWord
from veredus.protocols.zmtp.connection import Bounds, Connection, Message
from veredus.protocols.zmtp.link import ZmtpLink
from veredus.protocols.zmtp.mechanisms import Credential, Mechanism
from veredus.streams.rights import ANONYMOUS

from .askers import Known
from .asking_room import AskingRoom
from .binding import Bound
from .clocks import read_clocks
from .hearing import once_read
from .listeners import NO_DESCRIPTOR, Arrivals, Listener, Peer, Place, note_refused, tcp_peer_of
from .logs import Logger
from .peers import Peers
from .topics_gate import TopicsGate, asked_by_anybody, asking_as_nobody
from .topics_limits import TopicsLimits
from .unwritten import ABANDONED, Unwritten
from .zmtp_links import MESSAGES_PER_TURN, Links, MessageLink, Payer

ENVELOPE_SIZE_MAX = 4096
"""What is kept of a question's way until it is answered: a few bytes for each hop."""
PARTS_MAX = 1100
LISTENER = "topics"
FOR = b"for "
"""Begins the frame of an envelope that says for whom something is asked."""
_OWN = (b"PERIODIC ", b"MERGE ", b"TRANSFER ")
"""What members say of themselves: the service does not go on without it, so it takes nobody's share."""
PROXY_MARK = b" proxy"
"""Follows the token in what a proxy asks, so that whoever is taken for a server and is a proxy can tell."""
_TOKEN_SIZE = 8
_MARKED_SIZE = _TOKEN_SIZE + len(PROXY_MARK)
_RECONNECT_S = 0.1
_REST_S = 1.0
"""How long it is not tried to connect when the process can open no further file."""
_SECOND_NS = 1_000_000_000
_LOOK_S = receiving.LOOK_NS / _SECOND_NS


@dataclass(eq=False, slots=True)
class _Front:
    """One who asks."""

    number: int
    """Among the peers."""
    address: str
    """What counts as one address; see `origin_of`."""
    principal: str = ""
    """Who it has proved to be, "" for nobody."""
    is_ended: bool = False
    """Whether it was said already why its connection ends."""

    @property
    def origin(self) -> bytes:
        """What tells it from the others."""
        return self.number.to_bytes(_TOKEN_SIZE)


class _Waiting(NamedTuple):
    """Who asked, the envelope of the question, what is counted of it, None for nothing, and who pays for it."""

    link: MessageLink
    envelope: Sequence[Octets]
    counted: InHand | None
    payer: Payer


@dataclass(eq=False, slots=True)
class _Back:
    """One who is asked, or is being connected to."""

    address: str
    onward: Onward
    link: MessageLink | None = None
    refusal: str = ""
    """Why it did not let us in the last time."""


class TopicsSockets:
    """Owns the sockets of one proxy or server; made and closed on the running loop. To a node's host it is a link."""

    def __init__(
        self,
        bound: Bound,
        message_size_max: int,
        tell: Callable[[Asked | Answered], None],
        on_closed: Callable[[], None] = lambda: None,
        limits: TopicsLimits | None = None,
        arrivals: Arrivals | None = None,
        gate: TopicsGate | None = None,
        accounts: Accounts | None = None,
        unwritten: Unwritten | None = None,
        log: Logger | None = None,
        peers: Peers | None = None,
        mark: bytes = b"",
        at_once_max: int = 0,
    ) -> None:
        """Listen on what is `bound`, and `tell` what comes; `mark` follows the token of what is asked.

        Connections are counted by `arrivals`, what is asked by `accounts`, and what waits to be written by `unwritten`,
        or all by `limits` alone; about `at_once_max` questions are taken until some are answered, 0 for no bound.
        Without a `gate` nobody proves who he is. What happens on a connection is said to
        `log`, with the number that it has among `peers`. Raises `Unavailable("port-in-use")`.
        """
        self.number = 0
        """The link that this is to a node."""
        self._tell = tell
        self._on_closed = on_closed
        self._log = log or Logger()
        self._loop = asyncio.get_running_loop()
        self._peers = peers or Peers(self._loop)
        self._limits = limits = limits or TopicsLimits()
        self._gate = gate
        self._bounds = Bounds(message_size_max, PARTS_MAX, messages_at_once_max=MESSAGES_PER_TURN)
        self._is_closed = False
        sockets = bound.listen()
        self._own_arrivals = Arrivals(self._loop, limits.admission) if arrivals is None else None
        self._is_alone = unwritten is None
        self.unwritten = Unwritten(self._loop, limits.send, self._note_abandoned) if unwritten is None else unwritten
        self._accounts = accounts or limits.accounts()
        self._links = Links(self.unwritten)
        self._fronts: dict[MessageLink, _Front] = {}
        self._front_links: dict[int, MessageLink] = {}
        """By the number of who asks."""
        self.receiving = ReceiveBudget(limits.receive)
        self._backlog = Backlog(limits.receive.size_max // 4, limits.receive.size_max)
        self._looking = self._loop.call_later(_LOOK_S, self._look)
        self._backs: dict[str, _Back | None] = {}
        """By address; None where it is none."""
        self._back_links: dict[MessageLink, _Back] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, _Waiting] = {}
        self._last_peer = 0
        self._mark = mark
        self._room = AskingRoom(self._loop, at_once_max)
        self._is_paused = False
        counted = arrivals or self._own_arrivals
        assert counted is not None
        self._listener = Listener(LISTENER, sockets, counted, tcp_peer_of(LISTENER, ""), self._open_front)
        self._listener.on_refused = partial(note_refused, self._log)
        self.address = self._listener.address

    def close(self) -> None:
        """Close every socket once what was answered is written."""
        if self._is_closed:
            return
        self._is_closed = True
        self._looking.cancel()
        self._listener.close()
        if self._own_arrivals is not None:
            self._own_arrivals.close()
        if self._is_alone:
            self.unwritten.close()
        for task in self._tasks:
            task.cancel()
        self._links.close()
        self._on_closed()

    def carry_out(self, order: Answer | LateAnswer | Ask | Meet) -> None:
        """Do what the engine ordered."""
        if isinstance(order, Answer):
            link, envelope = self._answered(order.peer, len(order.data))
            link.send((*envelope, order.data))
        elif isinstance(order, LateAnswer):
            link, envelope = self._answered(order.peer, order.size)
            link.send_late(lambda: (*envelope, order.data), order.size)
        elif isinstance(order, Ask):
            back = self._meet(order.address)
            # Who is not there, or takes no more, is asked again.
            if back is not None and back.link is not None and back.link.is_open and self._may_ask(back, order):
                token = order.token.to_bytes(_TOKEN_SIZE) + self._mark
                back.link.send((token, *self._said_of(order.principal), b"", order.data))
        else:
            self._meet(order.address)

    def _answered(self, peer: int, size: int) -> tuple[MessageLink, Sequence[Octets]]:
        """Whoever asked is answered with so many bytes: its connection, and the envelope of the question."""
        link, envelope, counted, payer = self._waiting.pop(peer)
        if counted is not None:
            self._accounts.answer(counted, size, read_clocks())
        self._room.answer(payer, link)
        return link, envelope

    def _may_ask(self, back: _Back, order: Ask) -> bool:
        # Who proves nothing cannot be told from others who do not, and what we ask ourselves is for all.
        if not order.principal or back.link is None:
            return True
        return back.onward.ask(order.principal, order.token, back.link.is_filling, time.monotonic_ns())

    @property
    def has_unread_answers(self) -> bool:
        """Whether something was read from who is asked, and waits for its turn to be told."""
        return any(link.is_reading_on for link in self._back_links)

    def send(self, buffers: Sequence[Octets]) -> None:
        """Nothing is said on this link but answers."""
        raise AssertionError(f"nobody hears {sum(len(buffer) for buffer in buffers)} bytes")

    def admit(self) -> None:
        """Its place is not counted."""

    def pause_reading(self) -> None:
        """Take no question for now; answers are taken."""
        self._hold(True)

    def resume_reading(self) -> None:
        """Take questions again."""
        self._hold(False)

    def _hold(self, is_held: bool) -> None:
        self._is_paused = is_held
        for link in list(self._fronts):
            link.hold(is_held)

    # ── links ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def took(self, link: MessageLink, message: Message) -> None:
        """A question came, or an answer."""
        front = self._fronts.get(link)
        if front is None:
            self._take_answer(self._back_links[link], message)
        else:
            self._take_question(link, front, message)

    def asked(self, link: MessageLink, shown: Credential) -> None:
        """Find out who a peer is that asks."""
        front = self._fronts[link]
        assert self._gate is not None

        def take(known: Known) -> None:
            if known.principal is None:
                self._end(link, f"peer-{known.code}", PeerFault(known.code, known.reason))
                return
            admitted = self._accounts.admit(front.number, front.address, known.principal)
            if admitted.principal is None:
                self._end(link, f"peer-{admitted.code}", PeerFault(admitted.code, admitted.reason))
            else:
                front.principal = admitted.principal
                link.admit()

        self._gate.judge(front.number, shown, front.address, take, lambda: link in self._fronts)

    def greeted(self, link: MessageLink) -> None:
        """A peer that asks has come, as somebody or as nobody."""
        front = self._fronts.get(link)
        if front is not None:
            self._note("debug", "connected", front, principal=self._shown(front), protocol=LISTENER)

    def kept(self, link: MessageLink) -> None:
        """Count what a peer that asks has begun to send."""
        front = self._fronts.get(link)
        if front is None:
            return
        who = front.principal or front.address
        self._backlog.note(front.number, who, link.unread_size)
        unfinished = link.unfinished
        if unfinished.frame_size or front.number in self.receiving:
            now_ns = time.monotonic_ns()
            self._budget(self.receiving.note(front.number, who, bool(front.principal), unfinished, now_ns))

    def payer_of(self, link: MessageLink) -> Payer:
        """A principal, or an address, for all its connections that have proved nothing; whom we ask pays for itself."""
        front = self._fronts.get(link)
        return link.number if front is None else front.principal or Stranger(front.address)

    def room_for(self, link: MessageLink) -> int:
        """Of who is asked all that comes; of who asks what its share allows, or one until it has shown who it is."""
        if link not in self._fronts:
            return MESSAGES_PER_TURN
        return self._room.room_for(self.payer_of(link), link) if link.wire.has_greeted else 1

    def read_size_of(self, link: MessageLink) -> int:
        """Less, the more of its principal's waits."""
        front = self._fronts.get(link)
        return READ_SIZE_MAX if front is None else self._backlog.read_size(front.principal or front.address)

    def lost(self, link: MessageLink, reason: str) -> None:
        """A connection is gone; to whom we ask another is made."""
        front = self._fronts.pop(link, None)
        if front is not None:
            del self._front_links[front.number]
            self._room.forget(link)
            if self._gate is not None:
                self._gate.forget(front.number)
            self._accounts.forget(front.number)
            self._backlog.note(front.number, "", 0)
            self._budget(self.receiving.forget(front.number, time.monotonic_ns()))
            fault, has_greeted = link.wire.fault, link.wire.has_greeted
            if fault is not None and not front.is_ended:
                event = "topics-peer-let-go" if has_greeted else "handshake-failed"
                self._note("warning", event, front, code=fault.code, reason=reason)
            if has_greeted:
                self._note("debug", "disconnected", front, principal=self._shown(front), reason=reason)
            self._peers.leave(front.number)
            return
        back = self._back_links.pop(link, None)
        if back is not None and not self._is_closed:
            back.link = None
            back.onward = Onward(self._limits.wait_max_ns)
            is_refused = link.wire.fault is not None and not link.wire.has_greeted
            if is_refused and back.refusal != reason:
                self._log.warning("topics-not-let-in", address=back.address, reason=reason)
            back.refusal = reason if is_refused else ""
            self._log.debug("topics-connection-lost", address=back.address, reason=reason)
            self._loop.call_later(_REST_S if is_refused else _RECONNECT_S, self._connect, back)

    def _note_abandoned(self, number: int, reason: str) -> None:
        self._log.say("warning", ABANDONED, self._peers.located({"link": number, "reason": reason}))

    def _note(self, level: str, event: str, front: _Front, **fields: object) -> None:
        """Say something of one who asks."""
        self._log.say(level, event, self._peers.located({"link": front.number, **fields}))

    def _shown(self, front: _Front) -> str:
        """As whom the rules take one who asks."""
        return front.principal or (self._gate.unproven if self._gate is not None else "") or ANONYMOUS

    def _end(self, link: MessageLink, event: str, fault: PeerFault) -> None:
        """End the connection of one who asks, and say why."""
        front = self._fronts[link]
        front.is_ended = True
        self._note("warning", event, front, principal=front.principal, code=fault.code, reason=fault.message)
        link.fail(fault)

    def _wire(self, mechanisms: dict[bytes, Mechanism], is_server: bool) -> ZmtpLink:
        return ZmtpLink(Connection(mechanisms, self._bounds, is_server), self._limits.timing)

    def _open_front(self, peer: Peer, place: Place) -> MessageLink:
        mechanisms = asked_by_anybody() if self._gate is None else self._gate.mechanisms()
        link = MessageLink(self._links, self._wire(mechanisms, True), self, place)
        number = self._peers.enter(peer.listener, peer.name, peer.address)
        self._fronts[link] = _Front(number, origin_of(peer.address))
        self._front_links[number] = link
        link.hold(self._is_paused)
        return link

    def _look(self) -> None:
        self._looking = self._loop.call_later(_LOOK_S, self._look)
        once_read(self._loop, self._judge)

    def _judge(self, heard_ns: int) -> None:
        due_ns = self.receiving.deadline()
        # While no question is taken, it is not the peers who are slow.
        if due_ns is not None and due_ns <= heard_ns and not self._is_paused:
            self._budget(self.receiving.look(heard_ns))
        for lost in () if self._gate is None else self._gate.lost():
            link = self._front_links.get(lost.link)
            if link is not None:
                self._end(link, "principal-revoked", PeerFault(lost.code, lost.message))

    def _budget(self, orders: Sequence[receiving.Order]) -> None:
        """Do what the budget of unfinished messages asks for."""
        for order in orders:
            link = self._front_links.get(order.link)
            if link is None:
                continue
            match order:
                case receiving.HoldBack():
                    link.hold_back(True)
                case receiving.ReadOn():
                    link.hold_back(False)
                case receiving.GiveUp(_, message):
                    link.fail(PeerFault("too-slow", message))
                    self._budget(self.receiving.forget(order.link, time.monotonic_ns()))

    def _take_question(self, link: MessageLink, front: _Front, parts: Message) -> None:
        envelope, size = tuple(map(bytes, parts[:-1])), len(parts[-1])
        envelope_size = sum(map(len, envelope)) + len(envelope)
        too_large = ""
        if envelope_size > ENVELOPE_SIZE_MAX:
            sizes = [len(part) for part in envelope[:8]]
            self._note("warning", "envelope-too-large", front, sizes=sizes, count=len(envelope))
            size += envelope_size
            too_large = (
                f"the frames before the message have {envelope_size - len(envelope)} bytes and 1 more each, and at most"
                f" {ENVELOPE_SIZE_MAX} are accepted"
            )
        self._last_peer += 1
        principal, data = front.principal, bytes(parts[-1])
        is_member = self._gate is None or self._gate.is_member(principal)
        speaks_for = _spoken_for(envelope) if principal and not too_large else ""
        who = (is_member and speaks_for) or principal
        counted, why_not = None, ""
        if not (is_member and data.startswith(_OWN)):
            counted, why_not = self._count(who or front.number, who, size)
        payer = self.payer_of(link)
        self._waiting[self._last_peer] = _Waiting(link, envelope, counted, payer)
        self._room.take(payer, link)
        asked = Asked(self._last_peer, data, self.number, front.origin, principal, speaks_for, is_member, why_not)
        if envelope and envelope[0] and not envelope[0].startswith(FOR):
            asked = asked._replace(envelope=envelope)
        if any(len(frame) == _MARKED_SIZE and frame.endswith(PROXY_MARK) for frame in envelope):
            asked = asked._replace(is_from_proxy=True)
        if too_large:
            asked = asked._replace(why_not=too_large, why_not_as=StatusWord.BAD_MESSAGE)
        self._tell(asked)

    def _count(self, holder: Holder, principal: str, size: int) -> tuple[InHand | None, str]:
        """Count a request, or say why it is not taken."""
        now, accounts = read_clocks(), self._accounts
        if not principal and accounts.has_quotas and self._gate is not None:
            principal = self._gate.unproven
        why_not = accounts.why_not(holder, principal, size, now)
        return (None, why_not) if why_not else (accounts.take(holder, principal, size, now), "")

    def _take_answer(self, back: _Back, parts: Message) -> None:
        if len(parts) == 3 + len(self._said_of("")) and len(parts[0]) == _TOKEN_SIZE + len(self._mark):
            token = int.from_bytes(parts[0][:_TOKEN_SIZE])
            back.onward.answer(token)
            self._tell(Answered(token, bytes(parts[-1]), self.number, back.address))
        else:
            self._log.warning("answer-without-token", sizes=[len(part) for part in parts])

    def _said_of(self, principal: str) -> tuple[bytes, ...]:
        """The frame that says for whom we ask, where we have proved who we are."""
        if self._gate is None or not self._gate.shows_who_it_is:
            return ()
        return (FOR + (principal or ANONYMOUS).encode(),)

    # ── whom we ask ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _meet(self, address: str) -> _Back | None:
        if address not in self._backs:
            try:
                split_address(address)
            except ValueError as error:
                self._log.warning("topics-address-wrong", address=address, error=str(error))
                self._backs[address] = None
            else:
                back = self._backs[address] = _Back(address, Onward(self._limits.wait_max_ns))
                self._connect(back)
        return self._backs[address]

    def _connect(self, back: _Back) -> None:
        if not self._is_closed:
            task = self._loop.create_task(self._connect_to(back))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect_to(self, back: _Back) -> None:
        host, port = split_address(back.address)

        def open_back() -> MessageLink:
            mechanisms = asking_as_nobody() if self._gate is None else self._gate.way_in()
            link = MessageLink(self._links, self._wire(mechanisms, False), self)
            self._back_links[link] = back
            back.link = link
            return link

        try:
            await self._loop.create_connection(open_back, host, port)
        except OSError as error:
            # Nobody listens there, or there are no descriptors left: it is tried again for as long as we live.
            is_short = error.errno in NO_DESCRIPTOR
            if is_short:
                self._log.error("socket-not-opened", address=back.address, error=str(error))
            self._loop.call_later(_REST_S if is_short else _RECONNECT_S, self._connect, back)


def _spoken_for(envelope: Sequence[bytes]) -> str:
    """For whom a question is asked, as its envelope says, "" where it does not."""
    said = envelope[-2] if len(envelope) > 1 else b""
    return said.removeprefix(FOR).decode(errors="backslashreplace") if said.startswith(FOR) else ""
