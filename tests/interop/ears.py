"""Peers of each kind that only listen, and answer a heartbeat or do not: sockets, `struct`, and no Veredus."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import zmq

from tests.interop.zeps1_by_hand import string

ATTACH = b"\xaa\xa5\x01" + string(b"ZEPS") + b"\x00\x01" + string(b"long")
ATTACH_NATIVE = b"\xaa\xa5\x01" + string(b"ZEPS") + b"\x00\x02\x00"
ATTACH_OK, PING, PING_OK, DETACH = b"\xaa\xa5\x02", b"\xaa\xa5\x08", b"\xaa\xa5\x09", b"\xaa\xa5\x0a"
INVALID = b"\xaa\xa5\x0c"
SUBSCRIBE, CREDIT = b"\xaa\xa5\x03\x00" + bytes(8), b"\xaa\xa5\x05"
DELIVER = b"\xaa\xa5\x07"
FRAME_SIZE_MAX = 2 << 20
DETACH_OK = b"\xaa\xa5\x0b"
HELLO = b"\x80"
"""An empty map."""
TIMEOUT_S = 10.0


class Ear:
    """One peer that is open; `turn` hears what has come, and answers a heartbeat where it is `lively`."""

    def __init__(self) -> None:
        self.is_lively = True
        self.is_open = True
        self.ping_count = 0
        self.was_detached = False
        self.invalid = b""
        """Why it was ended, as INVALID says it."""

    def turn(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class StreamEar(Ear):
    """Reads a stream of octets, and cuts it with `_take`."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__()
        self._socket = stream
        self._held = b""
        self.size = 0
        """What was read, in bytes."""
        stream.settimeout(TIMEOUT_S)

    def turn(self) -> None:
        if self._read(0.002):
            start = 0
            while size := self._take(self._held[start : start + FRAME_SIZE_MAX]):
                start += size
            self._held = self._held[start:]

    def read(self, size: int) -> None:
        """Read at most so much, and answer nothing of it for now."""
        self._read(0.002, size)

    def has_ended(self) -> bool:
        """Whether the node has closed: to speak once may go unnoticed."""
        for _ in range(3):
            self.ping()
            time.sleep(0.1)
        return not self.is_open

    def ping(self) -> None:
        """Ask for a sign of life."""
        raise NotImplementedError

    def _read(self, timeout_s: float, size: int = 65_536) -> bool:
        self._socket.settimeout(timeout_s)
        try:
            octets = self._socket.recv(size)
        except (TimeoutError, ssl.SSLWantReadError):
            return False
        except OSError:
            octets = b""
        self.is_open = bool(octets)
        self.size += len(octets)
        self._held += octets
        return self.is_open

    def _wait(self, is_there: Callable[[bytes], bool]) -> None:
        end_s = time.monotonic() + TIMEOUT_S
        while not is_there(self._held):
            assert self.is_open, "closed"
            assert time.monotonic() < end_s
            self._read(0.1)

    def say(self, octets: bytes) -> None:
        self._socket.settimeout(TIMEOUT_S)
        try:
            self._socket.sendall(octets)
        except OSError:
            self.is_open = False

    def subscribe(self, credit: int) -> None:
        """Ask for what there is of the stream `long`, up to the credit."""
        raise NotImplementedError

    def _take(self, held: bytes) -> int:
        """Hear what is whole at the start; its size, 0 where nothing is."""
        raise NotImplementedError

    def close(self) -> None:
        self._socket.close()


class Zeps1Ear(StreamEar):
    """Version 1 over a stream."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(stream)
        self.say(ATTACH)
        self._wait(lambda held: held.startswith(ATTACH_OK))

    def subscribe(self, credit: int) -> None:
        self.say(SUBSCRIBE + CREDIT + struct.pack(">Q", credit))

    def ping(self) -> None:
        self.say(PING)

    def _take(self, held: bytes) -> int:
        if held[:3] == DELIVER:
            key_end = 12 + held[11] if len(held) > 11 else len(held)
            (body_size,) = struct.unpack(">L", held[key_end : key_end + 4].rjust(4, b"\xff"))
            end = key_end + 4 + body_size
            return end if end <= len(held) else 0
        if len(held) < 3:
            return 0
        if held[:3] == INVALID:
            end = 4 + held[3] if len(held) > 3 else len(held) + 1
            self.invalid = held[4:end]
            return end if end <= len(held) else 0
        self.was_detached |= held[:3] == DETACH
        if held[:3] == PING:
            self.ping_count += 1
            if self.is_lively:
                self.say(PING_OK)
        return 3


class NativeEar(StreamEar):
    """A native link without channels."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(stream)
        self.say(ATTACH_NATIVE)
        self._wait(lambda held: held.startswith(ATTACH_OK))
        self._held = self._held[3:]
        self._say_frame(0x01, HELLO)
        self._wait(lambda held: held[4:5] == b"\x02")

    def subscribe(self, credit: int) -> None:
        asked = {"stream": "long", "credit": credit}
        self._say_frame(0x20, msgspec.msgpack.encode(asked), channel=1)

    def ping(self) -> None:
        self._say_frame(0x04, b"")

    def _say_frame(self, kind: int, body: bytes, channel: int = 0) -> None:
        self.say(struct.pack("<IBBH", len(body), kind, 0, channel) + body + bytes(-len(body) % 8))

    def _take(self, held: bytes) -> int:
        if len(held) < 8:
            return 0
        size, kind, _, _ = struct.unpack_from("<IBBH", held)
        end = 8 + size + -size % 8
        if len(held) < end:
            return 0
        self.was_detached |= kind == 0x03
        if kind == 0x04:
            self.ping_count += 1
            if self.is_lively:
                self._say_frame(0x05, held[8 : 8 + size])
        return end


class ZmtpEar(StreamEar):
    """A DEALER of ZMTP 3.1 by hand; where it `attaches` it speaks ZEPS 1, and answers the PING of ZMTP in any case."""

    def __init__(self, stream: socket.socket, attaches: bool) -> None:
        super().__init__(stream)
        self._attaches = attaches
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
        self.say(greeting + b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")
        self._wait(lambda held: b"READY" in held and len(held) >= 66 + held[65])
        self._held = self._held[66 + self._held[65] :]
        if attaches:
            self._say_frame(0, ATTACH)
            self._wait(lambda held: ATTACH_OK in held)

    def subscribe(self, credit: int) -> None:
        self._say_frame(0, SUBSCRIBE)
        self._say_frame(0, CREDIT + struct.pack(">Q", credit))

    def ping(self) -> None:
        self._say_frame(4, b"\x04PING\x00\x00")

    def _say_frame(self, flags: int, body: bytes) -> None:
        self.say(bytes([flags, len(body)]) + body)

    def _take(self, held: bytes) -> int:
        if len(held) < 2:
            return 0
        start = 9 if held[0] & 2 else 2
        end = start + int.from_bytes(held[1:start])
        if len(held) < end or len(held) < start:
            return 0
        flags, body = held[0], held[start:end]
        self.was_detached |= body == DETACH
        if flags & 4 and body.startswith(b"\x04PING"):
            self.ping_count += not self._attaches
            if self.is_lively or self._attaches:
                self._say_frame(4, b"\x04PONG" + body[7:])
        elif body == PING:
            self.ping_count += 1
            if self.is_lively:
                self._say_frame(0, PING_OK)
        return end


class LibzmqEar(Ear):
    """A DEALER of libzmq; `options` say by which mechanism it comes."""

    def __init__(self, endpoint: str, options: dict[str, bytes | int] | None = None) -> None:
        super().__init__()
        self.strays: list[bytes] = []
        """What it was handed that no node says of itself."""
        self.attaches_again = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for name, value in {"LINGER": 0, "RECONNECT_IVL": 60_000, "RCVTIMEO": 10_000, **(options or {})}.items():
            self._socket.setsockopt(getattr(zmq, name), value)
        self._gone = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.connect(endpoint)
        self._socket.send(ATTACH)
        assert self._socket.recv() == ATTACH_OK

    def turn(self) -> None:
        if self._gone.poll(0):
            self.is_open = False
        while self._socket.poll(0 if self.is_open else 100):
            said = self._socket.recv()
            self.was_detached |= said == DETACH
            if said == PING:
                self.ping_count += 1
                if self.is_lively:
                    self._socket.send(PING_OK)
            elif said == DETACH or said.startswith(INVALID):
                self.invalid = said[4:]
                if self.attaches_again:
                    self._socket.send(ATTACH)
            else:
                self.strays.append(said)

    def close(self) -> None:
        self._socket.disable_monitor()
        self._gone.close()
        self._socket.close()
        self._context.term()


def over_tcp(address: str, room_size: int = 0) -> socket.socket:
    """Connected; with `room_size`, the system keeps about so much of what is not read yet."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    stream = socket.socket()
    if room_size:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room_size)
    stream.settimeout(TIMEOUT_S)
    stream.connect((host, int(port)))
    return stream


def over_unix(path: str) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    return stream


def over_tls(address: str, authority: Path, room_size: int = 0) -> socket.socket:
    context = ssl.create_default_context(cafile=str(authority))
    return context.wrap_socket(over_tcp(address, room_size), server_hostname="localhost")


def listen(ears: Sequence[Ear], seconds: float) -> None:
    """Let all of them hear what comes for so long."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for ear in ears:
            if ear.is_open:
                ear.turn()
        time.sleep(0.005)
