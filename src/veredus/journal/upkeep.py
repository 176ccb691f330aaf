"""Keeps a journal short to recover and no larger than needed: checkpoints, index files, and letting segments go.

    much appended, or much dead ──► CheckpointWanted ──► CheckpointBegun ─ the state is taken ─► CheckpointRequested
        ──► sync, if anything is not durable ──► `checkpoint` ──► `checkpoint.copy` ──► (`closed`) ──► CheckpointDone
                                                                                        └──► dead segments go

Without a checkpoint nothing goes, so a full disk would stay full whatever is trimmed. Each of the two copies is written
beside the one that it replaces. Of a last one with C bytes and a next one with up to C + g, that takes up to g more for
each copy, and C + g for the time being; then as much must be left for another one. So C + 3 g bytes of the disk are
held back. Where they cannot be had, no publications are taken; facts are, a little, and g has room for these.

Invariants
    (1) A segment goes only after a checkpoint that does not name it is durable, both copies.
    (2) A checkpoint is durable only if everything is that its state may reflect.
    (3) A sealed segment's rows stay in memory until its index is on disk.
    (4) `closed` is written only if nothing lies behind the checkpoint's position, and nothing is appended after that.
    (5) As much is held back as the next checkpoint may need, or no publications are taken.
Source: docs/internals/DESIGN.md, "Checkpoints and space".
"""

from __future__ import annotations

from dataclasses import dataclass

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.octets import Octets

from .appending import Appending
from .catalogue import Catalogue, Segment
from .checkpoint import (
    CHECKPOINT_NAME,
    CLOSED_NAME,
    COPY_NAME,
    Checkpoint,
    crc_of_checkpoint,
    encode_checkpoint,
    taken_checkpoint,
)
from .exchange import (
    CheckpointDone,
    CheckpointFailed,
    CheckpointRequested,
    CheckpointWanted,
    FileFailed,
    FileWritten,
    HeldBack,
    HoldBack,
    RemoveSegment,
    WriteFile,
)
from .index import ROW_SIZE, build_index, encode_index
from .layout import Position, index_name
from .orders import Orders
from .phases import Phase, Timer
from .settings import LogSettings, Recovered

GROWTH_SHARE = 8
"""A checkpoint is wanted once the state may have grown by such a part of the interval, if that doubles it."""


@dataclass(slots=True)
class _Begun:
    """A checkpoint whose state is being taken, and what may go when it is there."""

    taken: Checkpoint
    grown_size: int
    dead: list[int]
    appended_size: int
    appended_count: int


@dataclass(slots=True)
class _Work:
    """A checkpoint on its way, and its files in the order in which they are written; all before `until` comes first."""

    begun: _Begun
    until: Position
    files: list[tuple[str, list[Octets]]]
    size: int
    is_final: bool
    token: int = 0


class Upkeep:
    """Owns the checkpoint on its way, the index files on their way, and the segments kept to be written over."""

    __slots__ = (
        "_appended_count", "_appended_size", "_appending", "_begun", "_catalogue", "_checkpoint_size", "_grown_size",
        "_held_size", "_holding", "_indexes", "_is_lacking", "_is_wanted", "_journal_id", "_orders", "_queued",
        "_settings", "_timers", "_unindexed", "_work", "checkpoint_position",
    )  # fmt: skip

    def __init__(
        self,
        settings: LogSettings,
        recovered: Recovered,
        orders: Orders,
        timers: Deadlines[Timer],
        appending: Appending,
    ) -> None:
        """Keep what recovery found."""
        self._settings = settings
        self._catalogue: Catalogue = recovered.catalogue
        self._journal_id = recovered.journal_id
        self._orders = orders
        self._timers = timers
        self._appending = appending
        self._indexes: dict[int, Segment] = {}
        self._unindexed: list[Segment] = list(recovered.unindexed)
        self._begun: _Begun | None = None
        self._work: _Work | None = None
        self._queued: _Work | None = None
        self._is_wanted = False
        self._appended_size = self._appended_count = 0
        self._checkpoint_size = recovered.checkpoint_size
        self._grown_size = 0
        self._held_size = settings.held_back_size
        self._holding = 0
        self._is_lacking = False
        self.checkpoint_position = recovered.checkpoint_position
        if self._unindexed:
            timers.set(Timer.INDEX, 0)

    # ── index files ──────────────────────────────────────────────────────────────────────────────────────────────────

    def seal(self, segment: Segment) -> None:
        """The segment is complete: summarise it and write its index."""
        assert segment.rows is not None
        summary, rows = build_index(segment.rows, segment.end)
        self._catalogue.seal(segment, summary)
        self._write_index(segment, rows)

    def reindex(self, segment: Segment) -> None:
        """The rows of a sealed segment were found again: write its index anew."""
        assert segment.rows is not None
        segment.summary, rows = build_index(segment.rows, segment.end)
        self._write_index(segment, rows)

    def retry_indexes(self) -> None:
        """Write the indexes that could not be written."""
        unindexed, self._unindexed = self._unindexed, []
        for segment in unindexed:
            if segment.number in self._catalogue.segments and segment.rows is not None:
                self.reindex(segment)

    def _write_index(self, segment: Segment, rows: bytes) -> None:
        assert segment.summary is not None
        token = self._orders.token()
        self._indexes[token] = segment
        data = encode_index(segment.summary, rows, self._journal_id, segment.number)
        self._orders.say(WriteFile(token, index_name(segment.number), data))

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────

    def want(self) -> None:
        """Ask for a checkpoint, if one is due and none was asked for."""
        interval_size = self._settings.checkpoint_interval_size
        dead_size = self._catalogue.dead_size
        growth = self._appending.answering.asked_growth - self._grown_size
        is_due = (
            # Another one shows how much of it was growth, and then less has to be held back.
            growth >= max(self._checkpoint_size, interval_size // GROWTH_SHARE)
            or (self._is_lacking and growth > self._settings.reserve_size)
            or self._appending.appended_size - self._appended_size >= interval_size
            or self._appending.appended_count - self._appended_count >= self._settings.checkpoint_interval_count
            or dead_size >= interval_size
            or (dead_size > 0 and self._appending.phase is Phase.FULL)
        )
        is_busy = self._is_wanted or self._work is not None or self._timers.is_set(Timer.CHECKPOINT)
        # Whoever takes the state does so at once: what is in the journal and not answered would be missing in it.
        is_busy = is_busy or bool(self._appending.answering)
        if is_due and not is_busy and self._appending.phase is not Phase.FAILED:
            self._is_wanted = True
            self._orders.say(CheckpointWanted())

    def begin(self) -> None:
        """Begin the checkpoint of this very moment; its state comes later."""
        appending = self._appending
        taken = taken_checkpoint(
            self._catalogue, self._journal_id, appending.position, appending.ordinals, appending.dropped_keys
        )
        dead = [s.number for s in self._catalogue.segments.values() if s.is_sealed and s.live_count == 0]
        appended = appending.appended_size, appending.appended_count
        self._begun = _Begun(taken, appending.answering.growth, dead, *appended)

    def checkpoint(self, event: CheckpointRequested, now: Now) -> None:
        """Begin to write the checkpoint that was begun; that of this very moment if none was, or it is the last."""
        self._is_wanted = False
        if self._begun is None or event.is_final:
            self.begin()
        begun, self._begun = self._begun, None
        assert begun is not None
        if self._appending.phase is Phase.FAILED:
            self._orders.say(CheckpointFailed("the journal has failed: restart the node", event.is_final))
            return
        until = self._appending.position
        begun.taken.until_segment, begun.taken.until_offset = until
        data = encode_checkpoint(begun.taken, event.state)
        files = [(CHECKPOINT_NAME, data), (COPY_NAME, data)]
        if event.is_final:
            files.append((CLOSED_NAME, [crc_of_checkpoint(data[0])]))
        work = _Work(begun, until, files, sum(map(len, data)), event.is_final)
        if self._work is None:
            self._work = work
            self.proceed(now)
        else:
            self._queued = work

    def proceed(self, now: Now) -> None:
        """Write the checkpoint's next file, once all is durable that its state may reflect."""
        work = self._work
        if work is None or work.token:
            return
        if self._appending.durable < work.until:
            self._appending.request_sync(now)
            return
        name, data = work.files[0]
        if name == CLOSED_NAME:
            if not self._appending.is_idle or self._appending.position != work.until:
                self._finish(work, now)
                return
            self._appending.close()
        work.token = self._orders.token()
        self._orders.say(WriteFile(work.token, name, data))

    def file_written(self, event: FileWritten, now: Now) -> bool:
        """A file is there: go on with the next one, or be done; returns whether that completes a checkpoint."""
        segment = self._indexes.pop(event.token, None)
        work = self._work
        if segment is not None:
            segment.rows = None
        elif work is not None and work.token == event.token:
            work.token = 0
            work.files.pop(0)
            if work.files:
                self.proceed(now)
            else:
                self._finish(work, now)
                return True
        return False

    def file_failed(self, event: FileFailed, now: Now) -> None:
        """A file could not be written; what was there before still holds."""
        segment = self._indexes.pop(event.token, None)
        retry_ns = now.monotonic_ns + self._settings.retry_ns
        if segment is not None:
            self._unindexed.append(segment)
            self._timers.set(Timer.INDEX, retry_ns)
            self._orders.say(
                Note("warning", "journal-index-failed", {"segment": segment.number, "reason": event.reason})
            )
        elif self._work is not None and self._work.token == event.token:
            self._timers.set(Timer.CHECKPOINT, retry_ns)
            self._orders.say(CheckpointFailed(event.reason, self._work.is_final))
            self._next(now)

    # ── what is held back ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _needed_size(self) -> int:
        appending = self._appending
        growth = appending.answering.asked_growth - self._grown_size + appending.open_row_count * ROW_SIZE
        return self._checkpoint_size + 3 * (growth + self._settings.reserve_size)

    def hold_back(self) -> None:
        """Hold back more of the disk, before the next checkpoint may need more than there is."""
        needed = self._needed_size
        if not self._is_lacking and needed + needed // 4 > self._held_size:
            self._hold(needed)

    def _hold(self, needed: int) -> None:
        if not self._holding:
            wanted = max(needed + needed // 2, self._settings.held_back_size)
            if not needed + needed // 4 <= self._held_size <= 2 * wanted:
                self._held_size = wanted
            self._holding = self._orders.token()
            self._orders.say(HoldBack(self._holding, self._held_size))

    def held_back(self, event: HeldBack, now: Now) -> None:
        """It is held back, or was not all to be had: then try again by and by."""
        if event.token != self._holding:
            return
        self._holding = 0
        self._is_lacking = bool(event.code)
        if self._is_lacking:
            self._appending.lack(event.code, event.reason)
            self._timers.set(Timer.HOLD, now.monotonic_ns + self._settings.retry_ns)
        else:
            self._appending.lack_nothing(now)
            self.hold_back()

    def retry_hold(self) -> None:
        """Try again to hold back what could not be."""
        if self._is_lacking:
            self._hold(self._needed_size)

    def _finish(self, work: _Work, now: Now) -> None:
        self.checkpoint_position = work.begun.taken.position
        self._appended_size, self._appended_count = work.begun.appended_size, work.begun.appended_count
        self._checkpoint_size = work.size
        self._grown_size = work.begun.grown_size
        for number in work.begun.dead:
            segment = self._catalogue.segments[number]
            self._catalogue.forget(number)
            if not self._appending.recycle(segment):
                self._orders.say(RemoveSegment(number))
        self._orders.say(CheckpointDone(work.is_final))
        # What the two files took of it as well; before a segment is made of what comes free now.
        self._hold(self._needed_size)
        if work.begun.dead:
            self._appending.retry_create(now)
        self._next(now)

    def _next(self, now: Now) -> None:
        self._work, self._queued = self._queued, None
        if self._work is not None:
            # A segment that went with the checkpoint before was dead at this one, too.
            begun = self._work.begun
            begun.dead = [number for number in begun.dead if number in self._catalogue.segments]
            self.proceed(now)
