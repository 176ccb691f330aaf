"""What README and the how-to pages show is what happens when it is done, against a real node."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

import veredus
from tests.processes import ended, free_port
from tests.runtime.test_security import AUTHORITY, NODE, NODE_KEY
from tests.system.serving import ServedNode
from tests.transcripts.pages import ROOT, blocks_in, is_as_shown
from tests.transcripts.shell import check_block, typed
from veredus.client.embedded import Embedded
from veredus.runtime.security import add_token

pytestmark = pytest.mark.slow

FOR_THE_READER = ("make setup && . .venv/bin/activate",)
"""Lines of shell blocks that were done before any test runs."""


def test_the_ten_lines_of_the_readme_print_a_receipt_and_the_one_publication() -> None:
    (block,) = blocks_in("README.md", "python")
    done = ended([sys.executable, "-c", block])
    assert (done.returncode, done.stderr) == (0, "")
    receipt, publication = done.stdout.splitlines()
    assert receipt.startswith("Receipt(number=2, sequence=2, durability=<Durability.GROUP")
    assert publication == "2 b'stock.IBM' b'5 shares'"


def test_the_shell_of_the_readme_serves_publishes_and_subscribes(tmp_path: Path) -> None:
    block = next(block for block in blocks_in("README.md", "") if "veredus serve" in block)
    lines = [line for line in block.splitlines() if line not in FOR_THE_READER]
    assert len(lines) == 3
    address = f"127.0.0.1:{free_port()}"
    doors = {"VEREDUS_LISTEN_TCP": address, "VEREDUS_LISTEN_ZEROMQ": "", "VEREDUS_LISTEN_METRICS": ""}
    said = typed("\n".join((*lines, "kill $!", "wait")), tmp_path, VEREDUS_ADDRESS=address, **doors)
    assert said == "1\n2\n3\n"


def test_the_publisher_of_the_readme_adds_nothing_when_it_is_run_again_and_does_without_resume(tmp_path: Path) -> None:
    block = next(block for block in blocks_in("README.md", "") if "veredus serve" in block)
    (publishing,) = (line for line in block.splitlines() if "veredus pub" in line)
    assert publishing.endswith(" --resume")
    with veredus.embedded(journal={"sync": "none"}) as node:
        heads = []
        for line in (publishing, publishing, publishing.removesuffix(" --resume")):
            typed(line, tmp_path, VEREDUS_ADDRESS=node.served.address)
            heads.append(node.streams.show("numbers")["head"])
    assert heads == [1000, 1000, 2000]


def test_tokens_are_made_and_listed_as_the_page_on_security_shows(tmp_path: Path) -> None:
    tokens, keys = blocks_in("docs/how-to/secure.md", "console")
    check_block(tokens, tmp_path)
    check_block(keys, tmp_path)


def test_the_settings_of_the_page_on_security_are_understood_as_one_file(tmp_path: Path) -> None:
    blocks = blocks_in("docs/how-to/secure.md", "toml")
    (over_zeromq,) = (block for block in blocks if "zeromq_key" in block)
    assert tomllib.loads(over_zeromq)["security"] == {"tokens": "tokens", "zeromq_key": "zeromq.key"}
    text = "\n".join(block for block in blocks if block is not over_zeromq)
    assert len(tomllib.loads(text)["security"]["rules"]) >= 3
    (tmp_path / "veredus.toml").write_text(text)
    for name, file in (("node.pem", NODE), ("node.key", NODE_KEY), ("authority.pem", AUTHORITY)):
        shutil.copy(file, tmp_path / name)
    add_token(tmp_path / "tokens", "desk-1")
    rows = json.loads(typed("veredus serve --settings veredus.toml --check -o json", tmp_path))
    values = {row["setting"]: row["value"] for row in rows}
    assert values["listen.tls"] == "0.0.0.0:7074"
    assert values["security.rules[0]"] == "desk-* may publish, create, describe on streams trades.>; sources desk-*"
    lines = text.splitlines()
    for index in range(2):
        place = next(row["from"] for row in rows if row["setting"] == f"security.rules[{index}]")
        assert lines[int(place.split(":")[1]) - 1].startswith("[[security.rules]]")
        lines[int(place.split(":")[1]) - 1] = ""


def slow_subscriber(node: Embedded) -> veredus.Subscription:
    """One that has settled 336,000 publications and then asks for no more, while 776 have come."""
    subscription = node.subscribe("trades", subscriber="risk", window_size=1024)
    with node.publisher("trades", source="desk-1") as publisher:
        publisher.publish_many([b"k"] * 336_000, [b"x"] * 336_000)
        publisher.flush()
        seen = 0
        while seen < 336_000:
            batch = subscription.next_batch(timeout_s=20)
            assert batch is not None
            seen = batch.last_sequence
            batch.settle()
        subscription.wait_settled(timeout_s=20)
        for _ in range(776):
            publisher.wait(publisher.publish(b"k", bytes(2000)), timeout_s=20)
    return subscription


def test_a_subscription_is_shown_as_the_page_on_observing_shows_it(tmp_path: Path) -> None:
    (block,) = blocks_in("docs/how-to/observe.md", "console")
    with veredus.embedded(journal={"sync": "none"}) as node, slow_subscriber(node):
        check_block(block, tmp_path, VEREDUS_ADDRESS=node.served.address)


def test_a_line_of_the_log_has_the_fields_that_the_page_on_observing_shows(tmp_path: Path) -> None:
    (shown,) = (json.loads(block) for block in blocks_in("docs/how-to/observe.md", "json"))
    served = ServedNode(tmp_path / "journal")
    try:
        served.start().close()
        ready = next(line for line in map(json.loads, served.said().splitlines()) if line["event"] == "node-ready")
    finally:
        served.kill()
    assert list(ready) == list(shown)
    assert [type(value) for value in ready.values()] == [type(value) for value in shown.values()]


def test_a_journal_is_looked_into_as_the_page_on_journals_says(tmp_path: Path) -> None:
    with veredus.embedded(tmp_path / "journal") as node, node.publisher("trades") as publisher:
        publisher.publish("k", b"1")
    page = (ROOT / "docs/how-to/journal.md").read_text(encoding="utf-8")
    commands = [line.strip() for line in page.splitlines() if line.startswith("    veredus ")]
    assert commands
    for command in commands:
        said = typed(command.replace("/var/lib/veredus", str(tmp_path / "journal")), tmp_path)
        assert "damage" in said.splitlines()[0]


@pytest.mark.parametrize(
    ("said", "is_right"),
    [
        ("a  1\nb   2\n", True),
        ("a 1\nmore\nand more\nb 2", False),
        ("a 1\nb 3", False),
        ("a 1", False),
    ],
)
def test_an_output_is_compared_line_by_line(said: str, is_right: bool) -> None:
    assert is_as_shown(said, "a 1\nb 2") is is_right
    assert is_as_shown("a 1\nwhatever\nb 2", "a 1\n…\nb 2")
    assert not is_as_shown("a 1\nwhatever\nb 3", "a 1\n…\nb 2")
