"""A native client written from docs/reference/wire/native.md alone: sockets, `struct`, msgpack, and no Veredus."""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

import msgspec

TIMEOUT_S = 10.0
HEAD = struct.Struct("<IBBH")
ENVELOPE = struct.Struct("<IHBBIIQQ")
HEADER = struct.Struct("<IHBBHHIIIIIIIQqq")
HELLO, WELCOME, GOODBYE, REFUSED, FENCED = 0x01, 0x02, 0x03, 0x08, 0x09
ATTACH_SOURCE, SOURCE_ATTACHED, OFFER, RECEIPT, BATCH_REFUSED = 0x10, 0x11, 0x12, 0x13, 0x14
SUBSCRIBE, SUBSCRIBED, CREDIT, DELIVER, SOURCES = 0x20, 0x21, 0x22, 0x23, 0x24
SETTLE, SETTLED, REQUEST, REPLY = 0x28, 0x29, 0x40, 0x41
MAPS = {
    WELCOME, GOODBYE, REFUSED, FENCED, SOURCE_ATTACHED, BATCH_REFUSED, SUBSCRIBED, SOURCES, REPLY,
}  # fmt: skip


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def record(grant: dict[str, Any], first: int, keys: list[bytes], bodies: list[bytes], token: bytes = b"") -> bytes:
    """A record to offer: blank envelope, header, rows, token."""
    payload = msgspec.msgpack.encode([keys, bodies, None, None, None])
    return record_of(grant, first, len(keys), payload, token)


def record_of(
    grant: dict[str, Any], first: int, count: int, payload: bytes, token: bytes = b"", flags: int = 0
) -> bytes:
    """A record around any payload, soundly signed."""
    header = HEADER.pack(
        0, 0xB47C, 1, 0, flags, 0, len(payload), len(token), count,
        grant["stream_id"], grant["source_id"], grant["epoch"], count, first, 7, 7,
    )  # fmt: skip
    signed = header[4:] + payload + token
    return padded(bytes(32) + crc32c(signed).to_bytes(4, "little") + signed)


class Row(NamedTuple):
    sequence: int
    number: int
    source_id: int
    key: bytes
    body: bytes


def rows_of(records: bytes) -> list[Row]:
    """What pushed records hold, laid out as rows; both checksums are looked at."""
    rows: list[Row] = []
    while records:
        crc, magic, kind, _, size, _, first_sequence, _ = ENVELOPE.unpack_from(records)
        assert (magic, kind) == (0xC0DA, 2)
        assert crc == crc32c(records[4:36])
        batch = records[32 : 32 + size]
        crc, magic, version, layout, _, _, payload_size, _, _, _, source_id, _, count, first_number, _, _ = (
            HEADER.unpack_from(batch)
        )
        assert (magic, version, layout) == (0xB47C, 1, 0)
        assert crc == crc32c(batch[4:])
        keys, bodies, _, _, places = msgspec.msgpack.decode(batch[64 : 64 + payload_size])
        for index in range(count):
            place = index if places is None else places[index]
            rows.append(Row(first_sequence + place, first_number + place, source_id, keys[index], bodies[index]))
        records = records[len(padded(records[: 32 + size])) :]
    return rows


class Client:
    def __init__(self, host: str, port: int, token: str = "") -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_S)
        try:
            self.socket.sendall(b"\xaa\xa5\x01\x04ZEPS\x00\x02\x00")
            assert self.take(3) == b"\xaa\xa5\x02"
            self.say(0, HELLO, msgspec.msgpack.encode({"client": "by hand", "token": token}))
            self.welcome = self.hear(0, WELCOME)
        except BaseException:
            self.close()
            raise

    def take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            piece = self.socket.recv(size - len(taken))
            if not piece:
                raise ConnectionError("the node closed the connection")
            taken += piece
        return taken

    def say(self, channel: int, kind: int, body: bytes) -> None:
        self.socket.sendall(HEAD.pack(len(body), kind, 0, channel) + padded(body))

    def ask(self, channel: int, kind: int, **fields: object) -> None:
        self.say(channel, kind, msgspec.msgpack.encode(fields))

    def hear(self, channel: int, kind: int) -> Any:
        """The next frame, which must be of this kind, on this channel: a map, or its octets."""
        size, heard, _, at = HEAD.unpack(self.take(8))
        body = self.take(size + -size % 8)[:size]
        said = msgspec.msgpack.decode(body) if heard in MAPS else body
        assert (at, heard) == (channel, kind), (at, hex(heard), said if heard in MAPS else body[:64])
        return said

    def close(self) -> None:
        self.socket.close()
