"""Damage that took the end of a stream: its sequences mean something else from then on, and subscribers learn of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import veredus
from tests.system.serving import ServedNode
from veredus import embedded
from veredus.client.blocking import Node

pytestmark = pytest.mark.slow


def publish_one_by_one(node: Node, stream: str, source: str, bodies: list[bytes]) -> None:
    with node.publisher(stream, source=source) as publisher:
        for body in bodies:
            publisher.wait(publisher.publish("k", body), timeout_s=20)


def flip_bit_at(directory: Path, text: bytes) -> None:
    (segment,) = (path for path in directory.glob("*.segment") if text in path.read_bytes())
    data = bytearray(segment.read_bytes())
    data[data.index(text)] ^= 1
    segment.write_bytes(data)


def lose_the_third(served: ServedNode, node: Node, subscription: veredus.Subscription) -> list[bytes]:
    """Publish three, and have the node killed and the third one damaged once all were given; what was given."""
    publish_one_by_one(node, "s", "old", [b"1", b"2", b"the third"])
    given: list[bytes] = []
    while len(given) < 3:
        given += [publication.body for publication in subscription.next_batch(timeout_s=20) or []]
    # Later groups say that all of it was durable: so it is damage, and no torn end.
    publish_one_by_one(node, "other", "p", [b"x"] * 3)
    served.kill()
    flip_bit_at(served.directory, b"the third")
    return given


def test_a_subscriber_that_was_given_what_damage_took_is_told_and_given_what_takes_its_place(
    served: ServedNode,
) -> None:
    gaps: list[veredus.Gap] = []
    with (
        served.start() as node,
        node.subscribe("s", subscriber="me", on_gap=gaps.append) as subscription,
    ):
        given = lose_the_third(served, node, subscription)
        served.spawn()
        while not node.subscriptions.show("s", "me")["is_attached"]:
            time.sleep(0.05)
        publish_one_by_one(node, "s", "new", [b"another third"])
        deadline = time.monotonic() + 20
        batch = None
        while batch is None and time.monotonic() < deadline:
            batch = subscription.next_batch(timeout_s=1)
    assert given == [b"1", b"2", b"the third"]
    assert "journal-damaged" in served.said()
    assert batch is not None, "what took the place of the lost one was passed over"
    assert [(publication.sequence, publication.body) for publication in batch] == [(3, b"another third")]
    assert gaps == [veredus.Gap(3, 4, "lost")]


def test_what_takes_the_place_of_the_lost_is_given_also_when_the_stream_has_grown_past_it_meanwhile(
    served: ServedNode,
) -> None:
    gaps: list[veredus.Gap] = []
    with served.start() as node, node.subscribe("s", on_gap=gaps.append) as subscription:
        lose_the_third(served, node, subscription)
        with embedded(served.directory) as unseen:
            publish_one_by_one(unseen, "s", "new", [b"another third", b"4", b"5", b"6"])
        served.spawn()
        new: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(new) < 4 and time.monotonic() < deadline:
            new += [publication.body for publication in subscription.next_batch(timeout_s=1) or []]
    assert new == [b"another third", b"4", b"5", b"6"]
    assert gaps == [veredus.Gap(3, 4, "lost")]
