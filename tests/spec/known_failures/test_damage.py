"""Bits that flip and files that are cut: what is sound is served, what is not is named, and nothing is cleaned away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.spec.known_failures.rotting import body_of, crashed, flip_bit, node_over, place_of, read

COUNTS = {"orders": 1_500, "prices": 500}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of some dozens of segments and several checkpoints, as a SIGKILL left it."""
    return crashed(tmp_path_factory.mktemp("journals") / "journal", COUNTS)


@pytest.fixture
def directory(journal: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(journal, tmp_path / "journal"))


def everything(count: int) -> list[int]:
    return list(range(1, count + 1))


@pytest.mark.parametrize("number", [3, 700, 1_450])
def test_one_flipped_bit_in_a_segment_costs_the_batch_around_it_and_nothing_behind_it(
    directory: Path, number: int
) -> None:
    """One bit of a data file flipped, and acknowledged messages vanished by ten thousands, from the middle and the end.

    Seen in: NATS JetStream 2.12.1, its `.blk` files: nats-io/nats-server#7549; Jepsen, "NATS 2.12.1", 2025,
    https://jepsen.io/analyses/nats-2.12.1.
    Here: one bit flips in the body of an acknowledged publication, early, in the middle, or behind the last checkpoint.
    The batch that it is in is told as damaged, all else is given byte by byte, and the source is still known.
    """
    path, offset = place_of(directory, b"<orders %d>" % number)
    flip_bit(path, offset + 40)
    with node_over(directory) as node:
        got, gaps = read(node, "orders")
        assert read(node, "prices") == (everything(COUNTS["prices"]), [])
        missing = sorted(set(everything(COUNTS["orders"])) - set(got))
        assert number in missing
        assert len(missing) <= 10, "a batch has ten publications here"
        assert [(gap.first_sequence, gap.next_sequence, gap.code) for gap in gaps] == [
            (missing[0], missing[-1] + 1, "damaged")
        ]
        with node.publisher("orders", source="source-of-orders") as publisher:
            assert publisher.last_number == COUNTS["orders"]


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint.copy"])
def test_a_flipped_bit_in_a_snapshot_deletes_no_stream(directory: Path, name: str) -> None:
    """The snapshot of the metadata had a flipped bit: a node took its streams for orphans and deleted their data.

    Seen in: NATS JetStream 2.12.1, nats-io/nats-server#7556; without Jepsen's help already in #4410 and #6188.
    Here: a bit flips in one copy of the checkpoint, at its head, in the middle or at its end: the other copy is used.
    """
    segments = sorted(path.name for path in directory.glob("*.segment"))
    for part in (0.0, 0.5, 0.999):
        flip_bit(directory / name, int((directory / name).stat().st_size * part))
        with node_over(directory) as node:
            assert {stream: read(node, stream) for stream in COUNTS} == {
                stream: (everything(count), []) for stream, count in COUNTS.items()
            }
        assert sorted(path.name for path in directory.glob("*.segment")) == segments


def test_with_every_snapshot_damaged_all_is_read_again_from_the_segments(directory: Path) -> None:
    """As above, in the worst case: every copy of the metadata is damaged, and the data it speaks of is sound.

    Seen in: NATS JetStream, nats-io/nats-server#4410 ("Snapshot corrupt, too short"), after which all streams were
    cleaned up.
    Here: both copies of the checkpoint are damaged. The node reads every segment from the first on, and all is there.
    """
    for name in ("checkpoint", "checkpoint.copy"):
        flip_bit(directory / name, 60)
    with node_over(directory) as node:
        assert [read(node, stream)[0] for stream in COUNTS] == [everything(count) for count in COUNTS.values()]


@pytest.mark.parametrize("remains", [0, 7])
def test_a_truncated_index_or_metadata_file_drops_no_stream(directory: Path, remains: int) -> None:
    """A small file beside the data was cut short by a crash, and the stream that it describes did not come back.

    Seen in: NATS JetStream: `meta.inf` in nats-io/nats-server#4195 and #5703, sequences reset to zero in #2055, an
    index that crashed the server in nats-io/jetstream#406; Jepsen's "NATS 2.12.1", 2025, on truncated files.
    Here: every index file, and one copy of the checkpoint, are cut to nothing or to a few bytes. Indexes are made
    again from the segments, and all is there.
    """
    cut = [*directory.glob("*.index"), directory / "checkpoint"]
    assert len(cut) > 5
    for path in cut:
        path.write_bytes(path.read_bytes()[:remains])
    with node_over(directory) as node:
        assert sorted(stream["name"] for stream in node.streams.list()) == sorted(COUNTS)
        assert [read(node, stream) for stream in COUNTS] == [(everything(count), []) for count in COUNTS.values()]


def test_a_file_that_is_cut_in_the_middle_takes_only_what_was_in_the_part_that_is_gone(directory: Path) -> None:
    """A data file was truncated, and a node that had lost a part of a stream had others lose it as well, or all of it.

    Seen in: NATS JetStream 2.12.1: Jepsen, "NATS 2.12.1", 2025, https://jepsen.io/analyses/nats-2.12.1.
    Here: the second half of a sealed segment is gone. What was in it is told as damaged, and what lies in the segments
    before and behind is given.
    """
    path, offset = place_of(directory, b"<orders 400>")
    data = path.read_bytes()
    path.write_bytes(data[:offset])
    gone = [number for number in everything(COUNTS["orders"]) if data.find(b"<orders %d>" % number) >= offset]
    with node_over(directory) as node:
        got, gaps = read(node, "orders")
        assert {gap.code for gap in gaps} == {"damaged"}
        missing = sorted(set(everything(COUNTS["orders"])) - set(got))
        assert gone
        assert set(gone) <= set(missing)
        assert len(missing) < len(gone) + 10
        assert got[-1] == COUNTS["orders"]
        assert read(node, "prices") == (everything(COUNTS["prices"]), [])
        with node.publisher("orders", source="source-of-orders") as publisher:
            publisher.wait(publisher.publish("k", body_of("orders", publisher.last_number + 1)), timeout_s=20)
