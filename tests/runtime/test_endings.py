"""How the other end stands is known without reading, whatever it has said before."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from veredus.runtime.endings import Ending, ending_of


@pytest.fixture(params=["tcp", "unix"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    if request.param == "unix":
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            theirs = socket.create_connection(listening.getsockname())
            ours, _ = listening.accept()
    with ours, theirs:
        yield ours, theirs


def test_who_is_there_has_ended_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    assert ending_of(ours) is Ending.NONE
    theirs.sendall(b"x")
    assert ending_of(ours) is Ending.NONE


def test_who_writes_no_more_looks_like_who_has_hung_up_and_what_was_said_can_be_read(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.sendall(b"x")
    theirs.shutdown(socket.SHUT_WR)
    assert ending_of(ours) is Ending.WRITTEN
    theirs.close()
    assert ending_of(ours) is Ending.WRITTEN
    assert ours.recv(2) == b"x"


def test_a_connection_that_was_reset_is_known_as_that_before_what_was_said_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
        with ours:
            theirs.sendall(b"x")
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            theirs.close()
            assert ending_of(ours) is Ending.RESET
