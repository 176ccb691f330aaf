"""An attacker in a process of its own: it says something and hangs up, again and again, from many addresses.

python -m tests.attack.hanging_up PORT ADDRESSES SECONDS SAID: from the addresses 127.1.0.1 on, in turn and as fast as
it can, each time the octets SAID. It prints how many connections it had.
"""

from __future__ import annotations

import itertools
import sys
import time

from tests.attack.holding import connection_to

OPEN_MAX = 128
"""Connections that are under way at a time."""


def hang_up(port: int, addresses: int, seconds: float, said: bytes) -> int:
    """How many connections it had."""
    print("ready", flush=True)
    end_s = time.monotonic() + seconds
    sources = itertools.cycle([f"127.1.{number // 250}.{number % 250 + 1}" for number in range(addresses)])
    count = 0
    while time.monotonic() < end_s:
        opened = [connection_to(next(sources), port) for _ in range(OPEN_MAX)]
        for connection in opened:
            try:
                connection.setblocking(True)
                connection.settimeout(1)
                connection.sendall(said)
                count += 1
            except OSError:
                # The system's line is full, or the node has let it go already.
                pass
            connection.close()
    return count


if __name__ == "__main__":
    port, addresses, seconds, said = sys.argv[1:]
    print(hang_up(int(port), int(addresses), float(seconds), bytes.fromhex(said)))
