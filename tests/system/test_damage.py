"""Damage that a node finds at its start: what cannot be had any more is named, and what is sound is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import veredus
from tests.system.serving import ServedNode
from veredus.client.blocking import Node

pytestmark = [pytest.mark.slow, pytest.mark.attack]


def publish_one_by_one(node: Node, stream: str, count: int, padding: bytes = b"") -> None:
    with node.publisher(stream, source="p") as publisher:
        for number in range(1, count + 1):
            body = b"%s %d" % (stream.encode(), number) + padding
            publisher.wait(publisher.publish("k", body), timeout_s=20)


def flip_bit_at(directory: Path, text: bytes) -> None:
    """Spoil the first place of the journal that says this."""
    path = min(path for path in directory.glob("*.segment") if text in path.read_bytes())
    data = bytearray(path.read_bytes())
    data[data.index(text)] ^= 1
    path.write_bytes(data)


@pytest.fixture
def served_small(tmp_path: Path) -> Iterator[ServedNode]:
    """A node whose journal has small segments."""
    node = ServedNode(tmp_path / "journal", {"JOURNAL_SEGMENT_SIZE": "64KiB"})
    yield node
    node.kill()


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_killed_node_whose_last_segment_was_removed_or_emptied_says_so_and_goes_on(
    served_small: ServedNode, is_emptied: bool
) -> None:
    served = served_small
    with served.start() as node:
        publish_one_by_one(node, "s", 60, padding=bytes(3000))
    served.kill()
    last = max(path for path in served.directory.glob("*.segment") if b"s 60" in path.read_bytes())
    assert last.stem != f"{1:016x}"
    if is_emptied:
        last.write_bytes(b"")
    else:
        last.unlink()
    with served.start() as node:
        (told,) = (json.loads(line) for line in served.said().splitlines() if "journal-segment-missing" in line)
        assert (told["level"], told["segment"]) == ("error", int(last.stem, 16))
        with node.subscribe("s", until=node.streams.show("s")["head"] + 1) as subscription:
            numbers = [publication.number for publication in subscription]
        assert numbers == list(range(1, len(numbers) + 1))
        with node.publisher("s", source="p") as publisher:
            assert publisher.taken_number == len(numbers) < 60
    assert served.stop() == 0


def test_a_durable_subscriber_is_told_of_what_a_replaced_last_segment_took_and_gets_what_comes_after(
    tmp_path: Path,
) -> None:
    served = ServedNode(
        tmp_path / "journal", {"JOURNAL_SEGMENT_SIZE": "256KiB", "JOURNAL_CHECKPOINT_INTERVAL_SIZE": "1MiB"}
    )
    gaps: list[veredus.Gap] = []
    checkpoint = served.directory / "checkpoint"
    with served.start() as node:
        count = 0
        node.streams.create("s")
        subscription = node.subscribe("s", subscriber="reader", on_gap=gaps.append)
        with node.publisher("s", source="p") as publisher:
            # Until a checkpoint has been taken, which knows a part of the last segment; then some more.
            before = checkpoint.read_bytes() if checkpoint.exists() else b""
            while not checkpoint.exists() or checkpoint.read_bytes() == before or count % 8:
                count += 1
                publisher.wait(publisher.publish("k", b"%d" % count + bytes(3000)), timeout_s=20)
            for _ in range(20):
                count += 1
                publisher.wait(publisher.publish("k", b"%d" % count + bytes(3000)), timeout_s=20)
        for publication in subscription:
            subscription.settle(publication)
            if publication.sequence == count:
                break
        subscription.wait_settled(timeout_s=20)
        served.kill()
        last = max(path for path in served.directory.glob("*.segment") if b"%d\0" % count in path.read_bytes())
        last.write_bytes(bytes(last.stat().st_size))
        served.spawn()
        with node.publisher("s", source="another") as publisher:
            receipts = [publisher.wait(publisher.publish("k", b"new %d" % i), timeout_s=20) for i in range(40)]
        assert receipts[0].sequence <= count, "sequences that were lost are given again"
        got = []
        for publication in subscription:
            got.append(publication.body)
            if len(got) == 40:
                break
        assert got == [b"new %d" % i for i in range(40)]
        assert "lost" in {gap.code for gap in gaps}
    assert "journal-segment-missing" in served.said()
    served.kill()


def test_a_stream_whose_making_was_damaged_is_named_and_made_anew_by_the_next_who_asks(served: ServedNode) -> None:
    with served.start() as node:
        publish_one_by_one(node, "kept", 2)
        publish_one_by_one(node, "lost", 3)
        lost_id = node.streams.show("lost")["stream_id"]
        served.kill()
        flip_bit_at(served.directory, b"\xa4lost")
        served.spawn()
        assert [stream["name"] for stream in node.streams.list()] == ["kept"]
        (told,) = (json.loads(line) for line in served.said().splitlines() if "stream-orphaned" in line)
        assert (told["level"], told["stream_id"], told["records"], told["publications"]) == ("error", lost_id, 3, 3)
        publish_one_by_one(node, "lost", 1)
        assert node.streams.show("lost")["stream_id"] > lost_id
        with node.subscribe("lost", until=2) as subscription:
            assert [publication.body for publication in subscription] == [b"lost 1"]


def test_a_reader_of_a_stream_that_damage_took_a_part_of_gets_a_gap_and_the_rest(served: ServedNode) -> None:
    gaps: list[veredus.Gap] = []
    with served.start() as node:
        publish_one_by_one(node, "s", 5)
        served.kill()
        flip_bit_at(served.directory, b"s 3")
        served.spawn()
        with node.subscribe("s", until=6, on_gap=gaps.append) as subscription:
            assert [publication.sequence for publication in subscription] == [1, 2, 4, 5]
    assert gaps == [veredus.Gap(3, 4, "damaged")]
    assert "journal-damaged" in served.said()


def test_a_node_whose_two_checkpoints_are_damaged_has_all_from_its_segments_and_says_so(served: ServedNode) -> None:
    with served.start() as node:
        publish_one_by_one(node, "s", 20)
        with node.subscribe("s", subscriber="reader") as subscription:
            batch = subscription.next_batch(timeout_s=20)
            assert batch is not None
            batch.settle()
            settled_count = len(list(batch))
    assert served.stop() == 0
    for name in ("checkpoint", "checkpoint.copy"):
        file = served.directory / name
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with served.start() as node:
        with node.publisher("s", source="p") as publisher:
            assert publisher.taken_number == 20
        with node.subscribe("s", subscriber="reader", until=21) as subscription:
            assert [publication.sequence for publication in subscription] == list(range(settled_count + 1, 21))
    said = [json.loads(line)["event"] for line in served.said().splitlines()]
    assert said.count("journal-checkpoint-damaged") == 2
    assert "journal-recovered-from-segments" in said
    assert len(list((served.directory / "aside").iterdir())) == 2
