"""The file of the audit log: whole lines, for its owner alone, renamed by size; what is lost is said later."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
from functools import partial
from pathlib import Path

import pytest

from veredus.node.settings import AuditSection
from veredus.runtime import audit as audits
from veredus.runtime.audit import LOST, PEER_RECORDS_MAX, AuditFile, AuditLog


def records(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_file_is_for_its_owner_alone_also_where_it_was_open_to_others(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch(mode=0o644)
    AuditFile(path, 1 << 20, 2, is_synced=True).write(b"one\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_file_is_renamed_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(path, 10, 2, is_synced=True)
    for number in range(8):
        file.write(b"line%d\n" % number)
        file.finish()
    kept = {found.name: found.read_text().split() for found in tmp_path.iterdir()}
    # Ten bytes hold one line of six.
    assert kept == {"audit.jsonl": ["line7"], "audit.jsonl.1": ["line6"], "audit.jsonl.2": ["line5"]}


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(path, 1 << 20, 2, is_synced=False)
    file.write(b"one\n")
    path.rename(tmp_path / "moved")
    file.write(b"two\n")
    assert ((tmp_path / "moved").read_bytes(), path.read_bytes()) == (b"one\n", b"two\n")


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "audit.jsonl", tmp_path / "elsewhere"
    elsewhere.touch()
    path.symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic link"):
        AuditFile(path, 1 << 20, 2, is_synced=False).write(b"one\n")
    assert elsewhere.read_bytes() == b""


def test_a_pipe_that_takes_the_place_of_the_file_loses_records_and_nothing_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(AuditSection(file=str(path)), "node")
    audit.take("node-ready", {"tcp": "127.0.0.1:1"})
    assert audit.writer.wait_written(10)
    path.unlink()
    os.mkfifo(path)
    audit.take("administered", {"verb": "stream.create"})
    assert audit.writer.wait_written(10)
    assert "a FIFO in place of a regular file" in audit.why_not_written
    path.unlink()
    audit.take("node-stopped", {})
    assert audit.writer.wait_written(10)
    assert not audit.why_not_written
    assert [record["kind"] for record in records(path)] == [LOST, "node-stopped"]


def test_what_one_address_causes_is_limited_and_counted_in_the_next_record(tmp_path: Path) -> None:
    audit = AuditLog(AuditSection(file=str(tmp_path / "audit.jsonl")), "node")
    for port in range(PEER_RECORDS_MAX + 50):
        audit.take("peer-unauthenticated", {"peer": f"192.0.2.1:{port}", "reason": "no"})
    audit.take("peer-unauthenticated", {"peer": "192.0.2.2:1", "reason": "no"})
    audit.take("node-stopped", {})
    assert audit.writer.wait_written(10)
    kinds = [record["kind"] for record in records(tmp_path / "audit.jsonl")]
    assert kinds == ["peer-refused"] * (PEER_RECORDS_MAX + 1) + ["node-stopped"]


def test_who_may_nothing_does_not_push_out_older_records_by_what_is_refused(tmp_path: Path) -> None:
    audit = AuditLog(AuditSection(file=str(tmp_path / "audit.jsonl"), size_max=64 << 10, files_max=1), "node")
    audit.take("administered", {"peer": "192.0.2.2:1", "verb": "stream.delete"})
    for _ in range(10 * PEER_RECORDS_MAX):
        audit.take("administration-refused", {"peer": "192.0.2.1:1", "verb": "stream.delete", "code": "forbidden"})
        assert audit.writer.wait_written(10)
    assert records(tmp_path / "audit.jsonl")[0]["kind"] == "administered"


def test_records_that_were_lost_are_said_once_the_file_can_be_written_again(tmp_path: Path) -> None:
    obstacle = tmp_path / "audit"
    obstacle.touch()
    audit = AuditLog(AuditSection(file=str(obstacle / "audit.jsonl")), "node")
    for _ in range(3):
        audit.take("node-ready", {"tcp": "127.0.0.1:1"})
        assert audit.writer.wait_written(10)
    assert audit.why_not_written
    obstacle.unlink()
    audit.take("node-stopped", {})
    assert audit.writer.wait_written(10)
    assert not audit.why_not_written
    lost, stopped = records(obstacle / "audit.jsonl")
    assert (lost["kind"], lost["count"], stopped["kind"]) == (LOST, 3, "node-stopped")


def test_what_a_peer_says_does_not_fill_the_file(tmp_path: Path) -> None:
    audit = AuditLog(AuditSection(file=str(tmp_path / "audit.jsonl")), "node")
    audit.take("forbidden", {"name": "x" * 1_000_000, "kind": "stream", "reason": b"\xff" * 1_000_000})
    assert audit.writer.wait_written(10)
    (record,) = records(tmp_path / "audit.jsonl")
    assert (record["kind"], record["on"]) == ("request-refused", "stream")
    assert (tmp_path / "audit.jsonl").stat().st_size < 4096


def test_a_switch_leaves_its_kinds_out(tmp_path: Path) -> None:
    section = AuditSection(file=str(tmp_path / "audit.jsonl"), connections=False)
    audit = AuditLog(section, "node")
    audit.take("connected", {"principal": "p"})
    audit.take("forbidden", {"principal": "p"})
    assert audit.writer.wait_written(10)
    assert [record["kind"] for record in records(tmp_path / "audit.jsonl")] == ["request-refused"]


def timers_of(loop: asyncio.AbstractEventLoop) -> int:
    """How many timers the loop waits for."""
    return sum(not timer.cancelled() for timer in loop._scheduled)  # type: ignore[attr-defined]


def test_a_record_that_is_written_leaves_no_timer_behind_and_is_told_once(tmp_path: Path) -> None:
    async def story() -> None:
        loop, told = asyncio.get_running_loop(), list[int]()
        log = AuditLog(AuditSection(file=str(tmp_path / "audit.jsonl")), "node")
        before = timers_of(loop)
        for number in range(100):
            log.take("administered", {"verb": "stream.create"})
            log.await_written(partial(told.append, number), loop)
        while len(told) < 100:
            await asyncio.sleep(0.001)
        assert (told, timers_of(loop)) == (list(range(100)), before)

    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_record_that_a_disk_holds_up_is_told_when_the_time_is_over_and_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "PATIENCE_S", 0.05)
    reading, writing = os.pipe()
    os.write(writing, bytes(fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)))
    # The disk: what is written to it goes on as soon as the pipe behind it is read.
    monkeypatch.setattr(audits, "open_to_write", lambda *_: writing)

    async def story() -> None:
        told: list[float] = []
        loop = asyncio.get_running_loop()
        log = AuditLog(AuditSection(file=str(tmp_path / "audit.jsonl"), sync="none"), "node")
        log.take("administered", {"verb": "stream.create"})
        log.await_written(lambda: told.append(loop.time()), loop)
        while not told:
            await asyncio.sleep(0.01)
        assert not log.writer.wait_written(0), "it is held up"
        os.read(reading, 1 << 20)
        assert await asyncio.to_thread(log.writer.wait_written, 10)
        await asyncio.sleep(0)
        assert len(told) == 1

    asyncio.run(asyncio.wait_for(story(), 20))
    os.close(reading)
    os.close(writing)
