"""From where a publishing command goes on: a resume token that says how much of the input is in the stream.

The token is the place in the input behind the last record of its batch, with a checksum of what lies before it, so that
another input under the same source's name is noticed before anything is skipped.
"""

from __future__ import annotations

import io
from typing import BinaryIO

import msgspec

from veredus.kernel.errors import Refused
from veredus.kernel.octets import crc32c

CHECKED_SIZE_MAX = 4096
"""How much of the input before the place is compared."""
_SKIP_SIZE = 1 << 20
_ADVICE = "give the same input to continue, use another --source, or use --no-resume to publish the whole input"


class InputPlace(msgspec.Struct, frozen=True, tag="veredus.cli", tag_field="by"):
    """A place in an input: `offset` bytes lie before it, the last `checked_size` of them with this CRC-32C."""

    offset: int = 0
    checked_size: int = 0
    crc: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(InputPlace).decode


class RememberingInput(io.RawIOBase):
    """Reads from a file, and keeps the last bytes that were read so that the place behind any record can be marked.

    Invariant: what lies between `kept_offset` and the place of reading is kept, and at least `CHECKED_SIZE_MAX` before
    each place that will still be marked.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Reads `file` from where it stands."""
        self._file = file
        self._kept = bytearray()
        self._kept_offset = 0

    def seekable(self) -> bool:
        """Whether the input is a file, which can be read again; a pipe cannot."""
        return self._file.seekable()

    def read1(self, size: int) -> bytes:
        """What is there, at most `size` bytes; b"" at the end."""
        reads_some = getattr(self._file, "read1", self._file.read)
        data: bytes = reads_some(size)
        self._kept += data
        return data

    def token_at(self, offset: int) -> bytes:
        """The resume token for a place that was read already; what lies well before it is forgotten."""
        end = offset - self._kept_offset
        start = max(0, end - CHECKED_SIZE_MAX)
        checked = bytes(self._kept[start:end])
        del self._kept[:start]
        self._kept_offset += start
        return _encode(InputPlace(offset, len(checked), crc32c(checked)))

    def go_to(self, token: bytes) -> int:
        """Skip what a token says is in the stream; the offset from which records are to be read.

        Raises `Refused("other-input")` when this is not the input that the token was made for.
        """
        place = place_of(token)
        if self._file.seekable():
            start = place.offset - place.checked_size
            size = self._file.seek(0, io.SEEK_END)
            self._file.seek(start)
            self._kept_offset = start
            self._kept += self._file.read(place.checked_size)
        else:
            self._skip(place.offset)
            size = self._kept_offset + len(self._kept)
        if size < place.offset:
            said = f"this input has {size} bytes, and the source has already published {place.offset} bytes: {_ADVICE}"
            raise Refused("other-input", said, offset=place.offset)
        found = bytes(self._kept[-place.checked_size :]) if place.checked_size else b""
        read_offset = self._kept_offset + len(self._kept)
        if read_offset != place.offset or len(found) != place.checked_size or crc32c(found) != place.crc:
            raise Refused(
                "other-input",
                f"the source has published {place.offset} bytes of another input: {_ADVICE}",
                offset=place.offset,
            )
        return place.offset

    def _skip(self, offset: int) -> None:
        while self._kept_offset + len(self._kept) < offset:
            missing = offset - self._kept_offset - len(self._kept)
            if not self.read1(min(missing, _SKIP_SIZE)):
                return
            surplus = max(0, len(self._kept) - CHECKED_SIZE_MAX)
            del self._kept[:surplus]
            self._kept_offset += surplus


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
