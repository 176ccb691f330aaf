"""Who uses an asyncio object in another loop, or one subscription in two threads, is told so and waits for nothing."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import veredus
from veredus.client.embedded import Embedded

USES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "a request": lambda far, _publisher, _subscription, _run: far.streams.list(),
    "another publisher": lambda far, _publisher, _subscription, _run: far.publisher("s"),
    "another subscription": lambda far, _publisher, _subscription, _run: far.subscribe("s"),
    "a run": lambda far, _publisher, _subscription, _run: far.sink("other").open_run(),
    "publish": lambda _far, publisher, _subscription, _run: publisher.publish("k", b"b"),
    "publish_many": lambda _far, publisher, _subscription, _run: publisher.publish_many(["k"], [b"b"]),
    "wait": lambda _far, publisher, _subscription, _run: publisher.wait(1),
    "flush": lambda _far, publisher, _subscription, _run: publisher.flush(),
    "next_batch": lambda _far, _publisher, subscription, _run: subscription.next_batch(),
    "wait_settled": lambda _far, _publisher, subscription, _run: subscription.wait_settled(),
    "change_filter": lambda _far, _publisher, subscription, _run: subscription.change_filter("k"),
    "commit": lambda _far, _publisher, _subscription, run: run.commit(0, []),
    "close a publisher": lambda _far, publisher, _subscription, _run: publisher.close(),
    "close a subscription": lambda _far, _publisher, subscription, _run: subscription.close(),
    "close the node": lambda far, _publisher, _subscription, _run: far.close(),
}


async def _open(node: Embedded, stream: str) -> tuple[Any, Any, Any, Any]:
    far = await veredus.connect_async(node.served.address)
    publisher = await far.publisher(stream)
    await publisher.wait(await publisher.publish("k", b"first"))
    return far, publisher, await far.subscribe(stream, subscriber="a"), await far.sink(stream).open_run()


async def _use(use: Callable[..., Any], opened: tuple[Any, ...]) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(veredus.Misuse, match="opened in another event loop") as caught:
            await use(*opened)
        assert caught.value.code == "other-loop"


def test_a_thread_without_a_loop_is_told_so_and_nothing_was_published(node: Embedded, stream: str) -> None:
    """Over and over: what is asked for while the loop is busy needs nobody to be woken."""

    async def published() -> None:
        far, publisher, _, _ = await _open(node, stream)
        number, refusals = publisher.number, list[str]()
        for _ in range(50):
            try:
                number = await asyncio.to_thread(publisher.publish_nowait, "k", b"x")
            except veredus.Misuse as error:
                refusals.append(str(error))
            assert publisher.number == number
        assert refusals
        assert all("this thread runs none" in said and "[other-loop]" in said for said in refusals)
        await far.close()
        assert node.streams.show(stream)["head"] == number

    asyncio.run(published())


@pytest.mark.parametrize("name", USES)
def test_what_another_loop_has_opened_is_refused_and_works_on_there(node: Embedded, stream: str, name: str) -> None:
    async def from_a_thread() -> None:
        opened = await _open(node, stream)
        far, publisher, subscription, _ = opened
        await asyncio.to_thread(lambda: asyncio.run(_use(USES[name], opened)))
        async with asyncio.timeout(5):
            await publisher.wait(await publisher.publish("k", b"second"))
            assert [publication.body async for publication in _two(subscription)] == [b"first", b"second"]
            await far.close()

    asyncio.run(from_a_thread())


async def _two(subscription: Any) -> Any:
    count = 0
    async for publication in subscription:
        yield publication
        count += 1
        if count == 2:
            return


PROGRAM = """
import asyncio, veredus

async def open_():
    far = await veredus.connect_async({address!r})
    return await far.publisher("before"), await far.subscribe("before")

publisher, subscription = asyncio.run(open_())
for use in (lambda: publisher.publish("k", b"b"), publisher.flush, subscription.next_batch, publisher.close):
    async def call():
        async with asyncio.timeout(5):
            await use()
    try:
        asyncio.run(call())
    except veredus.Misuse as misuse:
        print(misuse.code)
"""


def test_what_the_loop_before_has_opened_is_refused(node: Embedded) -> None:
    program = PROGRAM.format(address=node.served.address)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert (ended.stdout.split(), ended.stderr) == (["other-loop"] * 4, "")


def test_a_second_thread_that_waits_at_a_subscription_is_refused_and_the_first_goes_on(
    node: Embedded, stream: str
) -> None:
    subscription = node.subscribe(stream)
    bodies: list[bytes] = []
    first = threading.Thread(target=lambda: bodies.append(next(iter(subscription)).body), daemon=True)
    first.start()
    while not subscription.channel.is_waiting:
        time.sleep(0.001)
    time.sleep(0.05)
    for use in (lambda: next(iter(subscription)), subscription.next_batch):
        with pytest.raises(veredus.Misuse, match="give each thread a subscription of its own") as caught:
            use()
        assert caught.value.code == "other-thread"
    with node.publisher(stream) as publisher:
        publisher.publish("k", b"for the first")
    first.join(5)
    assert bodies == [b"for the first"]
    assert subscription.next_batch(timeout_s=0) is None
    subscription.close()
