"""Nodes and publishers that are killed while they work: nothing acknowledged is lost, nothing is doubled."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

import veredus
from tests.processes import Child, beside, ended
from tests.system.serving import ServedNode
from veredus.client.blocking import connect

pytestmark = pytest.mark.slow

PUBLISHER = """
import sys, veredus
address, count = sys.argv[1], int(sys.argv[2])
with veredus.connect(address, timeout_s=30, refused_s=30) as node:
    publisher = node.publisher("orders", source="till")
    for number in range(publisher.last_number + 1, count + 1):
        publisher.publish(f"till.{number % 7}", str(number).encode())
        if number % 500 == 0:
            publisher.flush()
            print(publisher.taken_number, flush=True)
    publisher.close()
"""


def test_a_node_killed_again_and_again_loses_and_doubles_nothing(served: ServedNode) -> None:
    count = 60_000
    with served.start() as node:
        publisher = node.publisher("orders", source="till")
        done = threading.Event()

        def kill_now_and_then() -> None:
            for _ in range(4):
                if done.wait(0.25):
                    return
                served.kill()
                served.spawn()

        with beside(kill_now_and_then):
            for number in range(1, count + 1):
                publisher.publish("till", str(number).encode())
                if number % 2_000 == 0:
                    publisher.wait(number, timeout_s=30)
            publisher.flush(timeout_s=30)
            done.set()
        publisher.close()
        assert _bodies(served.address, count) == list(range(1, count + 1))


def test_a_publisher_killed_again_and_again_goes_on_where_the_stream_stopped(served: ServedNode) -> None:
    count = 20_000
    served.start().close()
    for _ in range(3):
        with Child([sys.executable, "-c", PUBLISHER, served.address, str(count)], stdout=-1) as process:
            assert process.stdout is not None
            acknowledged = int(process.stdout.readline() or count)
        assert acknowledged <= count
    assert ended([sys.executable, "-c", PUBLISHER, served.address, str(count)]).returncode == 0
    assert _bodies(served.address, count) == list(range(1, count + 1))


def test_a_durable_subscriber_over_a_killed_node_is_pushed_nothing_that_it_had_settled(served: ServedNode) -> None:
    count = 5_000
    with served.start() as node:
        with node.publisher("orders", source="till") as publisher:
            publisher.publish_many([b"k"] * count, [str(n).encode() for n in range(count)])
        with node.subscribe("orders", subscriber="desk") as subscription:
            seen = []
            for publication in subscription:
                seen.append(publication.sequence)
                if len(seen) == count // 2:
                    subscription.settle(publication)
                    subscription.wait_settled()
                    break
    served.kill()
    with served.start() as node, node.subscribe("orders", subscriber="desk", until=count + 1) as subscription:
        again = [publication.sequence for publication in subscription]
    assert seen + again == list(range(1, count + 1))


def test_a_clean_stop_is_told_to_the_peers_and_the_next_start_is_clean(served: ServedNode) -> None:
    with served.start() as node, node.publisher("orders", source="till") as publisher:
        publisher.publish("k", b"1")
    assert served.stop() == 0
    served.start().close()
    assert '"was_clean":true' in served.said().splitlines()[-1]


def _bodies(address: str, count: int) -> list[int]:
    with (
        connect(address, timeout_s=30, refused_s=30) as node,
        node.subscribe("orders", until=count + 1) as subscription,
    ):
        return [int(publication.body) for publication in subscription]


def test_the_directory_of_a_running_node_is_refused_to_a_second_one(served: ServedNode, tmp_path: Path) -> None:
    served.start().close()
    second = ServedNode(served.directory)
    assert second.spawn().wait(20) != 0
    assert "is in use by process" in second.said()
    with pytest.raises(veredus.Refused):
        veredus.embedded(served.directory)
