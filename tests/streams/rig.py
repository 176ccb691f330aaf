"""A streams floor over a real log on a disk of dictionaries; what was ordered is carried out when the test says so."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.journal.rig import DiskOrder, MemoryDisk, recover_from
from veredus.delivery.batch import BatchHeader
from veredus.journal import exchange as journal
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached
from veredus.sim.content import Identity, batch_record, seen_rows
from veredus.sim.ports import batch_offered
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine
from veredus.streams.snapshot import Taking
from veredus.streams.tables import StreamsLimits

SMALL = LogSettings(segment_size=64 << 10, checkpoint_interval_size=1 << 30)
_ANSWERS = (journal.Appended, journal.AppendFailed, journal.RecordsRead, journal.RangeMissing, journal.Located)
_TO_LOG = (
    journal.AppendRequested,
    journal.ReadRequested,
    journal.LocateRequested,
    journal.StagesPublished,
    journal.StagesUnwanted,
    journal.StreamTrimmed,
    journal.StreamDropped,
)


def incarnation(n: int) -> bytes:
    """One of many incarnations."""
    return n.to_bytes(16, "big")


@dataclass
class Rig:
    """`said` holds what the floor said to sessions, in order."""

    limits: StreamsLimits = field(default_factory=StreamsLimits)
    settings: LogSettings = SMALL
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    said: list[Any] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    time_ns: int = 1_000_000_000
    wall_ns: int = -1_000_000_000
    """The wall clock when `time_ns` was 0: a rig begins at zero, and the first run of a sink has the epoch 1."""
    may: Any = None
    is_full: bool = False
    """Whether the journal takes nothing."""

    def __post_init__(self) -> None:
        self._ids = 0
        self._refused: deque[journal.AppendFailed | journal.AppendRequested] = deque()
        """What the journal refuses, and what was ordered behind that: it answers in the order of what it is asked."""
        self.taking: Taking | None = None
        self.boot()

    @property
    def now(self) -> Now:
        return Now(self.time_ns, self.wall_ns + self.time_ns)

    def boot(self) -> None:
        """A process that recovers from the disk as it is."""
        may = self.may or (lambda principal, verb, stream: True)
        self.floor = StreamsEngine(self.limits, x.Durability.GROUP, self._next_id, may, self._size_of)
        found = recover_from(self.disk, self.settings)
        for state in found.states:
            self.floor.load(state)
        for view in found.views:
            self.floor.replay(view)
        self.log = Log(self.settings, found.recovered)
        self.pending: deque[DiskOrder] = deque()
        self._follow(deque(self.floor.finish_recovery(found.recovered.is_clean)))
        self.carry_out()

    def restart(self) -> None:
        """The process is killed, with what it had not written yet; another one recovers."""
        self.said.clear()
        self.notes.clear()
        self._refused.clear()
        self.is_full = False
        self.taking = None
        self.boot()

    def _next_id(self) -> bytes:
        self._ids += 1
        return incarnation(1000 + self._ids)

    def _size_of(self, stream_id: int) -> int:
        return self.log.extent(stream_id).size

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, *facts: object) -> None:
        """Facts for the floor, and all that follows but for the disk's answers."""
        for fact in facts:
            self._follow(deque(self.floor.handle(fact, self.now)))

    def _follow(self, queue: deque[Any]) -> None:
        while queue:
            order = queue.popleft()
            if self.is_full and isinstance(order, journal.AppendRequested):
                self._refused.append(journal.AppendFailed(order.token, "disk-full", "No space left on device"))
            elif self._refused and isinstance(order, journal.AppendRequested):
                self._refused.append(order)
            elif isinstance(order, _TO_LOG):
                queue.extend(self._tell_log(order))
            elif isinstance(order, Note):
                self.notes.append(order)
            else:
                self.said.append(order)

    def _tell_log(self, event: Any) -> list[object]:
        answers: list[object] = []
        for effect in self.log.handle(event, self.now):
            if isinstance(effect, DiskOrder):
                self.pending.append(effect)
            elif isinstance(effect, _ANSWERS):
                answers.append(effect)
        return list(self.floor.handle_all(answers, self.now)) if answers else []

    def wake(self) -> None:
        """Give each part its deadline while it is due."""
        while self._is_due(self.floor.deadline()) or self._is_due(self.log.deadline()):
            if self._is_due(self.floor.deadline()):
                self.tell(DeadlineReached())
            if self._is_due(self.log.deadline()):
                self._follow(deque(self._tell_log(DeadlineReached())))

    def _is_due(self, at: int | None) -> bool:
        return at is not None and at <= self.time_ns

    def carry_out(self) -> None:
        """Let the disk carry out all orders, and those that follow from them."""
        self.wake()
        while self._refused or self.pending:
            while self.pending:
                event = self.disk.carry_out(self.pending.popleft())
                if event is not None:
                    self._follow(deque(self._tell_log(event)))
                self.wake()
            if self._refused:
                self._answer(self._refused.popleft())
        self.check()

    def refuse_at_once(self) -> None:
        """The journal has no space for what was ordered last, and says so before it answers what it has taken."""
        self.tell(self._refused.pop())

    def _answer(self, answer: journal.AppendFailed | journal.AppendRequested) -> None:
        if isinstance(answer, journal.AppendFailed):
            self.tell(answer)
        else:
            self._follow(deque(self._tell_log(answer)))
        self.wake()

    def give_turns(self) -> int:
        """Let time pass while anybody waits for a turn; how many turns there were."""
        turns = 0
        while (due := self.floor.deadline()) is not None and due <= self.time_ns + 1:
            turns += 1
            self.time_ns += 1
            self.carry_out()
        return turns

    def kill_behind_the_disk(self) -> None:
        """The disk carries out what is ordered; the process is killed before it hears of anything."""
        self.wake()
        while self.pending:
            self.disk.carry_out(self.pending.popleft())
        self.restart()

    def do(self, *facts: object) -> list[Any]:
        """Facts for the floor, carried out to the end; what was said because of them."""
        before = len(self.said)
        self.tell(*facts)
        self.carry_out()
        return self.said[before:]

    def order(self, orders: Sequence[object]) -> None:
        """The floor ordered something by itself; the disk has not answered yet."""
        self._follow(deque(orders))

    def follow(self, orders: Sequence[object]) -> None:
        """Carry out what the floor ordered by itself."""
        self.order(orders)
        self.carry_out()

    def checkpoint(self) -> None:
        """Keep a snapshot of the tables, and let recovery start there, or where one was begun."""
        self.taking = None
        self._follow(deque(self._tell_log(journal.CheckpointRequested(self.floor.snapshot()))))
        self.carry_out()

    def begin_checkpoint(self) -> None:
        """Let recovery start here, once the snapshot that is begun now is taken."""
        if self.taking is None:
            self._follow(deque(self._tell_log(journal.CheckpointBegun())))
            self.taking = self.floor.take_snapshot()

    def go_on_with_checkpoint(self, count: int) -> None:
        """Take `count` more rows for the snapshot; when it has them all, it is kept."""
        if self.taking is not None and self.taking.go_on(count, sys.maxsize):
            taking, self.taking = self.taking, None
            self._follow(deque(self._tell_log(journal.CheckpointRequested(taking.state))))
            self.carry_out()

    def kill_behind_the_checkpoint(self) -> None:
        """Keep a snapshot; what else was ordered never comes to the disk, for the process is killed."""
        self._follow(deque(self._tell_log(journal.CheckpointRequested(self.floor.snapshot()))))
        while self.pending:
            event = self.disk.carry_out(self.pending.popleft())
            if event is not None:
                self._tell_log(event)
        self.restart()

    def check(self) -> None:
        """Repeat the invariants of streams and ledgers."""
        self.log.check()
        for stream in self.floor.tables.streams.values():
            stream.check()
            for subscription in stream.subscriptions.values():
                subscription.ledger.check()

    # ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self, session: int, source: str = "alpha", who: int = 1, epoch: int = 0, stream: str = "s") -> Any:
        """Attach as a source; the answer."""
        said = self.do(x.SourceAttachRequested(session, "local", stream, source, incarnation(who), epoch))
        return said[-1] if said else None

    def offer(self, grant: x.GrantSource, first: int, count: int = 1, token: bytes = b"", who: str = "alpha") -> None:
        """Offer numbers `first` on under a grant; nothing is carried out."""
        rows = [Identity(who, number) for number in range(first, first + count)]
        header = BatchHeader(0, 0, 0, 0, 0, grant.stream_id, grant.source_id, grant.epoch, 0, first, 0, 0)
        self.tell(batch_offered(grant.session, batch_record(header, rows, token)))

    def publish(self, grant: x.GrantSource, first: int, count: int = 1, token: bytes = b"", who: str = "alpha") -> Any:
        """Offer, and carry out; the answer of this session."""
        before = len(self.said)
        self.offer(grant, first, count, token, who)
        self.carry_out()
        return next(said for said in self.said[before:] if said.session == grant.session)

    def subscribe(self, session: int, name: str = "", who: int = 1, **more: Any) -> x.GrantSubscription:
        """Subscribe to stream `s`, as the subscriber of this name or as none; the grant."""
        durable = {"subscriber": name, "name": "main", "incarnation": incarnation(who)} if name else {}
        settings = {"credit": 1 << 40, **durable, **more}
        principal = settings.pop("principal", "local")
        said = self.do(x.SubscribeRequested(session, principal, settings.pop("stream", "s"), **settings))
        return next(grant for grant in said if isinstance(grant, x.GrantSubscription))

    def hand_out(self, session: int) -> None:
        """The application of this session is handed all that it was pushed."""
        self.do(x.HandedOut(session, self.pushes(session)[-1].last_sequence if self.pushes(session) else 0))

    def settle(self, session: int, *ranges: tuple[int, int]) -> list[Any]:
        """Settle ranges; what was said because of it."""
        return self.do(x.SettleRequested(session, ranges))

    def pushes(self, session: int) -> list[x.Push]:
        """What this session was pushed."""
        return [said for said in self.said if isinstance(said, x.Push) and said.session == session]

    def pushed(self, session: int) -> list[int]:
        """The sequences that this session was pushed, in order."""
        return [sequence for sequence, _ in self.rows(session)]

    def rows(self, session: int) -> Iterator[tuple[int, Identity]]:
        """The sequences and identities that this session was pushed, in order."""
        for push in self.pushes(session):
            for sequence, row in seen_rows(push.buffers):
                yield sequence, row.identity

    def said_to(self, session: int, kind: type) -> list[Any]:
        """What of this kind was said to a session."""
        return [said for said in self.said if isinstance(said, kind) and said.session == session]
