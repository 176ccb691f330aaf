"""Large payloads that were decompressed for clients of version 1: each is in memory once, for all links that have it.

    stored ──► nobody has it decompressed ──► decompressed ──► held by all that are sent it, until it is written to each
        └────► somebody has ──► the same memory

Nothing is held here, so that nothing is to be bounded here: who has a record open counts it (`Undelivered`), and what
waits to be written counts once for all links (`veredus.node.sending`).

A payload is known by a digest of what is stored, and not by where that lies: what is read from the journal lies
elsewhere for each reader, memory is used again, and nobody can make two payloads that have one digest.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from veredus.delivery.batch import HEADER_SIZE, BatchHeader, codec_of, raw_size_of
from veredus.delivery.payload import read_payload

from .prices import RAW_OCTET_NS

if TYPE_CHECKING:
    import pyarrow as pa

SHARED_SIZE_MIN = 64 << 10
"""What is smaller is not shared: to find it would cost more than to have it once more."""


class Payloads:
    """Knows what was decompressed and is in memory still, over all links of a node."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        """Nothing was decompressed."""
        self._held: WeakValueDictionary[tuple[str, bytes], pa.Buffer] = WeakValueDictionary()
        """By codec and digest the memory, which a view of any part of it keeps."""

    def __len__(self) -> int:
        return len(self._held)

    def read(self, batch: memoryview, header: BatchHeader) -> tuple[memoryview, int]:
        """A batch's payload, decompressed, and what that has cost, in nanoseconds. Raises `PeerFault`."""
        codec = codec_of(header)
        if codec is None or raw_size_of(batch, header) < SHARED_SIZE_MIN:
            payload = read_payload(batch, header)
            return payload, RAW_OCTET_NS * len(payload)
        name = codec, sha256(batch[HEADER_SIZE : HEADER_SIZE + header.payload_size]).digest()
        cost_ns = RAW_OCTET_NS * header.payload_size
        held = self._held.get(name)
        if held is not None:
            return memoryview(held).cast("B"), cost_ns
        payload = read_payload(batch, header)
        self._held[name] = payload.obj
        return payload, cost_ns + RAW_OCTET_NS * len(payload)
