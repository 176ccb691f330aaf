"""A TRANSFER is refused by its lengths, before anything that it claims to hold is built."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from veredus.delivery.publication import in_dates
from veredus.kernel.errors import PeerFault, Refused
from veredus.protocols.topics.messages import Transfer
from veredus.protocols.topics.transfer import (
    End,
    RowsPart,
    Standing,
    decode_part,
    encode_beyond,
    rows_of,
    staged_record,
)
from veredus.streams.stream import Left

BOMBS = {
    "more rows than a part has": [{}] * 900_000,
    "a list as an attribute": [{"a": [[]] * 900_000}],
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_extension_whose_octets_would_become_a_hundredfold_is_refused_before_that(name: str) -> None:
    beyond = msgspec.msgpack.encode({"type": "rows", "incarnation": b"", "attributes": BOMBS[name]})
    tracemalloc.start()
    with pytest.raises(PeerFault, match="bad-message"):
        decode_part(Transfer("127.0.0.1:9001", "prices", (), (), beyond))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def part_of_one(key: bytes = b"k", event_time_us: int = 0) -> tuple[Transfer, RowsPart]:
    part = RowsPart(bytes(16), [1], [0], [event_time_us], [key], [None], [""], [0], (0, 0))
    transfer = Transfer("127.0.0.1:9001", "prices", (), (("1", b"body"),), encode_beyond(part))
    decoded = decode_part(transfer)
    assert isinstance(decoded, RowsPart)
    return transfer, decoded


@pytest.mark.parametrize("time_us", [(1 << 64) - 1, (1 << 63) - 1, -(1 << 63), 0])
def test_a_row_whose_event_time_no_calendar_has_is_staged_with_the_nearest_one(time_us: int) -> None:
    transfer, part = part_of_one(event_time_us=time_us)
    _, header = staged_record(list(rows_of(part, transfer)), 1, 1)
    assert header.has_dates_only
    assert header.event_time_min_us == header.event_time_max_us == in_dates(time_us)


def test_a_row_whose_key_is_longer_than_any_is_not_taken() -> None:
    part_of_one(b"k" * 255)
    with pytest.raises(PeerFault, match="255 bytes"):
        part_of_one(b"k" * 256)


@pytest.mark.parametrize(
    "part", [End(b"", 1, (0, 0), {"é": Standing(0, 1, 0)}), End(b"", 1, (0, 0), {}, {"x" * 256: {"": Left(1, 0)}})]
)
def test_a_subscriber_that_could_never_ask_is_not_taken(part: End) -> None:
    with pytest.raises(Refused, match="bad-name"):
        decode_part(Transfer("127.0.0.1:9001", "prices", (), (), encode_beyond(part)))
