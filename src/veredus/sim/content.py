"""What is published in worlds: everything about a publication follows from who publishes it and its number.

A body says whose it is, so that whoever sees it can tell lost from doubled from foreign; the rest of it is filling
whose length follows from the number, so that two publications are never alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from veredus.delivery.batch import BatchHeader, Layout, read_header, signed_record
from veredus.delivery.payload import read_rows
from veredus.delivery.publication import AttributeValue, Rows
from veredus.delivery.record import ENVELOPE_SIZE, records_in
from veredus.delivery.redriving import PREFIX
from veredus.delivery.rows import encode_rows
from veredus.kernel.octets import Octets, aligned
from veredus.matching import Filter
from veredus.streams.exchange import EVERYTHING

SIZE_MAX = 400
_FILLING = bytes(range(256)) * 3
ANONYMOUS = "anonymous-"
"""What a publisher's name begins with whose publications have no attributes: those of ZEPS 1."""


class Identity(NamedTuple):
    """Whose publication it is: a source and its number, or a sink's attempt and the row's index in it."""

    who: str
    number: int


class Row(NamedTuple):
    """A publication as somebody saw it."""

    identity: Identity
    epoch: int
    key: bytes
    body: bytes
    source_id: int = 0
    origin: int = 0
    """Of a dead letter, its sequence in the stream that it came from."""


@lru_cache(8192)
def key_of(identity: Identity) -> bytes:
    """One of seven keys."""
    return b"k%d.%s" % (identity.number % 7, identity.who.encode())


@lru_cache(8192)
def body_of(identity: Identity) -> bytes:
    """Says whose it is; between 12 and about `SIZE_MAX` bytes long."""
    said = f"{identity.who}|{identity.number}|".encode()
    draw = crc32(said)
    size = draw % SIZE_MAX if draw % 5 == 0 else draw % 24
    start = draw & 0xFF
    return said + _FILLING[start : start + size]


def attributes_of(identity: Identity) -> dict[str, AttributeValue | None]:
    """A number, a truth, and a text that every third publication lacks."""
    number = identity.number
    attributes: dict[str, AttributeValue | None] = {"n": number, "even": number % 2 == 0}
    if number % 3:
        attributes["kind"] = "odd" if number % 2 else "even"
    return attributes


class Taste(NamedTuple):
    """A filter, and what it means said once more in Python."""

    filter: Filter
    wants: Callable[[Identity], bool]


TASTES = (
    Taste(EVERYTHING, lambda _: True),
    Taste(Filter(keys=("prefix:k1.", "literal:k3.source-1")), lambda i: _place(i) == 1 or _is_one_of_three(i)),
    Taste(Filter(where="even"), lambda i: _is_rich(i) and i.number % 2 == 0),
    Taste(Filter(keys=("tokens:k2.*",), where="n > 20"), lambda i: _is_rich(i) and _place(i) == 2 and i.number > 20),
    Taste(
        Filter(where="kind = 'odd' OR n BETWEEN 30 AND 40"),
        lambda i: _is_rich(i) and (_is_odd(i) or 30 <= i.number <= 40),
    ),
)
EVERY_TASTE = TASTES[0]


@lru_cache(256)
def taste_of(wanted: Filter) -> Taste:
    """The taste that a filter expresses: one of `TASTES`, or that of a list of prefixes."""
    for taste in TASTES:
        if taste.filter == wanted:
            return taste
    prefixes = tuple(key.removeprefix("prefix:").encode() for key in wanted.keys)
    return Taste(wanted, lambda i: key_of(i).startswith(prefixes))


def _is_rich(identity: Identity) -> bool:
    return not identity.who.startswith(ANONYMOUS)


def _place(identity: Identity) -> int:
    return identity.number % 7


def _is_one_of_three(identity: Identity) -> bool:
    return identity.who == "source-1" and _place(identity) == 3


def _is_odd(identity: Identity) -> bool:
    return identity.number % 3 != 0 and identity.number % 2 == 1


def rows_of(identities: Sequence[Identity]) -> Rows:
    """These publications as a batch's rows."""
    return Rows(
        [key_of(identity) for identity in identities],
        [body_of(identity) for identity in identities],
        None,
        [{k: v for k, v in attributes_of(identity).items() if v is not None} for identity in identities],
    )


def batch_record(header: BatchHeader, identities: Sequence[Identity], token: bytes = b"") -> bytearray:
    """A signed record around these publications; `header` gives ids, epoch and first number."""
    count = len(identities)
    header = header._replace(layout=int(Layout.ROWS), flags=0, span=count, count=count)
    return signed_record(header, [encode_rows(rows_of(identities))], token)


def seen_rows(buffers: Sequence[Octets]) -> Sequence[tuple[int, Row]]:
    """The sequences and publications in pushed records; the bytes of each are checked. Raises `ValueError`."""
    return _rows_in(b"".join(buffers))


def letters_in(buffers: Sequence[Octets]) -> Iterator[tuple[int, bytes, bytes, dict[str, AttributeValue | None]]]:
    """The sequences, keys, bodies and attributes in pushed records."""
    for view in records_in(b"".join(buffers)):
        header, base = read_header(view.body), view.envelope.first_sequence
        rows = read_rows(view.body, header)
        places = range(header.count) if rows.rows is None else rows.rows
        attributes = rows.attributes or [None] * header.count
        for place, key, body, values in zip(places, rows.keys, rows.bodies, attributes, strict=True):
            yield base + place, key, body, dict(values or {})


@lru_cache(64)
def _rows_in(data: bytes) -> Sequence[tuple[int, Row]]:
    """An oracle and a peer look at the same bytes one after the other."""
    seen: list[tuple[int, Row]] = []
    offset = 0
    while offset < len(data):
        end = offset + aligned(ENVELOPE_SIZE + int.from_bytes(data[offset + 8 : offset + 12], "little"))
        seen += _rows_of_record(data[offset:end])
        offset = end
    return seen


@lru_cache(1024)
def _rows_of_record(data: bytes) -> Sequence[tuple[int, Row]]:
    """The same record goes to many, and to each of them again."""
    view = next(records_in(data), None)
    if view is None or len(view.memory) != len(data):
        raise ValueError(f"{len(data)} bytes of what was pushed are no sound record")
    header, base = read_header(view.body), view.envelope.first_sequence
    rows = read_rows(view.body, header)
    places = range(header.count) if rows.rows is None else rows.rows
    attributes = rows.attributes or [None] * header.count
    seen = []
    for place, key, body, values in zip(places, rows.keys, rows.bodies, attributes, strict=True):
        origin = (values or {}).get(f"{PREFIX}sequence")
        origin = origin if isinstance(origin, int) else 0
        seen.append((base + place, Row(identity_in(body), header.epoch, key, body, header.source_id, origin)))
    return seen


def identity_in(body: bytes) -> Identity:
    """Whose publication this is. Raises `ValueError` when it does not say."""
    who, number, _ = body.split(b"|", 2)
    return Identity(who.decode(), int(number))
