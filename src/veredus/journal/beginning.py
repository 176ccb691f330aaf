"""How files are read when a journal is opened: the checkpoint, a segment, the summary of its index.

Of a file no more is read than it was made with: what is behind that may be anything, and any size.
Source: docs/internals/DESIGN.md, "Recovery"; guarantee 6.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused
from veredus.kernel.octets import Octets

from .checkpoint import (
    CHECKPOINT_HEAD_SIZE,
    CHECKPOINT_NAME,
    CLOSED_NAME,
    COPY_NAME,
    checkpoint_size,
    is_checkpoint_sound,
    place_of_checkpoint,
)
from .index import INDEX_HEADER_SIZE, Summary, decode_summary, summary_size
from .layout import (
    NEWEST_NAME,
    SEGMENT_HEADER_SIZE,
    SEGMENT_SIZE_MAX,
    Position,
    SegmentHeader,
    check_version,
    decode_segment_header,
    index_name,
    number_of,
    segment_name,
)
from .steps import Answer, ReadFile, RecoveryOrder, Steps

KEPT = "nothing was changed; this directory may have more data than any copy of it, so keep it as it is"
"""What is said with each refusal to begin."""


_NOWHERE = Position(-1, 0)


def is_own(name: str) -> bool:
    """Whether a file of this name belongs to a journal that was begun."""
    is_numbered = number_of(name, ".segment") is not None or number_of(name, ".index") is not None
    return is_numbered or name in (CHECKPOINT_NAME, COPY_NAME, CLOSED_NAME, NEWEST_NAME)


def load_checkpoints(
    listing: Mapping[str, int],
) -> Generator[RecoveryOrder, Answer, tuple[dict[bytes, Octets], dict[str, bytes]]]:
    """The sound checkpoints by the id of their journal, of two copies the later one; and that id by the file's name.

    Each damaged one is named. Raises `Refused("newer-format")` and `Refused("older-format")`.
    """
    other_format: Refused | None = None
    found: dict[bytes, Octets] = {}
    positions: dict[bytes, Position] = {}
    ids: dict[str, bytes] = {}
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
            else:
                ids[name], position = place_of_checkpoint(data)
                # The second is the later one where an older first was put back.
                if position > positions.get(ids[name], _NOWHERE):
                    found[ids[name]], positions[ids[name]] = data, position
    if other_format is not None and not found:
        raise other_format
    return found, ids


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


def load_newest(listing: Mapping[str, int]) -> Generator[RecoveryOrder, Answer, SegmentHeader | None]:
    """The header of the segment that was made last, None where nothing sound says so; a damaged one is named, for
    without it the loss of that segment may pass unnoticed.

    Raises `Refused("newer-format")` and `Refused("older-format")`.
    """
    if NEWEST_NAME not in listing:
        return None
    data = yield ReadFile(NEWEST_NAME, 0, SEGMENT_HEADER_SIZE)
    header = None if data is None else decode_segment_header(data)
    if header is None:
        yield Note("error", "journal-newest-damaged", {"file": NEWEST_NAME})
    else:
        check_version(header.version)
    return header


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
