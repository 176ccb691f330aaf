"""The batch: consecutive publications of one source, as one buffer that its source signs and nobody rewrites.

    0     4       6         7        8       10    12             16           20     24
    | crc | magic | version | layout | flags |  0  | payload_size | token_size | span | stream_id | source_id |
    32      36      40             48               56               64
    | epoch | count | first_number | event_time_min | event_time_max | payload | token |

All numbers little-endian; times in microseconds since the Unix epoch, UTC. `crc` is the CRC-32C of all that follows it.
`stream_id` and `source_id` are what the node announced when the source attached. The payload has one of two layouts
(veredus.delivery.rows for small batches, veredus.delivery.columns for large ones), compressed where the flags say so.
The token is the resume token that closes the batch.

An excerpt is a batch with the EXCERPT flag, signed by the node: some rows of a batch that spanned `span` numbers, with
a column that says which. In a whole batch `span` equals `count`.
Source: docs/internals/DESIGN.md, "Batches".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import NamedTuple

from veredus.kernel.errors import PeerFault
from veredus.kernel.lazily import pa
from veredus.kernel.names import U63_MAX
from veredus.kernel.octets import Octets, crc32c, padding

from .lz4_blocks import SEQUENCES_MAX, lz4_raw_size
from .publication import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from .record import ENVELOPE_SIZE
from .zstd_frames import ZSTD_BLOCKS_MAX, ZSTD_WINDOW_MAX, zstd_frame_size

HEADER_SIZE = 64
BATCH_MAGIC = 0xB47C
BATCH_VERSION = 1
RAW_SIZE_PREFIX = 8
_HEADER = struct.Struct("<IHBBHHIIIIIIIQqq")
_BLANK = bytes(ENVELOPE_SIZE + HEADER_SIZE)
_CRC = struct.Struct("<I")
_RAW_SIZE = struct.Struct("<Q")
_RESERVED = struct.Struct("<H")
_RESERVED_OFFSET = 10


class Layout(IntEnum):
    """How a payload is laid out."""

    ROWS = 0
    COLUMNS = 1


class BatchFlags(IntFlag):
    """Bits 0 and 1 name the codec; unknown bits of the low byte are refused, of the high byte skipped."""

    ZSTD = 1
    LZ4 = 2
    EXCERPT = 4
    PARKED = 8
    """The node itself has written it: dead letters, with where they came from. Nobody can offer such a batch."""


# As plain integers: a flag's complement knows the flags that have names and no others, and each operation on flags
# costs a microsecond.
_EXCERPT = int(BatchFlags.EXCERPT)
_PARKED = int(BatchFlags.PARKED)
_ZSTD = int(BatchFlags.ZSTD)
_LZ4_FLAG = int(BatchFlags.LZ4)
_CODEC_MASK = int(BatchFlags.ZSTD | BatchFlags.LZ4)
_UNKNOWN_REQUIRED = 0xFF & ~(_CODEC_MASK | _EXCERPT | _PARKED)
_LZ4 = "lz4_raw"
_CODECS = {int(BatchFlags.ZSTD): "zstd", int(BatchFlags.LZ4): _LZ4}
CODEC_FLAGS = {None: 0, "zstd": int(BatchFlags.ZSTD), "lz4": int(BatchFlags.LZ4)}
CODEC_SIZE_MIN = 512
"""Payloads below this many bytes are not worth compressing."""
_NAMES = {flag: name for name, flag in CODEC_FLAGS.items() if name}


GROWTH_FACTOR = 64
"""So many times the size that a batch may have its dictionaries may have when they are written out."""


class BatchLimits(NamedTuple):
    """What a node takes; announced when a source attaches. Sizes in bytes."""

    batch_size_max: int = 1 << 20
    """Payload, decompressed, of a batch with more than one publication."""
    body_size_max: int = 16 << 20
    count_max: int = 65_536
    attributes_max: int = 64
    token_size_max: int = 4096

    @property
    def growth_max(self) -> int:
        """What dictionaries of a batch with more than one publication may add once they are written out, as some
        readers must: a word of it may stand in every row.
        """
        return GROWTH_FACTOR * self.batch_size_max

    @property
    def payload_size_max(self) -> int:
        """The largest payload that can be right at all: one body of the largest size, its key and its attributes."""
        return max(self.batch_size_max, self.body_size_max) + (64 << 10)


class BatchHeader(NamedTuple):
    """What the source signed in front of its payload."""

    layout: int
    flags: int
    payload_size: int
    token_size: int
    span: int
    stream_id: int
    source_id: int
    epoch: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed
    first_number: int
    event_time_min_us: int
    event_time_max_us: int

    @property
    def last_number(self) -> int:
        """The number of the last publication that the batch spans."""
        return self.first_number + self.span - 1

    @property
    def size(self) -> int:
        """The whole batch in bytes, without padding."""
        return HEADER_SIZE + self.payload_size + self.token_size

    @property
    def has_dates_only(self) -> bool:
        """Whether all its event times are in the years 1 to 9999."""
        return self.event_time_min_us >= TIMESTAMP_MIN_US and self.event_time_max_us <= TIMESTAMP_MAX_US

    @property
    def is_parked(self) -> bool:
        """Whether the node has written it, of publications that it gave up: what it says of them is true."""
        return self.flags & _PARKED != 0

    @property
    def is_excerpt(self) -> bool:
        """Whether some of its rows were left out by a filter."""
        return self.flags & _EXCERPT != 0


def signed_record(header: BatchHeader, payload: Sequence[Octets], token: Octets = b"") -> bytearray:
    """A record whose envelope is still empty, around a batch of this header: what an OFFER carries.

    `payload` is given as buffers to be joined. The node fills in the envelope in place. `payload_size`, `token_size` of
    `header` are
    taken from the arguments.
    """
    payload_size = sum(map(len, payload))
    tail = padding(payload_size + len(token))
    record = bytearray().join((_BLANK, *payload, token, tail))
    sign_batch(record, header._replace(payload_size=payload_size, token_size=len(token)))
    return record


def sign_batch(record: bytearray, header: BatchHeader) -> None:
    """Write `header` over the batch in `record` and sign it: for a new batch, and for one that a new epoch offers
    again.
    """
    layout, flags, payload_size, token_size, span, stream_id, source_id, epoch, count, first, low, high = header
    _HEADER.pack_into(
        record, ENVELOPE_SIZE, 0, BATCH_MAGIC, BATCH_VERSION, layout, flags, 0,
        payload_size, token_size, span, stream_id, source_id, epoch, count, first, low, high,
    )  # fmt: skip
    end = ENVELOPE_SIZE + header.size
    _CRC.pack_into(record, ENVELOPE_SIZE, crc32c(memoryview(record)[ENVELOPE_SIZE + 4 : end]))


def read_header(batch: Octets) -> BatchHeader:
    """The header of a batch, its sizes agreeing with the bytes that are there. Raises `PeerFault`; the CRC is not
    looked at.
    """
    if len(batch) < HEADER_SIZE:
        raise PeerFault("bad-batch", f"a batch must have at least {HEADER_SIZE} bytes, this one has {len(batch)}")
    _, magic, version, layout, flags, _, payload_size, token_size, *rest = _HEADER.unpack_from(batch, 0)
    if magic != BATCH_MAGIC:
        raise PeerFault("bad-batch", f"not a batch: magic {magic:#06x} instead of {BATCH_MAGIC:#06x}")
    if version != BATCH_VERSION:
        raise PeerFault("bad-batch", f"batch version {version} is not supported, only {BATCH_VERSION}")
    if flags & _UNKNOWN_REQUIRED:
        raise PeerFault("bad-batch", f"batch flags {flags:#06x} have unknown required bits")
    size = HEADER_SIZE + payload_size + token_size
    if size != len(batch):
        raise PeerFault("bad-batch", f"the batch announces {size} bytes and has {len(batch)}")
    return BatchHeader(layout, flags, payload_size, token_size, *rest)


def verify_signature(batch: Octets) -> None:
    """Raise `PeerFault` unless the batch's CRC-32C is right."""
    (crc,) = _CRC.unpack_from(batch, 0)
    if crc32c(memoryview(batch)[4:]) != crc:
        raise PeerFault("bad-crc", "the batch's CRC-32C does not match its bytes")


def check_header(header: BatchHeader, limits: BatchLimits) -> None:
    """Raise `PeerFault` unless an offered batch's header makes sense and keeps the limits."""
    if header.layout not in (Layout.ROWS, Layout.COLUMNS):
        raise PeerFault("bad-batch", f"unknown payload layout {header.layout}")
    if header.flags & _CODEC_MASK == _CODEC_MASK:
        raise PeerFault("bad-batch", "a payload has one codec, but the flags name two")
    if not 1 <= header.count <= limits.count_max:
        raise PeerFault(
            "bad-batch", f"a batch may have 1 to {limits.count_max} publications, this one has {header.count}"
        )
    if header.is_parked:
        raise PeerFault("bad-batch", "an offered batch must not be flagged as parked: the node alone parks")
    if header.is_excerpt or header.span != header.count:
        raise PeerFault("bad-batch", "an offered batch must be complete: its span must equal its count")
    if not header.first_number:
        raise PeerFault("bad-batch", "publications are numbered from 1, this batch starts at 0")
    if header.last_number > U63_MAX:
        raise PeerFault("bad-batch", f"number {header.first_number} is too large")
    if header.event_time_min_us > header.event_time_max_us:
        raise PeerFault("bad-batch", "the smallest event time is above the greatest")
    if not header.has_dates_only:
        raise PeerFault("bad-batch", "an event time is outside the years 1 to 9999")
    if header.token_size > limits.token_size_max:
        raise PeerFault(
            "too-large",
            f"a resume token may have at most {limits.token_size_max} bytes, this one has {header.token_size}",
        )
    size_max = limits.batch_size_max if header.count > 1 else limits.payload_size_max
    if header.payload_size > size_max:
        raise PeerFault(
            "too-large",
            f"a payload of {header.count} publications may have at most {size_max} bytes, this one has"
            f" {header.payload_size}",
        )


def compressed(payload: Octets, codec: str) -> bytes:
    """The payload behind its raw size, compressed by "zstd" or "lz4"."""
    name = _CODECS[CODEC_FLAGS[codec]]
    data = pa.compress(pa.py_buffer(payload), codec=name, asbytes=True)
    return _RAW_SIZE.pack(len(payload)) + bytes(data)


def packed(buffers: Sequence[Octets], codec: str | None) -> tuple[Sequence[Octets], int]:
    """A payload and its flags: compressed by the codec, where there is one and the payload gets smaller by it."""
    size = sum(map(len, buffers))
    if codec is None or size < CODEC_SIZE_MIN:
        return buffers, 0
    data = compressed(b"".join(buffers), codec)
    return ([data], CODEC_FLAGS[codec]) if len(data) < size else (buffers, 0)


def codec_of(header: BatchHeader) -> str | None:
    """By what the payload is compressed: "zstd", "lz4" or None."""
    return _NAMES.get(header.flags & _CODEC_MASK)


def payload_of(batch: Octets, header: BatchHeader, limits: BatchLimits) -> memoryview:
    """The payload, decompressed where it is compressed; a claimed size is checked before memory is allocated for it.

    Raises `PeerFault` when it does not decompress to exactly the size it claims, or claims more than the limits allow.
    """
    stored = memoryview(batch)[HEADER_SIZE : HEADER_SIZE + header.payload_size]
    codec = _CODECS.get(header.flags & _CODEC_MASK)
    if codec is None:
        return stored
    if len(stored) < RAW_SIZE_PREFIX:
        raise PeerFault("bad-batch", "a compressed payload must start with its raw size in 8 bytes")
    (raw_size,) = _RAW_SIZE.unpack_from(stored, 0)
    size_max = limits.batch_size_max if header.count > 1 else limits.payload_size_max
    if not raw_size:
        raise PeerFault("bad-batch", "a compressed payload must claim at least 1 byte decompressed")
    if raw_size > size_max:
        raise PeerFault("too-large", f"the payload claims {raw_size} bytes decompressed, and the limit is {size_max}")
    try:
        raw = pa.decompress(pa.py_buffer(stored[RAW_SIZE_PREFIX:]), decompressed_size=raw_size, codec=codec)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise PeerFault("bad-batch", f"the payload does not decompress: {error}") from None
    if codec == _LZ4 and _fits(stored[RAW_SIZE_PREFIX:], raw_size - 1):
        raise PeerFault("bad-batch", f"the payload claims {raw_size} bytes decompressed and has fewer")
    return memoryview(raw).cast("B")


def check_stored(batch: Octets, header: BatchHeader, payload: Octets) -> None:
    """Raise `PeerFault` unless an offered batch, whose `payload` is that of `payload_of`, is stored as the page has it.

    There are zeros in the reserved bytes of its header. One frame of zstd, not several that some readers join. A block
    of LZ4 that stands for exactly what it claims: the library makes the same of this payload, or its sequences say so.
    """
    (reserved,) = _RESERVED.unpack_from(batch, _RESERVED_OFFSET)
    if reserved:
        raise PeerFault("bad-batch", "the reserved bytes of the header must be zero")
    if header.flags & _ZSTD:
        frames = memoryview(batch)[HEADER_SIZE + RAW_SIZE_PREFIX : HEADER_SIZE + header.payload_size]
        if zstd_frame_size(frames) != len(frames):
            raise PeerFault(
                "bad-batch",
                f"a compressed payload must be one zstd frame, of at most {ZSTD_BLOCKS_MAX} blocks and a window of at"
                f" most {ZSTD_WINDOW_MAX} bytes, and nothing behind it",
            )

    if header.flags & _LZ4_FLAG:
        block = bytes(memoryview(batch)[HEADER_SIZE + RAW_SIZE_PREFIX : HEADER_SIZE + header.payload_size])
        same = pa.compress(pa.py_buffer(payload), codec=_LZ4, asbytes=True)
        if block != same and lz4_raw_size(block) != len(payload):
            raise PeerFault(
                "bad-batch",
                f"the payload claims {len(payload)} bytes decompressed, and its LZ4 block has others, is not sound, or"
                f" has more than {SEQUENCES_MAX} sequences",
            )


def raw_size_of(batch: Octets, header: BatchHeader) -> int:
    """The bytes that the payload claims to have once it is decompressed; 0 for one that is not compressed."""
    if not header.flags & _CODEC_MASK or header.payload_size < RAW_SIZE_PREFIX:
        return 0
    raw_size: int = _RAW_SIZE.unpack_from(batch, HEADER_SIZE)[0]
    return raw_size


def _fits(stored: memoryview, raw_size: int) -> bool:
    """Whether an LZ4 block decompresses to at most `raw_size` bytes.

    Arrow's LZ4 does not say how much it wrote: without this question, memory that nobody wrote would pass for data. It
    costs a second decompression, which zstd, whose frames know their size, does not need.
    """
    try:
        pa.decompress(pa.py_buffer(stored), decompressed_size=raw_size, codec=_LZ4)
    except OSError:
        return False
    return True


def token_of(batch: Octets, header: BatchHeader) -> bytes:
    """The resume token that closes the batch, b"" for none."""
    start = HEADER_SIZE + header.payload_size
    return bytes(memoryview(batch)[start : start + header.token_size])
