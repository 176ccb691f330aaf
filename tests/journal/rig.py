"""A log on a disk of dictionaries, driven step by step: what was ordered is carried out when the test says so."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from veredus.delivery.batch import BatchHeader, signed_record
from veredus.delivery.record import RecordKind, RecordView
from veredus.journal.exchange import (
    Appended,
    AppendRequested,
    BytesFailed,
    BytesRead,
    CheckpointDone,
    CheckpointRequested,
    CreateSegment,
    Entry,
    FileWritten,
    GroupWritten,
    HeldBack,
    HoldBack,
    LogEvent,
    PlacedRecord,
    ReadBytes,
    ReadRequested,
    RecordsRead,
    RemoveSegment,
    SegmentCreated,
    SegmentFailed,
    WriteFile,
    WriteGroup,
)
from veredus.journal.layout import NEWEST_NAME, index_name, segment_name
from veredus.journal.log import Log
from veredus.journal.recovery import recover
from veredus.journal.settings import LogSettings, Recovered, empty_journal
from veredus.journal.steps import (
    CheckpointLoaded,
    ClearFile,
    MoveAside,
    ReadFile,
    RemoveFile,
    Replayed,
    SetAside,
    SyncFile,
)
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached
from veredus.kernel.gathered import Gathered

JOURNAL_ID = bytes(range(16))
DiskOrder = WriteGroup | CreateSegment | ReadBytes | WriteFile | HoldBack | RemoveSegment


def batch_record(stream_id: int, first_number: int, bodies: Sequence[bytes], source_id: int = 1) -> bytearray:
    """A record, its envelope blank, around a batch whose payload is the bodies, plainly joined."""
    header = BatchHeader(0, 0, 0, 0, len(bodies), stream_id, source_id, 1, len(bodies), first_number, 0, 0)
    return signed_record(header, bodies)


def batch_entry(stream_id: int, first: int, count: int = 1, time_us: int = 0, size: int = 20, fill: int = 0) -> Entry:
    """A batch of `count` bodies of `size` bytes that say their stream and sequence."""
    bodies = [b"%d:%d:%d" % (stream_id, first + i, fill) for i in range(count)]
    record = batch_record(stream_id, first, [body.ljust(size, b".") for body in bodies])
    return Entry(record, RecordKind.BATCH, stream_id, first, count, time_us or first * 1000)


def staged_entry(stage: int, stream_id: int, first_number: int, count: int = 1, size: int = 20) -> Entry:
    """A batch under a stage; numbers from 1."""
    bodies = [(b"stage %d:%d" % (stage, first_number + i)).ljust(size, b".") for i in range(count)]
    record = batch_record(stream_id, first_number, bodies, source_id=0)
    return Entry(record, RecordKind.STAGED, stream_id, stage, count, 1)


def as_killed(directory: Path, to: Path) -> Path:
    """A copy of a journal's directory as a process leaves it that is killed now.

    A segment may be made meanwhile, so what says that one was made is read before it is seen which there are; and one
    may go, then all is copied anew.
    """
    newest = directory / NEWEST_NAME
    while True:
        said = newest.read_bytes() if newest.exists() else b""
        try:
            shutil.copytree(directory, to, ignore=shutil.ignore_patterns("lock", "*.tmp", NEWEST_NAME))
            break
        except shutil.Error:
            shutil.rmtree(to)
    if said:
        (to / NEWEST_NAME).write_bytes(said)
    return to


class MemoryDisk:
    """Files by name; space may be bounded, and what is said then be something else."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.size_max = 1 << 40
        self.refusal = ("disk-full", "No space left on device")
        self.held_size_max = 1 << 40
        self.read_sizes: dict[str, int] = {}

    def carry_out(self, order: DiskOrder) -> LogEvent | None:
        match order:
            case WriteGroup(token, segment, offset, buffers, _):
                data = b"".join(buffers)
                self.files[segment_name(segment)][offset : offset + len(data)] = data
                return GroupWritten(token)
            case CreateSegment(token, segment, size, header, recycles):
                return self._create(token, segment, size, header, recycles)
            case ReadBytes(token, segment, offset, size, is_index):
                name = index_name(segment) if is_index else segment_name(segment)
                if name not in self.files:
                    return BytesFailed(token, "no such file")
                return BytesRead(token, bytearray(self.read(name, offset, size)))
            case WriteFile(token, name, data):
                self.files[name] = bytearray(b"".join(data))
                return FileWritten(token)
            case HoldBack(token, size):
                return HeldBack(token, *(self.refusal if size > self.held_size_max else ()))
            case RemoveSegment(segment):
                self.files.pop(segment_name(segment), None)
                self.files.pop(index_name(segment), None)
                return None

    def _create(self, token: int, segment: int, size: int, header: bytes, recycles: int | None) -> LogEvent:
        name = segment_name(segment)
        old = None if recycles is None else self.files.get(segment_name(recycles))
        taken = sum(map(len, self.files.values()))
        if old is None and taken - len(self.files.get(name, b"")) + size > self.size_max:
            return SegmentFailed(token, *self.refusal)
        if old is not None and recycles is not None:
            del self.files[segment_name(recycles)]
            self.files.pop(index_name(recycles), None)
            self.files[name] = old
        file = self.files.setdefault(name, bytearray())
        file.extend(bytes(max(0, size - len(file))))
        file[: len(header)] = header
        del file[size:]
        self.files[NEWEST_NAME] = bytearray(header)
        return SegmentCreated(token)

    def read(self, name: str, offset: int, size: int) -> bytes:
        data = bytes(memoryview(self.files[name])[offset : offset + size])
        self.read_sizes[name] = self.read_sizes.get(name, 0) + len(data)
        return data


@dataclass
class Recovery:
    """What recovery found on a disk."""

    recovered: Recovered
    states: list[bytes] = field(default_factory=list)
    views: list[RecordView] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    asides: list[tuple[str, int, bytes]] = field(default_factory=list)
    synced: list[str] = field(default_factory=list)

    def note_events(self) -> list[str]:
        return [note.event for note in self.notes]


def recover_from(disk: MemoryDisk, settings: LogSettings, journal_id: bytes = JOURNAL_ID) -> Recovery:
    """Recover from a disk, which is changed as recovery orders."""
    steps = recover({name: len(data) for name, data in disk.files.items()}, settings, journal_id)
    found = Recovery(empty_journal(b""))
    answer: bytearray | None = None
    while True:
        try:
            order = steps.send(answer)
        except StopIteration as end:
            found.recovered = end.value
            return found
        answer = None
        match order:
            case ReadFile(name, offset, size):
                answer = bytearray(disk.read(name, offset, size))
            case SyncFile(name):
                found.synced.append(name)
            case SetAside(name, offset, size):
                found.asides.append((name, offset, disk.read(name, offset, size)))
            case MoveAside(name):
                found.asides.append((name, 0, bytes(disk.files.pop(name))))
            case ClearFile(name, offset, size):
                disk.files[name][offset : offset + size] = bytes(size)
            case RemoveFile(name):
                del disk.files[name]
            case CheckpointLoaded(state):
                found.states.append(state)
            case Replayed(view):
                found.views.append(view)
            case Note():
                found.notes.append(order)


@dataclass
class Rig:
    """A log and its disk; `said` are the effects for the floor above, in order."""

    settings: LogSettings = field(
        default_factory=lambda: LogSettings(segment_size=64 << 10, checkpoint_interval_size=1 << 30)
    )
    recovered: Recovered = field(default_factory=lambda: empty_journal(JOURNAL_ID))
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    said: list[object] = field(default_factory=list)
    pending: deque[DiskOrder] = field(default_factory=deque)
    time_ns: int = 1_000_000_000
    last_token: int = 0

    def __post_init__(self) -> None:
        self.log = Log(self.settings, self.recovered)

    @property
    def now(self) -> Now:
        return Now(self.time_ns, 1_700_000_000_000_000_000 + self.time_ns)

    def token(self) -> int:
        self.last_token += 1
        return self.last_token

    def tell(self, event: LogEvent) -> None:
        """One event, and nothing else."""
        for effect in self.log.handle(event, self.now):
            if isinstance(effect, DiskOrder):
                self.pending.append(effect)
            else:
                self.said.append(effect)
        self.log.check()

    def wake(self) -> None:
        """Give the deadline while it is due."""
        while (at := self.log.deadline()) is not None and at <= self.time_ns:
            self.tell(DeadlineReached())

    def step(self) -> bool:
        """Carry out the oldest order; whether there was one."""
        self.wake()
        if not self.pending:
            return False
        event = self.disk.carry_out(self.pending.popleft())
        if event is not None:
            self.tell(event)
        return True

    def settle(self) -> None:
        """Carry out all orders, and those that follow from them."""
        while self.step():
            pass

    def append(self, *entries: Entry) -> int:
        """Ask for an append; returns its token."""
        token = self.token()
        self.tell(AppendRequested(token, entries))
        return token

    def is_appended(self, token: int) -> bool:
        return any(isinstance(effect, Appended) and effect.token == token for effect in self.said)

    def answer(self, token: int) -> object:
        """What was said under this token."""
        answers = [effect for effect in self.said if getattr(effect, "token", None) == token]
        assert len(answers) == 1, answers
        return answers[0]

    def ask(self, stream_id: int, first: int, size_max: int = 1 << 20) -> object:
        """One request to read, carried out; its answer."""
        token = self.token()
        self.tell(ReadRequested(token, stream_id, first, size_max))
        self.settle()
        return self.answer(token)

    def read_all(self, stream_id: int, first: int = 1, size_max: int = 1 << 20) -> list[PlacedRecord]:
        """All records of a stream from `first` on; fails where something is missing."""
        records: list[PlacedRecord] = []
        while True:
            answer = self.ask(stream_id, first, size_max)
            assert isinstance(answer, RecordsRead), answer
            if not answer.records:
                return records
            records += answer.records
            first = answer.next_sequence

    def reopened(self, disk: MemoryDisk | None = None) -> tuple[Rig, Recovery]:
        """A new log on a copy of the disk as it is now, and what recovery found there."""
        copied = MemoryDisk()
        copied.files = {name: bytearray(data) for name, data in (disk or self.disk).files.items()}
        found = recover_from(copied, self.settings)
        return Rig(self.settings, found.recovered, copied), found

    def checkpoint(self, state: bytes = b"state", is_final: bool = False) -> None:
        """Take a checkpoint, and carry it out."""
        self.settle()
        count = len(self.said)
        self.tell(CheckpointRequested(Gathered(state), is_final))
        self.settle()
        assert CheckpointDone(is_final) in self.said[count:]
