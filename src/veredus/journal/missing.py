"""What a journal had at its end, and has no more: segments whose file is gone, shorter than it was made, or another.

    newest     the header of the segment that was made last, durable before the first record in that segment
    segments   each one is as long as its header says before a record is written to it, and is never cut; so one that
               is shorter is named even where nothing else knows of it
    checkpoint all before its end was durable: where that is not there, what lay behind it may have gone as well; and
               all before the place that its state reaches to

Nothing else would tell: what ends where a segment ends may have been all. Whether a segment that is gone held anything
is not known; that it was there is.
Source: guarantee 6.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping

from veredus.kernel.effects import Note

from .belonging import Belongings
from .catalogue import Segment
from .layout import SEGMENT_HEADER_SIZE, Position, segment_name
from .scan import group_at, sound_end
from .steps import Answer, RecoveryOrder


def kept_of(opened: Segment, data: memoryview) -> dict[int, int]:
    """Where what is sound ends in the checkpoint's open segment, by its number; empty if all is there that the
    checkpoint knows to lie at its end, or if a group goes on there.

    If neither is, then what was appended behind may have gone the same way: the end that is found is not known to be
    the end.
    """
    number, end = opened.number, opened.end
    if end == SEGMENT_HEADER_SIZE or group_at(data, end, number, opened.salt) is not None:
        return {}
    kept = sound_end(data, end, number, opened.salt)
    # A file that was cut has all that it is long.
    return {number: kept if len(data) >= end else len(data)} if kept < end else {}


def name_missing(
    belongings: Belongings,
    begin: int,
    end: Position,
    sizes: Mapping[int, int],
    kept: Mapping[int, int],
    held: Container[int],
) -> Generator[RecoveryOrder, Answer, bool]:
    """Name what is missing of the segments from `begin` on, where all that is found ends at `end`; whether any is.

    Those before it are in the checkpoint, or were let go before it. `sizes`, in bytes, is what that says of the segment
    that it ends in: where this one has gone, it was named before. `kept` says where what is sound ends in a segment
    that does not hold what the checkpoint knows to lie at its end. `held` are those in which anything was found, of
    which what is missing was named by what follows them, or which held nothing, as those around them say.
    """
    is_missing = False
    listing, newest = belongings.listing, belongings.newest
    last = end.segment if newest is None else max(newest.number, end.segment)
    behind = [number for number in belongings.headers if number > last and belongings.is_cut(number)]
    for number in (*range(max(begin, 1), last + 1), *behind):
        size = listing.get(segment_name(number))
        if size is None:
            lost: dict[str, object] | None = None if number in sizes or number in held else {"segment": number}
        elif number < end.segment and number in held and number not in kept:
            lost = None
        else:
            lost = _missing_part(number, min(size, kept.get(number, size)), end, belongings, sizes)
        if lost is not None:
            is_missing = True
            yield Note("error", "journal-segment-missing", lost)
    if not is_missing and end < belongings.until:
        is_missing = True
        yield Note("error", "journal-segment-missing", _missing_until(belongings.until, end))
    return is_missing


def _missing_until(until: Position, end: Position) -> dict[str, object]:
    """What is missing of what was durable before `until`, where all that is found ends at `end`."""
    if until.segment == end.segment:
        return {"segment": end.segment, "offset": end.offset, "size": until.offset - end.offset}
    return {"segment": until.segment, "offset": 0, "size": until.offset}


def _missing_part(
    number: int, size: int, end: Position, belongings: Belongings, sizes: Mapping[int, int]
) -> dict[str, object] | None:
    """What a segment has no more, None when it is as long as it was made."""
    made, newest = belongings.made_size(number), belongings.newest
    if not made:
        made = newest.size if newest is not None and newest.number == number else SEGMENT_HEADER_SIZE
        if number > end.segment:
            # Nothing of it is left, not even its header.
            size = 0
    made = sizes.get(number, made)
    return {"segment": number, "offset": size, "size": made - size} if size < made else None
