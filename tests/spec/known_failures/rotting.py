"""Journals as a crash leaves them, and damage that is done to what lies in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import veredus
from tests.journal.rig import as_killed
from veredus.client.blocking import Node
from veredus.client.embedded import Embedded

SMALL = {"segment_size": 64 << 10, "checkpoint_interval_size": 1 << 20, "free_segments_max": 0}
BODY_SIZE = 900


@contextmanager
def node_over(directory: Path) -> Iterator[Embedded]:
    """A node over this directory, whose journal has small segments; what it holds in memory is little."""
    with veredus.embedded(directory, journal=SMALL, limits={"tail_size_max": 1 << 10}) as node:
        yield node


def body_of(stream: str, number: int) -> bytes:
    """What is published as this number of a stream."""
    return b"<%s %d>" % (stream.encode(), number) + bytes(BODY_SIZE)


def crashed(directory: Path, counts: dict[str, int]) -> Path:
    """A journal with so many publications in each stream, checkpoints on the way, as a SIGKILL leaves it."""
    with node_over(directory) as node:
        for stream, count in counts.items():
            with node.publisher(stream, source=f"source-of-{stream}") as publisher:
                for number in range(1, count + 1):
                    publisher.publish("k", body_of(stream, number))
                    if number % 10 == 0:
                        publisher.flush(timeout_s=20)
        return as_killed(directory, directory.with_name(f"{directory.name}-crashed"))


def flip_bit(path: Path, offset: int) -> None:
    """One bit is another one."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


def place_of(directory: Path, text: bytes) -> tuple[Path, int]:
    """The segment and the offset where this lies."""
    for path in sorted(directory.glob("*.segment")):
        offset = path.read_bytes().find(text)
        if offset >= 0:
            return path, offset
    raise AssertionError(f"{text!r} is in no segment of {directory}")


def read(node: Node, stream: str) -> tuple[list[int], list[veredus.Gap]]:
    """The numbers that a reader is given of a stream, each with its own body, and the gaps that it is told of."""
    gaps: list[veredus.Gap] = []
    head = node.streams.show(stream)["head"]
    with node.subscribe(stream, until=head + 1, on_gap=gaps.append) as subscription:
        got = list(subscription)
    assert [publication.body for publication in got] == [body_of(stream, p.number) for p in got]
    return [publication.number for publication in got], gaps
