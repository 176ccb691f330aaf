"""What the streams floor pushes to a subscription, and what waits of it to be handed out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from veredus.delivery.batch import Layout, read_header
from veredus.delivery.payload import read_columns, read_rows, rows_of
from veredus.delivery.record import records_in
from veredus.kernel.errors import InvariantBroken
from veredus.kernel.octets import Octets

from .transfer import PAGE_SOURCE, put_of


class Message(NamedTuple):
    """One that was pushed."""

    sequence: int
    body: bytes
    freed_size: int
    """Credit that comes free when this one is done with: that of its frame, for the last of a frame."""
    page_number: int = 0
    """Of a message that came from a server from the page: what stands for its id there."""


class Gap(NamedTuple):
    """Messages that are no longer there, and why."""

    sequence: int
    last: int
    code: str


def messages_in(buffers: Sequence[Octets]) -> Iterator[tuple[int, bytes, int]]:
    """The sequences and bodies in what was pushed, and what stands for the id of one that came from a page server."""
    data, end = buffers[0] if len(buffers) == 1 else b"".join(buffers), 0
    for view in records_in(data):
        batch, end = view.body, view.offset + len(view.memory)
        header = read_header(batch)
        rows = read_rows(batch, header) if header.layout == Layout.ROWS else rows_of(read_columns(batch, header))
        places = range(len(rows.keys)) if rows.rows is None else rows.rows
        attributes = rows.attributes or repeat(None)
        for place, body, known in zip(places, rows.bodies, attributes, strict=False):
            client, number = put_of(known) if known else ("", 0)
            yield view.envelope.first_sequence + place, body, number if client.startswith(PAGE_SOURCE) else 0
    if end != len(data):
        raise InvariantBroken(f"what was pushed holds no sound record at {end}")
