"""The codec of the native protocol: frames of a little-endian head and a body, padded with zeros to a multiple of 8.

    0           4      5       6         8
    | size u32  | kind | flags | channel | body, `size` bytes | zeros to 8 |

Bodies are msgpack maps (veredus.protocols.zeps.messages) but for these, whose numbers are little-endian u64:
    OFFER     one whole record, its 32-byte envelope blank: room that the node fills in (veredus.delivery.record)
    DELIVER   redelivered_to | whole records
    RECEIPT   one or more of: last_number | first_sequence | u8 is_duplicate | u8 durability | 6 zero bytes
    CREDIT    size
    SETTLE    one or more of: first | last
    HANDED    sequence
    SETTLED   floor | any number of: first | last
    PING PONG up to 64 bytes, which the PONG gives back

Unknown kinds are refused below 128 and skipped from there on; unknown flags are refused in the low half of the octet
and skipped in the high one.
Source: docs/internals/DESIGN.md, "Native protocol"; docs/reference/wire/native.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec

from veredus.delivery.batch import (
    HEADER_SIZE,
    BatchHeader,
    BatchLimits,
    check_header,
    raw_size_of,
    read_header,
    verify_signature,
)
from veredus.delivery.payload import verify_payload
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.kernel.errors import PeerFault, field_fault
from veredus.kernel.octets import Octets, aligned, field_count_of, padding

from . import messages as m

VERSION = 2
HEAD_SIZE = 8
MESSAGE_SIZE_MAX = 1 << 20
"""The largest body of what a client says beside OFFER: an octet of a map can become an object of a hundred."""
COMMIT_SIZE_MAX = 2 << 20
"""Its contents may have a row for each of thousands of streams."""
FIELD_COUNT_MAX = 255
"""The most fields in the map of a frame, those included that are skipped because they are not known."""
SETTLE_COUNT_MAX = 16_384
"""The most ranges in one SETTLE."""
SETTLE_SIZE_MAX = 16 * SETTLE_COUNT_MAX
CHANNEL_MAX = 0xFFFF
OPTIONAL_KIND = 128
"""Unknown kinds from here on are skipped."""
PING_SIZE_MAX = 64
GREETING_SIZE_MAX = 16 << 10
"""The largest frame before the node knows who is there, in bytes."""
HEAD = struct.Struct("<IBBH")
_DELIVER = struct.Struct("<IBBHQ")
_RECEIPT = struct.Struct("<QQBB6x")
_RECEIPT_FRAME = struct.Struct("<IBBHQQBB6x")
_U64 = struct.Struct("<Q")
_SIZES = struct.Struct("<II")
_SIZES_OFFSET = ENVELOPE_SIZE + 12
_FIRST_NUMBER_OFFSET = ENVELOPE_SIZE + 40
REQUIRED_FLAGS = 0x0F


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 0x01
    WELCOME = 0x02
    GOODBYE = 0x03
    PING = 0x04
    PONG = 0x05
    CLOSE_CHANNEL = 0x06
    CHANNEL_CLOSED = 0x07
    REFUSED = 0x08
    FENCED = 0x09
    ATTACH_SOURCE = 0x10
    SOURCE_ATTACHED = 0x11
    OFFER = 0x12
    RECEIPT = 0x13
    BATCH_REFUSED = 0x14
    STORE_TOKEN = 0x15
    SUBSCRIBE = 0x20
    SUBSCRIBED = 0x21
    CREDIT = 0x22
    DELIVER = 0x23
    SOURCES = 0x24
    PROGRESS = 0x25
    GAP = 0x26
    END = 0x27
    SETTLE = 0x28
    SETTLED = 0x29
    CHANGE_FILTER = 0x2A
    FILTER_CHANGED = 0x2B
    HANDED = 0x2C
    RETURN = 0x2D
    RETURNED = 0x2E
    OPEN_RUN = 0x30
    RUN_OPENED = 0x31
    OPEN_STAGE = 0x32
    STAGE_OPENED = 0x33
    COMMIT = 0x34
    COMMITTED = 0x35
    DROP_STAGES = 0x36
    REQUEST = 0x40
    REPLY = 0x41


KNOWN_KINDS = frozenset(int(kind) for kind in Kind)
SIZES_MAX: dict[int, int] = {
    Kind.HELLO: MESSAGE_SIZE_MAX,
    Kind.ATTACH_SOURCE: MESSAGE_SIZE_MAX,
    Kind.STORE_TOKEN: MESSAGE_SIZE_MAX,
    Kind.SUBSCRIBE: MESSAGE_SIZE_MAX,
    Kind.SETTLE: SETTLE_SIZE_MAX,
    Kind.CHANGE_FILTER: MESSAGE_SIZE_MAX,
    Kind.RETURN: MESSAGE_SIZE_MAX,
    Kind.OPEN_RUN: MESSAGE_SIZE_MAX,
    Kind.OPEN_STAGE: MESSAGE_SIZE_MAX,
    Kind.COMMIT: COMMIT_SIZE_MAX,
    Kind.DROP_STAGES: MESSAGE_SIZE_MAX,
    Kind.REQUEST: MESSAGE_SIZE_MAX,
}
"""The largest bodies of the frames that a client alone says, but for OFFER, and of which there is much to make."""


class SessionFault(PeerFault):
    """What a session was asked makes no sense, in a frame that is sound: it ends that session, and not the link."""


class Frame(NamedTuple):
    """One frame; its memory is its own for ever. `memory` is the body with its padding."""

    kind: int
    channel: int
    size: int
    memory: memoryview

    @property
    def body(self) -> memoryview:
        """The body without padding."""
        return self.memory[: self.size]


class Receipt(NamedTuple):
    """What became of the batch that ends at `last_number`; see `ConfirmTaken`."""

    last_number: int
    first_sequence: int
    is_duplicate: bool
    durability: int


# ── writing frames ───────────────────────────────────────────────────────────────────────────────────────────────────


def encode_frame(kind: int, channel: int, body: Octets = b"") -> bytes:
    """A whole frame around a body."""
    size = len(body)
    return b"".join((HEAD.pack(size, kind, 0, channel), body, padding(size)))


def encode_message(channel: int, message: m.Message) -> bytes:
    """A whole control frame; its kind is the message's."""
    return encode_frame(_KIND_OF[type(message)], channel, _encode(message))


def encode_offer(channel: int, record: Octets) -> tuple[bytes, Octets]:
    """An OFFER of a record that `signed_record` made, as two buffers to be sent one behind the other."""
    return HEAD.pack(len(record), Kind.OFFER, 0, channel), record


def encode_deliver(channel: int, redelivered_to: int, size: int) -> bytes:
    """What goes in front of `size` bytes of whole records in a DELIVER."""
    return _DELIVER.pack(8 + size, Kind.DELIVER, 0, channel, redelivered_to)


def encode_receipt(channel: int, last_number: int, first_sequence: int, is_duplicate: bool, durability: int) -> bytes:
    """A RECEIPT of one batch."""
    return _RECEIPT_FRAME.pack(
        _RECEIPT.size, Kind.RECEIPT, 0, channel, last_number, first_sequence, is_duplicate, durability
    )


def encode_receipts(channel: int, receipts: list[Receipt]) -> bytes:
    """A RECEIPT of several batches."""
    return encode_frame(Kind.RECEIPT, channel, b"".join(_RECEIPT.pack(*receipt) for receipt in receipts))


def encode_credit(channel: int, size: int) -> bytes:
    """A CREDIT of `size` more bytes."""
    return encode_frame(Kind.CREDIT, channel, _U64.pack(size))


def encode_handed(channel: int, sequence: int) -> bytes:
    """A HANDED of all up to `sequence`."""
    return encode_frame(Kind.HANDED, channel, _U64.pack(sequence))


def encode_settle(channel: int, ranges: tuple[tuple[int, int], ...]) -> bytes:
    """A SETTLE of these ranges of sequences, both ends inclusive."""
    return encode_frame(Kind.SETTLE, channel, pack_ranges(ranges))


def encode_settles(channel: int, ranges: tuple[tuple[int, int], ...]) -> tuple[bytes, ...]:
    """As many SETTLEs as any number of ranges needs."""
    starts = range(0, len(ranges), SETTLE_COUNT_MAX)
    return tuple(encode_settle(channel, ranges[start : start + SETTLE_COUNT_MAX]) for start in starts)


def encode_settled(channel: int, floor: int, ranges: tuple[tuple[int, int], ...]) -> tuple[bytes, ...]:
    """As many SETTLED as it needs to say: all up to `floor`, and any number of ranges."""
    starts = range(0, max(1, len(ranges)), SETTLE_COUNT_MAX)
    head = _U64.pack(floor)
    parts = [ranges[start : start + SETTLE_COUNT_MAX] for start in starts]
    return tuple(encode_frame(Kind.SETTLED, channel, head + pack_ranges(part)) for part in parts)


def pack_ranges(ranges: tuple[tuple[int, int], ...]) -> bytes:
    """The ranges as SETTLE and SETTLED have them."""
    return struct.pack(f"<{2 * len(ranges)}Q", *chain.from_iterable(ranges))


# ── reading bodies ───────────────────────────────────────────────────────────────────────────────────────────────────


def decode_message(frame: Frame) -> m.Message:
    """What a control frame says. Raises `PeerFault("bad-frame")`; `SessionFault("bad-request")` for a map that says
    something else than such a frame may.
    """
    decode = _DECODERS.get(frame.kind)
    if decode is None:
        raise PeerFault("bad-frame", f"a {name_of(frame.kind)} frame is not a map")
    body = frame.body
    count = field_count_of(body)
    if count > FIELD_COUNT_MAX:
        raise PeerFault(
            "bad-frame",
            f"a {name_of(frame.kind)} frame may have at most {FIELD_COUNT_MAX} fields, this one has {count}",
        )
    try:
        message: m.Message = decode(body)
        names = _decode_names(body) if _MARK in bytes(body) else ()
    except _DECODE_ERRORS as error:
        what = f"a {name_of(frame.kind)} frame does not decode: {field_fault(error)}"
        try:
            _decode_names(body)
        except _DECODE_ERRORS:
            raise PeerFault("bad-frame", what) from None
        raise SessionFault("bad-request", what) from None
    for name in names:
        if name.endswith("!") and name not in _FIELDS[frame.kind]:
            raise PeerFault("bad-frame", f"field {name!r} of a {name_of(frame.kind)} frame is required and unknown")
    return message


def has_more_values(body: memoryview, count_max: int) -> bool:
    """Whether msgpack has more values in it than this, of whatever depth, without making any of them.

    Source: https://github.com/msgpack/msgpack/blob/master/spec.md
    """
    count = at = 0
    end = len(body)
    while at < end:
        count += 1
        if count > count_max:
            return True
        head = body[at]
        if head < 0xC0:
            # A small number, map or list: the head is all of it, and what it holds follows. Else short text.
            at += 1 + (head & 0x1F if head >= 0xA0 else 0)
        elif head in _LENGTHS:
            size, more = _LENGTHS[head]
            at += 1 + size + more + int.from_bytes(body[at + 1 : at + 1 + size], "big")
        else:
            at += _FIXED_SIZES.get(head, 1)
    return False


def is_deeper(value: object, depth_max: int) -> bool:
    """Whether maps and lists lie in one another deeper than this; the keys of maps may be lists, too."""
    level = [value]
    for _ in range(depth_max):
        level = [part for one in level for part in _parts_of(one)]
    return any(isinstance(one, dict | list | tuple) for one in level)


def _parts_of(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return (*value.keys(), *value.values())
    return value if isinstance(value, list | tuple) else ()


def request_of(frame: Frame) -> int:
    """The number of a request that `decode_message` could not read; 0 where it has none."""
    try:
        return int(msgspec.msgpack.decode(_decode_names(frame.body)["request"], type=int))
    except (*_DECODE_ERRORS, KeyError):
        return 0


def decode_offer(frame: Frame, limits: BatchLimits) -> tuple[memoryview, BatchHeader]:
    """The record of an OFFER and its batch's header, verified whole: signature, header, payload, padding.

    Raises `PeerFault`; `SessionFault` where the batch came as it was signed, and is wrong all the same. The record is
    writable and its own: the node fills in its envelope.
    """
    record = frame.memory
    if frame.size % 8 or frame.size < _SIZES_OFFSET + _SIZES.size:
        raise PeerFault("bad-frame", f"an OFFER must have one padded record, this one has {frame.size} bytes")
    payload_size, token_size = _SIZES.unpack_from(record, _SIZES_OFFSET)
    end = ENVELOPE_SIZE + 64 + payload_size + token_size
    if aligned(end) != frame.size or any(record[end:]):
        raise PeerFault(
            "bad-frame",
            f"an OFFER of {frame.size} bytes must have a record of {end} bytes and zeros up to {aligned(end)}",
        )
    batch = record[ENVELOPE_SIZE:end]
    verify_signature(batch)
    try:
        header = read_header(batch)
        check_header(header, limits)
        verify_payload(batch, header, limits)
    except PeerFault as fault:
        raise SessionFault(fault.code, fault.message) from None
    if record.readonly:
        record = memoryview(bytearray(record))
    return record, header


def first_number_of(frame: Frame) -> int:
    """The first number of the batch in an OFFER that `decode_offer` has read and refused."""
    number: int = _U64.unpack_from(frame.memory, _FIRST_NUMBER_OFFSET)[0]
    return number


def raw_size_of_refused(frame: Frame, limits: BatchLimits) -> int:
    """The most bytes to which the batch of an OFFER was decompressed before `decode_offer` raised `SessionFault`."""
    batch = frame.memory[ENVELOPE_SIZE:]
    payload_size, token_size = _SIZES.unpack_from(frame.memory, _SIZES_OFFSET)
    try:
        header = read_header(batch[: HEADER_SIZE + payload_size + token_size])
    except PeerFault:
        return 0
    return min(raw_size_of(batch, header), limits.payload_size_max)


def decode_deliver(frame: Frame) -> tuple[int, memoryview]:
    """The `redelivered_to` of a DELIVER and its records. Raises `PeerFault`."""
    if frame.size < 8 or frame.size % 8:
        raise PeerFault(
            "bad-frame", f"a DELIVER must have a number and padded records, this one has {frame.size} bytes"
        )
    redelivered_to: int = _U64.unpack_from(frame.memory, 0)[0]
    return redelivered_to, frame.memory[8:]


def decode_receipts(frame: Frame) -> list[Receipt]:
    """The receipts of a RECEIPT. Raises `PeerFault`."""
    if not frame.size or frame.size % _RECEIPT.size:
        raise PeerFault(
            "bad-frame", f"a RECEIPT must have receipts of {_RECEIPT.size} bytes, this one has {frame.size}"
        )
    return [
        Receipt(last, sequence, bool(is_duplicate), durability)
        for last, sequence, is_duplicate, durability in _RECEIPT.iter_unpack(frame.memory)
    ]


def decode_credit(frame: Frame) -> int:
    """The size in bytes that a CREDIT grants. Raises `PeerFault`."""
    if frame.size != _U64.size:
        raise PeerFault("bad-frame", f"a CREDIT must have 8 bytes, this one has {frame.size}")
    size: int = _U64.unpack_from(frame.memory, 0)[0]
    return size


def decode_handed(frame: Frame) -> int:
    """The sequence that a HANDED names. Raises `PeerFault`."""
    if frame.size != _U64.size:
        raise PeerFault("bad-frame", f"a HANDED must have 8 bytes, this one has {frame.size}")
    sequence: int = _U64.unpack_from(frame.memory, 0)[0]
    return sequence


def decode_settle(frame: Frame) -> tuple[tuple[int, int], ...]:
    """The ranges of a SETTLE. Raises `PeerFault`."""
    if not frame.size or frame.size % 16:
        raise PeerFault("bad-frame", f"a SETTLE must have pairs of 16 bytes, this one has {frame.size}")
    return _unpack_ranges(frame.memory)


def decode_settled(frame: Frame) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The floor and the ranges of a SETTLED. Raises `PeerFault`."""
    if frame.size % 16 != 8:
        raise PeerFault("bad-frame", f"a SETTLED must have a floor and pairs of 16 bytes, this one has {frame.size}")
    floor: int = _U64.unpack_from(frame.memory, 0)[0]
    return floor, _unpack_ranges(frame.memory[8:])


def check_ping(frame: Frame) -> None:
    """Raise `PeerFault` unless a PING or PONG is as it should be."""
    if frame.size > PING_SIZE_MAX:
        raise PeerFault(
            "bad-frame", f"a {name_of(frame.kind)} may have at most {PING_SIZE_MAX} bytes, this one has {frame.size}"
        )


def _unpack_ranges(memory: memoryview) -> tuple[tuple[int, int], ...]:
    ranges = tuple(_RANGE.iter_unpack(memory))
    for first, last in ranges:
        if first > last:
            raise SessionFault("bad-request", f"{first} to {last} is not a range")
    return ranges


def name_of(kind: int) -> str:
    """A frame kind as people write it."""
    return Kind(kind).name if kind in KNOWN_KINDS else f"{kind:#04x}"


_MARK = b"!"
_LENGTHS = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1), 0xD9: (1, 0), 0xDA: (2, 0),
    0xDB: (4, 0),
}  # fmt: skip
"""Of bytes, extensions and text: the octets of their length, and how many more stand before what is so long."""
_FIXED_SIZES = {
    0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9, 0xD4: 3, 0xD5: 4,
    0xD6: 6, 0xD7: 10, 0xD8: 18, 0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5,
}  # fmt: skip
"""Of numbers, small extensions, and the heads of large lists and maps: their octets."""
_RANGE = struct.Struct("<QQ")
_MESSAGES: dict[Kind, type[m.Message]] = {
    Kind.HELLO: m.Hello,
    Kind.WELCOME: m.Welcome,
    Kind.GOODBYE: m.Goodbye,
    Kind.REFUSED: m.Refusal,
    Kind.FENCED: m.Fencing,
    Kind.ATTACH_SOURCE: m.AttachSource,
    Kind.SOURCE_ATTACHED: m.SourceAttached,
    Kind.BATCH_REFUSED: m.BatchRefused,
    Kind.STORE_TOKEN: m.StoreToken,
    Kind.SUBSCRIBE: m.Subscribe,
    Kind.SUBSCRIBED: m.Subscribed,
    Kind.SOURCES: m.Sources,
    Kind.PROGRESS: m.Progress,
    Kind.GAP: m.Gap,
    Kind.END: m.End,
    Kind.CHANGE_FILTER: m.ChangeFilter,
    Kind.FILTER_CHANGED: m.FilterChanged,
    Kind.RETURN: m.Return,
    Kind.RETURNED: m.Returned,
    Kind.OPEN_RUN: m.OpenRun,
    Kind.RUN_OPENED: m.RunOpened,
    Kind.OPEN_STAGE: m.OpenStage,
    Kind.STAGE_OPENED: m.StageOpened,
    Kind.COMMIT: m.Commit,
    Kind.COMMITTED: m.Committed,
    Kind.DROP_STAGES: m.DropStages,
    Kind.REQUEST: m.Request,
    Kind.REPLY: m.Reply,
}
_M = TypeVar("_M", bound=m.Message)


def _decoder_of(kind: type[_M]) -> Callable[[Octets], _M]:
    return msgspec.msgpack.Decoder(kind).decode


_encode = msgspec.msgpack.Encoder().encode
_decode_names = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_KIND_OF: dict[type[m.Message], Kind] = {message: kind for kind, message in _MESSAGES.items()}
_DECODERS: dict[int, Callable[[Octets], Any]] = {int(k): _decoder_of(message) for k, message in _MESSAGES.items()}
_FIELDS = {int(kind): frozenset(message.__struct_encode_fields__) for kind, message in _MESSAGES.items()}
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, TypeError)
