"""What a client takes of what a node says unasked: a broken node, or a hostile one, says it for ever.

Source: docs/reference/wire/native.md.
"""

from __future__ import annotations

from veredus.kernel.errors import PeerFault

from . import messages as m
from . import native
from .native import Frame

MESSAGE_SIZE_MAX = 32 << 20
"""A frame that is neither records nor ranges has at most so many bytes: it becomes objects many times its size."""
UNFED_MAX = 1 << 16
"""So many names of sources and gaps may be said of a channel between two deliveries."""
PONGS_PER_SILENCE = 16
"""So many PINGs are answered in the time after which a silent link is given up, however many come."""


def check_size(frame: Frame) -> None:
    """Raise `PeerFault` for a message that is too large to be made into objects."""
    if frame.size > MESSAGE_SIZE_MAX:
        name = native.name_of(frame.kind)
        raise PeerFault("bad-frame", f"a {name} frame may have {MESSAGE_SIZE_MAX} bytes, this one has {frame.size}")


def unfed_with(unfed: int, message: object, channel: int) -> int:
    """How many names and gaps were said of a channel since its last delivery, with this one. Raises `PeerFault`."""
    unfed += len(message.names) if isinstance(message, m.Sources) else isinstance(message, m.Gap)
    if unfed > UNFED_MAX:
        raise PeerFault("bad-frame", f"more than {UNFED_MAX} names and gaps on channel {channel} between deliveries")
    return unfed
