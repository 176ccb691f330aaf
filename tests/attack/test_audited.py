"""Whoever may change things keeps none of it out of the audit log, however the requests are numbered and dressed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.attack.by_hand import Peer
from tests.processes import whole_lines
from tests.system.serving import ServedNode
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native

pytestmark = pytest.mark.slow

WAIT_S = 10.0


def changes(file: Path, verb: str, count: int = 1) -> list[dict[str, Any]]:
    """The records of requests with this verb, once there are so many."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        time.sleep(0.05)
        records = [json.loads(line) for line in whole_lines(file)]
        found = [record for record in records if record.get("verb") == verb]
    return found


@pytest.mark.parametrize("second", [("stream.trim", {"name": "nothing", "floor": 1}), ("stream.names", {})])
def test_a_deletion_is_recorded_though_its_number_is_used_again_before_its_answer(
    tmp_path: Path, second: tuple[str, dict[str, Any]]
) -> None:
    file = tmp_path / "audit.jsonl"
    served = ServedNode(tmp_path / "journal", {"AUDIT_FILE": str(file)})
    served.start().close()
    try:
        with Peer(served.port) as peer:
            peer.ask("stream.create", name="payroll")
            deletion = native.encode_message(0, m.Request(7, "stream.delete", {"name": "payroll"}))
            peer.send_bytes(deletion + native.encode_message(0, m.Request(7, *second)))
            said = peer.hear()
            assert (type(said), said.code) == (m.Goodbye, "bad-frame"), said
        (record,) = changes(file, "stream.delete")
        assert (record["kind"], record["arguments"]) == ("administered", {"name": "payroll"})
    finally:
        served.kill()


def test_a_record_names_what_was_deleted_though_the_request_says_much_before_the_name(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    served = ServedNode(tmp_path / "journal", {"AUDIT_FILE": str(file)})
    served.start().close()
    try:
        with Peer(served.port) as peer:
            peer.ask("stream.create", name="payroll")
            much = {f"word-{number}": number for number in range(100)}
            assert peer.ask("stream.delete", **much, name="payroll").code == "bad-request"
            few = dict(list(much.items())[:15])
            assert isinstance(peer.ask("stream.delete", **few, name="payroll"), m.Reply)
        refused, done = changes(file, "stream.delete", 2)
        assert (refused["kind"], done["arguments"]["name"]) == ("administration-refused", "payroll")
    finally:
        served.kill()
