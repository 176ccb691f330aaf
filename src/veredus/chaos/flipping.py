"""A bit of a journal at rest is flipped: in a sealed segment that the checkpoint stands behind, so that damage costs
what it hits and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from veredus.client.publication import Interest, batches_in
from veredus.client.settling import Settling
from veredus.delivery.record import RecordKind
from veredus.journal.layout import SEGMENT_HEADER_SIZE, decode_segment_header, number_of, salt_of
from veredus.journal.scan import Unsound, walk

from .content import identity_in


class Struck(NamedTuple):
    """What a flip hit: where, and which publications the journal held there, as the node had taken them."""

    where: str
    source: str
    first_number: int
    last_number: int
    first_sequence: int


class _Place(NamedTuple):
    path: Path
    offset: int
    memory: memoryview


def flip(journal: Path, die: Random) -> Struck | None:
    """Flip a bit within a batch of publications; None while no sealed segment holds any."""
    places = [place for path in _sealed(journal) for place in _batches(path)]
    if not places:
        return None
    place = die.choice(places)
    (batch,) = batches_in("", place.memory, 0, {}, lambda _: None, Interest(), Settling())
    publications = list(batch)
    at, bit = place.offset + die.randrange(len(place.memory)), die.randrange(8)
    with place.path.open("r+b") as file:
        file.seek(at)
        (octet,) = file.read(1)
        file.seek(at)
        file.write(bytes([octet ^ 1 << bit]))
    source, first_number = identity_in(publications[0].body)
    _, last_number = identity_in(publications[-1].body)
    where = f"bit {bit} of byte {at} of {place.path.name}"
    return Struck(where, source, first_number, last_number, batch.first_sequence)


def _sealed(journal: Path) -> list[Path]:
    """All but the last two: one that is written to, and one that was made ahead."""
    paths = [path for path in journal.glob("*.segment") if number_of(path.name, ".segment") is not None]
    return sorted(paths)[:-2]


def _batches(path: Path) -> Iterator[_Place]:
    """Where batches lie in a segment, envelope and all."""
    data = memoryview(path.read_bytes())
    header = decode_segment_header(data)
    if header is None:
        return
    for record in walk(data, SEGMENT_HEADER_SIZE, len(data), header.number, salt_of(header.journal_id, header.number)):
        if isinstance(record, Unsound):
            # Nothing lies behind the last group; and where an earlier flip was, nobody knows what lies behind it.
            return
        if record.envelope.kind == RecordKind.BATCH:
            yield _Place(path, record.offset, memoryview(bytes(record.memory)))
