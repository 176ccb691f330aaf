"""What a caller bounds by a timeout ends in time while the node is stopped, and goes on where it was when it runs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import veredus
from tests.processes import free_port
from tests.system.serving import ServedNode
from veredus.client.blocking import Node

pytestmark = pytest.mark.slow

GROUP = "239.195.7.9"
TIMEOUT_S = 20.0
LITTLE_S = 1.5
"""What a call may take beyond its timeout on a busy machine."""


class Stoppable:
    """A node that is a process, and a connection to it."""

    def __init__(self, directory: Path) -> None:
        self.served = ServedNode(directory)
        self.node: Node = self.served.start()

    def stop(self) -> None:
        assert self.served.process is not None
        os.kill(self.served.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.served.process is not None
        os.kill(self.served.process.pid, signal.SIGCONT)

    def end(self) -> None:
        self.go_on()
        self.node.close()
        self.served.kill()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Stoppable]:
    far = Stoppable(tmp_path / "journal")
    yield far
    far.end()


def seconds_of(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def publish(node: Node, count: int) -> None:
    with node.publisher("s", source="p") as publisher:
        for number in range(count):
            publisher.publish("k", b"%d" % number)


def test_a_reception_keeps_to_its_timeout_and_loses_nothing(far: Stoppable) -> None:
    publish(far.node, 3)
    with far.node.receive("s", f"{GROUP}:{free_port()}", silence_s=0.1) as reception:
        assert [message.sequence for message in reception.next_messages(3, TIMEOUT_S)] == [1, 2, 3]
        assert reception.next_message(0.3) is None
        far.stop()
        for _ in range(3):
            assert seconds_of(lambda: reception.next_message(0.5)) < 0.5 + LITTLE_S
        far.go_on()
        publish(far.node, 1)
        message = reception.next_message(TIMEOUT_S)
        assert message is not None
        assert message.sequence == 4


def test_a_reception_that_waits_for_its_node_can_be_closed(far: Stoppable) -> None:
    publish(far.node, 1)
    with far.node.receive("s", f"{GROUP}:{free_port()}", silence_s=0.1) as reception:
        assert reception.next_message(TIMEOUT_S) is not None
        far.stop()
        reception.next_message(0.5)
        assert seconds_of(reception.close) < LITTLE_S


def left_unsettled(node: Node) -> None:
    """Publications that were handed out once, so that the node must hear of the next attempt first."""
    node.streams.create("letters")
    publish(node, 3)
    with node.subscribe("s", subscriber="a", mode="individual", attempts_max=5, parked_to="letters") as before:
        assert before.next_batch(TIMEOUT_S) is not None


def test_a_batch_that_was_tried_before_keeps_the_subscriber_no_longer_than_its_timeout(far: Stoppable) -> None:
    left_unsettled(far.node)
    with far.node.subscribe("s", subscriber="a", mode="individual", attempts_max=5, parked_to="letters") as again:
        time.sleep(0.5)
        far.stop()
        for _ in range(2):
            began = time.monotonic()
            assert again.next_batch(0.5) is None
            assert time.monotonic() - began < 0.5 + LITTLE_S
        far.go_on()
        batch = again.next_batch(TIMEOUT_S)
        assert batch is not None
        assert [publication.sequence for publication in batch] == [1, 2, 3]
        again.settle(batch)
        again.wait_settled(timeout_s=TIMEOUT_S)


async def _take_again(far: Stoppable) -> None:
    async with veredus.connect_async(far.served.address) as node:
        again = await node.subscribe("s", subscriber="a", mode="individual", attempts_max=5, parked_to="letters")
        await asyncio.sleep(0.5)
        far.stop()
        for _ in range(2):
            async with asyncio.timeout(0.5 + LITTLE_S):
                assert await again.next_batch(0.5) is None
        far.go_on()
        batch = await again.next_batch(TIMEOUT_S)
        assert batch is not None
        assert [publication.sequence for publication in batch] == [1, 2, 3]
        again.settle(batch)
        await again.close()


def test_neither_does_it_with_asyncio(far: Stoppable) -> None:
    left_unsettled(far.node)
    asyncio.run(_take_again(far))


def test_what_is_given_back_and_taken_again_is_one_attempt_however_often_the_time_is_over(far: Stoppable) -> None:
    far.node.streams.create("letters")
    publish(far.node, 1)
    options = {"subscriber": "a", "mode": "individual", "attempts_max": 3, "parked_to": "letters"}
    with far.node.subscribe("s", **options) as jobs:  # type: ignore[arg-type]
        batch = jobs.next_batch(TIMEOUT_S)
        assert batch is not None
        jobs.retry(next(iter(batch)))
        time.sleep(0.5)
        far.stop()
        for _ in range(4):
            assert jobs.next_batch(0.2) is None
        far.go_on()
        again = jobs.next_batch(TIMEOUT_S)
        assert again is not None
        jobs.retry(next(iter(again)))
        assert jobs.next_batch(TIMEOUT_S) is not None, "this is the third attempt"
        assert far.node.streams.show("letters")["head"] == 0


def test_receipts_and_settlements_are_waited_for_no_longer(far: Stoppable) -> None:
    publish(far.node, 1)
    with (
        far.node.publisher("s", source="q") as publisher,
        far.node.subscribe("s", subscriber="a") as subscription,
    ):
        batch = subscription.next_batch(TIMEOUT_S)
        assert batch is not None
        far.stop()
        number = publisher.publish("k", b"")
        subscription.settle(batch)

        def doubtful(call: Callable[[], object]) -> float:
            began = time.monotonic()
            with pytest.raises(veredus.Unavailable, match="in-doubt"):
                call()
            return time.monotonic() - began

        assert doubtful(lambda: publisher.wait(number, 0.3)) < 0.3 + LITTLE_S
        assert doubtful(lambda: publisher.flush(timeout_s=0.3)) < 0.3 + LITTLE_S
        assert doubtful(lambda: subscription.wait_settled(timeout_s=0.3)) < 0.3 + LITTLE_S
        far.go_on()
