"""A peer of the native protocol over a socket, which says whatever it likes whenever it likes."""

from __future__ import annotations

import socket
from typing import Any

from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.native import Kind
from veredus.protocols.zeps.parsing import FrameParser

TIMEOUT_S = 20.0


class Peer:
    """One connection to a node, greeted."""

    def __init__(self, port: int, token: str = "") -> None:
        """Connect to `port` of this machine, and say who it is."""
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._socket.sendall(frames.encode_attach("", native.VERSION))
        self._parser = FrameParser(16 << 20)
        self._heard: list[Any] = []
        self._unheard: list[int] = []
        assert self._socket.recv(len(frames.ATTACH_OK), socket.MSG_WAITALL) == frames.ATTACH_OK
        welcome = self.say(0, m.Hello(token=token))
        assert isinstance(welcome, m.Welcome), welcome

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, channel: int, message: m.Message) -> None:
        """Say something, and wait for nothing."""
        self.send_bytes(native.encode_message(channel, message))

    def send_bytes(self, data: bytes) -> None:
        """Say these bytes at once, whatever they are."""
        self._socket.sendall(data)

    def hear(self) -> Any:
        """The next message of the node's."""
        while not self._heard:
            data = self._socket.recv(1 << 16)
            assert data, "the node hung up"
            self._heard += [
                native.decode_message(frame) for frame in self._parser.feed(data) if frame.kind != Kind.PING
            ]
        return self._heard.pop(0)

    def hear_kind(self) -> int:
        """The kind of the next frame of the node's, whatever it says."""
        while not self._unheard:
            data = self._socket.recv(1 << 16)
            assert data, "the node hung up"
            self._unheard += [frame.kind for frame in self._parser.feed(data)]
        return self._unheard.pop(0)

    def say(self, channel: int, message: m.Message) -> Any:
        """Say something; what is said back first."""
        self.send(channel, message)
        return self.hear()

    def ask(self, verb: str, **arguments: object) -> Any:
        """Make a request; its answer."""
        return self.say(0, m.Request(1, verb, arguments))
