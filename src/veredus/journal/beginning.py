"""Where recovery begins: at a checkpoint, or at the first segment while all of them are there; and how files are read.

Of a file no more is read than it was made with: what is behind that may be anything, and any size.
Source: docs/internals/DESIGN.md, "Recovery"; guarantee 6.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from veredus.delivery.record import read_envelope
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused
from veredus.kernel.octets import Octets

from .checkpoint import (
    CHECKPOINT_HEAD_SIZE,
    CHECKPOINT_NAME,
    CLOSED_NAME,
    COPY_NAME,
    Checkpoint,
    checkpoint_size,
    crc_of_checkpoint,
    decode_checkpoint,
    is_checkpoint_sound,
)
from .index import INDEX_HEADER_SIZE, Summary, decode_summary, summary_size
from .layout import (
    GROUP_RECORD_SIZE,
    NEWEST_NAME,
    SEGMENT_HEADER_SIZE,
    SEGMENT_SIZE_MAX,
    SegmentHeader,
    check_version,
    decode_segment_header,
    index_name,
    number_of,
    segment_name,
)
from .steps import Answer, MoveAside, ReadFile, RecoveryOrder, Steps

KEPT = "nothing was changed; this directory may have more data than any copy of it, so keep it as it is"
"""What is said with each refusal to begin."""


def is_own(name: str) -> bool:
    """Whether a file of this name belongs to a journal that was begun."""
    is_numbered = number_of(name, ".segment") is not None or number_of(name, ".index") is not None
    return is_numbered or name in (CHECKPOINT_NAME, COPY_NAME, CLOSED_NAME, NEWEST_NAME)


def load_checkpoint(listing: Mapping[str, int]) -> Generator[RecoveryOrder, Answer, tuple[Checkpoint | None, bytes]]:
    """The checkpoint, of two copies the first that is sound, and its CRC; each damaged one is named.

    Raises `Refused("newer-format")` and `Refused("older-format")`.
    """
    other_format: Refused | None = None
    found: Octets | None = None
    for name in (CHECKPOINT_NAME, COPY_NAME):
        if name in listing:
            data = None
            try:
                data = yield from _read_checkpoint(name, listing)
            except Refused as refused:
                # One flipped bit can say that, too: then the other copy says otherwise.
                other_format = refused
            if data is None:
                yield Note("error", "journal-checkpoint-damaged", {"file": name})
            found = found or data
    if found is not None:
        return decode_checkpoint(found), crc_of_checkpoint(found)
    if other_format is not None:
        raise other_format
    return None, b""


def _read_checkpoint(name: str, listing: Mapping[str, int]) -> Generator[RecoveryOrder, Answer, Octets | None]:
    """The checkpoint's file, None when it is unsound. What lies behind it in the file is named, and not read.

    Raises `Refused("newer-format")` and `Refused("older-format")`.
    """
    head = yield ReadFile(name, 0, CHECKPOINT_HEAD_SIZE)
    size = None if head is None else checkpoint_size(head)
    if size is None or size > listing[name]:
        return None
    data = yield ReadFile(name, 0, size)
    if data is None or len(data) < size or not is_checkpoint_sound(data):
        return None
    yield from name_excess(name, listing, size)
    return data


def read_segment(
    number: int, listing: Mapping[str, int], is_needed: bool = False
) -> Generator[RecoveryOrder, Answer, memoryview | None]:
    """All bytes of a segment, None where it cannot be read; `is_needed` as in `ReadFile`.

    What others put behind its end is not read. Raises `Refused`: `newer-format`, `older-format`.
    """
    name = segment_name(number)
    head = yield ReadFile(name, 0, SEGMENT_HEADER_SIZE, is_needed)
    if head is None:
        return None
    header, size = decode_segment_header(head), SEGMENT_SIZE_MAX
    if header is not None:
        check_version(header.version)
        size = header.size
    data = yield ReadFile(name, 0, min(size, listing[name]), is_needed)
    return None if data is None else memoryview(data)


def read_summary(
    number: int, end: int, journal_id: bytes, listing: Mapping[str, int]
) -> Generator[RecoveryOrder, Answer, Summary | None]:
    """The summary in the index of a segment that ends at `end`, None when there is none that is sound."""
    name = index_name(number)
    head = (yield ReadFile(name, 0, INDEX_HEADER_SIZE)) if name in listing else None
    size = None if head is None else summary_size(head)
    # What tells of a key is smaller than a record.
    if head is None or size is None or size > min(end, listing[name]):
        return None
    columns = yield ReadFile(name, INDEX_HEADER_SIZE, size)
    summary = None if columns is None else decode_summary(b"".join((head, columns)), journal_id, number)
    return summary if summary is not None and summary.end == end else None


def name_excess(name: str, listing: Mapping[str, int], size: int) -> Steps:
    """Say so where a file is longer than the `size` with which it was made."""
    if listing[name] > size:
        yield Note("warning", "journal-file-too-long", {"file": name, "size": listing[name], "expected": size})


def go_without(
    listing: Mapping[str, int], newest: SegmentHeader | None, new_journal_id: bytes
) -> Generator[RecoveryOrder, Answer, bytes]:
    """The journal's id where there is no sound checkpoint. All that one could say is in the segments: damaged ones are
    kept aside, as if there were none.

    Raises `Refused("journal-damaged")`.
    """
    numbers = sorted(number for name in listing if (number := number_of(name, ".segment")) is not None)
    damaged = [name for name in (CHECKPOINT_NAME, COPY_NAME) if name in listing]
    # A clean stop leaves both: where neither is there, they were removed since.
    had_checkpoint = bool(damaged) or CLOSED_NAME in listing
    journal_id = yield from _journal_id_of(numbers, had_checkpoint, newest, new_journal_id)
    if had_checkpoint:
        yield Note("warning", "journal-recovered-from-segments", {"segments": len(numbers)})
    for name in damaged:
        yield MoveAside(name)
    return journal_id


def _journal_id_of(
    numbers: list[int], had_checkpoint: bool, newest: SegmentHeader | None, new_journal_id: bytes
) -> Generator[RecoveryOrder, Answer, bytes]:
    """The journal's id out of its segments, when there is no sound checkpoint; possible while none of them has gone.

    Where there was a checkpoint, segments may have been written over since: all must be there as they were begun, up
    to the `newest`. Raises `Refused("journal-damaged")`.
    """
    last = max(len(numbers), 0 if newest is None else newest.number)
    if numbers[:1] != [1] or (had_checkpoint and numbers != list(range(1, last + 1))):
        message = (
            "both copies of the checkpoint are missing or damaged, and segments that are needed to make it again have"
            f" gone: {KEPT}; put a checkpoint from a backup into a copy of it, list its contents"
            " with `veredus journal dump`, and start a new journal in another directory meanwhile"
        )
        raise Refused("journal-damaged", message)
    head: Answer = None
    for number in reversed(numbers):
        head = yield ReadFile(segment_name(number), 0, SEGMENT_HEADER_SIZE + GROUP_RECORD_SIZE)
        header = None if head is None else decode_segment_header(head)
        if header is not None:
            check_version(header.version)
            return header.journal_id
    if newest is not None:
        return newest.journal_id
    if numbers == [1] and head is not None and read_envelope(head, SEGMENT_HEADER_SIZE) is None:
        # The first segment was being made when the process ended; nothing was ever written to it.
        return new_journal_id
    raise Refused(
        "journal-damaged", f"no segment has a valid header: {KEPT}; check whether the files of a backup have one"
    )
