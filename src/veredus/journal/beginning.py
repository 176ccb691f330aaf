"""Where recovery begins: at a checkpoint, or at the first segment while all of them are there.

Source: the design, section 4, and guarantee 6.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from veredus.delivery.record import read_envelope
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused

from .checkpoint import CHECKPOINT_NAME, COPY_NAME, Checkpoint, crc_of_checkpoint, decode_checkpoint
from .layout import (
    GROUP_RECORD_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
    check_version,
    decode_segment_header,
    segment_name,
)
from .steps import Answer, ReadFile, RecoveryOrder, RemoveFile, SetAside, Steps

KEPT = "nothing was changed; this directory may have more data than any copy of it, so keep it as it is"
"""What is said with each refusal to begin."""


def load_checkpoint(listing: Mapping[str, int]) -> Generator[RecoveryOrder, Answer, tuple[Checkpoint | None, bytes]]:
    """The checkpoint, of two copies the first that is sound, and its CRC; damaged ones are named.

    Raises `Refused("newer-format")` and `Refused("older-format")`.
    """
    other_format: Refused | None = None
    for name in (CHECKPOINT_NAME, COPY_NAME):
        if name in listing:
            data = yield ReadFile(name, 0, listing[name])
            try:
                checkpoint = None if data is None else decode_checkpoint(data)
            except Refused as refused:
                # One flipped bit can say that, too: then the other copy says otherwise.
                checkpoint, other_format = None, refused
            if data is not None and checkpoint is not None:
                return checkpoint, crc_of_checkpoint(data)
            yield Note("error", "journal-checkpoint-damaged", {"file": name})
    if other_format is not None:
        raise other_format
    return None, b""


def journal_id_of(
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


def go_without(damaged: list[str], listing: Mapping[str, int], segment_count: int) -> Steps:
    """All that a checkpoint could say is in the segments: keep the damaged ones aside, as if there were none."""
    yield Note("warning", "journal-recovered-from-segments", {"segments": segment_count})
    for name in damaged:
        yield SetAside(name, 0, listing[name])
        yield RemoveFile(name)
