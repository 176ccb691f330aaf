"""An attacker in a process of its own: strangers that speak without end, and come again when they are let go.

python -m tests.attack.flooding PORT COUNT SECONDS OPENING SAID: on COUNT connections at a time, each says the octets
OPENING, and then SAID again and again, and reads nothing. Where SAID is empty they speak TLS, and change their keys
again and again; and those that have said OPENING ask for as much, and go on though the node has ended the connection
on its side. It prints how many octets were taken from it, and how many connections it had.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.attack.tls_by_hand import SEALED, shake_hands
from tests.processes import Child

ROOT = Path(__file__).parent.parent.parent
CHUNK_SIZE = 1 << 16
UPDATES_COUNT = 50
TIMEOUT_S = 10.0


class Flooder:
    """One connection of the attacker's, and what it has not said yet."""

    def __init__(self, connection: socket.socket, opening: bytes, next_said: Callable[[], bytes]) -> None:
        """It says `opening`, then what `next_said` gives it, as long as there is room."""
        self.socket = connection
        self._rest = memoryview(opening)
        self._next_said = next_said

    def say(self) -> int:
        """Say some of it; how many octets were taken."""
        self._rest = self._rest or memoryview(self._next_said())
        count = self.socket.send(self._rest)
        self._rest = self._rest[count:]
        return count


def plain(port: int, opening: bytes, said: bytes) -> Flooder:
    """A stranger that is connecting."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return Flooder(connection, opening, lambda: said)


def encrypted(port: int, opening: bytes) -> Flooder:
    """A stranger that has shaken hands by TLS."""
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    sealing = shake_hands(connection)
    connection.setblocking(False)
    sealed = sealing.seal(SEALED, opening) if opening else b""
    is_asking = bool(opening)
    return Flooder(connection, sealed, lambda: b"".join(sealing.update(is_asking) for _ in range(UPDATES_COUNT)))


def flood(count: int, seconds: float, come: Callable[[], Flooder], ended: int) -> tuple[int, int]:
    """How many octets were taken by how many connections; `ended` is the event by which one has ended."""
    poll = select.poll()
    flooders: dict[int, Flooder] = {}

    def add() -> None:
        flooder = come()
        flooders[flooder.socket.fileno()] = flooder
        poll.register(flooder.socket, select.POLLOUT | ended)

    for _ in range(count):
        add()
    print("ready", flush=True)
    taken, connection_count = 0, count
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for number, what in poll.poll(50):
            try:
                if what != select.POLLOUT:
                    raise ConnectionResetError
                taken += flooders[number].say()
            except ConnectionError:
                poll.unregister(number)
                flooders.pop(number).socket.close()
                add()
                connection_count += 1
    return taken, connection_count


class Flooded(NamedTuple):
    """What a flood came to."""

    octets: int
    connections: int


@contextmanager
def flooded(port: int, count: int, seconds: float, opening: bytes = b"", said: bytes = b"") -> Iterator[list[Flooded]]:
    """While somebody floods for so long; what it came to is in the list once the block is left."""
    command = [sys.executable, "-m", "tests.attack.flooding", str(port), str(count), str(seconds), opening.hex()]
    told: list[Flooded] = []
    with Child([*command, said.hex()], cwd=ROOT, stdout=subprocess.PIPE, life_s=seconds + 60) as attacker:
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == b"ready\n"
        yield told
        told.append(Flooded(*map(int, attacker.communicate()[0].split())))


if __name__ == "__main__":
    port, count, seconds, *octets = sys.argv[1:]
    opening, said = map(bytes.fromhex, octets)
    much = said * max(1, CHUNK_SIZE // max(1, len(said)))
    come = partial(plain, int(port), opening, much) if said else partial(encrypted, int(port), opening)
    ended = select.POLLHUP if opening and not said else select.POLLRDHUP
    print(*flood(int(count), float(seconds), come, ended))
