"""The codec of ZEPS version 1: its commands, to the letter of the grammar, as whole frames and off a byte stream.

A command is two octets of signature, one that says which it is, and its fields; numbers are big-endian, a string has
one octet of length and a chunk four. The grammar asks for VCHAR in strings. Reasons that we give keep to that; in keys
and patterns any octet is taken and given, since their length says where they end and other listeners accept such keys.

A run of PUBLISH commands that came together is given as one `Publish`: its lists save an object for each publication.
Source: seed 004, "Protocol Specification".
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets
from veredus.protocols.links import NOTHING, Unfinished

SIGNATURE = b"\xaa\xa5"
_FOREIGN = {
    0x16: "this looks like TLS, and the listener expects none",
    ord("G"): "this looks like HTTP",
    0xFF: "this looks like ZeroMQ, which has a listener of its own",
}
"""What a peer speaks that begins like this, where that is known."""
_MUST_START = "a command must start with AA A5, not with"
PROTOCOL = "ZEPS"
VERSION = 1
STRING_SIZE_MAX = 255
HEAD_SIZE = 3
DELIVER_OVERHEAD = HEAD_SIZE + 8 + 1 + 4
"""What a DELIVER takes beside its key and its body, in bytes."""
_ATTACH_HEAD = b"\xaa\xa5\x01"
_PUBLISH_HEAD = b"\xaa\xa5\x06"
_WITH_CHUNK = (_PUBLISH_HEAD, b"\xaa\xa5\x07")
_CHUNK_SIZE = struct.Struct(">I")
_DELIVER_HEAD = struct.Struct(">2sBQB")


class CommandId(IntEnum):
    """The third octet of a command."""

    ATTACH = 1
    ATTACH_OK = 2
    SUBSCRIBE = 3
    SUBSCRIBE_OK = 4
    CREDIT = 5
    PUBLISH = 6
    DELIVER = 7
    PING = 8
    PING_OK = 9
    DETACH = 10
    DETACH_OK = 11
    INVALID = 12


class Attach(NamedTuple):
    """Client opens stream."""

    protocol: bytes
    version: int
    stream: bytes


@dataclass(frozen=True, slots=True)
class AttachOk:
    """Server grants the client access."""


class Subscribe(NamedTuple):
    """Client subscribes to a set of topics; `latest` is the last known sequence."""

    pattern: bytes
    latest: int


@dataclass(frozen=True, slots=True)
class SubscribeOk:
    """Server confirms the subscription."""


class Credit(NamedTuple):
    """Client sends credit to the server, in bytes."""

    credit: int


class Publish(NamedTuple):
    """Client publishes new messages to the open stream: as many keys as bodies, at least one."""

    keys: list[bytes]
    bodies: list[bytes]


class Deliver(NamedTuple):
    """Server delivers a message to the client."""

    sequence: int
    key: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """Client or server sends a heartbeat."""


@dataclass(frozen=True, slots=True)
class PingOk:
    """Client or server answers a heartbeat."""


@dataclass(frozen=True, slots=True)
class Detach:
    """Client closes the peering."""


@dataclass(frozen=True, slots=True)
class DetachOk:
    """Server handshakes the close."""


class Invalid(NamedTuple):
    """Server tells client it sent an invalid message."""

    reason: bytes


Command: TypeAlias = (
    Attach | AttachOk | Subscribe | SubscribeOk | Credit | Publish
    | Deliver | Ping | PingOk | Detach | DetachOk | Invalid
)  # fmt: skip


def name_of(command: Command) -> str:
    """A command as the page writes it."""
    return _ID_OF[type(command)].name.replace("_", "-")


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_attach(stream: str, version: int = VERSION) -> bytes:
    """ATTACH to a stream."""
    return b"".join(
        (SIGNATURE, b"\x01", _string(PROTOCOL.encode()), version.to_bytes(2, "big"), _string(stream.encode()))
    )


def encode_subscribe(pattern: bytes, latest: int) -> bytes:
    """SUBSCRIBE to what the pattern covers behind `latest`."""
    return b"".join((SIGNATURE, b"\x03", _string(pattern), latest.to_bytes(8, "big")))


def encode_credit(credit: int) -> bytes:
    """CREDIT of so many bytes."""
    return b"".join((SIGNATURE, b"\x05", credit.to_bytes(8, "big")))


def encode_publish(key: bytes, body: bytes) -> bytes:
    """PUBLISH of one message."""
    return b"".join((_PUBLISH_HEAD, _string(key), _CHUNK_SIZE.pack(len(body)), body))


def encode_deliver(sequence: int, key: bytes, body: Octets) -> bytes:
    """DELIVER of one message."""
    head = _DELIVER_HEAD.pack(SIGNATURE, CommandId.DELIVER, sequence, len(key))
    return b"".join((head, key, _CHUNK_SIZE.pack(len(body)), body))


def encode_deliver_head(sequence: int, key: bytes, body_size: int) -> bytes:
    """DELIVER of one message up to its body."""
    head = _DELIVER_HEAD.pack(SIGNATURE, CommandId.DELIVER, sequence, len(key))
    return b"".join((head, key, _CHUNK_SIZE.pack(body_size)))


def deliver_sequence(command: bytes) -> int:
    """The sequence that a DELIVER names."""
    return int.from_bytes(command[HEAD_SIZE : HEAD_SIZE + 8], "big")


def encode_invalid(reason: str) -> bytes:
    """INVALID with a reason, as VCHAR: see `_visible`; cut to what a string holds."""
    text = ""
    for character in _visible(reason):
        if len(text) + len(character) > STRING_SIZE_MAX:
            break
        text += character
    return b"".join((SIGNATURE, b"\x0c", _string(text.encode("ascii"))))


def _visible(text: str) -> Iterator[str]:
    """A blank is an underline; underlines, percent signs and what is no VCHAR are percent-encoded, as in a URL."""
    for character in text:
        if character == " ":
            yield "_"
        elif "!" <= character <= "~" and character not in "_%":
            yield character
        else:
            yield "".join(f"%{octet:02X}" for octet in character.encode("utf-8", "replace"))


def _string(text: bytes) -> bytes:
    return bytes((len(text),)) + text


ATTACH_OK = SIGNATURE + b"\x02"
SUBSCRIBE_OK = SIGNATURE + b"\x04"
PING = SIGNATURE + b"\x08"
PING_OK = SIGNATURE + b"\x09"
DETACH = SIGNATURE + b"\x0a"
DETACH_OK = SIGNATURE + b"\x0b"


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Short(Exception):
    """The command goes on behind what is there: at least up to `end`, an offset into the octets."""

    def __init__(self, end: int) -> None:
        self.end = end


class CommandParser:
    """Owns the octets of a command that is not whole yet.

    Invariants
        (1) However the bytes are cut, the same commands come out, runs of PUBLISH apart, and the same fault.
        (2) A claimed chunk size is checked before anything is kept for it; no more is kept than has arrived.
        (3) After a fault nothing more comes out; `fault` says what it was.
    """

    __slots__ = ("_held", "_needed", "fault", "has_more", "size_max")

    def __init__(self, size_max: int) -> None:
        """A parser that takes chunks of at most `size_max` bytes."""
        self.size_max = size_max
        self.fault: PeerFault | None = None
        self.has_more = False
        """Whether it is to be fed once more, if with nothing: it was to give no more commands at once."""
        self._held = bytearray()
        self._needed = 0

    @property
    def waiting_size(self) -> int:
        """Bytes of the command that is not whole yet, and of what is to be given yet."""
        return len(self._held)

    def feed(self, data: Octets, count_max: int = sys.maxsize) -> list[Command]:
        """The commands that these bytes make whole, in order, `count_max` at most; runs of PUBLISH as one."""
        commands: list[Command] = []
        if self.fault is not None:
            return commands
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return commands
            data = self._held
        octets = bytes(data)
        start = self._needed = 0
        try:
            while start < len(octets) and len(commands) < count_max:
                command, start = command_at(octets, start, self.size_max)
                commands.append(command)
        except _Short as short:
            self._needed = short.end - start
        except PeerFault as fault:
            self.fault = fault.bare()
            start = len(octets)
        self._held = bytearray(memoryview(octets)[start:])
        self.has_more = bool(self._held) and not self._needed
        return commands

    @property
    def unfinished(self) -> Unfinished:
        """What there is of a command that is not whole."""
        held_size = len(self._held)
        return Unfinished(held_size, max(held_size, self._needed)) if self._needed else NOTHING


def decode_command(data: Octets, size_max: int) -> Command:
    """The one command that is a whole frame. Raises `PeerFault` when it is less or more than one."""
    octets = bytes(data)
    try:
        command, end = command_at(octets, 0, size_max)
    except _Short:
        raise PeerFault("truncated", "the frame ends within its command") from None
    if end != len(octets) or (isinstance(command, Publish) and len(command.keys) != 1):
        raise PeerFault("bad-frame", "bytes follow the command in its frame")
    return command


def publish_run(said: Sequence[Octets], start: int, size_max: int) -> tuple[Publish, int]:
    """The PUBLISH commands that frames from `start` on are, one each and whole; and the first frame that is none."""
    run = Publish([], [])
    while start < len(said):
        octets = bytes(said[start])
        if not octets.startswith(_PUBLISH_HEAD) or len(octets) < 8:
            break
        key_end = 4 + octets[3]
        size = int.from_bytes(octets[key_end : key_end + 4], "big")
        if key_end + 4 + size != len(octets) or size > size_max:
            break
        run.keys.append(octets[4:key_end])
        run.bodies.append(octets[key_end + 4 :])
        start += 1
    return run, start


def is_attach(frame: Octets) -> bool:
    """Whether a frame is a whole ATTACH, and nothing else."""
    octets = bytes(frame) if bytes(frame[:HEAD_SIZE]) == _ATTACH_HEAD else b""
    try:
        return bool(octets) and _attach(octets, HEAD_SIZE)[1] == len(octets)
    except _Short:
        return False


def first_command(octets: bytes, start: int = 0) -> tuple[Command, int] | None:
    """The command at `start` and where it ends; None when it is not whole yet.

    For greetings: what has a chunk is refused before its chunk has come. Raises `PeerFault`.
    """
    if octets.startswith(_WITH_CHUNK, start):
        raise PeerFault("unexpected", "the first command must be ATTACH")
    spoken = _FOREIGN.get(octets[start]) if start < len(octets) else None
    if spoken is not None:
        raise PeerFault("bad-frame", f"{_MUST_START} {octets[start]:02X}: {spoken}")
    try:
        return command_at(octets, start, 0)
    except _Short:
        return None


def command_at(octets: bytes, start: int, size_max: int) -> tuple[Command, int]:
    """The command at `start`, with all PUBLISH that follow one, and where it ends. Raises `PeerFault`, or `_Short`."""
    if octets.startswith(_PUBLISH_HEAD, start):
        return _publish_at(octets, start, size_max)
    head = octets[start : start + HEAD_SIZE]
    if not head.startswith(SIGNATURE[: len(head)]):
        wrong = head[:1] if head[0] != SIGNATURE[0] else head[:2]
        raise PeerFault("bad-frame", f"{_MUST_START} {wrong.hex(' ').upper()}")
    if len(head) < HEAD_SIZE:
        raise _Short(start + HEAD_SIZE)
    command_id = head[2]
    if command_id == CommandId.DELIVER:
        return _deliver_at(octets, start + HEAD_SIZE, size_max)
    plain = _PLAIN.get(command_id)
    if plain is not None:
        return plain, start + HEAD_SIZE
    read = _READERS.get(command_id)
    if read is None:
        raise PeerFault("bad-frame", f"unknown command {command_id}")
    return read(octets, start + HEAD_SIZE)


def _publish_at(octets: bytes, start: int, size_max: int) -> tuple[Publish, int]:
    keys: list[bytes] = []
    bodies: list[bytes] = []
    end = len(octets)
    try:
        while octets.startswith(_PUBLISH_HEAD, start):
            key_start = start + 4
            if key_start > end:
                raise _Short(key_start)
            key_end = key_start + octets[start + 3]
            body_start = key_end + 4
            if body_start > end:
                raise _Short(body_start)
            stop = body_start + _checked_size(int.from_bytes(octets[key_end:body_start], "big"), size_max)
            if stop > end:
                raise _Short(stop)
            keys.append(octets[key_start:key_end])
            bodies.append(octets[body_start:stop])
            start = stop
    except (_Short, PeerFault):
        if not keys:
            raise
    return Publish(keys, bodies), start


def _checked_size(size: int, size_max: int) -> int:
    if size > size_max:
        raise PeerFault("too-large", f"this listener accepts bodies of at most {size_max} bytes, this one has {size}")
    return size


def _take(octets: bytes, start: int, size: int) -> bytes:
    end = start + size
    if end > len(octets):
        raise _Short(end)
    return octets[start:end]


def _take_number(octets: bytes, start: int, size: int) -> int:
    return int.from_bytes(_take(octets, start, size), "big")


def _take_string(octets: bytes, start: int) -> tuple[bytes, int]:
    size = _take_number(octets, start, 1)
    return _take(octets, start + 1, size), start + 1 + size


def _attach(octets: bytes, start: int) -> tuple[Attach, int]:
    protocol, at = _take_string(octets, start)
    version = _take_number(octets, at, 2)
    stream, end = _take_string(octets, at + 2)
    return Attach(protocol, version, stream), end


def _subscribe(octets: bytes, start: int) -> tuple[Subscribe, int]:
    pattern, at = _take_string(octets, start)
    return Subscribe(pattern, _take_number(octets, at, 8)), at + 8


def _credit(octets: bytes, start: int) -> tuple[Credit, int]:
    return Credit(_take_number(octets, start, 8)), start + 8


def _deliver_at(octets: bytes, start: int, size_max: int) -> tuple[Deliver, int]:
    sequence = _take_number(octets, start, 8)
    key, at = _take_string(octets, start + 8)
    size = _checked_size(_take_number(octets, at, 4), size_max)
    return Deliver(sequence, key, _take(octets, at + 4, size)), at + 4 + size


def _invalid(octets: bytes, start: int) -> tuple[Invalid, int]:
    reason, end = _take_string(octets, start)
    return Invalid(reason), end


_PLAIN: dict[int, Command] = {
    CommandId.ATTACH_OK: AttachOk(),
    CommandId.SUBSCRIBE_OK: SubscribeOk(),
    CommandId.PING: Ping(),
    CommandId.PING_OK: PingOk(),
    CommandId.DETACH: Detach(),
    CommandId.DETACH_OK: DetachOk(),
}
_ID_OF: dict[type, CommandId] = {
    Attach: CommandId.ATTACH,
    AttachOk: CommandId.ATTACH_OK,
    Subscribe: CommandId.SUBSCRIBE,
    SubscribeOk: CommandId.SUBSCRIBE_OK,
    Credit: CommandId.CREDIT,
    Publish: CommandId.PUBLISH,
    Deliver: CommandId.DELIVER,
    Ping: CommandId.PING,
    PingOk: CommandId.PING_OK,
    Detach: CommandId.DETACH,
    DetachOk: CommandId.DETACH_OK,
    Invalid: CommandId.INVALID,
}
_READERS: dict[int, Callable[[bytes, int], tuple[Command, int]]] = {
    CommandId.ATTACH: _attach,
    CommandId.SUBSCRIBE: _subscribe,
    CommandId.CREDIT: _credit,
    CommandId.INVALID: _invalid,
}
