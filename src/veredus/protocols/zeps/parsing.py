"""Cuts the bytes of a native link into frames.

Source: docs/reference/wire/native.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from veredus.kernel.errors import PeerFault
from veredus.kernel.lazily import np
from veredus.kernel.octets import Octets
from veredus.protocols.links import NOTHING, Unfinished

from .native import (
    HEAD,
    HEAD_SIZE,
    KNOWN_KINDS,
    OPTIONAL_KIND,
    REQUIRED_FLAGS,
    SETTLE_SIZE_MAX,
    SIZES_MAX,
    Frame,
    name_of,
)

READ_SIZE = 256 << 10
"""How much memory is offered to one read, in bytes, unless a larger frame is on its way."""
GROWTH_SIZE_MAX = 1 << 20
"""A frame gets memory for what has arrived of it, twice, and this much more: a claimed size alone buys nothing."""


HeadCheck: TypeAlias = Callable[[int, int, int], None]
"""Raises `PeerFault` for a frame of this kind on this channel that announces this size, and should not."""


class FrameParser:
    """Owns the bytes of a frame that is not whole yet; gives whole frames, uncopied where they lie in one piece.

    Two ways in, not to be mixed: `parse` and `feed` take memory that somebody else has read; `get_buffer` and
    `buffer_updated` offer memory to be read into, cut to the frame that is on its way.

    Invariants
        (1) However the bytes are cut, the same frames come out, and the same fault.
        (2) Memory kept is at most twice what has arrived of one frame, and `GROWTH_SIZE_MAX`.
        (3) After a fault nothing more comes out; `fault` says what it was.
    """

    __slots__ = ("_buffer", "_end", "_held", "_needed", "_start", "check_head", "fault", "size_max")

    def __init__(self, size_max: int) -> None:
        """A parser that takes bodies of at most `size_max` bytes; it may be set anew at any time."""
        self.size_max = size_max
        self.check_head: HeadCheck | None = None
        """Asked about large frames, before there is memory for them."""
        self.fault: PeerFault | None = None
        self._held = bytearray()
        self._needed = HEAD_SIZE
        self._buffer = memoryview(b"")
        self._start = 0
        self._end = 0

    def feed(self, data: Octets) -> list[Frame]:
        """All frames that these bytes make whole."""
        return list(self.parse(data))

    def parse(self, data: Octets) -> Iterator[Frame]:
        """The frames that these bytes make whole, one by one: what the caller changes at one counts for the next."""
        view = data if type(data) is memoryview else memoryview(data)
        start, end = 0, len(view)
        while self.fault is None:
            held = self._held
            if held:
                taken = view[start : start + self._needed - len(held)]
                held += taken
                start += len(taken)
                if len(held) < self._needed:
                    return
                view_of_held = memoryview(held)
                frame = self._cut(view_of_held, 0, len(held))
                if frame is None:
                    view_of_held.release()
                    continue
                self._held = bytearray()
            else:
                frame = self._cut(view, start, end)
                if frame is None:
                    if start < end and self.fault is None:
                        self._held += view[start:]
                    return
                start += HEAD_SIZE + len(frame.memory)
            yield frame

    def _cut(self, view: memoryview, start: int, end: int) -> Frame | None:
        """The frame that begins at `start`, or None: then `_needed` says its size, or `fault` what is wrong with it."""
        if end - start < HEAD_SIZE:
            self._needed = HEAD_SIZE
            return None
        size, kind, flags, channel = HEAD.unpack_from(view, start)
        if (
            size > self.size_max
            or flags & REQUIRED_FLAGS
            or kind not in KNOWN_KINDS
            or (size > SETTLE_SIZE_MAX and (size > SIZES_MAX.get(kind, size) or self.check_head is not None))
        ):
            self.fault = _head_fault(size, kind, flags, self.size_max) or self._fault_of(kind, channel, size)
            if self.fault is not None:
                return None
        self._needed = HEAD_SIZE + ((size + 7) & -8)
        stop = start + self._needed
        if stop > end:
            return None
        return Frame(kind, channel, size, view[start + HEAD_SIZE : stop])

    def _fault_of(self, kind: int, channel: int, size: int) -> PeerFault | None:
        """What whoever owns the link has against a frame of which the head has come."""
        if self.check_head is not None:
            try:
                self.check_head(kind, channel, size)
            except PeerFault as fault:
                return fault
        return None

    @property
    def unfinished(self) -> Unfinished:
        """What `parse` has kept of a frame that is not whole."""
        held_size = len(self._held)
        return Unfinished(held_size, max(held_size, self._needed)) if held_size else NOTHING

    def drop(self) -> None:
        """Forget what there is of a frame that is not whole: nothing more comes out."""
        self._held = bytearray()
        if self.fault is None:
            self.fault = PeerFault("closed", "the link has ended")

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Memory to read into: the rest of the frame that has begun when it is a large one, else room for many."""
        carry_size = self._end - self._start
        room = len(self._buffer) - self._end
        if self._needed > READ_SIZE and carry_size >= HEAD_SIZE:
            is_its_own = self._start == 0 and len(self._buffer) > READ_SIZE
            if self._start + self._needed > len(self._buffer) and not (is_its_own and room):
                self._renew(min(self._needed, 2 * carry_size + GROWTH_SIZE_MAX))
            return self._buffer[self._end : self._start + self._needed]
        if room < READ_SIZE // 4:
            if not len(self._buffer):
                # For a client that lives shortly numpy is a lot to import.
                self._buffer = memoryview(bytearray(READ_SIZE // 2))
            else:
                self._renew(carry_size + READ_SIZE)
        return self._buffer[self._end :]

    def _renew(self, size: int) -> None:
        """Go on in fresh memory: the old one belongs to the frames that were cut from it."""
        carry = self._buffer[self._start : self._end]
        # Not a bytearray: that would be filled with zeros first.
        self._buffer = np.empty(size, np.uint8).data
        self._buffer[: len(carry)] = carry
        self._start, self._end = 0, len(carry)

    def buffer_updated(self, count: int) -> list[Frame]:
        """All frames that are whole now that `count` bytes were read into the buffer."""
        self._end += count
        frames: list[Frame] = []
        while self.fault is None and (frame := self._cut(self._buffer, self._start, self._end)) is not None:
            frames.append(frame)
            self._start += self._needed
        if self._start == self._end:
            self._needed = HEAD_SIZE
        return frames


def _head_fault(size: int, kind: int, flags: int, size_max: int) -> PeerFault | None:
    own_max = SIZES_MAX.get(kind, size_max)
    if size > min(size_max, own_max):
        what = "frame" if size_max <= own_max else f"{name_of(kind)} frame"
        return PeerFault(
            "too-large", f"a {what} may have at most {min(size_max, own_max)} bytes, this one announces {size}"
        )
    if flags & REQUIRED_FLAGS:
        return PeerFault("bad-frame", f"frame flags {flags:#04x} have unknown required bits")
    if kind < OPTIONAL_KIND and kind not in KNOWN_KINDS:
        return PeerFault("bad-frame", f"unknown frame kind {kind:#04x}")
    return None
