"""A disk that delays, fails, tears and forgets: files in memory, and what of them would be there after a power cut.

    order ──► its lane (writer, keeper, reader) ──step──step──step──► answer
                                                 ▲ a kill stops between two steps; what was done stays

A write is seen by every reader at once and is on the platter only after a sync; a power cut keeps of what is not
synced any 512-byte sectors, each by itself, and of names that were made, changed or removed a prefix.
Source: docs/internals/DESIGN.md, "Proof"; the order of steps is that of `veredus.runtime.disk`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from veredus.delivery.record import read_envelope
from veredus.journal.exchange import (
    BytesFailed,
    BytesRead,
    CreateSegment,
    DiskEvent,
    FileFailed,
    FileWritten,
    GroupFailed,
    GroupWritten,
    HeldBack,
    HoldBack,
    ReadBytes,
    RemoveSegment,
    SegmentCreated,
    SegmentFailed,
    WriteFile,
    WriteGroup,
)
from veredus.journal.layout import CONTINUED, NEWEST_NAME, index_name, segment_name
from veredus.kernel.octets import Octets

from .dice import Die
from .gates import Gate
from .ranges import Span, time_ns
from .world import MICROSECOND, MILLISECOND, SECOND, World

SECTOR_SIZE = 512
DiskOrder = WriteGroup | CreateSegment | WriteFile | HoldBack | RemoveSegment | ReadBytes
Post = Callable[[DiskEvent], None]
SOUND_COUNT = 24
"""So many readings of a place are right after one that was not: who read it wrong has read it again by then."""
_TEMPORARY = ".tmp"
_Work = Iterator[int]


class SimFile:
    """One file: `data` as readers see it, and what the platter holds where that is older."""

    __slots__ = ("_older", "_past", "data")

    def __init__(self) -> None:
        """An empty file."""
        self.data = bytearray()
        self._older: dict[int, bytes] = {}
        self._past: dict[int, bytes] = {}

    def grow(self, size: int) -> None:
        """Make it at least `size` bytes long, zeros at the end."""
        self.data.extend(bytes(max(0, size - len(self.data))))

    def write(self, offset: int, data: Octets) -> None:
        """Write, for every reader to see; growing it where needed."""
        end = offset + len(data)
        self.grow(end)
        for sector in range(offset // SECTOR_SIZE, -(-end // SECTOR_SIZE)):
            if sector not in self._older:
                start = sector * SECTOR_SIZE
                self._older[sector] = bytes(self.data[start : start + SECTOR_SIZE])
        self.data[offset:end] = data

    def sync(self) -> None:
        """Bring all of it to the platter."""
        self._past.update(self._older)
        self._older.clear()

    def stale(self, offset: int, size: int, die: Die) -> bytes:
        """What a reader gets from a disk that has not taken a write note of: one sector as it was before its last."""
        data = bytearray(memoryview(self.data)[offset : offset + size])
        sectors = [s for s in range(-(-offset // SECTOR_SIZE), (offset + len(data)) // SECTOR_SIZE) if s in self._past]
        if sectors:
            sector = sectors[die.between(0, len(sectors) - 1)]
            start = sector * SECTOR_SIZE - offset
            data[start : start + SECTOR_SIZE] = self._past[sector].ljust(SECTOR_SIZE, b"\0")
        return bytes(data)

    def spoil(self, offset: int, data: Octets) -> bool:
        """Other bytes are there than were written, behind everybody's back; False where they are not at rest yet."""
        end = offset + len(data)
        if end > len(self.data) or any(s in self._older for s in range(offset // SECTOR_SIZE, -(-end // SECTOR_SIZE))):
            return False
        self.data[offset:end] = data
        return True

    def cut_short(self, size: int) -> bool:
        """It ends there, behind everybody's back; False where what is lost is not at rest yet."""
        if any(sector * SECTOR_SIZE >= size - SECTOR_SIZE for sector in self._older):
            return False
        del self.data[size:]
        return True

    def forget(self, survives: Callable[[int], bool]) -> int:
        """The power is cut: what is not synced is left only where `survives` says so of an offset; how much is lost."""
        lost = 0
        for sector, older in sorted(self._older.items()):
            start = sector * SECTOR_SIZE
            if not survives(start):
                self.data[start : start + len(older)] = older
                lost += 1
        self._older.clear()
        return lost


@dataclass(slots=True)
class DiskTemper:
    """How this disk is: times in nanoseconds, faults as probabilities by order."""

    step_min_ns: int = 5 * MICROSECOND
    step_max_ns: int = 100 * MICROSECOND
    sync_min_ns: int = 100 * MICROSECOND
    sync_max_ns: int = 5 * MILLISECOND
    write_fault: float = 0.0
    read_fault: float = 0.0
    file_fault: float = 0.0
    stale_read: float = 0.0
    misread: float = 0.0
    """How often one bit of what is read is wrong, and right when it is read again."""
    slow_sync: float = 0.0
    slow_sync_max_ns: int = 10 * SECOND


def drawn_temper(die: Die, sync_s: Span) -> DiskTemper:
    """A disk's temper, for one world; `sync_s`: how long a slow sync takes."""
    sync_min_ns = die.spread(20 * MICROSECOND, MILLISECOND)
    return DiskTemper(
        step_max_ns=die.spread(10 * MICROSECOND, MILLISECOND),
        sync_min_ns=sync_min_ns,
        sync_max_ns=sync_min_ns + die.spread(100 * MICROSECOND, 100 * MILLISECOND),
        write_fault=die.rate(0.01, never=0.7),
        read_fault=die.rate(0.2, never=0.6),
        file_fault=die.rate(0.2, never=0.6),
        stale_read=die.rate(0.2, never=0.8),
        slow_sync=die.rate(0.05, never=0.7),
        slow_sync_max_ns=time_ns(die, sync_s),
    )


@dataclass(slots=True)
class _Lane:
    """Orders that are carried out one by one; `work` is what is left of the present one."""

    name: str
    queue: deque[tuple[DiskOrder, Post]]
    work: _Work | None = None


class SimDisk:
    """Owns one machine's files, and carries out its journal's orders."""

    def __init__(self, world: World, name: str, temper: DiskTemper) -> None:
        """An empty disk."""
        self._world = world
        self._name = name
        self._die = world.dice.die(f"disk/{name}")
        self.temper = temper
        self.gate = Gate(world)
        """What the process that uses it, and with it its threads, does not do while it is stopped."""
        self.is_full = False
        """Whether nothing that takes space can be made."""
        self.is_calm = False
        """Whether faults are over."""
        self._sound_counts: dict[tuple[str, int], int] = {}
        """By file and offset: how many readings are right from now on."""
        self.on_written: Callable[[], None] | None = None
        """Called once, when a group is written and not yet synced."""
        self.tear_at: tuple[int, int] | None = None
        """A segment and an offset: of what is not synced there, the next power cut leaves what lies before it."""
        self.last_synced: tuple[int, int] = (0, 0)
        """Segment and offset of the last group that was synced: what lies before it was durable when it was written."""
        self.files: dict[str, SimFile] = {}
        self._stable_names: dict[str, SimFile] = {}
        self._name_changes: list[dict[str, SimFile | None]] = []
        self._life = 0
        self._lanes = self._new_lanes()

    @staticmethod
    def _new_lanes() -> dict[str, _Lane]:
        return {name: _Lane(name, deque()) for name in ("writer", "keeper", "reader")}

    # ── orders ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def carry_out(self, order: DiskOrder, post: Post) -> None:
        """Have the order carried out, in its lane; `post` gets the answer."""
        kind = "writer" if isinstance(order, WriteGroup) else "reader" if isinstance(order, ReadBytes) else "keeper"
        lane = self._lanes[kind]
        lane.queue.append((order, post))
        if lane.work is None:
            self._begin(lane)

    @property
    def is_idle(self) -> bool:
        """Whether it has carried out all orders."""
        return all(lane.work is None for lane in self._lanes.values())

    def _begin(self, lane: _Lane) -> None:
        if lane.queue:
            order, post = lane.queue.popleft()
            lane.work = self._work_of(order, post)
            self._go_on(lane, self._life)

    def _go_on(self, lane: _Lane, life: int) -> None:
        if life != self._life or lane.work is None:
            return
        delay_ns = next(lane.work, None)
        if delay_ns is None:
            lane.work = None
            self._begin(lane)
        else:
            self._world.after(delay_ns, lambda: self.gate.through(lambda: self._go_on(lane, life)))

    def _work_of(self, order: DiskOrder, post: Post) -> _Work:
        match order:
            case WriteGroup():
                return self._write(order, post)
            case CreateSegment():
                return self._create(order, post)
            case WriteFile():
                return self._replace(order, post)
            case HoldBack():
                return self._hold(order, post)
            case RemoveSegment(segment):
                return self._remove(segment)
            case ReadBytes():
                return self._read(order, post)

    def _step_ns(self) -> int:
        return self._die.between(self.temper.step_min_ns, self.temper.step_max_ns)

    def _sync_ns(self) -> int:
        sync_ns = self._die.between(self.temper.sync_min_ns, self.temper.sync_max_ns)
        if self._fails(self.temper.slow_sync, "slow-sync"):
            sync_ns += self._die.spread(MILLISECOND, self.temper.slow_sync_max_ns)
        return sync_ns

    def _fails(self, probability: float, kind: str) -> bool:
        if self.is_calm or not self._die.chance(probability):
            return False
        self._world.counts[f"fault.{kind}"] += 1
        self._world.tell(self._name, f"disk: {kind}")
        return True

    def _write(self, order: WriteGroup, post: Post) -> _Work:
        yield self._step_ns()
        file = self.files[segment_name(order.segment)]
        data = b"".join(order.buffers)
        cut = self._die.between(0, len(data))
        file.write(order.offset, data[:cut])
        yield self._step_ns()
        if self._fails(self.temper.write_fault, "write-failed"):
            post(GroupFailed(order.token, "io-error", "Input/output error"))
            return
        file.write(order.offset + cut, data[cut:])
        if self.on_written is not None:
            on_written, self.on_written = self.on_written, None
            on_written()
        if order.is_synced:
            yield self._sync_ns()
            if self._fails(self.temper.write_fault, "sync-failed"):
                post(GroupFailed(order.token, "io-error", "Input/output error"))
                return
            file.sync()
            if data:
                self.last_synced = (order.segment, order.offset)
        yield self._step_ns()
        post(GroupWritten(order.token))

    def _create(self, order: CreateSegment, post: Post) -> _Work:
        yield self._step_ns()
        target = segment_name(order.segment)
        source = target if order.recycles is None else segment_name(order.recycles)
        is_recycled = source != target and source in self.files and target not in self.files
        name = source if is_recycled else target
        is_new = name not in self.files
        if is_new:
            self._change_names({name: SimFile()})
        file = self.files[name]
        yield self._step_ns()
        is_missing_space = self.is_full and len(file.data) < order.size
        if is_missing_space or self._fails(self.temper.file_fault, "create-failed"):
            if is_new:
                self._change_names({name: None})
            why = ("disk-full", "No space left on device") if is_missing_space else ("io-error", "Input/output error")
            post(SegmentFailed(order.token, *why))
            return
        file.grow(order.size)
        yield self._step_ns()
        file.write(0, order.header)
        yield self._sync_ns()
        file.sync()
        del file.data[order.size :]
        if is_recycled and order.recycles is not None:
            self._change_names({index_name(order.recycles): None})
            yield self._step_ns()
            self._change_names({source: None, target: file})
            yield self._step_ns()
        newest = SimFile()
        newest.write(0, order.header)
        newest.sync()
        self._change_names({NEWEST_NAME: newest})
        yield self._sync_ns()
        self._sync_names()
        post(SegmentCreated(order.token))

    def _replace(self, order: WriteFile, post: Post) -> _Work:
        yield self._step_ns()
        temporary = order.name + _TEMPORARY
        file = SimFile()
        self._change_names({temporary: file})
        data = b"".join(order.data)
        cut = self._die.between(0, len(data))
        file.write(0, data[:cut])
        yield self._step_ns()
        if self.is_full or self._fails(self.temper.file_fault, "file-failed"):
            self._change_names({temporary: None})
            post(FileFailed(order.token, "No space left on device"))
            return
        file.write(cut, data[cut:])
        yield self._sync_ns()
        file.sync()
        self._change_names({temporary: None, order.name: file})
        yield self._sync_ns()
        self._sync_names()
        post(FileWritten(order.token))

    def _hold(self, order: HoldBack, post: Post) -> _Work:
        yield self._step_ns()
        if self.is_full:
            post(HeldBack(order.token, "disk-full", "No space left on device"))
        else:
            post(HeldBack(order.token))

    def _remove(self, segment: int) -> _Work:
        yield self._step_ns()
        self._change_names({segment_name(segment): None})
        yield self._step_ns()
        self._change_names({index_name(segment): None})
        yield self._sync_ns()
        self._sync_names()

    def _read(self, order: ReadBytes, post: Post) -> _Work:
        yield self._step_ns()
        name = index_name(order.segment) if order.is_index else segment_name(order.segment)
        if name not in self.files or self._fails(self.temper.read_fault, "read-failed"):
            post(BytesFailed(order.token, "Input/output error"))
            return
        data = bytearray(self.read(name, order.offset, order.size))
        if self._fails(self.temper.stale_read, "stale-read"):
            data = bytearray(self.files[name].stale(order.offset, order.size, self._die))
        place = (name, order.offset)
        self._sound_counts[place] = sound_count = self._sound_counts.get(place, 0) - 1
        if data and sound_count < 0 and self._die.chance(self.temper.misread):
            # Whoever reads again is served as ever, so this goes on when faults are over.
            self._world.counts["fault.misread"] += 1
            self._sound_counts[place] = SOUND_COUNT
            data[self._die.between(0, len(data) - 1)] ^= 1 << self._die.between(0, 7)
        yield self._step_ns()
        post(BytesRead(order.token, data))

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _change_names(self, changes: dict[str, SimFile | None]) -> None:
        self._name_changes.append(changes)
        _apply(changes, self.files)

    def _sync_names(self) -> None:
        self._stable_names = dict(self.files)
        self._name_changes.clear()

    # ── what a start does itself ─────────────────────────────────────────────────────────────────────────────────────

    def listing(self) -> dict[str, int]:
        """The sizes of the files, by name; what unfinished writes left is removed first."""
        for name in [name for name in self.files if name.endswith(_TEMPORARY)]:
            self._change_names({name: None})
        return {name: len(file.data) for name, file in sorted(self.files.items()) if "/" not in name}

    def read(self, name: str, offset: int, size: int) -> bytes:
        """`size` bytes of a file, fewer where it ends."""
        return bytes(memoryview(self.files[name].data)[offset : offset + size])

    def remove(self, name: str) -> None:
        """Remove a file, durably, if it is there."""
        self._change_names({name: None})
        self._sync_names()

    def sync(self, name: str) -> None:
        """Bring all of a file, and its name, to the platter."""
        self.files[name].sync()
        self._sync_names()

    def write(self, name: str, offset: int, data: Octets) -> None:
        """Write into a file that is there; not synced."""
        self.files[name].write(offset, data)

    def replace(self, name: str, data: Octets) -> None:
        """Give a file new contents at once, durably."""
        file = SimFile()
        file.write(0, data)
        file.sync()
        self._change_names({name: file})
        self._sync_names()

    def set_aside(self, name: str, data: Octets) -> str:
        """Keep bytes under a name of their own; returns that."""
        number = sum(kept.startswith(f"aside/{name}") for kept in self.files) + 1
        self.replace(f"aside/{name}.{number}", data)
        return f"aside/{name}.{number}"

    # ── bad days ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def kill(self) -> None:
        """The process is gone: what it had ordered stops where it is; what was written stays."""
        self._life += 1
        self._lanes = self._new_lanes()

    def cut_power(self) -> None:
        """The machine is gone: what was not synced is lost in part, or whole."""
        self.kill()
        kept = self._die.between(0, len(self._name_changes))
        for changes in self._name_changes[:kept]:
            _apply(changes, self._stable_names)
        survival = self._die.random()
        files = dict(self._stable_names)
        torn, end = ("", 0) if self.tear_at is None else (segment_name(self.tear_at[0]), self.tear_at[1])
        self.tear_at = None
        lost = sum(
            file.forget((lambda at: at < end) if name == torn else lambda _: self._die.chance(survival))
            for name, file in files.items()
        )
        self._world.tell(
            self._name, f"disk: {lost} sectors lost, {len(self._name_changes) - kept} changes of names lost"
        )
        self.files = files
        self._name_changes.clear()


def _apply(changes: dict[str, SimFile | None], names: dict[str, SimFile]) -> None:
    for name, file in changes.items():
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


def seams_of(offset: int, buffers: Sequence[Octets]) -> list[int]:
    """Where sectors end within an append of a group at `offset`, behind the first of its records."""
    seams: list[int] = []
    is_inside = False
    for buffer in buffers:
        end = offset + len(buffer)
        if is_inside:
            seams += range(-(-offset // SECTOR_SIZE) * SECTOR_SIZE, end, SECTOR_SIZE)
        envelope = read_envelope(buffer)
        is_inside = envelope is not None and bool(envelope.flags & CONTINUED)
        offset = end
    return seams
