"""Messages that are begun and never made whole, by peers that need to prove nothing: what is held of all is bounded."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import zmq

from tests.attack.figures import Figures
from tests.attack.neighbour import resident_size, resident_size_peak
from tests.processes import free_port
from tests.protocols.zmtp.by_hand import OPENING
from tests.system.serving import ServedNode

MIB = 1 << 20
RECEIVE_SIZE_MAX = 40 * MIB
RISE_MAX = 2 * RECEIVE_SIZE_MAX + 16 * MIB
"""What is granted, what those hold who wait, and what the process itself takes."""
MESSAGE_SIZE = MIB - 1024
ANSWER_MS = 20_000
ATTACK = "topics: begun messages that never end"
SECONDS_MAX = 10.0


def begin(port: int, count: int, stack: ExitStack) -> int:
    """Begin so many messages on connections of their own, all but a byte of each; how many bytes were taken in time."""
    said = OPENING + b"\x02" + MESSAGE_SIZE.to_bytes(8, "big") + bytes(MESSAGE_SIZE - 1)
    left = {}
    for _ in range(count):
        held = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        held.setblocking(False)
        left[held] = memoryview(said)
    taken, idle = 0, 0
    end = time.monotonic() + SECONDS_MAX
    while left and idle < 20 and time.monotonic() < end:
        before = taken
        for held, rest in list(left.items()):
            try:
                sent = held.send(rest)
            except BlockingIOError:
                continue
            except ConnectionError:
                sent = len(rest)
            taken += sent
            if sent < len(rest):
                left[held] = rest[sent:]
            else:
                del left[held]
        idle = idle + 1 if taken == before else 0
        time.sleep(0.01)
    return taken


def test_begun_messages_of_many_peers_take_no_more_memory_than_is_set(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    count = 1_000 if is_full else 200
    topics = free_port()
    served = ServedNode(
        served.directory,
        {"TOPICS_LISTEN": f"127.0.0.1:{topics}", "LIMITS_RECEIVE_SIZE_MAX": str(RECEIVE_SIZE_MAX)},
    )
    try:
        served.start().close()
        assert served.process is not None
        before = resident_size(served.process.pid)
        with ExitStack() as stack:
            begin(topics, count, stack)
            context = stack.enter_context(zmq.Context())
            with context.socket(zmq.REQ) as asking:
                asking.linger = 0
                asking.connect(f"tcp://127.0.0.1:{topics}")
                asking.send(b"SUBSCRIBE alice prices\r\n\r\n")
                assert asking.poll(ANSWER_MS), "a small question was kept out"
                assert b"STATUS" in asking.recv()
        rise = resident_size_peak(served.process.pid) - before
    finally:
        served.kill()
    figures.record(ATTACK, "resident memory rose by", rise / MIB, "MiB", f"at most {RISE_MAX // MIB} MiB")
    assert rise < RISE_MAX
