"""A datagram from a multicast group, which anybody may send: it is whole and in order, or it is a fault."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import main
from veredus.kernel.errors import PeerFault
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.datagrams import decode_datagram, encode_datagram

DELIVERS = [frames.encode_deliver(sequence, b"key", b"body" * sequence) for sequence in range(1, 5)]
SEEDS = (
    encode_datagram(bytes(16), 1, 5, b"prices", DELIVERS),
    encode_datagram(b"i" * 16, 1 << 40, 1, b"s" * 255, []),
    encode_datagram(b"i" * 16, 7, 3, b"", DELIVERS[1:2]),
)


def target(data: bytes) -> None:
    try:
        datagram = decode_datagram(data)
    except PeerFault:
        return
    sequences = [deliver.sequence for deliver in datagram.delivered]
    assert sequences == sorted(set(sequences))
    assert all(sequence < datagram.next for sequence in sequences)
    assert sum(len(deliver.key) + len(deliver.body) for deliver in datagram.delivered) <= len(data)


if __name__ == "__main__":
    main("datagrams", target, SEEDS)
