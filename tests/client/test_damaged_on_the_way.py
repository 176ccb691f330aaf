"""A bit that turns between node and client, and that no checksum of the network has noticed."""

import asyncio

import veredus
from tests.client.cutter import Cutter
from veredus.client.embedded import Embedded
from veredus.kernel.errors import Unavailable


def five(node: Embedded, stream: str) -> None:
    """Five publications, a batch each."""
    node.streams.create(stream)
    with node.publisher(stream) as publisher:
        for number in range(1, 6):
            publisher.publish("key", f"body {number}")
            publisher.flush()


def test_what_was_damaged_on_its_way_is_told_once_and_comes_again(node: Embedded, stream: str) -> None:
    five(node, stream)
    told: list[str] = []
    sequences: list[int] = []
    with Cutter(node.served.address) as relay, veredus.connect(relay.address) as far:
        relay.damages = b"body 3"
        with far.subscribe(stream, subscriber="s", until=6) as subscription:
            while not subscription.is_ended:
                try:
                    batch = subscription.next_batch(timeout_s=10)
                except Unavailable as error:
                    told.append(error.code)
                    continue
                if batch is not None:
                    sequences += batch.sequences.tolist()
                    batch.settle()
            subscription.wait_settled(timeout_s=10)
        assert (sequences, told, relay.connection_count) == ([1, 2, 3, 4, 5], ["damaged"], 2)


def test_so_it_does_with_asyncio(node: Embedded, stream: str) -> None:
    five(node, stream)
    told: list[str] = []
    sequences: list[int] = []

    async def read(address: str) -> None:
        async with (
            veredus.connect_async(address) as far,
            await far.subscribe(stream, subscriber="s", until=6) as subscription,
        ):
            while not subscription.is_ended:
                try:
                    async for publication in subscription:
                        sequences.append(publication.sequence)
                        publication.settle()
                except Unavailable as error:
                    told.append(error.code)

    with Cutter(node.served.address) as relay:
        relay.damages = b"body 3"
        asyncio.run(read(relay.address))
        assert (sequences, told, relay.connection_count) == ([1, 2, 3, 4, 5], ["damaged"], 2)
