"""Nodes that are killed while an application tries the same publications again and again: no attempt is forgotten."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.processes import Child
from tests.system.serving import ServedNode
from veredus.client.blocking import Node, connect

pytestmark = pytest.mark.slow

ATTEMPTS_MAX = 3
LIFE = """
import sys, veredus
node = veredus.connect(sys.argv[1], timeout_s=20, refused_s=20)
jobs = node.subscribe("jobs", subscriber="worker", attempts_max=2, parked_to="dead", until=2)
for job in jobs:
    print(job.sequence, flush=True)
    sys.stdin.readline()
"""


def fill(node: Node, count: int) -> None:
    node.streams.create("dead")
    with node.publisher("jobs", source="desk") as publisher:
        publisher.publish_many([b"k"] * count, [b"job"] * count)


def attempts_in_letters(node: Node) -> dict[object, object]:
    with node.subscribe("dead", until=node.streams.show("dead")["head"] + 1) as letters:
        found = [letter.attributes for letter in letters]
    counts = {letter["veredus.sequence"]: letter["veredus.attempts"] for letter in found}
    assert len(counts) == len(found), "each is one letter"
    return counts


def test_a_node_killed_between_retries_hands_out_each_publication_as_often_as_it_may(served: ServedNode) -> None:
    count = 2
    handed_out: Counter[int] = Counter()
    with served.start() as node:
        fill(node, count)
        jobs = node.subscribe(
            "jobs", subscriber="worker", mode="individual", attempts_max=ATTEMPTS_MAX, parked_to="dead", until=count + 1
        )
        with jobs:
            for job in jobs:
                handed_out[job.sequence] += 1
                assert handed_out[job.sequence] <= ATTEMPTS_MAX
                job.retry()
                if handed_out.total() in (2, 4):
                    served.kill()
                    served.spawn()
        assert handed_out == dict.fromkeys(range(1, count + 1), ATTEMPTS_MAX)
        assert attempts_in_letters(node) == handed_out


def test_what_takes_application_and_node_with_it_each_time_becomes_a_dead_letter(served: ServedNode) -> None:
    handed_out = 0
    with served.start() as node:
        fill(node, 1)
    while handed_out <= 3:
        with Child([sys.executable, "-c", LIFE, served.address], stdin=-1, stdout=-1) as life:
            assert life.stdout is not None
            if not life.stdout.readline():
                break
            served.kill()
            handed_out += 1
        served.spawn()
    assert 2 <= handed_out <= 3, "the first one may have come before its node heard of it"
    with connect(served.address) as node:
        assert attempts_in_letters(node) == {1: 2}
