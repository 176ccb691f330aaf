"""A real node writes each kind of record, and is held by no audit log that cannot be written."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import veredus
from tests.processes import beside, wait_until, whole_lines
from tests.runtime.authority import Authority
from tests.system.secured import Secured, reload_by_command
from tests.system.serving import ServedNode
from veredus.cli.exits import Exit
from veredus.client.blocking import connect
from veredus.runtime.audit import KINDS, LOST
from veredus.runtime.security import add_token, remove_token

pytestmark = [pytest.mark.slow, pytest.mark.attack]


class Audited(Secured):
    """A node whose records are in `audit`."""

    def __init__(self, directory: Path, authority: Authority | None = None) -> None:
        self.audit = directory / "audit" / "audit.jsonl"
        super().__init__(directory, authority)

    def write(self, rules: tuple[tuple[str, str], ...], more: str = "") -> None:
        super().write(rules, f'[audit]\nfile = "{self.audit}"\nrequired = true\n{more}')

    def records(self, kind: str) -> list[dict[str, object]]:
        if not self.audit.exists():
            return []
        found = [json.loads(line) for line in whole_lines(self.audit)]
        return [record for record in found if record["kind"] == kind]

    def wait_record(self, kind: str, is_it: Callable[[dict[str, object]], bool] = bool) -> dict[str, object]:
        wait_until(lambda: any(map(is_it, self.records(kind))), self.served.said)
        return [record for record in self.records(kind) if is_it(record)][-1]


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    authority = Authority(tmp_path / "authority")
    authority.sign("node", "/CN=localhost", "IP:127.0.0.1")
    audited = Audited(tmp_path, authority)
    yield audited
    audited.served.kill()


def test_a_node_writes_every_kind_of_record(audited: Audited) -> None:
    (desk, line), (operator, _) = (add_token(audited.tokens, name) for name in ("desk-1", "operator"))
    audited.write((("operator", ">"), ("desk-1", "trades")))
    audited.audit.parent.write_text("in the way")
    audited.start()
    with audited.by_token(operator) as node:
        # Nothing can be recorded: so nothing is changed, until it can.
        with pytest.raises(veredus.Refused) as caught:
            node.streams.create("trades")
        assert caught.value.code == "not-audited"
        audited.audit.parent.unlink()
        with suppress(veredus.Refused):
            # The record of a refusal finds out that the file can be written again.
            node.streams.create("trades")
        audited.wait_record(LOST)
        node.streams.create("trades")
    assert stat.S_IMODE(audited.audit.stat().st_mode) == 0o600
    done = audited.wait_record("administered")
    assert (done["principal"], done["verb"], done["outcome"]) == ("operator", "stream.create", "done")
    assert done["arguments"]["name"] == "trades"  # type: ignore[index]
    assert audited.wait_record("administration-refused")["code"] == "not-audited"
    play_peers(audited, desk, operator)
    remove_token(audited.tokens, line.id)
    revoked = audited.wait_record("principal-revoked")
    assert (revoked["principal"], revoked["code"]) == ("desk-1", "revoked")
    audited.write((("operator", ">"),))
    audited.reload()
    reloaded = audited.wait_record("settings-reloaded", lambda record: bool(record["changed"]))
    assert reloaded["changed"] == ["security.rules"]
    audited.settings.write_text("[security]\ntokens = 7\n")
    assert reload_by_command(audited).returncode == 2
    assert "tokens" in str(audited.wait_record("settings-refused")["reason"])
    audited.write((("operator", ">"),))
    assert audited.served.stop() == 0
    audited.wait_record("node-stopped")
    audited.start()
    shutil.rmtree(audited.served.directory)
    assert "removed" in str(audited.wait_record("node-failed")["reason"])
    audited.wait_record("node-started")
    wanted = {kind.name for kind in KINDS} | {LOST}
    assert {kind for kind in wanted if not audited.records(kind)} == set()
    told = [record for kind in wanted for record in audited.records(kind)]
    assert {(record["version"], record["node"]) for record in told} == {(1, "veredus")}


def play_peers(audited: Audited, desk: str, operator: str) -> None:
    """Who connects, is refused, and takes over; the connection of `desk` is left open."""
    with audited.by_token(desk) as node:
        with pytest.raises(veredus.Refused):
            node.publisher("payroll", source="p").wait(1, timeout_s=20)
        with node.publisher("trades", source="p") as first:
            first.wait(first.publish("k", b"1"), timeout_s=20)
            with audited.by_token(operator) as other, other.publisher("trades", source="p") as second:
                second.wait(second.publish("k", b"2"), timeout_s=20)
    refused = audited.wait_record("request-refused")
    assert (refused["verb"], refused["on"], refused["name"]) == ("publish", "stream", "payroll")
    assert (refused["listener"], str(refused["peer"]).split(":")[0]) == ("tcp", "127.0.0.1")
    taken = audited.wait_record("taken-over")
    assert [taken[name] for name in ("what", "name", "stream", "principal", "from")] == [
        "source",
        "p",
        "trades",
        "operator",
        "desk-1",
    ]
    opened = audited.wait_record("connection-opened", lambda record: record["principal"] == "desk-1")
    assert (opened["protocol"], opened["listener"]) == ("zeps/2", "tcp")
    audited.wait_record("connection-closed", lambda record: record["link"] == opened["link"])
    with pytest.raises(veredus.Refused):
        connect(audited.served.address, token="veredus_00000000_" + "x" * 43)
    assert audited.wait_record("peer-refused")["note"] == "peer-unauthenticated"
    with socket.create_connection(("127.0.0.1", audited.tls_port), 10) as peer, suppress(ConnectionError):
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while peer.recv(4096):
            pass
    assert audited.wait_record("connection-refused")["listener"] == "tls"
    kept = audited.by_token(desk)
    kept.streams.list()


OnBadDisk = Callable[..., tuple[ServedNode, Path]]


@pytest.fixture
def on_bad_disk(tmp_path: Path, failing_disk: Path) -> OnBadDisk:
    """Makes a node whose audit log is on a disk that is as the file says that is returned with it."""

    def make(**settings: str) -> tuple[ServedNode, Path]:
        switch = tmp_path / "switch"
        environment = {"LD_PRELOAD": str(failing_disk), "FAILING_DISK": str(switch)}
        section = {f"AUDIT_{name.upper()}": value for name, value in settings.items()}
        file = str(tmp_path / "audit.jsonl")
        return ServedNode(tmp_path / "journal", {"AUDIT_FILE": file, **section}, environment=environment), switch

    return make


def test_a_full_audit_disk_holds_nobody_and_is_counted(tmp_path: Path, on_bad_disk: OnBadDisk) -> None:
    served, switch = on_bad_disk()
    switch.write_text("full")
    try:
        with served.start() as node, node.publisher("s", source="p") as publisher:
            node.streams.create("t")
            publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
        assert served.stop() == 0
        said = [line for line in served.said().splitlines() if "audit-not-written" in line]
        assert len(said) == 1
        assert str(tmp_path / "audit.jsonl") in said[0]
        assert "No space left on device" in said[0]
    finally:
        served.kill()


@pytest.mark.parametrize("required", [False, True])
def test_an_audit_disk_that_hangs_holds_no_answer_for_ever(on_bad_disk: OnBadDisk, required: bool) -> None:
    served, switch = on_bad_disk(required=str(required).lower())
    switch.write_text("hang")
    try:
        with served.start() as node:
            if required:
                with pytest.raises(veredus.Refused) as caught:
                    node.streams.create("t")
                assert caught.value.code == "not-recorded"
                with pytest.raises(veredus.Refused) as caught:
                    node.streams.create("u")
                assert caught.value.code == "not-audited"
            else:
                node.streams.create("t")
            assert [stream["name"] for stream in node.streams.list()] == ["t"]
    finally:
        served.kill()


def test_a_change_is_acknowledged_when_its_record_is_written_and_not_before(
    tmp_path: Path, on_bad_disk: OnBadDisk
) -> None:
    served, switch = on_bad_disk(sync="none")
    switch.write_text("hang")
    told: list[str] = []
    try:
        with served.start() as node, node.publisher("s", source="p") as publisher:

            def create() -> None:
                node.streams.create("t")
                told.append("t")

            with beside(create):
                publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
                wait_until(lambda: [stream["name"] for stream in node.streams.list()] == ["s", "t"], served.said)
                assert not told, "it is there, and who asked for it waits for the record"
                switch.unlink()
                wait_until(lambda: bool(told), served.said)
            assert '"verb":"stream.create"' in (tmp_path / "audit.jsonl").read_text()
    finally:
        served.kill()


def test_a_node_whose_audit_log_is_a_pipe_does_not_start_and_says_why(tmp_path: Path) -> None:
    pipe = tmp_path / "audit"
    os.mkfifo(pipe)
    served = ServedNode(tmp_path / "journal", {"AUDIT_FILE": str(pipe)})
    try:
        assert served.spawn().wait(20) == Exit.USAGE
        assert "audit.file" in served.said()
        assert "there is a FIFO in place of a regular file" in served.said()
    finally:
        served.kill()
