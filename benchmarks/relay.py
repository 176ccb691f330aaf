"""What the loopback interface and the disk allow together: the ceiling over every durable rate of the same run."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Final

import numpy as np

from benchmarks.contender import Effort

BLOCK_SIZE: Final = 512 << 10
FILE_SIZE: Final = 256 << 20
_SIZE_PER_SECOND: Final = 512 << 20
_PROCESSES: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class RawRelay:
    """Bytes from one process through a second, which writes them down, to a third: nothing is framed or checked."""

    name: str = "raw-relay"
    mode: str = (
        "512 KiB blocks over TCP, from a process through a second one to a third, blocking sockets, the same memory "
        "used again and again; the second writes them over a cached file and syncs that in a thread, as fast as it can"
    )
    rounds_max: int = 9
    timeout_s: float = 120.0

    def missing(self) -> str | None:
        """Nothing: sockets and a disk are always there."""
        return None

    def versions(self) -> Mapping[str, str]:
        """None: the machine is described elsewhere."""
        return {}

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """The rate in bytes/s, from the first byte sent until the last was received."""
        count = round(_SIZE_PER_SECOND * effort.seconds) // BLOCK_SIZE
        with socket.create_server(("127.0.0.1", 0)) as door:
            port = door.getsockname()[1]
            ours, theirs = _PROCESSES.Pipe()
            receiver = _PROCESSES.Process(target=_receive, args=(port, count, theirs))
            receiver.start()
            outgoing, _ = door.accept()
            sender = _PROCESSES.Process(target=_send, args=(port, count))
            sender.start()
            incoming, _ = door.accept()
            with incoming, outgoing:
                start_ns = _relay(workdir / "relayed", incoming, outgoing)
            end_ns = ours.recv()
            sender.join()
            receiver.join()
        return {"relayed_bytes_per_s": count * BLOCK_SIZE * 1e9 / (end_ns - start_ns)}


def _send(port: int, count: int) -> None:
    block = np.random.default_rng(0).bytes(BLOCK_SIZE)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(count):
            connection.sendall(block)


def _receive(port: int, count: int, channel: Connection) -> None:
    memory = bytearray(BLOCK_SIZE)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        remaining_size = count * BLOCK_SIZE
        while remaining_size and (size := connection.recv_into(memory)):
            remaining_size -= size
    channel.send(time.perf_counter_ns())


def _relay(file: Path, incoming: socket.socket, outgoing: socket.socket) -> int:
    """Pass everything on; the moment at which the first byte was there."""
    memory = memoryview(bytearray(BLOCK_SIZE))
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for offset in range(0, FILE_SIZE, BLOCK_SIZE):
        os.pwrite(descriptor, memory, offset)
    os.fsync(descriptor)
    is_written, is_over = Event(), Event()
    syncer = Thread(target=_sync, args=(descriptor, is_written, is_over))
    syncer.start()
    start_ns = offset = 0
    while size := incoming.recv_into(memory):
        start_ns = start_ns or time.perf_counter_ns()
        if offset + size > FILE_SIZE:
            offset = 0
        os.pwrite(descriptor, memory[:size], offset)
        offset += size
        is_written.set()
        outgoing.sendall(memory[:size])
    is_over.set()
    is_written.set()
    syncer.join()
    os.close(descriptor)
    file.unlink()
    return start_ns


def _sync(descriptor: int, is_written: Event, is_over: Event) -> None:
    while not is_over.is_set():
        is_written.wait()
        is_written.clear()
        os.fdatasync(descriptor)
