"""A subscription that was closed takes nothing back: what it can no longer do is told, and not left undone."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import veredus
from veredus.client.embedded import Embedded


def publish(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="p") as publisher:
        publisher.publish_many([b"k"] * 5, [b"b"] * 5)


SETTLES: dict[str, Callable[[Any, Any], None]] = {
    "the subscription, a publication": lambda one, batch: one.settle(next(iter(batch))),
    "the subscription, a batch": lambda one, batch: one.settle(batch),
    "the subscription, a sequence": lambda one, batch: one.settle(1),
    "the batch": lambda one, batch: batch.settle(),
    "the publication": lambda one, batch: next(iter(batch)).settle(),
}


@pytest.mark.parametrize("mode", ["in-order", "individual"])
@pytest.mark.parametrize("settle", SETTLES.values(), ids=SETTLES)
def test_settling_behind_the_end_of_the_block_is_refused_and_not_silently_lost(
    node: Embedded, stream: str, settle: Callable[[Any, Any], None], mode: Any
) -> None:
    publish(node, stream)
    with node.subscribe(stream, subscriber="x", mode=mode) as one:
        batch = one.next_batch()
    with pytest.raises(veredus.Misuse, match="closed"):
        settle(one, batch)
    assert node.subscriptions.show(stream, "x")["floor"] == 0


def test_retrying_and_rejecting_behind_the_end_of_the_block_are_refused(node: Embedded, stream: str) -> None:
    publish(node, stream)
    node.streams.create(f"{stream}.dead")
    with node.subscribe(stream, subscriber="x", mode="individual", parked_to=f"{stream}.dead") as one:
        publication = next(iter(one))
    with pytest.raises(veredus.Misuse, match="closed"):
        publication.retry()
    with pytest.raises(veredus.Misuse, match="closed"):
        publication.reject("too late")


def test_a_closed_subscription_hands_out_nothing_more_that_could_not_be_settled(node: Embedded, stream: str) -> None:
    publish(node, stream)
    one = node.subscribe(stream, subscriber="x")
    publications = iter(one)
    next(publications)
    one.close()
    with pytest.raises(veredus.Misuse, match="closed"):
        next(publications)
    with pytest.raises(veredus.Misuse, match="closed"):
        one.next_batch(timeout_s=0)


def test_a_batch_that_was_given_out_whole_can_be_read_behind_the_end_of_the_block(node: Embedded, stream: str) -> None:
    publish(node, stream)
    with node.subscribe(stream) as one:
        batch = one.next_batch()
    assert batch is not None
    assert [publication.sequence for publication in batch] == [1, 2, 3, 4, 5]


def test_settling_when_the_connection_was_closed_is_refused(node: Embedded, stream: str) -> None:
    publish(node, stream)
    with veredus.connect(node.served.address) as far:
        batch = far.subscribe(stream, subscriber="x").next_batch()
    assert batch is not None
    with pytest.raises(veredus.Misuse, match="closed"):
        batch.settle()


def test_with_asyncio_it_is_the_same(node: Embedded, stream: str) -> None:
    publish(node, stream)

    async def settle_late() -> None:
        async with veredus.connect_async(node.served.address) as far:
            async with far.subscribe(stream, subscriber="x") as one:
                batch = await one.next_batch()
            assert batch is not None
            with pytest.raises(veredus.Misuse, match="closed"):
                batch.settle()
            with pytest.raises(veredus.Misuse, match="closed"):
                await one.next_batch()

    asyncio.run(settle_late())
