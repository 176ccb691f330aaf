"""An attacker in a process of its own, who has proved who it is: it asks a listener of topics without a pause.

python -m tests.attack.flooding_topics ADDRESS TOKEN CONNECTIONS SIZE SECONDS READS: on so many connections, each as a
client of its own, PUT after PUT with a body of SIZE bytes; with READS 0 it never reads an answer. It prints how many
answers it read, and how many of them were SERVER_UNAVAILABLE.
"""

from __future__ import annotations

import sys
import time

import zmq


def flood(address: str, token: str, count: int, size: int, seconds: float, reads: bool) -> None:
    """Ask as fast as the sockets take it."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = []
    for _ in range(count):
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.setsockopt(zmq.PLAIN_USERNAME, b"anybody")
        socket.setsockopt(zmq.PLAIN_PASSWORD, token.encode())
        socket.connect(f"tcp://{address}")
        sockets.append(socket)
    # As clients do, so that whoever comes again puts something new.
    body, counter, answered, refused = bytes(size), time.time_ns() // 1000, 0, 0
    end_s = time.monotonic() + seconds
    print("ready", flush=True)
    while time.monotonic() < end_s:
        counter += 1
        is_idle = True
        for number, socket in enumerate(sockets):
            question = f"PUT greedy-{number} flooded-{number} {counter}\r\n\r\n".encode() + body
            try:
                socket.send_multipart((b"", question), zmq.NOBLOCK)
                is_idle = False
            except zmq.Again:
                pass
            while reads:
                try:
                    said = socket.recv_multipart(zmq.NOBLOCK)[-1]
                except zmq.Again:
                    break
                is_idle = False
                answered += 1
                refused += b" SERVER_UNAVAILABLE" in said[:200]
        if is_idle:
            time.sleep(0.001)
    print(answered, refused, flush=True)
    context.destroy(linger=0)


if __name__ == "__main__":
    address, token, count, size, seconds, reads = sys.argv[1:]
    flood(address, token, int(count), int(size), float(seconds), reads == "1")
