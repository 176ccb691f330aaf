"""Datagrams of a multicast stream, as they are read by who cannot trust them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.multicast_by_hand import opened
from veredus.kernel.errors import PeerFault
from veredus.protocols.zeps.datagrams import Datagram, decode_datagram, encode_datagram, head_size_of, sequence_of
from veredus.protocols.zeps.frames import PING, Deliver, encode_deliver

ME = bytes(range(16))


def datagram(*delivers: bytes, following: int = 10) -> bytes:
    return encode_datagram(ME, 3, following, b"prices", delivers)


def test_what_is_written_is_what_is_read_here_and_by_the_page() -> None:
    delivers = [encode_deliver(7, b"k", b"v"), encode_deliver(9, b"", b"w" * 300)]
    octets = datagram(*delivers)
    assert decode_datagram(octets) == Datagram(
        ME, 3, 10, b"prices", [Deliver(7, b"k", b"v"), Deliver(9, b"", b"w" * 300)]
    )
    assert opened(octets)[:4] == decode_datagram(octets)[:4]
    assert [sequence_of(deliver) for deliver in delivers] == [7, 9]
    assert len(octets) == head_size_of(b"prices") + sum(map(len, delivers))


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"VMC1",
        b"VMC2" + datagram()[4:],
        datagram()[:-1],
        datagram(encode_deliver(7, b"k", b"v"))[:-1],
        datagram(PING),
        datagram(b"\xff"),
        datagram(encode_deliver(10, b"k", b"v")),
        datagram(encode_deliver(7, b"", b""), encode_deliver(7, b"", b"")),
        datagram(encode_deliver(8, b"", b""), encode_deliver(7, b"", b"")),
    ],
)
def test_what_is_no_datagram_of_a_stream_is_the_senders_fault(octets: bytes) -> None:
    with pytest.raises(PeerFault):
        decode_datagram(octets)


@given(st.binary(max_size=80), st.binary(max_size=60), st.booleans())
def test_garbage_raises_nothing_else(octets: bytes, rest: bytes, is_headed: bool) -> None:
    with contextlib.suppress(PeerFault):
        decode_datagram(datagram() + rest if is_headed else octets)
