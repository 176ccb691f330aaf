"""A node that stops comes to an end: whatever its peers, its disk and its senders of signals do."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.interop import native_by_hand as hand
from tests.interop.native_by_hand import Client
from tests.processes import ended, free_port
from tests.system.serving import ServedNode
from veredus.cli.exits import Exit
from veredus.kernel.errors import Refused
from veredus.runtime.directory import open_directory

pytestmark = [pytest.mark.slow, pytest.mark.attack]

MIB = 1 << 20
EMBEDDED = """
import pathlib, sys, veredus
node = veredus.embedded(sys.argv[1])
publisher = node.publisher("s", source="p")
publisher.wait(publisher.publish("k", b"1"))
pathlib.Path(sys.argv[2]).write_text("sync")
try:
    publisher.wait(publisher.publish("k", b"2"), timeout_s=1)
except veredus.Unavailable as error:
    print(error.code)
try:
    node.close()
except veredus.Unavailable as error:
    print(error.code)
"""


def test_a_second_signal_waits_for_no_peer_any_more(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal", {"NODE_DRAIN_TIMEOUT": "10m"})
    try:
        with served.start() as node, node.publisher("s", source="p") as publisher:
            publisher.publish_many([b"k"] * 64, [bytes(MIB)] * 64)
        assert served.process is not None
        lingering = Client("127.0.0.1", served.port)
        lingering.ask(1, hand.SUBSCRIBE, stream="s", credit=1 << 40)
        lingering.hear(1, hand.SUBSCRIBED)
        lingering.hear(1, hand.SOURCES)  # much is on its way to it, and it reads no more
        served.process.send_signal(signal.SIGTERM)
        while served.process.poll() is None:
            # What comes right behind a signal counts as the same one.
            time.sleep(0.3)
            served.process.send_signal(signal.SIGTERM)
        lingering.close()
        assert served.process.returncode == 0
        assert "node-stopped" in served.said()
        served.start().close()
        assert '"was_clean":true' in served.said().splitlines()[-1]
    finally:
        served.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it takes Linux to make a disk fail from outside")
def test_an_embedded_node_whose_disk_has_failed_can_be_closed_and_says_why(tmp_path: Path, failing_disk: Path) -> None:
    switch = tmp_path / "switch"
    environment = {**os.environ, "LD_PRELOAD": str(failing_disk), "FAILING_DISK": str(switch)}
    arguments = [sys.executable, "-c", EMBEDDED, str(tmp_path / "journal"), str(switch)]
    closed = ended(arguments, life_s=30, env=environment)
    assert (closed.returncode, closed.stdout.split()) == (0, ["in-doubt", "journal-failed"]), closed.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_a_node_starts_ends_it_and_the_next_start_serves(tmp_path: Path, number: int) -> None:
    port = free_port()
    for delay_s in (0.2, 0.3, 0.4, 0.5):
        served = ServedNode(tmp_path / "journal", {"LISTEN_TCP": f"127.0.0.1:{port}"})
        process = served.spawn()
        time.sleep(delay_s)
        process.send_signal(number)
        assert process.wait(20) != -signal.SIGKILL
    served = ServedNode(tmp_path / "journal")
    try:
        served.start().close()
    finally:
        served.kill()


def test_a_node_whose_last_checkpoint_cannot_be_written_ends_with_a_code_and_keeps_all(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal")
    try:
        with served.start() as node, node.publisher("s", source="p") as publisher:
            publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
        # Where the checkpoint is made there is something in its way.
        obstacle = served.directory / "checkpoint.tmp"
        obstacle.mkdir()
        assert served.stop() == Exit.UNAVAILABLE
        assert "[checkpoint-failed]" in served.said()
        assert "node-stopped" not in served.said()
        obstacle.rmdir()
        with served.start() as node, node.subscribe("s", until=2) as subscription:
            assert [publication.body for publication in subscription] == [b"1"]
    finally:
        served.kill()


def test_a_node_whose_directory_is_removed_under_load_ends_with_a_code(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal")
    try:
        with served.start() as node, node.publisher("s", source="p") as publisher:
            publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
            shutil.rmtree(served.directory)
            assert served.process is not None
            assert served.process.wait(20) == Exit.UNAVAILABLE
        assert "[journal-failed]" in served.said()
        assert "removed or replaced" in served.said()
    finally:
        served.kill()


def test_a_node_whose_lock_file_is_removed_keeps_others_out_and_ends_with_a_word_about_it(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal")
    try:
        with served.start():
            (served.directory / "lock").unlink()
            with pytest.raises(Refused, match="in use by a process that its lock file does not name"):
                open_directory(served.directory)
            assert served.process is not None
            assert served.process.wait(20) == Exit.UNAVAILABLE
        assert "/lock' was removed or replaced under the node" in served.said()
    finally:
        served.kill()
