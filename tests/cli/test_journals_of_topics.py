"""`veredus journal` on what clients of topics remember, and on directories that hold no journal."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, ran
from tests.journal.rig import as_killed
from tests.processes import Child, wait_until
from tests.topics.paper_server import Scene, scene
from veredus.cli.exits import Exit
from veredus.client.embedded import embedded
from veredus.journal.checkpoint import CHECKPOINT_NAME
from veredus.kernel.errors import Refused
from veredus.runtime.directory import open_directory
from veredus.topics import AsyncClientGroup, Client

BODY = bytes(range(256)) * 400
"""A dozen of them bring a checkpoint about."""
Journal = Callable[..., Ran]


@pytest.fixture
def around() -> Iterator[Scene]:
    with scene() as around:
        yield around


@pytest.fixture
def journal(capfd: pytest.CaptureFixture[str]) -> Journal:
    """Runs `veredus journal` with a command and its arguments."""
    return partial(ran, capfd, "journal")


@pytest.fixture
def remembered(around: Scene, tmp_path: Path) -> Path:
    """The directory of alice, who was subscribed, has put and got, and was given a message when she was killed."""
    with Client("alice", proxies=around.addresses, directory=tmp_path, answer_s=5) as alice:
        alice.subscribe("prices")
        alice.put("prices", b"EWR 12.5")
        alice.put_many("news", [b"one", b"two"])
        assert alice.get("prices", wait_s=5) is not None
        return as_killed(tmp_path / "client_alice", tmp_path / "killed")


def contents(directory: Path) -> dict[str, bytes]:
    """All that nobody could make anew: an index that a kill has cut off is made again from its segment."""
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.suffix != ".index"}


def facts(journal: Journal, directory: Path, *options: str) -> list[dict[str, object]]:
    """What `dump` says of each fact."""
    dumped = journal("dump", directory, *options, "-o", "jsonl")
    assert dumped.code == Exit.OK, dumped.err
    return [json.loads(line)["fact"] for line in dumped.lines]


def test_what_a_client_remembers_is_sound_and_called_so(journal: Journal, remembered: Path) -> None:
    verified = journal("verify", remembered)
    assert (verified.code, verified.err.splitlines()) == (
        Exit.OK,
        ["the journal holds the state of 1 client of topics, for 2 topics", "sound"],
    )
    report = json.loads(journal("verify", remembered, "-o", "json").out)
    assert (report["holds"], report["is_sound"]) == ("clients", True)
    assert sum(segment["facts"] for segment in report["segments"]) > 0


def test_a_topic_that_is_not_there_is_called_a_topic_and_the_others_are_named(
    journal: Journal, remembered: Path
) -> None:
    said = journal("dump", remembered, "--stream", "nope")
    assert said.err == "there are no records of topic 'nope'; topics: news, prices\n"
    assert journal("dump", remembered, "--stream", "news").err == ""


def test_each_fact_of_a_client_is_dumped_with_what_it_says(journal: Journal, remembered: Path) -> None:
    told = facts(journal, remembered)
    assert {(fact["type"], fact["client"], fact["topic"]) for fact in told} == {
        ("remembered", "alice", "prices"),
        ("remembered", "alice", "news"),
    }
    last = facts(journal, remembered, "--stream", "prices")[-1]
    assert last.pop("last_wish") > last.pop("last_leaving") == 0
    assert last.pop("last_put_counter") > 10**15, "the first counter is the time, in microseconds"
    assert last == {
        "type": "remembered",
        "client": "alice",
        "topic": "prices",
        "last_get_id": "alice-1",
        "last_put_key": "",
        "last_put_digest": "",
        "putting": None,
        "got": {"message_id": "alice-1", "body": b"EWR 12.5".hex(), "is_many": False, "done_count": 0},
    }
    assert journal("dump", remembered).lines[0].split()[:5] == ["segment", "offset", "size", "kind", "stream"]


def test_what_a_group_of_clients_remembers_is_read_too_and_what_they_handed_over(
    journal: Journal, around: Scene, tmp_path: Path
) -> None:
    async def put_and_get() -> None:
        async with AsyncClientGroup(proxies=around.addresses, directory=tmp_path, answer_s=5) as group:
            alice, bob = group.client("alice"), group.client("bob")
            await alice.subscribe("t")
            await bob.put_many("t", [b"1", b"2", b"3"])
            messages = await alice.get_many("t", wait_s=5)
            await alice.done(messages[0])

    asyncio.run(put_and_get())
    verified = journal("verify", tmp_path / "clients")
    assert "the journal holds the state of 2 clients of topics, for 2 topics" in verified.err
    assert {"type": "handed-over", "client": "alice", "topic": "t", "done_count": 1} in facts(
        journal, tmp_path / "clients"
    )


def test_a_checkpoint_of_what_a_client_remembers_is_read_too(journal: Journal, around: Scene, tmp_path: Path) -> None:
    with Client("alice", proxies=around.addresses, directory=tmp_path, answer_s=5) as alice:
        for number in range(16):
            alice.put(f"t{number % 3}", BODY)
        wait_until(lambda: (tmp_path / "client_alice" / CHECKPOINT_NAME).exists())
        directory = as_killed(tmp_path / "client_alice", tmp_path / "killed")
    for found in (directory, tmp_path / "client_alice"):
        assert (found / CHECKPOINT_NAME).exists()
        verified = journal("verify", found)
        assert (verified.code, verified.err.splitlines()[0]) == (
            Exit.OK,
            "the journal holds the state of 1 client of topics, for 3 topics",
        )
        assert {fact["topic"] for fact in facts(journal, found)} <= {"t0", "t1", "t2"}


def test_a_client_that_is_killed_in_the_middle_of_a_put_leaves_what_can_be_read(
    journal: Journal, around: Scene, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "veredus", "topics", "--id", "bob", "--proxy", around.addresses[0]]
    with Child([*command, "--directory", str(tmp_path), "put", "t"], stdin=-1) as putting:
        refused: list[Ran] = []

        def kill(data: bytes) -> bytes:
            refused.append(journal("verify", tmp_path / "client_bob"))
            putting.kill()
            return around.server.answer_well(data)

        around.server.answer = kill
        assert putting.stdin is not None
        putting.stdin.write(b"EWR 12.5")
        putting.stdin.close()
        assert putting.wait(20) < 0
    said = f"process {putting.pid} uses the journal in {tmp_path}/client_bob: stop that process first [journal-locked]"
    assert (refused[0].code, said in refused[0].err) == (Exit.REFUSED, True)
    for command_name in ("verify", "dump"):
        assert journal(command_name, tmp_path / "client_bob").code == Exit.OK


def test_a_flipped_bit_in_what_a_client_remembers_is_named_and_has_its_exit_code(
    journal: Journal, remembered: Path
) -> None:
    (segment,) = remembered.glob("*.segment")
    data = bytearray(segment.read_bytes())
    data[data.index(b"EWR 12.5")] ^= 1
    segment.write_bytes(data)
    verified = journal("verify", remembered)
    assert verified.code == Exit.DAMAGED
    assert "damage: segment=1" in verified.err
    assert "journal-unsound" in journal("dump", remembered).err


def test_the_journal_of_a_client_is_not_marked_as_restored(journal: Journal, remembered: Path) -> None:
    refused = journal("restored", remembered)
    assert (refused.code, "[wrong-journal]" in refused.err) == (Exit.REFUSED, True)
    assert not (remembered / "restored").exists()


@pytest.mark.parametrize("command", ["verify", "dump", "restored"])
def test_a_directory_with_nothing_but_a_lock_has_no_journal(journal: Journal, tmp_path: Path, command: str) -> None:
    """As a node leaves it that could not bind its addresses."""
    open_directory(tmp_path / "node").close()
    for path in (tmp_path, tmp_path / "node"):
        refused = journal(command, path)
        assert (refused.code, refused.out) == (Exit.REFUSED, "")
        said = f"there is no journal in {path}: name the directory of a node, or of a client of topics [no-journal]"
        assert said in refused.err


@pytest.mark.parametrize("command", ["verify", "dump", "restored"])
def test_a_directory_without_a_journal_is_refused_and_those_in_it_that_have_one_are_named(
    journal: Journal, around: Scene, tmp_path: Path, command: str
) -> None:
    for client in ("alice", "bob"):
        with Client(client, proxies=around.addresses, directory=tmp_path, answer_s=5) as one:
            one.subscribe("t")
    (tmp_path / "empty").mkdir()
    above, empty = journal(command, tmp_path), journal(command, tmp_path / "empty")
    assert (above.code, above.out) == (empty.code, empty.out) == (Exit.REFUSED, "")
    assert above.err == (
        f"veredus: there is no journal in {tmp_path}: name one of those below it: client_alice, client_bob"
        " [no-journal]\n"
    )
    assert empty.err == (
        f"veredus: there is no journal in {tmp_path}/empty: name the directory of a node, or of a client of topics"
        " [no-journal]\n"
    )


def test_a_journal_to_which_nothing_was_ever_written_is_sound(journal: Journal, around: Scene, tmp_path: Path) -> None:
    with Client("alice", proxies=around.addresses, directory=tmp_path):
        pass
    verified = journal("verify", tmp_path / "client_alice", "-o", "json")
    report = json.loads(verified.out)
    assert (verified.code, report["holds"], report["is_sound"]) == (Exit.OK, "nothing", True)
    assert journal("dump", tmp_path / "client_alice").code == Exit.OK


def test_a_node_will_not_start_on_what_a_client_remembers_and_changes_nothing_of_it(
    around: Scene, tmp_path: Path
) -> None:
    with Client("alice", proxies=around.addresses, directory=tmp_path, answer_s=5) as alice:
        for when in ("before a checkpoint", "behind one"):
            alice.put("t", b"1")
            directory = as_killed(tmp_path / "client_alice", tmp_path / when)
            before = contents(directory)
            assert (CHECKPOINT_NAME in before) == (when == "behind one")
            with pytest.raises(Refused, match=r"holds no streams.*clients of topics") as raised:
                embedded(directory)
            assert raised.value.code == "wrong-journal"
            (directory / "lock").unlink()
            assert contents(directory) == before
            for _ in range(16):
                alice.put("t", BODY)
            wait_until(lambda: (tmp_path / "client_alice" / CHECKPOINT_NAME).exists())


def test_a_client_will_not_remember_in_a_nodes_journal(around: Scene, tmp_path: Path) -> None:
    directory = tmp_path / "client_alice"
    for _ in range(2):
        with embedded(directory) as node:
            node.streams.create("trades")
            copied = as_killed(directory, tmp_path / "copied" / "client_alice")
        for parent in (copied.parent, tmp_path):
            with (
                pytest.raises(Refused, match="streams of a node") as raised,
                Client("alice", proxies=around.addresses, directory=parent),
            ):
                pass
            assert raised.value.code == "wrong-journal"
        shutil.rmtree(copied.parent)
