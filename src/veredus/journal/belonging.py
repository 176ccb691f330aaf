"""Which files in a directory are the journal's own: by hand, those of another one can get there.

Each segment, each copy of the checkpoint and `newest` name their journal.

    all name one      it is that
    they name several it is the one that more than half of them name, among these a segment and one of the others
    none is that      nobody can know: refused, and nothing is changed

So neither one stray file, nor all segments or all small files of another journal, pass for this one. What is not its
own is as if it were not there: it is never read, written over or removed, and kept aside in the end, where no segment
to come needs its name.
Source: guarantee 6.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from veredus.delivery.record import read_envelope
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused

from .beginning import KEPT, load_checkpoints, load_newest
from .checkpoint import CHECKPOINT_NAME, CLOSED_NAME, COPY_NAME, Checkpoint, crc_of_checkpoint, decode_checkpoint
from .layout import (
    FORMAT_VERSION,
    GROUP_RECORD_SIZE,
    NEWEST_NAME,
    SEGMENT_HEADER_SIZE,
    Position,
    SegmentHeader,
    check_version,
    decode_segment_header,
    index_name,
    number_of,
    segment_name,
)
from .steps import Answer, MoveAside, ReadFile, RecoveryOrder

_NAMED_MAX = 4
"""How many files of a journal are named where it cannot be known which journal it is."""


class Belongings(NamedTuple):
    """What a directory has of its journal, and what it has of others."""

    journal_id: bytes | None
    """None where no file says it."""
    listing: dict[str, int]
    """The sizes of the journal's own files, and of those that do not say whose they are, by name, in bytes."""
    foreign: tuple[str, ...]
    headers: dict[int, SegmentHeader]
    """The sound headers of its own segments, by the number in the file's name, ascending; of any format version."""
    newest: SegmentHeader | None
    checkpoint: Checkpoint | None
    """Of two copies the later one that is sound."""
    crc: bytes
    """Of that; empty without one."""
    checkpoint_size: int
    """Of that, in bytes; 0 without one. Its file may have grown since."""
    had_checkpoint: bool
    """Whether one was there, sound or not: where it was of another journal, that took the place of its own."""

    @property
    def until(self) -> Position:
        """All before it was durable, as the checkpoint says."""
        return Position(0, 0) if self.checkpoint is None else self.checkpoint.until

    def made_size(self, number: int) -> int:
        """The size, in bytes, with which a segment was made as its own header says; 0 where it does not."""
        header = self.headers.get(number)
        # One that is made out of another has that one's name until its header is durable.
        return 0 if header is None or header.number != number else header.size

    def is_cut(self, number: int) -> bool:
        """Whether a segment that is there is shorter than its own header says."""
        return self.listing[segment_name(number)] < self.made_size(number)


def sort_out(listing: Mapping[str, int]) -> Generator[RecoveryOrder, Answer, Belongings]:
    """Find out which journal the files in `listing` are of, and name each that is of another.

    Raises `Refused("newer-format")`, `Refused("older-format")`, and `Refused("journal-damaged")` where it cannot be
    known which journal it is.
    """
    checkpoints, ids = yield from load_checkpoints(listing)
    newest = yield from load_newest(listing)
    headers = yield from _load_headers(listing)
    if newest is not None:
        ids[NEWEST_NAME] = newest.journal_id
    ids |= {segment_name(n): head.journal_id for n, head in headers.items() if head.version == FORMAT_VERSION}
    journal_id = _id_among(ids)
    foreign = [name for name, named in ids.items() if named != journal_id]
    for name in foreign:
        hint = "it is not used, and a start moves it to aside/: put it back into the directory of its journal"
        fields: dict[str, object] = {"file": name, "journal": ids[name].hex(), "hint": hint}
        yield Note("error", "journal-file-foreign", fields)
    foreign_numbers = [number for number in headers if segment_name(number) in foreign]
    # Of no use without its segment, and made again from it.
    foreign += [name for name in map(index_name, foreign_numbers) if name in listing]
    data = None if journal_id is None else checkpoints.get(journal_id)
    return Belongings(
        journal_id,
        {name: size for name, size in listing.items() if name not in foreign},
        tuple(foreign),
        {number: header for number, header in headers.items() if number not in foreign_numbers},
        None if NEWEST_NAME in foreign else newest,
        None if data is None else decode_checkpoint(data),
        b"" if data is None else crc_of_checkpoint(data),
        0 if data is None else len(data),
        # A clean stop leaves both: where neither is there, they were removed since.
        not {CHECKPOINT_NAME, COPY_NAME, CLOSED_NAME}.isdisjoint(listing),
    )


def go_without(belongings: Belongings, new_journal_id: bytes) -> Generator[RecoveryOrder, Answer, bytes]:
    """The journal's id where there is no sound checkpoint. All that one could say is in the segments: damaged ones are
    kept aside, as if there were none.

    Possible while no segment has gone. Where there was a checkpoint, segments may have been written over since: all
    must be there as they were begun, up to the newest. Raises `Refused`: `journal-damaged`, `newer-format`,
    `older-format`.
    """
    listing, newest, headers = belongings.listing, belongings.newest, belongings.headers
    numbers = sorted(number for name in listing if (number := number_of(name, ".segment")) is not None)
    last = max(len(numbers), 0 if newest is None else newest.number)
    if numbers[:1] != [1] or (belongings.had_checkpoint and numbers != list(range(1, last + 1))):
        message = (
            "both copies of the checkpoint are missing, damaged or of another journal, and segments that are needed to"
            f" make it again have gone: {KEPT}; put a checkpoint from a backup into a copy of it, list its contents"
            " with `veredus journal dump`, and start a new journal in another directory meanwhile"
        )
        raise Refused("journal-damaged", message)
    if headers:
        check_version(headers[max(headers)].version)
    journal_id = belongings.journal_id
    if journal_id is None:
        if numbers != [1] or not (yield from _is_unwritten(segment_name(1))):
            message = f"no segment has a valid header: {KEPT}; check whether the files of a backup have one"
            raise Refused("journal-damaged", message)
        journal_id = new_journal_id
    if belongings.had_checkpoint:
        yield Note("warning", "journal-recovered-from-segments", {"segments": len(numbers)})
    for name in (CHECKPOINT_NAME, COPY_NAME):
        if name in listing:
            yield MoveAside(name)
    return journal_id


def _is_unwritten(name: str) -> Generator[RecoveryOrder, Answer, bool]:
    """Whether the first segment was being made when the process ended: nothing was ever written to it."""
    head = yield ReadFile(name, 0, SEGMENT_HEADER_SIZE + GROUP_RECORD_SIZE)
    return head is not None and read_envelope(head, SEGMENT_HEADER_SIZE) is None


def keep_apart(belongings: Belongings) -> Generator[RecoveryOrder, Answer, tuple[str, ...]]:
    """Move what is of another journal to where nothing is written over or removed; returns the names."""
    for name in belongings.foreign:
        yield MoveAside(name)
    return belongings.foreign


def _load_headers(listing: Mapping[str, int]) -> Generator[RecoveryOrder, Answer, dict[int, SegmentHeader]]:
    headers: dict[int, SegmentHeader] = {}
    for number in sorted(n for name in listing if (n := number_of(name, ".segment")) is not None):
        head = yield ReadFile(segment_name(number), 0, SEGMENT_HEADER_SIZE)
        header = None if head is None else decode_segment_header(head)
        if header is not None:
            headers[number] = header
    return headers


def _id_among(ids: Mapping[str, bytes]) -> bytes | None:
    """The journal's id, where files say these, by their names. Raises `Refused("journal-damaged")`."""
    files: dict[bytes, list[str]] = {}
    for name, journal_id in ids.items():
        files.setdefault(journal_id, []).append(name)
    if len(files) <= 1:
        return next(iter(files), None)
    for journal_id, names in files.items():
        kinds = {number_of(name, ".segment") is not None for name in names}
        if len(names) * 2 > len(ids) and len(kinds) == 2:
            return journal_id
    parts = "; ".join(f"of journal {journal_id.hex()}: {_listed(names)}" for journal_id, names in files.items())
    message = (
        f"there are files of several journals, and it cannot be known which one this is ({parts}): {KEPT}; move the"
        " files of all journals but one to other directories, and start again"
    )
    raise Refused("journal-damaged", message)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
