"""What a service manager is told is well formed, and not told more often than it helps."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from veredus.runtime.service_manager import PROGRESS_NS, ServiceManager

MIB = 1 << 20


def test_progress_is_told_at_once_and_then_once_a_second_with_all_that_was_read(tmp_path: Path) -> None:
    now_ns = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        manager = ServiceManager(str(tmp_path / "notify"), lambda: now_ns)
        told: list[str] = []
        for number in range(7):
            manager.reading(f"{number}.segment", 128 * MIB)
            now_ns += PROGRESS_NS // 2
            try:
                told.append(listening.recv(4096).decode())
            except BlockingIOError:
                told.append("")
    assert [text.partition("\n")[0] for text in told if text] == [
        "STATUS=recovering: reading 0.segment, 0 MiB read so far",
        "STATUS=recovering: reading 2.segment, 256 MiB read so far",
        "STATUS=recovering: reading 4.segment, 512 MiB read so far",
        "STATUS=recovering: reading 6.segment, 768 MiB read so far",
    ]


def test_a_reason_of_several_lines_stays_one_line_and_cannot_say_more_than_a_status(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(5)
        ServiceManager(str(tmp_path / "notify")).serving({"tcp": "127.0.0.1:7071"}, "bad line\nSTOPPING=1")
        told = listening.recv(4096).decode().split("\n")
    assert told == [
        "READY=1",
        "STATUS=serving: tcp 127.0.0.1:7071; the last reload changed nothing: bad line STOPPING=1",
    ]


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@" + "x" * 300, "@\0", "\udcff"])
def test_nothing_is_raised_whatever_the_address_is(address: str) -> None:
    manager = ServiceManager(address)
    manager.reading("1.segment", 1)
    manager.serving({})
    manager.reloading()
    manager.stopping(1.0)
