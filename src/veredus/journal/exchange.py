"""What the journal is told and what it orders: upward to the streams floor, downward to the disk.

    streams floor ── AppendRequested, ReadRequested, … ──► Log ── WriteGroup, ReadBytes, … ──► disk
                  ◄── Appended, RecordsRead, … ──────────      ◄── GroupWritten, BytesRead, …

Every order with an outcome carries a token and comes back as exactly one event with it. Two exceptions are said openly:
after `LogFailed` nothing more is answered for what was on its way to the disk (it is in doubt), and `RemoveSegment`
has no outcome (what could not be removed is found again at the next start).
They are Structs: classes of which there are so many are made at every start, and a dataclass costs a millisecond each.
Source: docs/internals/DESIGN.md, "Engines" and "Journal".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import msgspec

from veredus.delivery.record import RecordKind, sealed_record
from veredus.kernel.effects import Note
from veredus.kernel.events import DeadlineReached
from veredus.kernel.gathered import Gathered
from veredus.kernel.octets import Octets


class SyncMode(IntEnum):
    """When what was appended is brought to the platter, and so what `Appended` bought."""

    GROUP = 0
    """A sync after each group: `Appended` means on disk."""
    INTERVAL = 1
    """`Appended` means written; a sync follows within the interval."""
    NONE = 2
    """`Appended` means written; only sealing a segment and a checkpoint sync."""


@dataclass(slots=True)
class Entry:
    """One record on its way into the journal.

    `record` is whole (its body with the body's CRC in place, padded to 8); its first 32 bytes are blank and are
    filled in when the record is placed. `first_sequence` is the stage's number for STAGED and 0 for FACT; `stream_id`
    is 0 for FACT;
    `count` is in rows.
    """

    record: bytearray | memoryview
    kind: RecordKind
    stream_id: int
    first_sequence: int
    count: int
    append_time_us: int


def fact_entry(payload: bytes, append_time_us: int) -> Entry:
    """An entry around one encoded fact of the streams floor."""
    record = sealed_record(RecordKind.FACT, payload, 0, 0, append_time_us)
    return Entry(record, RecordKind.FACT, 0, 0, 0, append_time_us)


class PlacedRecord(NamedTuple):
    """A record with its place in a stream. `memory` is all of it: envelope, body and padding."""

    first_sequence: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed
    append_time_us: int
    memory: memoryview


# ── what the journal is told from above ──────────────────────────────────────────────────────────────────────────────


class AppendRequested(msgspec.Struct, frozen=True):
    """Put these records behind all that was asked for before: all of them or none, also after a crash.

    No records at all is a barrier: it is answered when everything asked for before it was answered.
    """

    token: int
    entries: Sequence[Entry]
    is_synced: bool = False
    """Whether it is answered only when it is durable, whatever `SyncMode` says."""
    payer: str | None = None
    """On whose share it goes, of what is on its way and of the reserve for a full disk; None for the node's own."""
    is_freeing: bool = False
    """Whether it lets go of space."""


READ_SIZE_MIN = 4 << 10
"""Whoever reads records counts each as so many bytes at least: it takes its time, however small it is."""


class ReadRequested(msgspec.Struct, frozen=True):
    """Records of a stream are wanted from the one that holds `first_sequence` on, about `size_max` bytes, at least
    one; each counts as `READ_SIZE_MIN` bytes at least.
    """

    token: int
    stream_id: int
    first_sequence: int
    size_max: int


class LocateRequested(msgspec.Struct, frozen=True):
    """The first sequence with an append time of `append_time_us` or later is wanted."""

    token: int
    stream_id: int
    append_time_us: int


class StagesPublished(msgspec.Struct, frozen=True):
    """The rows of each of these stages are a stream's from a sequence on, in the order in which they were appended."""

    places: Sequence[tuple[int, int, int]]
    """The stage, the stream's id and the first sequence."""
    append_time_us: int


class StagesUnwanted(msgspec.Struct, frozen=True):
    """The rows of these stages will never be wanted."""

    stages: Sequence[int]


class StreamTrimmed(msgspec.Struct, frozen=True):
    """Nothing of the stream below `floor_sequence` is wanted any more."""

    stream_id: int
    floor_sequence: int


class StreamDropped(msgspec.Struct, frozen=True):
    """Nothing of the stream is wanted any more; its id will not come again."""

    stream_id: int


class CheckpointBegun(msgspec.Struct, frozen=True):
    """Recovery may start here once the state that is taken from now on is kept; `CheckpointRequested` brings it."""


class CheckpointRequested(msgspec.Struct, frozen=True):
    """Keep `state`, so that recovery may start where the checkpoint was begun, or else here.

    `state` reflects all that was answered with `Appended` up to the place where recovery will start. Of what was
    answered since, it may reflect some: that is replayed once more. `is_final`: nothing will be appended after it, the
    state is that of this moment, and the next start reads no segment.
    """

    state: Gathered
    is_final: bool = False


# ── what the disk answers ────────────────────────────────────────────────────────────────────────────────────────────


class GroupWritten(msgspec.Struct, frozen=True):
    """All of the group is written, and synced if that was ordered."""

    token: int


class GroupFailed(msgspec.Struct, frozen=True):
    """Writing or syncing failed: what is on the disk is unknown."""

    token: int
    code: str
    reason: str


class SegmentCreated(msgspec.Struct, frozen=True):
    """The segment is there, at full size, and its name is durable."""

    token: int


class SegmentFailed(msgspec.Struct, frozen=True):
    """The segment could not be made (`disk-full`, `too-many-files`, `io-error`); nothing is lost by that."""

    token: int
    code: str
    reason: str


WANTING = frozenset(("too-many-files", "out-of-memory"))
"""Codes of reads that failed for want of something that the process may have again later: the file may be whole."""


class BytesRead(msgspec.Struct, frozen=True):
    """The bytes that were asked for, in memory of their own; fewer where the file ends."""

    token: int
    data: bytearray | memoryview


class BytesFailed(msgspec.Struct, frozen=True):
    """The bytes could not be read. With a code of `WANTING` it is worth another try by and by."""

    token: int
    reason: str
    code: str = "io-error"


class FileWritten(msgspec.Struct, frozen=True):
    """The file has the new contents, durably."""

    token: int


class FileFailed(msgspec.Struct, frozen=True):
    """The file has its old contents."""

    token: int
    reason: str


class HeldBack(msgspec.Struct, frozen=True):
    """The space is held back; not all of it where there is a `code`, as in `SegmentFailed`, and a `reason`."""

    token: int
    code: str = ""
    reason: str = ""


DiskEvent: TypeAlias = (
    GroupWritten
    | GroupFailed
    | SegmentCreated
    | SegmentFailed
    | BytesRead
    | BytesFailed
    | FileWritten
    | FileFailed
    | HeldBack
)
LogEvent: TypeAlias = (
    DiskEvent
    | AppendRequested
    | ReadRequested
    | LocateRequested
    | StagesPublished
    | StagesUnwanted
    | StreamTrimmed
    | StreamDropped
    | CheckpointBegun
    | CheckpointRequested
    | DeadlineReached
)

# ── what the journal orders from the disk ────────────────────────────────────────────────────────────────────────────


class WriteGroup(msgspec.Struct, frozen=True):
    """Write the buffers at `offset`, one behind the other, then sync if `is_synced` (also when there are no buffers).

    The buffers belong to the disk until it answers. One such order is under way at a time.
    """

    token: int
    segment: int
    offset: int
    buffers: Sequence[Octets]
    is_synced: bool


class CreateSegment(msgspec.Struct, frozen=True):
    """Make a segment of `size` bytes that starts with `header`, its space allocated, its name durable; then put the
    header into the file `newest`, durably.

    `recycles`: take that segment's file, under a new name, instead of a fresh one, and remove its index. An existing
    file of the new name is taken as it is and brought to `size`.
    """

    token: int
    segment: int
    size: int
    header: bytes
    recycles: int | None = None


class ReadBytes(msgspec.Struct, frozen=True):
    """Read `size` bytes of a segment, or of its index, from `offset` on."""

    token: int
    segment: int
    offset: int
    size: int
    is_index: bool = False


class WriteFile(msgspec.Struct, frozen=True):
    """Give the file `name` these contents at once: a temporary file, sync, rename, sync of the directory."""

    token: int
    name: str
    data: Sequence[Octets]


class HoldBack(msgspec.Struct, frozen=True):
    """Hold back `size` bytes of the disk for the checkpoints, instead of what was ordered before. No segment is made
    while they are not there.
    """

    token: int
    size: int


class RemoveSegment(msgspec.Struct, frozen=True):
    """Remove a segment and its index; nothing in it is wanted."""

    segment: int


# ── what the journal says upward ─────────────────────────────────────────────────────────────────────────────────────


class Appended(msgspec.Struct, frozen=True):
    """All records of this request are in the journal, as durable as `durability` says. In the order of the requests."""

    token: int
    durability: SyncMode


class AppendFailed(msgspec.Struct, frozen=True):
    """None of this request's records is in the journal, and none will be. Codes: `disk-full`, `too-large`,
    `journal-failed`, ….
    """

    token: int
    code: str
    reason: str


class RecordsRead(msgspec.Struct, frozen=True):
    """Verified records of the stream, adjacent and in order; the next one starts at `next_sequence`."""

    token: int
    records: Sequence[PlacedRecord]
    next_sequence: int


class RangeMissing(msgspec.Struct, frozen=True):
    """Nothing from `first_sequence` to before `next_sequence` can be had: it was `trimmed`, or is `damaged`."""

    token: int
    code: str
    first_sequence: int
    next_sequence: int


class Located(msgspec.Struct, frozen=True):
    """The first sequence appended at or after the time that was asked for; the head + 1 when there is none."""

    token: int
    sequence: int


class CheckpointWanted(msgspec.Struct, frozen=True):
    """Much was appended since the last checkpoint, or space waits to be freed: answer with `CheckpointRequested`, at
    once or after `CheckpointBegun`.
    """


class CheckpointDone(msgspec.Struct, frozen=True):
    """The checkpoint is durable; `is_final` as it was asked for."""

    is_final: bool = False


class CheckpointFailed(msgspec.Struct, frozen=True):
    """The checkpoint could not be written; the one before still holds. `is_final` as it was asked for."""

    reason: str
    is_final: bool = False


class SegmentLacking(msgspec.Struct, frozen=True):
    """The next segment, which takes `size` bytes, cannot be made yet: it may be needed only later.

    Codes as in `SegmentFailed`.
    """

    segment: int
    size: int
    code: str
    reason: str


class SpaceMissing(msgspec.Struct, frozen=True):
    """No segment can be made, or what the next checkpoint needs cannot be held back: what carries publications is
    refused until `SpaceReturned`; reading goes on.

    Codes as in `SegmentFailed`.
    """

    code: str
    reason: str


class SpaceReturned(msgspec.Struct, frozen=True):
    """A segment could be made again."""


class LogFailed(msgspec.Struct, frozen=True):
    """A write or a sync failed: what was on its way is in doubt, nothing is appended any more. Stop, and recover."""

    reason: str


LogEffect: TypeAlias = (
    WriteGroup
    | CreateSegment
    | ReadBytes
    | WriteFile
    | HoldBack
    | RemoveSegment
    | Appended
    | AppendFailed
    | RecordsRead
    | RangeMissing
    | Located
    | CheckpointWanted
    | CheckpointDone
    | CheckpointFailed
    | SegmentLacking
    | SpaceMissing
    | SpaceReturned
    | LogFailed
    | Note
)
