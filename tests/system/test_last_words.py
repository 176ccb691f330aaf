"""Who is refused hears why, also where it goes on writing: at each listener, over plain connections."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.ears import ATTACH_NATIVE
from tests.processes import free_port
from tests.system.serving import ServedNode

TIMEOUT_S = 10.0
PIECE = bytes(64 << 10)
PIECES = 40
"""More than the systems of both sides take before anybody has read it."""
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(52, b"\0")
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


class Open:
    """A node with each listener for plain connections."""

    def __init__(self, directory: Path) -> None:
        self.zeromq, self.topics, self.unix = free_port(), free_port(), str(directory / "socket")
        settings = {
            "LISTEN_ZEROMQ": f"tcp://127.0.0.1:{self.zeromq}",
            "LISTEN_UNIX": self.unix,
            "TOPICS_LISTEN": f"127.0.0.1:{self.topics}",
        }
        self.served = ServedNode(directory / "journal", settings)
        self.served.start().close()

    def over_tcp(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.served.port), TIMEOUT_S)

    def over_unix(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(TIMEOUT_S)
        connection.connect(self.unix)
        return connection


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    scene = Open(tmp_path_factory.mktemp("open"))
    yield scene
    scene.served.kill()


REFUSED: dict[str, tuple[Callable[[Open], socket.socket], bytes, bytes]] = {
    "ZEPS 1 over TCP": (Open.over_tcp, b"\xaa\xa5\x05" + bytes(8), b"the_first_command_must_be_ATTACH"),
    "ZEPS 1 over Unix": (Open.over_unix, b"\xaa\xa5\x05" + bytes(8), b"the_first_command_must_be_ATTACH"),
    "native over TCP": (Open.over_tcp, ATTACH_NATIVE + bytes(16), b"bad-frame"),
    "native over Unix": (Open.over_unix, ATTACH_NATIVE + bytes(16), b"bad-frame"),
    "ZeroMQ": (
        lambda scene: socket.create_connection(("127.0.0.1", scene.zeromq), TIMEOUT_S),
        GREETING + b"\x04\x05\x05OTHER",
        b"ERROR",
    ),
    "topics": (
        lambda scene: socket.create_connection(("127.0.0.1", scene.topics), TIMEOUT_S),
        GREETING + b"\x04\x05\x05OTHER",
        b"ERROR",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_who_goes_on_writing_while_it_is_refused_can_do_so_and_reads_why(scene: Open, case: str) -> None:
    connect, said, why = REFUSED[case]
    with connect(scene) as connection:
        connection.sendall(said + PIECE)
        heard = b""
        while why not in heard:
            octets = connection.recv(65_536)
            assert octets, heard
            heard += octets
        # Whoever wrote into a connection that was reset would be told so, and perhaps read no more.
        for _ in range(PIECES):
            connection.sendall(PIECE)
        while octets := connection.recv(65_536):
            heard += octets
