"""Answers that say where a whole commit lies: large, and asked for by few bytes. All for one commit share its bytes.

What they share is the end of each, so each has a head of its own, and nothing else is copied or encoded for it.
"""

from __future__ import annotations

import struct

import msgspec

from veredus.kernel.octets import Octets, padding
from veredus.streams import exchange as x

from . import messages as m
from .native import CHANNEL_MAX, HEAD, Kind

SENT_OCTET_NS = 1
"""What a byte costs that is sent as it is; measured, roughly."""
_BIN_32 = struct.Struct(">BI")


def encode_shared(said: x.GrantRun | x.ConfirmCommitted) -> tuple[Octets, ...]:
    """A RUN_OPENED or a COMMITTED as buffers, one of them the `detail` of what is said."""
    if isinstance(said, x.GrantRun):
        # An empty `detail` takes two bytes, and it comes last.
        fields = msgspec.msgpack.encode(m.RunOpened(said.epoch, said.commit_id, b""))[:-2]
        kind, head = Kind.RUN_OPENED, fields + _BIN_32.pack(0xC6, len(said.detail))
    else:
        # An empty array of streams takes one byte, and it comes last; `detail` is such an array.
        fields = msgspec.msgpack.encode(m.Committed(said.request, said.commit_id, said.is_duplicate, ()))
        kind, head = Kind.COMMITTED, fields[:-1]
    size = len(head) + len(said.detail)
    return HEAD.pack(size, kind, 0, said.session & CHANNEL_MAX) + head, said.detail, padding(size)
