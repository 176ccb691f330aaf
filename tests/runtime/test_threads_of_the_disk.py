"""A thread of the journal's disk that fails in a way that no disk does ends its node, and its clients hear why."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.processes import ended
from veredus.cli.exits import Exit
from veredus.journal.exchange import CreateSegment, DiskEvent, ReadBytes, RemoveSegment, WriteFile, WriteGroup
from veredus.kernel.errors import Unavailable
from veredus.runtime import disk as disks
from veredus.runtime.disk import Disk
from veredus.runtime.lines import LineWriter
from veredus.topics.client import AsyncClient

ORDERS = {
    "writer": WriteGroup(1, 7, 0, [bytes(1 << 20)], is_synced=True),
    "keeper": CreateSegment(1, 7, 1 << 20, bytes(4096)),
    "keeper, files": WriteFile(1, "checkpoint", b""),
    "keeper, removal": RemoveSegment(7),
    "reader": ReadBytes(1, 7, 0, 4096),
}

NODE = """
import sys, threading
from veredus.runtime import disk
written = disk.write_at
def write_at(*arguments):
    if threading.current_thread().name == "veredus-writer":
        raise MemoryError("no room")
    written(*arguments)
disk.write_at = write_at
from veredus.cli import main
main(["serve"])
"""


@pytest.mark.parametrize("thread", ORDERS)
def test_a_thread_that_fails_is_reported_and_the_disk_can_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError("no sum")

    for name in ("read_at", "write_at", "replace_file", "remove_segment", "create_segment"):
        monkeypatch.setattr(disks, name, fail)
    (tmp_path / disks.segment_name(7)).touch()
    posted: SimpleQueue[Sequence[DiskEvent]] = SimpleQueue()
    failed: SimpleQueue[str] = SimpleQueue()
    disk = Disk(tmp_path, posted.put, failed.put)
    disk.carry_out(ORDERS[thread])  # type: ignore[arg-type]
    assert failed.get(timeout=20) == f"the thread veredus-{thread.partition(',')[0]} failed: ArithmeticError('no sum')"
    closing = threading.Thread(target=disk.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    assert posted.empty()


@pytest.mark.parametrize("thread", [thread for thread in ORDERS if thread != "reader"])
def test_a_thread_that_lacks_the_memory_to_write_names_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    for name in ("write_at", "replace_file", "remove_segment", "create_segment"):
        monkeypatch.setattr(disks, name, fail)
    (tmp_path / disks.segment_name(7)).touch()
    failed: SimpleQueue[str] = SimpleQueue()
    disk = Disk(tmp_path, pytest.fail, failed.put)
    disk.carry_out(ORDERS[thread])  # type: ignore[arg-type]
    assert "no memory left (no room): give it more, or let it hold less" in failed.get(timeout=20)
    disk.close()


def test_who_cannot_be_told_for_lack_of_memory_is_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    tries: list[str] = []

    def fail(reason: str) -> None:
        tries.append(reason)
        if len(tries) < 3:
            raise MemoryError
        told.put(reason)

    def post(_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(disks, "TELL_AGAIN_S", 0.01)
    disk = Disk(tmp_path, post, fail)
    disk.carry_out(ORDERS["reader"])  # type: ignore[arg-type]
    assert "veredus-reader failed: this process has no memory left (no room)" in told.get(timeout=20)
    disk.close()


def test_a_node_whose_disk_thread_fails_ends_with_a_line_in_its_log_and_a_code(tmp_path: Path) -> None:
    publish = f"""
import os, subprocess, sys, threading, veredus
node = subprocess.Popen([sys.executable, "-c", {NODE!r}])
far = veredus.connect("unix://{tmp_path}/socket", refused_s=20, timeout_s=20)
threading.Thread(target=far.streams.create, args=("s",), daemon=True).start()
code = node.wait(20)
print("node ended", code, flush=True)
os._exit(0)
"""
    environment = {
        **os.environ, "VEREDUS_NODE_DIRECTORY": f"{tmp_path}/journal", "VEREDUS_LISTEN_UNIX": f"{tmp_path}/socket",
        "VEREDUS_LISTEN_TCP": "", "VEREDUS_LISTEN_ZEROMQ": "", "VEREDUS_LISTEN_METRICS": "",
    }  # fmt: skip
    done = ended([sys.executable, "-c", publish], env=environment)
    assert f"node ended {int(Exit.UNAVAILABLE)}" in done.stdout, done.stderr
    assert "node-failed" in done.stderr
    assert "[journal-failed]" in done.stderr
    assert "no memory left (no room): give it more" in done.stderr


async def _save_without_memory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    async with asyncio.timeout(20):
        client = await AsyncClient("c", proxies=["127.0.0.1:9"], directory=directory, answer_s=0.01).open()

        def fail(*_: object) -> None:
            raise MemoryError("no room")

        monkeypatch.setattr(disks, "write_at", fail)
        monkeypatch.setattr(Disk, "_is_at_once", lambda *_: False)
        try:
            await client.put("t", b"x")
        except Unavailable as error:
            return error.code
        finally:
            monkeypatch.undo()
            with suppress(Unavailable):
                await client.close()
    return ""


def test_a_client_of_topics_whose_disk_thread_fails_hears_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(_save_without_memory(tmp_path, monkeypatch)) == "journal-failed"


class _Lines:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.written.append(line)

    def finish(self) -> None: ...


def test_lines_go_on_behind_what_fails_when_one_is_written() -> None:
    lines = _Lines()
    writer = LineWriter(lines, lambda count, reason: b"lost", "lines")

    def fail() -> None:
        raise MemoryError

    hold = threading.Event()
    told = threading.Event()
    lines.finish = hold.wait  # type: ignore[method-assign, assignment]
    writer.put(b"first\n")
    writer.after(fail)
    writer.after(told.set)
    hold.set()
    assert told.wait(10), "whoever waits for a line is told"
    writer.put(b"second\n")
    assert writer.wait_written(10)
    assert lines.written == [b"first\n", b"second\n"]
    writer.close()
