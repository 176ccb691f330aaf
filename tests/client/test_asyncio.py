"""The same with asyncio: what waits is awaited."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import veredus
from veredus.client.embedded import Embedded

pytestmark = pytest.mark.asyncio


async def test_publishing_and_subscribing_in_one_loop(node: Embedded, stream: str) -> None:
    async with (
        veredus.connect_async(node.served.address) as far,
        far.publisher(stream, source="a") as publisher,
        far.subscribe(stream, subscriber="s", until=5_001) as subscription,
    ):
        for index in range(5_000):
            await publisher.publish("k", b"%d" % index, attributes={"n": index})
        receipt = await publisher.flush()
        assert receipt == veredus.Receipt(5_000, 5_000, veredus.Durability.NONE, False)
        got = []
        async for publication in subscription:
            got.append(publication.attributes["n"])
            subscription.settle(publication)
        assert got == list(range(5_000))
        await subscription.wait_settled()
        shown = await far.subscriptions.show(stream, "s")
        assert shown["floor"] == 5_000


async def test_what_is_opened_may_be_awaited_as_well_as_entered(node: Embedded, stream: str) -> None:
    far = await veredus.connect_async(node.served.address)
    publisher = await far.publisher(stream, source="a")
    number = publisher.publish_nowait("k", b"x")
    assert (await publisher.wait(number)).sequence == 1
    await publisher.close()
    subscription = await far.subscribe(stream)
    batch = await subscription.next_batch()
    assert batch is not None
    assert len(batch) == 1
    assert await subscription.next_batch(timeout_s=0) is None
    await subscription.close()
    await far.close()


async def test_what_is_cancelled_while_it_is_opened_leaves_nobody_attached(node: Embedded, stream: str) -> None:
    async with veredus.connect_async(node.served.address) as far:
        await far.streams.create(stream)

        async def opened(what: str) -> object:
            if what == "source":
                return await far.publisher(stream, source="a")
            if what == "subscription":
                return await far.subscribe(stream, subscriber="s")
            return await far.sink("k").open_run()

        for what in ("source", "subscription", "run"):
            opening = asyncio.ensure_future(opened(what))
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        shown = await far.streams.show(stream)
        assert shown["sessions"] == 0
        assert not any(one["is_attached"] for one in (*shown["source_list"], *shown["subscription_list"]))


async def test_a_connection_that_is_cancelled_while_it_is_opened_is_closed(node: Embedded) -> None:
    before = asyncio.all_tasks()

    async def opened() -> object:
        return await veredus.connect_async(node.served.address)

    opening = asyncio.ensure_future(opened())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert asyncio.all_tasks() == before


async def test_a_node_in_this_process_that_is_cancelled_while_it_starts_lets_go_of_its_directory(
    tmp_path: Path,
) -> None:
    async def opened() -> object:
        return await veredus.embedded_async(tmp_path)

    opening = asyncio.ensure_future(opened())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with veredus.embedded_async(tmp_path) as again:
        assert await again.streams.list() == []


async def test_whoever_waits_for_room_is_told_that_the_publisher_was_closed(tmp_path: Path) -> None:
    async with veredus.embedded_async(tmp_path) as node, veredus.connect_async(node.served.address) as far:
        publisher = await far.publisher("s", source="a", outbox_size_max=2_000, batch_size=500)
        await asyncio.to_thread(node.served.stop)
        putting = [asyncio.ensure_future(publisher.publish("k", b"x" * 300)) for _ in range(100)]
        await asyncio.sleep(0.1)
        with pytest.raises(veredus.Unavailable, match="in-doubt"):
            await publisher.close(timeout_s=0.1)
        async with asyncio.timeout(10):
            results = await asyncio.gather(*putting, return_exceptions=True)
        assert isinstance(results[0], int)
        assert isinstance(results[-1], veredus.Misuse)
        assert results[-1].code == "closed"
        await asyncio.to_thread(node.served.start)


async def test_with_a_full_outbox_publish_waits_and_publish_nowait_does_not(node: Embedded, stream: str) -> None:
    async with (
        veredus.connect_async(node.served.address) as far,
        far.publisher(stream, source="a", outbox_size_max=100_000, batch_size=10_000) as publisher,
    ):
        with pytest.raises(veredus.Unavailable, match="outbox-full"):
            _ = [publisher.publish_nowait("k", b"x" * 1_000) for _ in range(1_000)]
        for _ in range(1_000):
            await publisher.publish("k", b"x" * 1_000)
        receipt = await publisher.flush()
        assert receipt is not None
        assert receipt.sequence == publisher.number


async def test_whoever_is_cancelled_while_he_waits_for_room_reads_of_his_own_calls_first(tmp_path: Path) -> None:
    async with veredus.embedded_async(tmp_path) as node, veredus.connect_async(node.served.address) as far:
        publisher = await far.publisher("s", source="a", outbox_size_max=2_000, batch_size=500)
        await asyncio.to_thread(node.served.stop)
        table = pa.table({"k": ["k"] * 100, "b": [b"x" * 300] * 100})

        async def fill(put: Callable[[], Coroutine[Any, Any, int]]) -> None:
            async with asyncio.timeout(0.1):
                while True:
                    await put()

        for put in (lambda: publisher.publish("k", b"x" * 300), lambda: publisher.publish_table(table, "k", "b")):
            with pytest.raises(TimeoutError) as timed_out:
                await fill(put)
            cancelled = timed_out.value.__cause__
            assert isinstance(cancelled, asyncio.CancelledError)
            assert cancelled.__context__ is None
        await asyncio.to_thread(node.served.start)


async def batch_sizes_of(node: Embedded, stream: str) -> list[int]:
    """Of a hundred publications, each awaited."""
    async with veredus.connect_async(node.served.address) as own:
        async with await own.publisher(stream) as publisher:
            for _ in range(100):
                await publisher.publish("k", "body")
        async with await own.subscribe(stream, until=101) as subscription:
            return [len(batch) async for batch in subscription.batches()]


async def test_what_is_published_together_goes_together_but_not_for_long(
    node: Embedded, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veredus.client.publisher.monotonic", lambda: 1.0)
    assert await batch_sizes_of(node, stream + ".quick") == [100]
    ticks = count(1)
    monkeypatch.setattr("veredus.client.publisher.monotonic", lambda: next(ticks))
    assert len(await batch_sizes_of(node, stream + ".slow")) > 1


async def test_lists_tables_and_tokens_work_as_they_do_without_asyncio(node: Embedded, stream: str) -> None:
    import pyarrow as pa

    async with veredus.connect_async(node.served.address) as far:
        async with far.publisher(stream, source="a", resume="token") as publisher:
            await publisher.publish_many(["k"] * 3, [b"1", b"2", b"3"])
            await publisher.publish_table(pa.table({"k": ["a"], "b": [b"4"]}), key="k", body="b")
            await publisher.flush(resume_token=b"four")
        async with far.publisher(stream, source="a", resume="token") as publisher:
            assert (publisher.resume_token, publisher.resume_number) == (b"four", 4)


async def test_a_batch_at_a_time_and_many_subscribers_beside_one_another(node: Embedded, stream: str) -> None:
    async with veredus.connect_async(node.served.address) as far:

        async def count() -> int:
            async with far.subscribe(stream, until=3_001) as subscription:
                return sum([len(batch) async for batch in subscription.batches()])

        counting = [asyncio.ensure_future(count()) for _ in range(5)]
        async with far.publisher(stream, source="a") as publisher:
            await publisher.publish_many(["k"] * 3_000, [b"x"] * 3_000)
        assert await asyncio.gather(*counting) == [3_000] * 5


async def test_sinks_commit_as_they_do_without_asyncio(node: Embedded, stream: str) -> None:
    async with veredus.connect_async(node.served.address) as far:
        await far.streams.create(stream)
        async with await far.sink(stream).open_run() as run:
            stage = await run.stage(stream)
            await stage.publish("k", b"x")
            await stage.close()
            assert (await run.commit(0, [stage])).streams == ((stream, 1, 1),)
            await run.drop([])
        joined = await far.sink(stream).join_run(run.epoch)
        assert joined.commit_id == 0
        await joined.close()


async def test_a_fenced_source_says_so_and_stops(node: Embedded, stream: str) -> None:
    async with veredus.connect_async(node.served.address) as far:
        older = await far.publisher(stream, source="a")
        async with far.publisher(stream, source="a"):
            with pytest.raises(veredus.Fenced):
                await older.wait(await older.publish("k", b"x"))
            with pytest.raises(veredus.Fenced):
                await older.publish("k", b"y")
            await older.close()


async def test_an_embedded_node_is_gone_when_it_was_left() -> None:
    async with veredus.embedded_async(journal={"sync": "none"}) as node:
        address = node.served.address
        async with node.publisher("s", source="a") as publisher:
            assert (await publisher.wait(await publisher.publish("k", b"x"))).sequence == 1
    with pytest.raises(veredus.Unavailable, match="unreachable"):
        await veredus.connect_async(address, timeout_s=0.05)


async def test_runs_and_stages_of_sinks_are_entered_as_everything_else(node: Embedded, stream: str) -> None:
    async with veredus.connect_async(node.served.address) as far:
        async with far.sink(f"sink-{stream}").open_run() as run:
            async with run.stage(stream) as stage:
                await stage.publish("k", b"x")
            committed = await run.commit(0, [stage])
            assert committed.streams == ((stream, 1, 1),)
            with pytest.raises(veredus.Misuse, match="stages must be a list"):
                await run.commit(1, stage)  # type: ignore[arg-type]
            async with far.sink(f"sink-{stream}").join_run(run.epoch) as joined:
                assert joined.commit_id == 0
        awaited = await far.sink(f"sink-{stream}").open_run()
        await awaited.close()


async def test_what_is_not_open_yet_says_how_to_open_it(node: Embedded, stream: str) -> None:
    async with veredus.connect_async(node.served.address) as far:
        with pytest.raises(veredus.Misuse, match="async with"), far.publisher(stream):  # type: ignore[attr-defined]
            pass
        with pytest.raises(TypeError, match="not open yet"):
            list(far.subscribe(stream))  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="not open yet"):
            async for _ in far.subscribe(stream):  # type: ignore[attr-defined]
                pass
