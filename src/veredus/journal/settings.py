"""How a journal is to be kept, and what recovery found it to be."""

from __future__ import annotations

from dataclasses import dataclass, field

from .catalogue import Catalogue, Segment
from .checkpoint import Checkpoint
from .exchange import SyncMode
from .layout import Position

HELD_BACK_SIZE = 4 << 20


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Sizes in bytes."""

    segment_size: int = 128 << 20
    """Of a segment; one that must hold a larger append is made larger."""
    group_size_max: int = 8 << 20
    """What is written and synced at once; a larger append is a group of its own."""
    append_size_max: int = 1 << 30
    """What may be asked for in one append."""
    answer_count_max: int = 256
    """How many appends are answered at once: what follows from an answer takes its time."""
    answer_size_max: int = 32 << 10
    """And with how many bytes of facts: what follows from a large fact takes longer. One is answered in any case."""
    sync: SyncMode = SyncMode.GROUP
    interval_ns: int = 100_000_000
    """With `SyncMode.INTERVAL`: how long what was written may wait for its sync."""
    checkpoint_interval_size: int = 256 << 20
    checkpoint_interval_count: int = 250_000
    """Records after which a checkpoint is due, however small they are: recovery replays each of them, in some 20 µs."""
    """How much is appended between two checkpoints; a start after a crash reads about that much."""
    free_count_max: int = 2
    """Segments that nobody wants any more and that are kept to be written over: overwriting is faster than growing."""
    rows_cache_size_max: int = 8 << 20
    """Rows of sealed segments' indexes kept in memory."""
    held_back_size: int = HELD_BACK_SIZE
    """What is held back of the disk for checkpoints at least; more once the next one may need more."""
    retry_ns: int = 1_000_000_000
    """How long to wait before trying again what failed for want of space."""

    @property
    def reserve_size(self) -> int:
        """What facts may take when there is no space for publications; it is left free at the end of the last
        segment.
        """
        return min(1 << 20, self.segment_size // 8)


@dataclass(slots=True)
class Recovered:
    """What recovery found; a log owns it from then on."""

    journal_id: bytes
    catalogue: Catalogue
    position: Position
    """Where the last group ends. Everything before it is durable."""
    open_segment: Segment | None
    """The segment to go on in, at `position`; None to begin a new one."""
    next_ordinal: int
    """The ordinal of the next segment to be made."""
    checkpoint_position: Position
    group_number: int = 0
    checkpoint_size: int = 0
    """Of the checkpoint, in bytes; 0 without one."""
    growth: int = 0
    """By how many bytes what was replayed behind the checkpoint may make the next one larger."""
    is_next_there: bool = False
    """Whether the next segment was made already, with nothing in it."""
    free: list[int] = field(default_factory=list)
    """Segments that can be written over."""
    surplus: list[int] = field(default_factory=list)
    """Segments to be removed."""
    foreign: tuple[str, ...] = ()
    """The files of another journal."""
    unindexed: list[Segment] = field(default_factory=list)
    """Sealed segments whose rows are in memory, since their index is missing or unsound."""
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    """Of streams, by id, the first and last sequence of what was not found between records: it may have been trimmed,
    or have become visible by a commit, which the floor above can tell.
    """
    is_clean: bool = True
    """Whether the last log was closed by a final checkpoint, or the journal is new."""
    is_damaged: bool = False
    """Whether damage behind the checkpoint took records: what was given a sequence there may be gone."""


def empty_journal(journal_id: bytes) -> Recovered:
    """What recovery finds in an empty directory; `journal_id`: 16 random bytes."""
    start = Position(0, 0)
    return Recovered(journal_id, Catalogue(), start, None, 1, start)


def recovered_from(checkpoint: Checkpoint, catalogue: Catalogue, checkpoint_size: int) -> Recovered:
    """What recovery begins with where there is a checkpoint, of `checkpoint_size` bytes."""
    position = checkpoint.position
    return Recovered(
        checkpoint.journal_id,
        catalogue,
        position,
        None,
        checkpoint.next_ordinal,
        position,
        checkpoint.group_number,
        checkpoint_size,
    )
