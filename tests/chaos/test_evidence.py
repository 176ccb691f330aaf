"""Flips hit what the journal holds, and a report of damage that nobody did excuses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import veredus
from tests.system.serving import ServedNode
from veredus.chaos.content import body_of, key_of
from veredus.chaos.evidence import READER, Range, gather, sizes_of, unexplained_gaps
from veredus.chaos.flipping import Struck, flip
from veredus.chaos.layout import Layout
from veredus.chaos.plan import Plan, draw
from veredus.recording import Recording

pytestmark = pytest.mark.slow
COUNT = 1_500


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "run")
    made.make()
    return made


@pytest.fixture
def served(layout: Layout) -> Iterator[ServedNode]:
    node = ServedNode(layout.journal, {"JOURNAL_SEGMENT_SIZE": "64 KiB", "LIMITS_BATCH_SIZE_MAX": "4 KiB"})
    yield node
    if node.process is not None:
        node.kill()


def plan() -> Plan:
    return draw(1, 3, (), 1, 1, 0)


def published(served: ServedNode, recording: Recording) -> None:
    numbers = range(1, COUNT + 1)
    keys, bodies = ([of("source-1", number) for number in numbers] for of in (key_of, body_of))
    with served.start() as node:
        recording.offered("orders", "source-1", 1, keys, bodies)
        with node.publisher("orders", source="source-1", batch_size=2_000) as publisher:
            publisher.publish_many(keys, bodies)
    assert served.stop() == 0


def test_what_was_struck_is_the_gap_that_is_told_and_all_else_is_there(layout: Layout, served: ServedNode) -> None:
    with Recording(layout.recordings, "source-1") as recording:
        published(served, recording)
    struck = flip(layout.journal, Random(1))
    assert isinstance(struck, Struck)
    assert struck.source == "source-1"
    hit = Range("orders", struck.first_sequence, struck.first_sequence + struck.last_number - struck.first_number)
    with served.start() as node:
        count = gather(plan(), layout, node)
    sizes = sizes_of(layout.evidence)
    assert count == sizes["journal"] == COUNT - (hit.last_sequence - hit.first_sequence + 1)
    assert sizes["gaps"] == 1
    assert unexplained_gaps(layout, [hit]) == []
    (told,) = unexplained_gaps(layout, [Range("trades", *hit[1:]), Range("orders", 1, hit.last_sequence - 1)])
    assert told.startswith(f"{READER} was told that {hit.first_sequence} to {hit.last_sequence} of orders are damaged")


def test_where_no_segment_is_sealed_nothing_is_struck(layout: Layout, served: ServedNode) -> None:
    with served.start() as node, node.publisher("orders", source="source-1") as publisher:
        publisher.publish(key_of("source-1", 1), body_of("source-1", 1))
    assert served.stop() == 0
    assert flip(layout.journal, Random(1)) is None


def test_rows_of_a_sink_are_known_by_their_bodies(layout: Layout, served: ServedNode) -> None:
    with Recording(layout.recordings, "sink-1"), served.start() as node:
        node.streams.create("orders")
        with node.sink("sink-1").open_run() as run, run.stage("orders") as stage:
            stage.publish(key_of("sink-1", 1), body_of("sink-1", 1))
            stage.flush()
            run.commit(0, [stage])
        gather(plan(), layout, node)
    rows = [*_rows(layout, "journal")]
    assert [(row["source"], row["number"], row["sequence"]) for row in rows] == [("sink-1", 1, 1)]
    assert veredus.recording.digest_of(key_of("sink-1", 1), body_of("sink-1", 1)) == rows[0]["digest"]


def _rows(layout: Layout, kind: str) -> list[dict[str, object]]:
    import pyarrow.parquet as pq

    return [row for file in (layout.evidence / kind).glob("*.parquet") for row in pq.read_table(file).to_pylist()]
