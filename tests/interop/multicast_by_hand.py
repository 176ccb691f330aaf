"""A receiver of a multicast stream, written from the page alone: `struct` and sockets, and nothing of Veredus.

What the datagrams lack is asked for over a connection of ZEPS 1. It can lose datagrams on purpose.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

from tests.interop.zeps1_by_hand import Client

TIMEOUT_S = 10.0
ROOM = 1 << 22


class Message(NamedTuple):
    sequence: int
    key: bytes
    body: bytes


class Datagram(NamedTuple):
    """The fields of the page, in its order."""

    incarnation: bytes
    term: int
    next: int
    stream: bytes
    messages: list[Message]


def opened(octets: bytes) -> Datagram:
    """What a datagram holds."""
    assert octets[:4] == b"VMC1", octets[:4]
    incarnation, term, following, size = struct.unpack_from(">16sQQB", octets, 4)
    at = 37 + size
    stream, messages = octets[37:at], []
    while at < len(octets):
        signature, sequence, key_size = struct.unpack_from(">3sQB", octets, at)
        assert signature == b"\xaa\xa5\x07"
        key = octets[at + 12 : at + 12 + key_size]
        (body_size,) = struct.unpack_from(">L", octets, at + 12 + key_size)
        at += 16 + key_size
        messages.append(Message(sequence, key, octets[at : at + body_size]))
        at += body_size
    assert at == len(octets)
    return Datagram(incarnation, term, following, stream, messages)


class Receiver:
    """Gets every message of one stream in order, by datagrams where it can and by a connection where it must."""

    def __init__(self, group: str, port: int, stream: bytes, connect: Callable[[], Client], loss: float = 0.0) -> None:
        self.stream = stream
        self.connect = connect
        self.loss = loss
        self.dice = random.Random(7)
        self.expected = 1
        self.early: dict[int, Message] = {}
        self.lost_count = self.repaired_count = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
        self.socket.bind((group, port))
        joined = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        self.socket.settimeout(TIMEOUT_S)

    def hear(self) -> Datagram:
        """The next datagram of the stream that is not lost."""
        while True:
            datagram = opened(self.socket.recv(1 << 16))
            if datagram.stream != self.stream:
                continue
            if self.dice.random() >= self.loss:
                return datagram
            self.lost_count += 1

    def take(self) -> list[Message]:
        """What follows from the next datagram, in order."""
        datagram = self.hear()
        for message in datagram.messages:
            if message.sequence >= self.expected:
                self.early[message.sequence] = message
        messages = self.ready()
        if self.expected < datagram.next:
            messages += self.repair(datagram.next)
            messages += self.ready()
        return messages

    def ready(self) -> list[Message]:
        messages = []
        while self.expected in self.early:
            messages.append(self.early.pop(self.expected))
            self.expected += 1
        return messages

    def repair(self, following: int) -> list[Message]:
        """Everything from the expected one to before `following`, from the journal."""
        client = self.connect()
        client.attach(self.stream.decode())
        assert client.hear().command == Client.ATTACH_OK
        client.subscribe(b"", self.expected - 1)
        assert client.hear().command == Client.SUBSCRIBE_OK
        client.credit(1 << 40)
        messages = []
        while self.expected < following:
            said = client.hear()
            assert said.command == Client.DELIVER, said
            message = Message(*said.fields)  # type: ignore[arg-type]
            assert message.sequence == self.expected
            self.expected += 1
            self.early.pop(message.sequence, None)
            messages.append(message)
            self.repaired_count += 1
        client.close()
        return messages

    def close(self) -> None:
        self.socket.close()
