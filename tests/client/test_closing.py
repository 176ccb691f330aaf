"""A publisher that can publish no more does not end as if all were well."""

import asyncio
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.client.unwritable import Unwritable
from veredus.client.embedded import Embedded
from veredus.client.ends import Publisher


def wait_for_end(publisher: Publisher) -> None:
    """Until the publisher knows that its source is over."""
    deadline = time.monotonic() + 20
    while publisher._intake.failure is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_publisher_whose_last_publication_could_not_be_taken_raises_when_it_is_closed(
    node: Embedded, stream: str
) -> None:
    publisher = node.publisher(stream, source="a")
    publisher.publish("k", Unwritable())
    wait_for_end(publisher)
    with pytest.raises(veredus.Misuse):
        publisher.close()
    publisher.close()


def test_so_does_a_stage_that_was_committed_before(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    with node.sink(stream).open_run() as run:
        stage = run.stage(stream)
        stage.publish("k", b"early")
        stage.flush()
        run.commit(0, [stage])
        stage.publish("k", b"late")
        wait_for_end(stage)
        with pytest.raises(veredus.Refused, match="stage-closed"):
            stage.close()
    assert node.streams.show(stream)["head"] == 1


def test_one_whose_publications_were_all_taken_is_closed_in_silence(node: Embedded, stream: str) -> None:
    publisher = node.publisher(stream, source="a")
    publisher.wait(publisher.publish("k", b""))
    with node.publisher(stream, source="a"):
        wait_for_end(publisher)
        publisher.close()


async def _close_behind_a_failure(address: str, stream: str) -> None:
    async with veredus.connect_async(address) as far:
        publisher = await far.publisher(stream, source="a")
        await publisher.publish("k", Unwritable())
        while publisher._intake.failure is None:
            await asyncio.sleep(0.01)
        with pytest.raises(veredus.Misuse):
            await publisher.close()
        await publisher.close()


def test_closing_raises_what_the_publisher_failed_for_with_asyncio_too(node: Embedded, stream: str) -> None:
    asyncio.run(_close_behind_a_failure(node.served.address, stream))


def test_an_exception_that_ends_a_block_says_what_is_not_published(node: Embedded, stream: str) -> None:
    def publish() -> None:
        with node.publisher(stream, source="a") as publisher:
            publisher.publish("k", Unwritable())
            wait_for_end(publisher)
            raise ValueError("of the program")

    async def publish_in_a_loop() -> None:
        async with veredus.connect_async(node.served.address) as far, far.publisher(stream, source="b") as publisher:
            await publisher.publish("k", Unwritable())
            while publisher._intake.failure is None:
                await asyncio.sleep(0.01)
            raise ValueError("of the program")

    for act in (publish, lambda: asyncio.run(publish_in_a_loop())):
        with pytest.raises(ValueError, match="of the program") as ended:
            act()
        (note,) = ended.value.__notes__
        assert note.startswith("veredus, at the end of the `with` block: ")


async def _cancel_the_close_of_a_publisher(cutter: Cutter, stream: str, comes_back: bool) -> None:
    far = await veredus.connect_async(cutter.address)
    publisher = await far.publisher(stream, source="a")
    cutter.is_open = False
    cutter.cut()
    await publisher.publish_many(["k"] * 3, [b""] * 3)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await publisher.close()
    cutter.is_open = comes_back
    if comes_back:
        await publisher.close()
        await far.close()
    else:
        with pytest.raises(veredus.Unavailable, match=r"not confirmed 3 publications \("):
            await far.close()


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_close_that_is_cancelled_lets_go_of_nothing(
    node: Embedded, stream: str, comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veredus.client.pending.FINISH_TIMEOUT_S", 0.3)
    node.streams.create(stream)
    with Cutter(node.served.address) as cutter:
        asyncio.run(_cancel_the_close_of_a_publisher(cutter, stream, comes_back))
    assert node.streams.show(stream)["head"] == (3 if comes_back else 0)


async def _cancel_the_close_of_a_subscription(cutter: Cutter, stream: str) -> None:
    far = await veredus.connect_async(cutter.address)
    subscription = await far.subscribe(stream, subscriber="s")
    async for got in subscription:
        cutter.is_open = False
        cutter.cut()
        subscription.settle(got)
        break
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await subscription.close()
    with pytest.raises(veredus.Unavailable, match=r"not confirmed settlements \("):
        await far.close()


def test_nor_does_that_of_a_subscription(node: Embedded, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veredus.client.pending.FINISH_TIMEOUT_S", 0.3)
    with node.publisher(stream) as publisher:
        publisher.publish("k", b"")
    with Cutter(node.served.address) as cutter:
        asyncio.run(_cancel_the_close_of_a_subscription(cutter, stream))


@pytest.mark.parametrize("is_own", [True, False])
def test_who_is_interrupted_while_a_node_closes_is_told_of_what_is_in_doubt_by_the_next_close(
    monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    monkeypatch.setattr("veredus.client.pending.FINISH_TIMEOUT_S", 1.0)
    embedded = veredus.embedded()
    node = embedded if is_own else veredus.connect(embedded.served.address)
    publisher = node.publisher("s", source="a")
    embedded.served.stop()
    publisher.publish("k", b"")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        node.close()
    with pytest.raises(veredus.Unavailable, match="in-doubt"):
        node.close()
    node.close()
    embedded.close()
    assert not embedded.served.directory.exists()


def told(call: Callable[[], object]) -> tuple[str, list[str]]:
    """What a call raises, and through which functions it came."""
    with pytest.raises(veredus.VeredusError) as raised:
        call()
    return str(raised.value), [frame.name for frame in traceback.extract_tb(raised.tb)]


def test_what_is_closed_tells_each_call_anew_and_of_no_call_before(node: Embedded, stream: str) -> None:
    publisher, subscription = node.publisher(stream, source="a"), node.subscribe(stream, subscriber="x")
    run, other = node.sink(stream).open_run(), veredus.connect(node.served.address)
    for one in (publisher, subscription, run, other):
        one.close()
    calls: tuple[Callable[[], object], ...] = (
        lambda: publisher.publish("k", "b"),
        lambda: publisher.wait(1),
        lambda: subscription.next_batch(),
        lambda: subscription.settle(1),
        lambda: subscription.change_filter("k"),
        lambda: run.commit(0, []),
        lambda: run.stage(stream),
        lambda: other.streams.list(),
        lambda: other.publisher(stream),
    )
    for call in calls:
        assert told(call) == told(call)


def test_while_a_program_goes_on_its_publishers_close_in_a_time_of_their_own(
    node: Embedded, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veredus.client.pending.FINISH_TIMEOUT_S", 0.1)
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        publisher = far.publisher(stream)
        cutter.is_open = False
        cutter.cut()
        publisher.publish("k", b"")
        reopening = threading.Timer(0.5, lambda: setattr(cutter, "is_open", True))
        reopening.start()
        publisher.close()
        assert publisher.taken_number == 1
        reopening.join()
