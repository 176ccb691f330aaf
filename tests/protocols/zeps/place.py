"""A node without a disk: links and the real streams floor over a journal that keeps everything and answers at once.

Also a wire between a client's engine and a link of that node, which cuts what goes over it as a test wants it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Any

from veredus.delivery.batch import BatchHeader, read_header, signed_record
from veredus.delivery.payload import read_rows
from veredus.delivery.publication import Rows
from veredus.delivery.record import ENVELOPE_SIZE, Envelope, RecordKind, records_in, write_envelope
from veredus.delivery.rows import encode_rows
from veredus.journal import exchange as j
from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkOpened, Received
from veredus.protocols.links import SESSION_BITS, FramesLeft, FramesReceived, TurnGiven, TurnWanted, WorkDone
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.client import ClientLink, ClientSettings
from veredus.protocols.zeps.client_exchange import OpenRequested, TellOpened
from veredus.protocols.zeps.orders import (
    AskPrincipal,
    LinkLimits,
    PrincipalKnown,
    SessionCongested,
    SessionDrained,
)
from veredus.protocols.zeps.undelivered import Undelivered
from veredus.streams.engine import StreamsEngine
from veredus.streams.exchange import Durability
from veredus.streams.rights import May, Resource
from veredus.streams.tables import StreamsLimits

START_NS = 1_000_000_000_000
WALL_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


def everything_may(principal: str, verb: str, resource: Resource) -> bool:
    return True


class Place:
    """A node's inner floors; what it would send is kept by link."""

    def __init__(
        self,
        limits: LinkLimits | None = None,
        may: May = everything_may,
        tail_size_max: int = 64 << 20,
        undelivered_size_max: int = 256 << 20,
    ) -> None:
        ids = count(1)
        self.limits = limits or LinkLimits()
        self.undelivered = Undelivered(undelivered_size_max)
        self.streams = StreamsEngine(
            StreamsLimits(tail_size_max=tail_size_max),
            Durability.GROUP,
            lambda: next(ids).to_bytes(16, "big"),
            may,
            lambda stream_id: 0,
        )
        self.monotonic_ns = START_NS
        self.links: dict[int, NodeLink] = {}
        self.left: dict[int, list[Any]] = {}
        """Frames that a link has not taken yet."""
        self.sent: dict[int, list[bytes]] = {}
        self.closed: dict[int, str] = {}
        self.notes: list[Note] = []
        self.down: list[Any] = []
        self.work_ns = 0
        self.principals: dict[str | None, str | None] = {None: "anonymous"}
        self.is_known_who_asks = True
        """Whether it is found out whose a token is."""
        self.journal: dict[int, list[j.PlacedRecord]] = {}
        self.held: list[object] | None = None
        self.held_reads: list[j.ReadRequested] | None = None
        self._queue: deque[object] = deque()

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ns, WALL_NS + self.monotonic_ns - START_NS)

    def open(self, link: int, door: str = "tcp", principal: str = "local") -> None:
        self.links[link] = NodeLink(link, self.limits, self.undelivered)
        self.sent[link] = []
        self.tell(LinkOpened(link, door, "somewhere", principal))

    def tell(self, event: object) -> None:
        self._queue.append(event)
        while self._queue:
            self._step(self._queue.popleft())
            if not self._queue and self.streams.deadline() == self.monotonic_ns + 1:
                # Flows wait for their next turn.
                self.monotonic_ns += 1
                self._queue.extend(self.streams.handle(DeadlineReached(), self.now))

    def receive(self, link: int, data: bytes) -> bytes:
        """Let `data` arrive; what is said back."""
        self.tell(Received(link, data))
        return self.take(link)

    def take(self, link: int) -> bytes:
        sent, self.sent[link] = self.sent[link], []
        return b"".join(sent)

    def wait(self, ns: int) -> None:
        """Let time pass; due deadlines of links are delivered."""
        end = self.monotonic_ns + ns
        while True:
            due = [(at, n) for n, link in self.links.items() if (at := link.deadline()) is not None and at <= end]
            if not due:
                break
            at, number = min(due)
            self.monotonic_ns = max(at, self.monotonic_ns)
            self._queue.extend(self.links[number].handle(DeadlineReached(), self.now))
            self.tell(Note("debug", "tick"))
        self.monotonic_ns = end

    def hold_journal(self) -> None:
        self.held = []

    def release_journal(self) -> None:
        held, self.held = self.held or [], None
        for answer in held:
            self.tell(answer)

    def hold_reads(self) -> None:
        self.held_reads = []

    def release_reads(self) -> None:
        held, self.held_reads = self.held_reads or [], None
        for asked in held:
            self.tell(asked)

    def _step(self, thing: Any) -> None:
        match thing:
            case Note():
                if thing.level != "debug":
                    self.notes.append(thing)
            case Send(link, buffers):
                self.sent[link].append(b"".join(bytes(buffer) for buffer in buffers))
            case CloseLink(link, reason):
                self.closed[link] = reason
            case AskPrincipal() if not self.is_known_who_asks:
                pass
            case AskPrincipal(link, token):
                known = self.principals.get(token)
                self._queue.append(PrincipalKnown(link, known, "" if known else "this token is not known here"))
            case SessionCongested(session) | SessionDrained(session):
                self._queue.extend(self.streams.set_congested(session, isinstance(thing, SessionCongested), self.now))
            case j.AppendRequested():
                self._append(thing)
            case j.ReadRequested():
                self._read(thing)
            case j.LocateRequested():
                self._locate(thing)
            case j.Appended() | j.AppendFailed() | j.RecordsRead() | j.RangeMissing() | j.Located():
                self._queue.extend(self.streams.handle(thing, self.now))
            case j.StreamTrimmed() | j.StreamDropped() | j.StagesPublished() | j.StagesUnwanted():
                pass
            case TurnWanted():
                self._queue.append(TurnGiven(thing.link))
            case WorkDone():
                self.work_ns += thing.cost_ns
            case Received(link, data) if link in self.left:
                self.left[link].append(data)
            case LinkOpened() | Received() | LinkClosed():
                self._tell_link(thing.link, thing)
            case _ if _is_for_streams(thing):
                self.down.append(thing)
                self._queue.extend(self.streams.handle(thing, self.now))
            case _ if hasattr(thing, "session"):
                self._tell_link(thing.session >> SESSION_BITS, thing)
            case _:
                self._tell_link(thing.link, thing)

    def _tell_link(self, link: int, thing: object) -> None:
        engine = self.links[link]
        effects = [*engine.handle(thing, self.now)]
        self._keep_left(link, effects)
        while link in self.left and not engine.is_awaiting:
            effects += engine.handle(FramesReceived(link, self.left.pop(link)), self.now)
            self._keep_left(link, effects)
        self._queue.extend(effects)

    def _keep_left(self, link: int, effects: list[object]) -> None:
        for said in [effect for effect in effects if isinstance(effect, FramesLeft)]:
            self.left[link] = list(said.frames)
            effects.remove(said)

    def _append(self, asked: j.AppendRequested) -> None:
        for entry in asked.entries:
            size = _body_size(entry.record)
            envelope = Envelope(entry.kind, 0, size, 7, entry.first_sequence, entry.append_time_us)
            write_envelope(entry.record, envelope)  # type: ignore[arg-type]
            if entry.kind is RecordKind.BATCH:
                placed = j.PlacedRecord(
                    entry.first_sequence, entry.count, entry.append_time_us, memoryview(entry.record)
                )
                self.journal.setdefault(entry.stream_id, []).append(placed)
        answer = j.Appended(asked.token, j.SyncMode.GROUP)
        if self.held is None:
            self._queue.append(answer)
        else:
            self.held.append(answer)

    def _read(self, asked: j.ReadRequested) -> None:
        if self.held_reads is not None:
            self.held_reads.append(asked)
            return
        records = self.journal.get(asked.stream_id, [])
        wanted = [r for r in records if r.first_sequence + r.count > asked.first_sequence]
        last = wanted[-1]
        self._queue.append(j.RecordsRead(asked.token, wanted, last.first_sequence + last.count))

    def _locate(self, asked: j.LocateRequested) -> None:
        records = self.journal.get(asked.stream_id, [])
        later = [record.first_sequence for record in records if record.append_time_us >= asked.append_time_us]
        behind = records[-1].first_sequence + records[-1].count if records else 1
        self._queue.append(j.Located(asked.token, min(later, default=behind)))


_FROM_LINKS = {
    "SourceAttachRequested", "BatchOffered", "BatchUnfit", "TokenStoreRequested", "SessionClosed", "SubscribeRequested",
    "CreditGranted", "SettleRequested", "HandedOut", "ReturnRequested", "FilterChangeRequested", "RunOpenRequested",
    "StageOpenRequested", "CommitRequested", "StagesDropRequested", "AdminRequested",
}  # fmt: skip


def _is_for_streams(thing: object) -> bool:
    return type(thing).__module__.startswith("veredus.streams.") and type(thing).__name__ in _FROM_LINKS


def _body_size(record: bytes | bytearray | memoryview) -> int:
    batch = memoryview(record)[ENVELOPE_SIZE:]
    if bytes(batch[4:6]) != b"\x7c\xb4":
        return len(batch)
    payload_size = int.from_bytes(batch[12:16], "little")
    return 64 + payload_size + int.from_bytes(batch[16:20], "little")


def batch(first: int, rows: list[tuple[bytes, bytes]], stream_id: int, source_id: int, epoch: int = 1) -> bytearray:
    """A signed record of a source's publications from number `first` on."""
    payload = encode_rows(Rows([key for key, _ in rows], [body for _, body in rows]))
    header = BatchHeader(0, 0, 0, 0, len(rows), stream_id, source_id, epoch, len(rows), first, 5, 5)
    return signed_record(header, [payload])


def rows_in(records: bytes | memoryview) -> Iterator[tuple[int, bytes, bytes]]:
    """Sequence, key and body of what pushed records hold."""
    for view in records_in(records):
        rows = read_rows(view.body, read_header(view.body))
        for index, (key, body) in enumerate(zip(rows.keys, rows.bodies, strict=True)):
            place = index if rows.rows is None else rows.rows[index]
            yield view.envelope.first_sequence + place, key, body


class Pair:
    """A client's engine and a link of a place, with a wire between them that cuts bytes into runs of `cut`."""

    def __init__(
        self,
        place: Place,
        link: int = 1,
        settings: ClientSettings | None = None,
        cut: int = 1 << 30,
        principal: str = "",
    ) -> None:
        self.place = place
        self.link = link
        self.client = ClientLink(link, settings or ClientSettings("tester", "secret"))
        self.cut = cut
        self.told: list[Any] = []
        place.principals.setdefault("secret", "somebody")
        place.open(link, principal=principal)
        self.ask(LinkOpened(link, "tcp", "node"))

    def ask(self, event: object) -> list[Any]:
        """Tell the client's engine something; what the library is told until both sides are quiet."""
        before = len(self.told)
        self._carry(self.client.handle(event, self.place.now))
        self.exchange()
        return self.told[before:]

    def exchange(self) -> None:
        while data := self.place.take(self.link):
            for piece in self._pieces(data):
                self._carry(self.client.handle(Received(self.link, piece), self.place.now))

    def open(self, opening: Any) -> tuple[int, Any]:
        """Open a channel; its number and its grant."""
        channel = self.client.free_channel()
        told = self.ask(OpenRequested(channel, opening))
        grants = [t for t in told if isinstance(t, TellOpened)]
        assert grants, told
        return channel, grants[0].grant

    def heard(self, kind: type) -> list[Any]:
        return [told for told in self.told if isinstance(told, kind)]

    def _carry(self, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                data = b"".join(bytes(buffer) for buffer in effect.buffers)
                for piece in self._pieces(data):
                    self.place.tell(Received(self.link, piece))
            elif isinstance(effect, CloseLink):
                self.place.tell(LinkClosed(self.link))
            elif not isinstance(effect, Note):
                self.told.append(effect)

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), self.cut):
            yield data[start : start + self.cut]
