"""Disks that fail under a node that works: what was acknowledged is there, and nothing else was ever said."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import pytest

import veredus
from tests.processes import wait_until
from tests.system.serving import ServedNode
from veredus.cli.exits import Exit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.attack,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it takes Linux to make a disk fail from outside"),
]

MIB = 1 << 20


def told(served: ServedNode, event: str) -> dict[str, object]:
    """What the node's log says with this event, once it says it."""
    deadline = time.monotonic() + 20
    while not (lines := [line for line in served.said().splitlines() if f'"event":"{event}"' in line]):
        assert time.monotonic() < deadline, f"the node did not say {event}"
        time.sleep(0.05)
    return dict(json.loads(lines[0]))


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_write_or_sync_that_fails_ends_the_node_and_the_next_one_has_all_that_was_acknowledged(
    tmp_path: Path, failing_disk: Path, call: str
) -> None:
    # It fails once: a node that tried again would go on, over pages of which nobody knows what became of them.
    switch = tmp_path / "switch"
    served = ServedNode(
        tmp_path / "journal", environment={"LD_PRELOAD": str(failing_disk), "FAILING_DISK": str(switch)}
    )
    try:
        with served.start() as node:
            publisher = node.publisher("s", source="p")
            for number in range(1, 101):
                publisher.publish("k", b"%d" % number)
            publisher.flush(timeout_s=20)
            switch.write_text(call)
            publisher.publish("k", b"101")
            assert served.process is not None
            assert served.process.wait(20) == Exit.UNAVAILABLE
            assert publisher.taken_number == 100
            assert "[journal-failed]" in served.said()
            assert not switch.exists()
            served.spawn()
            publisher.flush(timeout_s=20)
            publisher.close()
            with node.subscribe("s", until=102) as subscription:
                assert [publication.body for publication in subscription] == [b"%d" % n for n in range(1, 102)]
    finally:
        served.kill()


def test_a_disk_that_fails_while_a_journal_is_recovered_may_be_well_again_at_the_next_start(
    tmp_path: Path, failing_disk: Path
) -> None:
    switch = tmp_path / "switch"
    served = ServedNode(
        tmp_path / "journal", environment={"LD_PRELOAD": str(failing_disk), "FAILING_DISK": str(switch)}
    )
    try:
        with served.start() as node, node.publisher("s", source="p") as publisher:
            publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
            served.kill()
            switch.write_text("all of it")
            # Not the code of what must be put right first, after which a service is not started again.
            assert served.spawn().wait(20) == Exit.UNAVAILABLE
            assert "[io-error]" in served.said()
            served.spawn()
            assert publisher.wait(publisher.publish("k", b"2"), timeout_s=20).sequence == 2
    finally:
        served.kill()


def test_a_limit_on_the_size_of_files_is_a_full_disk_until_it_is_lifted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = ServedNode(tmp_path / "journal", {"JOURNAL_SEGMENT_SIZE": "4 MiB", "JOURNAL_FREE_SEGMENTS_MAX": "0"})
    try:
        with served.start() as node:
            assert served.process is not None
            unlimited = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
            publisher = node.publisher("s", source="p", on_full="wait", outbox_size_max=64 * MIB)
            publisher.wait(publisher.publish("k", b"first"), timeout_s=20)
            # No further segment may be made. SIGXFSZ comes with that, which would end a process that does not heed it.
            resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (4 * MIB - 4096, unlimited[1]))
            body = os.urandom(64 << 10)
            for _ in range(300):
                publisher.publish("k", body)
            assert told(served, "publications-refused")["code"] == "disk-full"
            taken = publisher.taken_number
            assert taken < 301
            wait_until(lambda: "takes no publications" in caplog.text)
            with node.subscribe("s", until=2) as subscription:
                assert [publication.body for publication in subscription] == [b"first"]
            resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, unlimited)
            publisher.flush(timeout_s=30)
            publisher.close()
            assert caplog.text.count("takes no publications (stream 's', source 'p') for now, and is asked again") == 1
            with node.subscribe("s", until=302) as subscription:
                assert [publication.number for publication in subscription] == list(range(1, 302))
    finally:
        served.kill()


def test_a_limit_on_files_holds_a_publisher_back_until_it_is_lifted(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal", {"JOURNAL_SEGMENT_SIZE": "1 MiB", "JOURNAL_FREE_SEGMENTS_MAX": "0"})
    try:
        with served.start() as node, node.publisher("s", source="p", outbox_size_max=64 * MIB) as publisher:
            publisher.wait(publisher.publish("k", b"first"), timeout_s=20)
            assert served.process is not None
            unlimited = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
            # No further file may be opened.
            resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (4, unlimited[1]))
            for _ in range(40):
                publisher.publish("k", os.urandom(100_000))
            deadline = time.monotonic() + 20
            while "Too many open files" not in served.said():
                assert time.monotonic() < deadline, "the node did not say that it may open no more files"
                time.sleep(0.05)
            assert publisher.taken_number < 41
            resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, unlimited)
            publisher.flush(timeout_s=30)
            with node.subscribe("s", until=42) as subscription:
                assert [publication.number for publication in subscription] == list(range(1, 42))
    finally:
        served.kill()


def test_why_no_segment_can_be_made_is_told_as_it_is_and_publications_are_taken_again_without_it(
    tmp_path: Path,
) -> None:
    served = ServedNode(tmp_path / "journal", {"JOURNAL_SEGMENT_SIZE": "64KiB"})
    try:
        with served.start() as node, node.publisher("s", source="p") as publisher:
            in_its_place = served.directory / f"{2:016x}.segment"
            in_its_place.mkdir()
            for _ in range(80):
                publisher.publish("k", bytes(1000))
            ahead, refused = told(served, "journal-segment-failed"), told(served, "publications-refused")
            reason = f"Is a directory ({in_its_place.name})"
            assert (ahead["segment"], ahead["code"], ahead["reason"]) == (2, "io-error", reason)
            assert (refused["code"], refused["reason"]) == ("io-error", reason)
            assert ahead["size"] >= 64 << 10
            assert ahead["directory"] == refused["directory"] == str(served.directory)
            in_its_place.rmdir()
            told(served, "publications-taken-again")
            publisher.flush(timeout_s=30)
    finally:
        served.kill()


def test_a_segment_that_cannot_be_read_is_a_gap_by_name_and_the_node_goes_on(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal", {"JOURNAL_SEGMENT_SIZE": "1 MiB", "LIMITS_TAIL_SIZE_MAX": "64 KiB"})
    try:
        with served.start() as node:
            with node.publisher("s", source="p") as publisher:
                for _ in range(8):
                    publisher.wait(publisher.publish("k", os.urandom(400 << 10)), timeout_s=20)
            oldest = min(served.directory.glob("*.segment"))
            # The kernel itself answers reads at these places with EIO.
            oldest.unlink()
            oldest.symlink_to("/proc/self/mem")
            gaps: list[veredus.Gap] = []
            with node.subscribe("s", until=9, on_gap=gaps.append) as subscription:
                got = [publication.sequence for publication in subscription]
            assert {gap.code for gap in gaps} == {"damaged"}
            missing = [place for gap in gaps for place in range(gap.first_sequence, gap.next_sequence)]
            assert missing[:1] == [1]
            assert missing + got == list(range(1, 9))
            with node.publisher("s", source="p") as publisher:
                publisher.wait(publisher.publish("k", b"on"), timeout_s=20)
    finally:
        served.kill()
