"""PLAIN and CURVE, either end, told garbage at each step of the handshake and behind it: nothing raises or is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import main
from veredus.protocols.zmtp.connection import Bounds, Connection
from veredus.protocols.zmtp.curve import CLIENT_RANDOM_SIZE, SERVER_RANDOM_SIZE, CurveClient, CurveServer, KeyPair
from veredus.protocols.zmtp.mechanisms import Local, Mechanism
from veredus.protocols.zmtp.plain import PlainClient, PlainServer

SIZE_MAX = 4096
HANDSHAKE_SIZE_MAX = Bounds(SIZE_MAX).handshake_size_max
ROUTER, DEALER = Local(b"ROUTER"), Local(b"DEALER", b"me")
OWN, OTHERS = KeyPair(b"s" * 32), KeyPair(b"c" * 32)
ENDS: dict[str, tuple[Callable[[], Mechanism], Callable[[], Mechanism]]] = {
    "PLAIN": (lambda: PlainServer(ROUTER), lambda: PlainClient(DEALER, "", "token")),
    "CURVE": (
        lambda: CurveServer(ROUTER, OWN, bytes(range(SERVER_RANDOM_SIZE))),
        lambda: CurveClient(DEALER, OTHERS, OWN.public, bytes(range(CLIENT_RANDOM_SIZE))),
    ),
}
FLIGHTS_MAX = 6


def _end(name: str, is_server: bool) -> Connection:
    mechanism = ENDS[name][0 if is_server else 1]()
    connection = Connection({mechanism.name: mechanism}, Bounds(SIZE_MAX), is_server)
    connection.begin()
    return connection


def _told(connection: Connection, data: bytes) -> None:
    connection.receive(data)
    if connection.asked is not None:
        connection.admit()
    connection.next_messages()


@cache
def _flights(name: str, to_server: bool) -> tuple[bytes, ...]:
    """What one end is told, in a handshake that goes well, and a message behind it."""
    server, client = _end(name, True), _end(name, False)
    said: dict[bool, list[bytes]] = {True: [], False: []}
    for _ in range(FLIGHTS_MAX):
        for hearing, speaking in ((server, client), (client, server)):
            octets = b"".join(map(bytes, speaking.take_outgoing()))
            if octets:
                said[hearing is server].append(octets)
                _told(hearing, octets)
    assert server.fault is client.fault is None
    for hearing, speaking in ((server, client), (client, server)):
        speaking.send([(b"", b"hello" * 20)])
        said[hearing is server].append(b"".join(map(bytes, speaking.take_outgoing())))
    return tuple(said[to_server])


SEEDS = tuple(flight for name in ENDS for to_server in (True, False) for flight in _flights(name, to_server))


def target(data: bytes) -> None:
    for name in ENDS:
        for is_server in (True, False):
            flights = _flights(name, is_server)
            for known in range(len(flights)):
                connection = _end(name, is_server)
                for flight in flights[:known]:
                    _told(connection, flight)
                _told(connection, data)
                assert connection.held_size <= max(SIZE_MAX, HANDSHAKE_SIZE_MAX) + 64
                connection.take_outgoing()
                if connection.fault is not None:
                    _told(connection, flights[known])
                    assert connection.held_size == 0


if __name__ == "__main__":
    main("mechanisms", target, SEEDS)
