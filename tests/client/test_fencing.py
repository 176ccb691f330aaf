"""A subscriber whose subscription somebody else has taken over stops at once, wherever it is."""

import asyncio

import pytest

import veredus
from veredus.client.embedded import Embedded
from veredus.client.subscribing import SubscriptionChannel

COUNT = 2_000


def publish(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="p") as publisher:
        publisher.publish_many([b"k"] * COUNT, [b"b"] * COUNT)


def take_over(node: Embedded, stream: str, channel: SubscriptionChannel) -> None:
    """Somebody else becomes the owner, and the one before has heard it."""
    with node.subscribe(stream, subscriber="x"):
        node.subscriptions.show(stream, "x")  # answered behind the fencing, on the same connection
    assert isinstance(channel.failure, veredus.Fenced)


def test_iteration_over_publications_ends_within_the_batch(node: Embedded, stream: str) -> None:
    publish(node, stream)
    one = node.subscribe(stream, subscriber="x")
    taken = 0
    with pytest.raises(veredus.Fenced):  # noqa: PT012  # what is counted is how often it went round before
        for _ in one:
            taken += 1
            if taken == 10:
                take_over(node, stream, one.channel)
    assert taken == 10


def test_iteration_over_a_batch_that_was_begun_ends_within_it(node: Embedded, stream: str) -> None:
    publish(node, stream)
    one = node.subscribe(stream, subscriber="x")
    batch = one.next_batch()
    assert batch is not None
    taken = 0
    with pytest.raises(veredus.Fenced):  # noqa: PT012
        for _ in batch:
            taken += 1
            if taken == 10:
                take_over(node, stream, one.channel)
    assert taken == 10
    with pytest.raises(veredus.Fenced):
        next(iter(batch))


@pytest.mark.parametrize("mode", ["in-order", "individual"])
def test_nothing_is_settled_any_more(node: Embedded, stream: str, mode: str) -> None:
    publish(node, stream)
    one = node.subscribe(stream, subscriber="x", mode=mode)  # type: ignore[arg-type]
    batch = one.next_batch()
    assert batch is not None
    publication = next(iter(batch))
    one.settle(publication)
    take_over(node, stream, one.channel)
    for settle in (lambda: one.settle(publication), lambda: one.settle(batch), lambda: one.settle(5), batch.settle):
        with pytest.raises(veredus.Fenced):
            settle()


def test_with_asyncio_it_ends_within_the_batch_as_well(node: Embedded, stream: str) -> None:
    async def take_all(until: int) -> int:
        taken = 0
        async with veredus.embedded_async() as own:
            async with own.publisher(stream, source="p") as publisher:
                await publisher.publish_many([b"k"] * COUNT, [b"b"] * COUNT)
            one = await own.subscribe(stream, subscriber="x")
            with pytest.raises(veredus.Fenced):  # noqa: PT012
                async for publication in one:
                    taken += 1
                    if taken == until:
                        async with own.subscribe(stream, subscriber="x"):
                            await own.subscriptions.show(stream, "x")
                        with pytest.raises(veredus.Fenced):
                            one.settle(publication)
        return taken

    assert asyncio.run(take_all(10)) == 10
