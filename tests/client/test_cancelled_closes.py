"""Whoever is cancelled while he closes a connection waits no more, and the connection sends what is pending by itself.

A scope of anyio cancels whoever waits in it at each `await`, until he has left it: so do Starlette and FastAPI.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.client.without_a_node import cut_off, named_in
from veredus.client.embedded import Embedded
from veredus.client.publisher import AsyncPublisher

COUNT = 3
BACK_S = 0.3
"""When the node is back, behind the cancellation."""


async def cancel_at_each_await(work: Callable[[], Coroutine[Any, Any, object]], is_ready: asyncio.Event) -> None:
    """Begin some work, and cancel it from when it is ready on, as a scope of anyio does."""
    task = asyncio.ensure_future(work())
    await is_ready.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()


async def publish_and_be_cancelled(cutter: Cutter, stream: str) -> AsyncPublisher:
    """Have a `with` block of a node cancelled that is gone by then; the publisher, which has something pending."""
    is_ready, publishers = asyncio.Event(), []

    async def work() -> None:
        async with veredus.connect_async(cutter.address) as far, far.publisher(stream, source="a") as publisher:
            publishers.append(publisher)
            cut_off(cutter)
            await publisher.publish_many(["k"] * COUNT, [b""] * COUNT)
            is_ready.set()
            await asyncio.sleep(60)

    await cancel_at_each_await(work, is_ready)
    return publishers[0]


@pytest.fixture
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little of it, but where the node comes back."""
    if not getattr(request.node, "callspec", None) or not request.node.callspec.params["is_back"]:
        monkeypatch.setattr("veredus.client.pending.FINISH_TIMEOUT_S", 0.5)


@pytest.fixture
def cutter(node: Embedded, stream: str) -> Cutter:
    node.streams.create(stream)
    return Cutter(node.served.address)


def come_back(cutter: Cutter) -> None:
    threading.Timer(BACK_S, lambda: setattr(cutter, "is_open", True)).start()


def test_what_is_pending_is_sent_behind_a_close_that_is_cancelled(
    node: Embedded, stream: str, cutter: Cutter, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        publisher = await publish_and_be_cancelled(cutter, stream)
        come_back(cutter)
        with pytest.raises(veredus.Misuse, match="closed"):
            publisher.publish_nowait("k", b"")
        end_s = time.monotonic() + 10
        while asyncio.all_tasks() != before and time.monotonic() < end_s:
            await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == before
        assert publisher.taken_number == COUNT

    with cutter:
        asyncio.run(main())
    assert node.streams.show(stream)["head"] == COUNT
    assert node.streams.show(stream)["sessions"] == 0
    assert capfd.readouterr().err == ""


def test_what_the_node_has_not_confirmed_then_is_named_once(
    stream: str, cutter: Cutter, patience: None, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        await publish_and_be_cancelled(cutter, stream)
        assert named_in(capfd.readouterr().err) == []
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0.01)

    with cutter:
        asyncio.run(main())
    (named,) = named_in(capfd.readouterr().err)
    assert named.startswith("veredus: the closing of a connection was cancelled, and the node at unix://")
    assert f"not confirmed {COUNT} publications (stream {stream!r}, source 'a', the last number is {COUNT}): " in named


@pytest.mark.parametrize("is_back", [True, False])
def test_a_loop_that_ends_meanwhile_waits_for_it(
    node: Embedded,
    stream: str,
    cutter: Cutter,
    patience: None,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    is_back: bool,
) -> None:
    async def main() -> None:
        await publish_and_be_cancelled(cutter, stream)
        if is_back:
            come_back(cutter)

    with cutter, caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(main())
    assert node.streams.show(stream)["head"] == (COUNT if is_back else 0)
    assert len(named_in(capfd.readouterr().err)) == (0 if is_back else 1)
    assert [record for record in caplog.records if "destroyed" in record.getMessage()] == []


@pytest.mark.parametrize("is_back", [True, False])
def test_whoever_closes_it_again_waits_for_it_and_is_told(
    node: Embedded, stream: str, cutter: Cutter, patience: None, capfd: pytest.CaptureFixture[str], is_back: bool
) -> None:
    async def main() -> None:
        far = await veredus.connect_async(cutter.address)
        publisher = await far.publisher(stream, source="a")
        cut_off(cutter)
        await publisher.publish_many(["k"] * COUNT, [b""] * COUNT)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await far.close()
        if is_back:
            come_back(cutter)
            await far.close()
        else:
            with pytest.raises(veredus.Unavailable, match=rf"not confirmed {COUNT} publications \("):
                await far.close()
        await far.close()

    with cutter:
        asyncio.run(main())
    assert node.streams.show(stream)["head"] == (COUNT if is_back else 0)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("is_back", [True, False])
def test_what_a_cancelled_block_has_opened_ends_behind_what_is_pending_on_it(
    node: Embedded, stream: str, cutter: Cutter, patience: None, capfd: pytest.CaptureFixture[str], is_back: bool
) -> None:
    async def main() -> None:
        far = await veredus.connect_async(cutter.address)
        is_ready = asyncio.Event()

        async def work() -> None:
            async with far.publisher(stream, source="a") as publisher, far.subscribe(stream, subscriber="s") as given:
                await publisher.wait(publisher.publish_nowait("k", b""))
                batch = await given.next_batch()
                assert batch is not None
                cut_off(cutter)
                await publisher.publish_many(["k"] * COUNT, [b""] * COUNT)
                given.settle(batch)
                is_ready.set()
                await asyncio.sleep(60)

        await cancel_at_each_await(work, is_ready)
        if is_back:
            come_back(cutter)
            while True:
                shown = await far.streams.show(stream)
                floors = [one["floor"] for one in shown["subscription_list"]]
                if (shown["head"], floors, shown["sessions"]) == (1 + COUNT, [1], 0):
                    break
                await asyncio.sleep(0.01)
            await far.close()
        else:
            with pytest.raises(veredus.Unavailable, match=rf"{COUNT} publications \(.*; settlements \("):
                await far.close()

    with cutter:
        asyncio.run(main())
    assert capfd.readouterr().err == ""


def test_a_node_in_this_process_stops_behind_all_that_it_is_sent(tmp_path: Path) -> None:
    async def main() -> None:
        is_ready = asyncio.Event()

        async def work() -> None:
            async with veredus.embedded_async(tmp_path) as own, own.publisher("s") as publisher:
                for _ in range(1000):
                    publisher.publish_nowait("k", b"")
                is_ready.set()
                await asyncio.sleep(60)

        await cancel_at_each_await(work, is_ready)
        async with veredus.embedded_async(tmp_path) as again:
            assert (await again.streams.show("s"))["head"] == 1000

    asyncio.run(main())


def test_a_connection_that_is_cancelled_at_each_await_while_it_is_opened_is_closed(node: Embedded) -> None:
    async def main() -> None:
        before, is_ready = asyncio.all_tasks(), asyncio.Event()

        async def work() -> None:
            asyncio.get_running_loop().call_later(0.01, is_ready.set)
            await veredus.connect_async("veredus://127.0.0.1:1", refused_s=30.0)

        await cancel_at_each_await(work, is_ready)
        for _ in range(10):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    asyncio.run(main())
