"""A TRANSFER is refused by its lengths, before anything that it claims to hold is built."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from veredus.kernel.errors import PeerFault, Refused
from veredus.protocols.topics.messages import Transfer
from veredus.protocols.topics.transfer import End, Standing, decode_part, encode_beyond
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


@pytest.mark.parametrize(
    "part", [End(b"", 1, (0, 0), {"é": Standing(0, 1, 0)}), End(b"", 1, (0, 0), {}, {"x" * 256: Left(1, 0)})]
)
def test_a_subscriber_that_could_never_ask_is_not_taken(part: End) -> None:
    with pytest.raises(Refused, match="bad-name"):
        decode_part(Transfer("127.0.0.1:9001", "prices", (), (), encode_beyond(part)))
