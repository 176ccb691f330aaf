"""Messages that are begun and never made whole, by peers that need to prove nothing: what is held of all is bounded."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.attack.asking import asked
from tests.attack.figures import Figures
from tests.attack.neighbour import resident_size, resident_size_peak
from tests.processes import free_port
from tests.protocols.zmtp.by_hand import OPENING
from tests.system.serving import ServedNode
from tests.system.serving_topics import QUICK, ServedProxy

MIB = 1 << 20
RECEIVE_SIZE_MAX = 40 * MIB
RISE_MAX = 2 * RECEIVE_SIZE_MAX + 16 * MIB
"""What is granted, what those hold who wait, and what the process itself takes."""
MESSAGE_SIZE = MIB - 1024
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


@contextmanager
def served_at(place: str, directory: Path) -> Iterator[tuple[str, int]]:
    """The address of a listener of topics, and the number of its process."""
    size_max = str(RECEIVE_SIZE_MAX)
    if place == "proxy":
        proxy = ServedProxy(directory, *QUICK, "--set", f"limits.receive_size_max={size_max}")
        try:
            proxy.start()
            assert proxy.process is not None
            yield proxy.address, proxy.process.pid
        finally:
            proxy.end()
        return
    address = f"127.0.0.1:{free_port()}"
    served = ServedNode(directory / "journal", {"TOPICS_LISTEN": address, "LIMITS_RECEIVE_SIZE_MAX": size_max})
    try:
        served.start().close()
        assert served.process is not None
        yield address, served.process.pid
    finally:
        served.kill()


@pytest.mark.parametrize("place", ["server", "proxy"])
def test_begun_messages_of_many_peers_take_no_more_memory_than_is_set(
    place: str, tmp_path: Path, figures: Figures, is_full: bool
) -> None:
    count = 1_000 if is_full else 200
    with served_at(place, tmp_path) as (address, pid):
        before = resident_size(pid)
        with ExitStack() as stack:
            begin(int(address.rpartition(":")[2]), count, stack)
            assert b"STATUS" in asked(address)
        rise = resident_size_peak(pid) - before
    attack = figures.attack(f"topics: begun messages that never end, at a {place}", f"{count:,} connections")
    attack.record("growth", rise / MIB, "MiB", f"at most {RISE_MAX // MIB} MiB")
    assert rise < RISE_MAX
