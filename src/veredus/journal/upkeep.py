"""Keeps a journal short to recover and no larger than needed: checkpoints, index files, and letting segments go.

    much appended, or much dead ──► CheckpointWanted ──► CheckpointRequested(state)
        ──► sync, if anything is not durable ──► `checkpoint` ──► `checkpoint.copy` ──► (`closed`) ──► CheckpointDone
                                                                                        └──► dead segments go

Invariants
    (1) A segment goes only after a checkpoint that does not name it is durable, both copies.
    (2) A checkpoint is durable only if everything before its position is.
    (3) A sealed segment's rows stay in memory until its index is on disk.
    (4) `closed` is written only if nothing lies behind the checkpoint's position, and nothing is appended after that.
Source: docs/internals/DESIGN.md, "Checkpoints and space".
"""

from __future__ import annotations

from dataclasses import dataclass

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now

from .appending import Appending, Phase, Timer
from .catalogue import Catalogue, Segment
from .checkpoint import (
    CHECKPOINT_NAME,
    CLOSED_NAME,
    COPY_NAME,
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
    RemoveSegment,
    WriteFile,
)
from .index import build_index, encode_index
from .layout import Position, index_name
from .orders import Orders
from .settings import LogSettings, Recovered


@dataclass(slots=True)
class _Work:
    """A checkpoint on its way: its files in the order in which they are written, and what may go when all are there."""

    position: Position
    files: list[tuple[str, list[bytes]]]
    dead: list[int]
    appended_size: int
    is_final: bool
    token: int = 0


class Upkeep:
    """Owns the checkpoint on its way, the index files on their way, and the segments kept to be written over."""

    __slots__ = (
        "_appended_size", "_appending", "_catalogue", "_indexes", "_is_wanted", "_journal_id", "_orders", "_queued",
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
        self._work: _Work | None = None
        self._queued: _Work | None = None
        self._is_wanted = False
        self._appended_size = 0
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
        is_due = (
            self._appending.appended_size - self._appended_size >= interval_size
            or dead_size >= interval_size
            or (dead_size > 0 and self._appending.phase is Phase.FULL)
        )
        is_busy = self._is_wanted or self._work is not None or self._timers.is_set(Timer.CHECKPOINT)
        if is_due and not is_busy and self._appending.phase is not Phase.FAILED:
            self._is_wanted = True
            self._orders.say(CheckpointWanted())

    def checkpoint(self, event: CheckpointRequested, now: Now) -> None:
        """Take the checkpoint of this very moment, and begin to write it."""
        self._is_wanted = False
        appending = self._appending
        if appending.phase is Phase.FAILED:
            self._orders.say(CheckpointFailed("the journal has failed: restart the node", event.is_final))
            return
        taken = taken_checkpoint(
            self._catalogue,
            self._journal_id,
            appending.position,
            appending.ordinals,
            appending.dropped_keys,
            event.state,
        )
        data = encode_checkpoint(taken)
        files = [(CHECKPOINT_NAME, data), (COPY_NAME, data)]
        if event.is_final:
            files.append((CLOSED_NAME, [crc_of_checkpoint(data[0])]))
        dead = [s.number for s in self._catalogue.segments.values() if s.is_sealed and s.live_count == 0]
        work = _Work(appending.position, files, dead, appending.appended_size, event.is_final)
        if self._work is None:
            self._work = work
            self.proceed(now)
        else:
            self._queued = work

    def proceed(self, now: Now) -> None:
        """Write the checkpoint's next file, once all before its position is durable."""
        work = self._work
        if work is None or work.token:
            return
        if self._appending.durable < work.position:
            self._appending.request_sync(now)
            return
        name, data = work.files[0]
        if name == CLOSED_NAME:
            if not self._appending.is_idle or self._appending.position != work.position:
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

    def _finish(self, work: _Work, now: Now) -> None:
        self.checkpoint_position = work.position
        self._appended_size = work.appended_size
        for number in work.dead:
            segment = self._catalogue.segments[number]
            self._catalogue.forget(number)
            if not self._appending.recycle(segment):
                self._orders.say(RemoveSegment(number))
        self._orders.say(CheckpointDone(work.is_final))
        if work.dead:
            self._appending.retry_create(now)
        self._next(now)

    def _next(self, now: Now) -> None:
        self._work, self._queued = self._queued, None
        if self._work is not None:
            # A segment that went with the checkpoint before was dead at this one, too.
            self._work.dead = [number for number in self._work.dead if number in self._catalogue.segments]
            self.proceed(now)
