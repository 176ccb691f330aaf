"""From where a publishing command goes on: a resume token that says how much of the input is in the stream.

The token is the place in the input behind the last record of its batch, with a checksum of all that lies before it. So
another input under the same source's name is noticed before anything is skipped, and so is one that was mended.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from veredus.kernel.errors import Refused
from veredus.kernel.octets import crc32c
from veredus.kernel.words import counted

_READ_SIZE = 1 << 20
_ADVICE = "give the same input to continue, use another --source, or use --no-resume to publish the whole input"


class InputPlace(msgspec.Struct, frozen=True, tag="veredus.cli", tag_field="by"):
    """A place in an input: `offset` bytes lie before it, with this CRC-32C."""

    offset: int = 0
    crc: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(InputPlace).decode


class RememberingInput(io.RawIOBase):
    """Reads from a file, and keeps what was read behind the last marked place, so that one behind any record can be.

    Invariant: `_crc` is of all before `_kept_offset`, and what lies from there to the place of reading is kept.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Reads `file` from where it stands."""
        self._file = file
        self._kept = bytearray()
        self._kept_offset = 0
        self._crc = 0
        self._again = bytearray()
        """What is to be read once more."""
        self._has_ended = False

    def seekable(self) -> bool:
        """Whether the input is a file, which can be read again; a pipe cannot."""
        return self._file.seekable()

    def read1(self, size: int) -> bytes:
        """What is there, at most `size` bytes; b"" at the end."""
        data = self._next(size)
        self._kept += data
        return data

    def begin_again(self) -> None:
        """Give once more what was read; the end as well, for that of a terminal is read but once."""
        self._again, self._kept = self._kept, bytearray()

    def _next(self, size: int) -> bytes:
        if self._again:
            data = bytes(self._again[:size])
            del self._again[:size]
        else:
            data = b"" if self._has_ended else self._read(size)
            self._has_ended = not data
        return data

    def _read(self, size: int) -> bytes:
        reads_some = getattr(self._file, "read1", self._file.read)
        data: bytes = reads_some(size)
        return data

    def token_at(self, offset: int) -> bytes:
        """The resume token for a place that was read already, at or behind the last one; forgets what lies before."""
        size = offset - self._kept_offset
        self._crc = crc32c(self._kept[:size], self._crc)
        del self._kept[:size]
        self._kept_offset = offset
        return _encode(InputPlace(offset, self._crc))

    def go_to(self, token: bytes, tell: Callable[[int, int], object] = lambda _, __: None) -> int:
        """Read what a token says is in the stream, and compare it; the offset from which records are to be read.

        `tell` hears how many bytes were compared, and of how many. Raises `Refused("other-input")` when this is not
        the input that the token was made for.
        """
        place = place_of(token)
        offset = crc = 0
        if self._file.seekable():
            self._file.seek(0)
            self._again.clear()
            self._has_ended = False
        while offset < place.offset and (data := self._next(min(place.offset - offset, _READ_SIZE))):
            offset, crc = offset + len(data), crc32c(data, crc)
            tell(offset, place.offset)
        size = counted(place.offset, "byte")
        if offset < place.offset:
            said = f"this input has {counted(offset, 'byte')}, and the source has already published {size}: {_ADVICE}"
            raise Refused("other-input", said, offset=place.offset)
        if crc != place.crc:
            said = f"the source has published {size} of another input: {_ADVICE}"
            raise Refused("other-input", said, offset=place.offset)
        self._kept_offset, self._crc = offset, crc
        return offset


def place_of(token: bytes) -> InputPlace:
    """What a token says; the beginning for none. Raises `Refused("other-input")` for one of another program."""
    if not token:
        return InputPlace()
    try:
        return _decode(token)
    except msgspec.MsgspecError:
        raise Refused(
            "other-input", "the source's resume token was not written by this command: use another --source"
        ) from None
