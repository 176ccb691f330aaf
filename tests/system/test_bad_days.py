"""What goes wrong in real life, one by one: each gets an error with words, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import veredus
from tests.processes import free_port, wait_until
from tests.system.serving import START_TIMEOUT_S, ServedNode
from veredus.cli.exits import Exit
from veredus.client.blocking import Node, connect
from veredus.client.node import connect_async
from veredus.kernel.octets import crc32c

pytestmark = [pytest.mark.slow, pytest.mark.attack]

MIB = 1 << 20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    """One node for all who spoil it for nobody."""
    shared = ServedNode(tmp_path_factory.mktemp("shared") / "journal", life_s=300)
    shared.start().close()
    yield shared
    shared.kill()


@pytest.fixture
def node(shared: ServedNode) -> Iterator[Node]:
    """A connection to the shared node, which has no streams."""
    with connect(shared.address) as node:
        yield node
        for stream in node.streams.list():
            node.streams.delete(stream["name"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)], check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=False)


def test_a_full_disk_refuses_publishers_and_serves_readers_until_space_returns(small_disk: Path) -> None:
    served = ServedNode(small_disk / "journal", {"JOURNAL_SEGMENT_SIZE": "4 MiB", "JOURNAL_FREE_SEGMENTS_MAX": "0"})
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(8 * MIB))
    try:
        with served.start() as node:
            publisher = node.publisher("s", source="p", on_full="fail", outbox_size_max=2 * MIB)
            body = os.urandom(64 << 10)
            accepted = _publish_until_full(publisher, body)
            taken = _wait_until_still(publisher)
            assert 0 < taken < accepted
            with node.subscribe("s", until=taken + 1) as subscription:
                assert sum(1 for _ in subscription) == taken
            ballast.unlink()
            publisher.flush(timeout_s=30)
            assert publisher.taken_number == accepted
            publisher.close()
            with node.subscribe("s", until=accepted + 1) as subscription:
                assert [publication.number for publication in subscription] == list(range(1, accepted + 1))
    finally:
        served.kill()
    assert "disk-full" in (small_disk / "journal.log").read_text()


@pytest.mark.parametrize("freeing", ["trim", "delete", "trim after a kill"])
def test_a_trim_frees_a_full_disk_however_large_the_state_is(small_disk: Path, freeing: str) -> None:
    subprocess.run(["mount", "-o", "remount,size=120m", str(small_disk)], check=True)
    settings = {"JOURNAL_SEGMENT_SIZE": "4 MiB", "JOURNAL_FREE_SEGMENTS_MAX": "0"}
    served = ServedNode(small_disk / "journal", settings)
    try:
        with served.start() as node:
            asyncio.run(_enlarge_state(served.address))
            publisher = node.publisher("s", source="p", on_full="fail", outbox_size_max=2 * MIB)
            _publish_until_full(publisher, os.urandom(64 << 10))
            head = _wait_until_still(publisher)
            if "kill" in freeing:
                served.kill()
                served.spawn()
            if freeing == "delete":
                node.streams.delete("s")
                with node.publisher("t", source="p") as other:
                    wait_until(lambda: "publications-taken-again" in served.said())
                    other.wait(other.publish("k", b"taken"), timeout_s=20)
                with contextlib.suppress(veredus.Refused, veredus.Unavailable):
                    publisher.close(timeout_s=1)
            else:
                node.streams.trim("s", head)
                publisher.close(timeout_s=30)
        assert served.stop() == 0
        assert (served.directory / "checkpoint").stat().st_size > 12_000_000
    finally:
        served.kill()
    assert "checkpoint-failed" not in served.said()


async def _enlarge_state(address: str) -> None:
    """Resume tokens of 12 MB, which a checkpoint holds: three times what is held back at first."""
    async with await connect_async(address) as node:
        await node.streams.create("wide")
        for first in range(0, 3000, 200):
            sources = [[f"source-{number}", 1, os.urandom(4096)] for number in range(first, first + 200)]
            await node.connection.ask("source.raise", stream="wide", sources=sources)


def _publish_until_full(publisher: veredus.Publisher, body: bytes) -> int:
    deadline = time.monotonic() + 30
    number = 0
    while time.monotonic() < deadline:
        with contextlib.suppress(veredus.Unavailable):
            number = publisher.publish("k", body)
            continue
        if number and publisher.taken_number == _after(publisher, 0.5):
            return number
    raise AssertionError("the disk never became full")


def _after(publisher: veredus.Publisher, seconds: float) -> int:
    time.sleep(seconds)
    return publisher.taken_number


def _wait_until_still(publisher: veredus.Publisher) -> int:
    taken = publisher.taken_number
    while (now := _after(publisher, 0.3)) != taken:
        taken = now
    return taken


def test_of_two_publishers_with_one_name_the_older_is_fenced_once_and_stops(shared: ServedNode, node: Node) -> None:
    with connect(shared.address) as second_node:
        older = node.publisher("s", source="p")
        older.wait(older.publish("k", b"1"))
        with second_node.publisher("s", source="p") as newer:
            newer.wait(newer.publish("k", b"2"))
            with pytest.raises(veredus.Fenced):
                older.wait(older.publish("k", b"3"), timeout_s=10)
            with pytest.raises(veredus.Fenced):
                older.publish("k", b"4")
            newer.wait(newer.publish("k", b"5"))
        with second_node.subscribe("s", until=4) as subscription:
            assert [publication.body for publication in subscription] == [b"1", b"2", b"5"]


def test_a_stream_deleted_and_created_again_under_a_reader_is_told_to_it(node: Node) -> None:
    with node.publisher("s", source="p") as publisher:
        publisher.publish("k", b"1")
    subscription = node.subscribe("s")
    assert next(iter(subscription)).body == b"1"
    node.streams.delete("s")
    node.streams.create("s")
    with pytest.raises(veredus.Refused) as refused:
        subscription.next_batch(timeout_s=10)
    assert refused.value.code in ("stream-deleted", "stream-replaced")


def test_a_start_below_the_retained_floor_is_refused_with_the_floor(node: Node) -> None:
    with node.publisher("s", source="p") as publisher:
        publisher.publish_many([b"k"] * 10, [b"x"] * 10)
    node.streams.trim("s", 6)
    with pytest.raises(veredus.Refused) as refused:
        node.subscribe("s", start=veredus.at(3))
    assert refused.value.code == "below-floor"
    assert refused.value.details["floor"] == 6


def test_a_filter_that_does_not_parse_is_refused_with_its_position(node: Node) -> None:
    with pytest.raises(veredus.Refused) as refused:
        node.subscribe("s", where="quote > ")
    assert refused.value.code == "bad-predicate"
    assert "position" in refused.value.details


def test_a_body_over_the_limit_is_refused_where_it_is_published(node: Node) -> None:
    with node.publisher("s", source="p") as publisher:
        with pytest.raises((veredus.Misuse, veredus.Refused)) as error:
            publisher.publish("k", bytes(17 * MIB))
        assert error.value.code == "too-large"
        publisher.wait(publisher.publish("k", b"small"))


def test_a_slow_loris_is_let_go_and_others_are_served(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal", {"LIMITS_GREETING_TIMEOUT": "200ms"})
    try:
        with served.start() as node:
            loris = socket.create_connection(("127.0.0.1", served.port))
            loris.settimeout(10)
            loris.sendall(b"\xaa")
            assert _closed(loris)
            node.streams.create("s")
    finally:
        served.kill()


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\xaa\xa5\x01\x04ZEPS\x00\x02\x00" + b"\xff" * 64]
)
def test_garbage_ends_its_own_connection_and_no_other(shared: ServedNode, node: Node, garbage: bytes) -> None:
    hostile = socket.create_connection(("127.0.0.1", shared.port))
    hostile.settimeout(10)
    hostile.sendall(garbage)
    assert _closed(hostile)
    node.streams.create("s")


def _closed(connection: socket.socket) -> bool:
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    connection.close()
    return True


def test_a_port_in_use_is_named_and_the_exit_code_is_not_zero(shared: ServedNode, tmp_path: Path) -> None:
    second = ServedNode(tmp_path / "other", {"LISTEN_TCP": f"127.0.0.1:{shared.port}"})
    assert second.spawn().wait(20) != 0
    assert str(shared.port) in second.said()


def test_a_file_descriptor_limit_is_survived(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal", descriptors_max=64)
    try:
        with served.start() as node:
            held = []
            for _ in range(80):
                connection = socket.socket()
                connection.settimeout(0.2)
                held.append(connection)
                try:
                    connection.connect(("127.0.0.1", served.port))
                except OSError:
                    break
            with node.publisher("s", source="p") as publisher:
                publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
            for connection in held:
                connection.close()
    finally:
        served.kill()


def test_a_node_that_can_open_no_file_more_says_that_it_accepts_no_connection(served: ServedNode) -> None:
    with served.start() as node:
        assert served.process is not None
        process = served.process.pid
        former = resource.prlimit(process, resource.RLIMIT_NOFILE)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (4, former[1]))
        with socket.create_connection(("127.0.0.1", served.port)):
            wait_until(lambda: '"connections-not-accepted"' in served.said())
            assert node.streams.list() == []
        resource.prlimit(process, resource.RLIMIT_NOFILE, former)
        connect(served.address, timeout_s=START_TIMEOUT_S).close()
    assert served.said().count('"connections-not-accepted"') == 1


@pytest.mark.parametrize("descriptors_max", [10, 15, 47])
def test_a_node_that_may_open_too_few_files_for_any_connection_does_not_start(
    tmp_path: Path, descriptors_max: int
) -> None:
    served = ServedNode(tmp_path / "journal", descriptors_max=descriptors_max)
    assert served.spawn().wait(20) == Exit.UNAVAILABLE
    assert f"this process may open {descriptors_max} files, and needs at least 48: raise `ulimit -n`" in served.said()
    assert "[too-many-files]" in served.said()
    assert "node-ready" not in served.said()


def test_a_node_that_may_open_just_enough_files_serves(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal", {"LISTEN_METRICS": f"127.0.0.1:{free_port()}"}, descriptors_max=48)
    try:
        with served.start() as node, node.publisher("s", source="p") as publisher:
            publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
    finally:
        served.kill()


def test_a_stalled_subscriber_holds_back_neither_the_publisher_nor_a_live_one(node: Node) -> None:
    stalled = node.subscribe("s", subscriber="stalled", window_size=1024)
    with node.subscribe("s", until=20_001) as live, node.publisher("s", source="p") as publisher:
        publisher.publish_many([b"k"] * 20_000, [bytes(100)] * 20_000)
        assert sum(1 for _ in live) == 20_000
    shown = node.subscriptions.show("s", "stalled")
    assert shown["flow"] == "historical"
    assert shown["waits_for"] == "credit"
    assert sum(1 for _ in zip(range(20_000), stalled, strict=False)) == 20_000


def test_a_journal_of_a_newer_format_is_refused_with_words(served: ServedNode) -> None:
    with served.start() as node, node.publisher("s", source="p") as publisher:
        publisher.publish("k", b"1")
    served.kill()
    for checkpoint in served.directory.glob("checkpoint*"):
        checkpoint.unlink()
    segment = next(served.directory.glob("*.segment"))
    header = bytearray(segment.read_bytes()[:60])
    header[8:16] = struct.pack("<II", 99, 0)
    header[12:16] = crc32c(header).to_bytes(4, "little")
    with segment.open("r+b") as file:
        for place in (0, 2048):
            file.seek(place)
            file.write(header)
    assert served.spawn().wait(20) != 0
    assert "newer" in served.said()


def test_poison_publications_are_parked_after_their_last_attempt(node: Node) -> None:
    node.streams.create("dead")
    with node.publisher("s", source="p") as publisher:
        publisher.publish_many([b"a", b"b", b"c"], [b"1", b"2", b"3"], [{"n": 1}, {"n": 2}, {"n": 3}])
    for pushed in ([b"1", b"2", b"3"], [b"2"]):
        with node.subscribe("s", subscriber="x", mode="individual", attempts_max=2, parked_to="dead") as one:
            seen = [publication for _, publication in zip(pushed, one, strict=False)]
            assert [publication.body for publication in seen] == pushed
            for publication in seen:
                if publication.body != b"2":
                    one.settle(publication)
    with node.subscribe("s", subscriber="x", mode="individual", attempts_max=2, parked_to="dead", until=4) as one:
        assert list(one) == []
    with node.subscribe("dead", until=2) as dead:
        parked = list(dead)
    assert [(publication.key, publication.body) for publication in parked] == [(b"b", b"2")]
    assert parked[0].attributes["n"] == 2
    assert parked[0].attributes["veredus.sequence"] == 2
