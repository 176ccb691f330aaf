"""Answers that say where a whole commit lies: large, and asked for by few bytes. All for one commit share its bytes.

What they share is the end of each, so each has a head of its own, and nothing else is copied or encoded for it. They
come due on many links at once, when the disk has done what is before them: each link tells its own in its turns.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

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


class Owed:
    """Owns what one link is to be told in its turns: answers that share octets, and what is behind them on a channel.

    Few are owed at a time, as `Awaited` bounds what is asked for.
    """

    __slots__ = ("_orders",)

    def __init__(self) -> None:
        """Nothing yet."""
        self._orders: deque[Any] = deque()

    def __bool__(self) -> bool:
        return bool(self._orders)

    def holds(self, order: Any) -> bool:
        """Whether an order of the streams floor waits for a turn of the link; it is obeyed at once otherwise."""
        is_owed = type(order) in _SHARED or any(owed.session == order.session for owed in self._orders)
        if is_owed:
            self._orders.append(order)
        return is_owed

    def take(self) -> object:
        """The first that is owed: it is told now."""
        return self._orders.popleft()

    def clear(self) -> None:
        """The link is over."""
        self._orders.clear()


_SHARED = (x.GrantRun, x.ConfirmCommitted)
