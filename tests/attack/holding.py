"""An attacker in a process of its own: it holds connections, opens them again, and says what it was told to say.

python -m tests.attack.holding SOURCE PORT COUNT SECONDS SAID REST ZEROS: from the address SOURCE, COUNT connections at
a time, for so many seconds, each opened again after five; each says the octets SAID, and once it is answered REST and
so many zeros.
"""

from __future__ import annotations

import select
import socket
import sys
import time

PERIOD_S = 5.0
ANSWER_SIZE = 64
"""A welcome is longer, and what comes before it is shorter."""


def connection_to(source: str, port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: more than one address has ports for
    connection.bind((source, 0))
    connection.connect_ex(("127.0.0.1", port))
    return connection


def hold(source: str, port: int, count: int, seconds: float, said: bytes, rest: bytes) -> None:
    """Open `count` connections, and all of them again and again."""
    held: list[socket.socket] = []
    end_s = time.monotonic() + seconds
    print("ready", flush=True)
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        for number in range(count):
            if len(held) > number:
                held[number].close()
                held[number] = connection_to(source, port)
            else:
                held.append(connection_to(source, port))
        poll = select.poll()
        unsaid = {connection.fileno(): (connection, said, rest) for connection in held} if said else {}
        for number in unsaid:
            poll.register(number, select.POLLOUT)
        while time.monotonic() < min(end_s, began_s + PERIOD_S):
            for number, what in poll.poll(50):
                unsaid[number] = go_on(poll, number, what, *unsaid[number])


def go_on(
    poll: select.poll, number: int, what: int, connection: socket.socket, said: bytes, rest: bytes
) -> tuple[socket.socket, bytes, bytes]:
    """Say what is left to say now; the rest once the node has answered."""
    try:
        if what & select.POLLIN and len(connection.recv(4096)) >= ANSWER_SIZE:
            said, rest = rest, b""
        elif said:
            said = said[connection.send(said[: 1 << 20]) :]
    except OSError:
        said = rest = b""
    if said:
        poll.modify(number, select.POLLOUT)
    elif rest:
        poll.modify(number, select.POLLIN)
    else:
        poll.unregister(number)
    return connection, said, rest


if __name__ == "__main__":
    source, port, count, seconds, said, rest, zeros = sys.argv[1:]
    hold(source, int(port), int(count), float(seconds), bytes.fromhex(said), bytes.fromhex(rest) + bytes(int(zeros)))
