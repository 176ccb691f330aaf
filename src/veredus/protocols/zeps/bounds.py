"""What a client takes of what a node says unasked: a broken node, or a hostile one, says it for ever.

Source: docs/reference/wire/native.md.
"""

from __future__ import annotations

from veredus.kernel.errors import PeerFault

from . import messages as m
from . import native
from .native import Frame

MESSAGE_SIZE_MAX = 32 << 20
"""A frame that is no records has at most so many bytes: it becomes objects many times its size."""
SETTLED_SIZE_MAX = 4 << 20
"""A node says at once what it confirms, and should not take long to: in this there are 262,143 ranges."""
VALUE_COUNT_MAX = 1 << 20
"""So many values may be in a message: an empty list takes one byte there, and a hundred here."""
UNCOUNTED_SIZE = 1 << 16
"""In a message of this size nobody counts them."""
DELIVER_SLACK_SIZE = 2 << 20
"""A DELIVER may hold this much beside the largest record."""
RECORD_SIZE_MAX = 20 << 20
"""A delivery may exceed the credit by one record: what nodes take unless set otherwise, or what this one takes."""
CODE_SIZE_MAX = 255
"""Characters of a code."""
UNFED_MAX = 1 << 16
"""So many names of sources and gaps may be said of a channel between two deliveries."""
PONGS_PER_SILENCE = 16
"""So many PINGs are answered in the time after which a silent link is given up, however many come."""


def check_head(kind: int, size: int, credit: int, record_size_max: int) -> None:
    """Raise `PeerFault` for a frame that is too large, before there is memory for it; `credit` counts for a DELIVER."""
    if kind == native.Kind.DELIVER:
        size_max = max(credit, 0) + max(record_size_max, RECORD_SIZE_MAX)
        if size > size_max:
            said = f"there is credit for {credit} bytes, but the node delivers {size} at once"
            raise PeerFault("over-credit", said)
    elif size > (size_max := SETTLED_SIZE_MAX if kind == native.Kind.SETTLED else MESSAGE_SIZE_MAX):
        raise PeerFault("bad-frame", f"a {native.name_of(kind)} frame may have {size_max} bytes, this one has {size}")


def message_in(frame: Frame) -> m.Message:
    """What a frame says. Raises `PeerFault`, also for what is too much to be made into objects, or cannot be true."""
    check_head(frame.kind, frame.size, 0, 0)
    if frame.size > UNCOUNTED_SIZE and native.has_more_values(frame.body, VALUE_COUNT_MAX):
        name = native.name_of(frame.kind)
        raise PeerFault("bad-frame", f"a {name} frame may have {VALUE_COUNT_MAX} values, this one has more")
    message = native.decode_message(frame)
    if len(getattr(message, "code", "")) > CODE_SIZE_MAX:
        raise PeerFault("bad-frame", f"a code may have {CODE_SIZE_MAX} characters")
    if isinstance(message, m.Gap) and message.first_sequence >= message.next_sequence:
        raise PeerFault("bad-frame", f"a gap from {message.first_sequence} to before {message.next_sequence} is none")
    return message


def unfed_with(unfed: int, message: object, channel: int) -> int:
    """How many names and gaps were said of a channel since its last delivery, with this one. Raises `PeerFault`."""
    unfed += len(message.names) if isinstance(message, m.Sources) else isinstance(message, m.Gap)
    if unfed > UNFED_MAX:
        raise PeerFault("bad-frame", f"more than {UNFED_MAX} names and gaps on channel {channel} between deliveries")
    return unfed
