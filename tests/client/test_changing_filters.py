"""Another filter on the way: what came before it, what comes behind it, and links that are cut around it."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.client.line import Line
from tests.processes import wait_until
from veredus.client.embedded import Embedded
from veredus.client.links import ConnectionSettings
from veredus.client.subscribing import SubscriptionChannel
from veredus.client.wanting import Wanted
from veredus.matching import Filter
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client_exchange import TellMessage, TellOpened

Mode = Literal["in-order", "individual"]
modes = pytest.mark.parametrize("mode", ["in-order", "individual", "ephemeral"])


def fill(node: Embedded, stream: str, count: int) -> None:
    with node.publisher(stream, source="s", batch_size=1) as publisher:
        for index in range(count):
            publisher.publish("a" if index % 2 == 0 else "b", b"x")
            publisher.flush()


@pytest.fixture
def cutter(node: Embedded) -> Iterator[Cutter]:
    with Cutter(node.served.address) as cutter:
        yield cutter


@pytest.fixture
def far(cutter: Cutter) -> Iterator[veredus.Node]:
    with veredus.connect(cutter.address) as far:
        yield far


def subscribed(node: veredus.Node, stream: str, mode: str, window_size: int = 1) -> veredus.Subscription:
    if mode == "ephemeral":
        return node.subscribe(stream, keys="a", window_size=window_size)
    return node.subscribe(stream, subscriber="s", keys="a", window_size=window_size, mode=mode)  # type: ignore[arg-type]


def take(subscription: veredus.Subscription, count: int) -> list[int]:
    rows = iter(subscription)
    return [next(rows).sequence for _ in range(count)]


def rest(subscription: veredus.Subscription) -> list[int]:
    got: list[int] = []
    while (batch := subscription.next_batch(timeout_s=0.5)) is not None:
        got += batch.sequences.tolist()
    return got


def change(subscription: veredus.Subscription, keys: str) -> int:
    """Ask until there is a link to ask over."""
    while True:
        with contextlib.suppress(veredus.Unavailable):
            return subscription.change_filter(keys=keys)


def owed(first: int, position: int, last: int) -> list[int]:
    """From `first` on, the odd sequences up to where the filter for the even ones begins, and these from there on."""
    return [n for n in range(first, last + 1) if n % 2 == (n < position)]


@modes
@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("window_size", [1, 200, 8 << 20])
def test_a_filter_changed_behind_a_lost_link_takes_nothing_away_up_to_its_position_nor_behind_it(
    node: Embedded, stream: str, cutter: Cutter, far: veredus.Node, mode: Mode, is_cut: bool, window_size: int
) -> None:
    fill(node, stream, 10)
    with subscribed(far, stream, mode, window_size) as subscription:
        assert take(subscription, 4) == [1, 3, 5, 7]
        if is_cut:
            cutter.cut()
        position = change(subscription, "b")
        assert position >= subscription.position
        assert rest(subscription) == owed(8, position, 10)
        fill(node, stream, 4)
        assert rest(subscription)[-2:] == [12, 14]


@modes
@pytest.mark.parametrize("taken", [1, 3, 5])
def test_a_link_that_is_lost_behind_a_change_brings_what_the_earlier_filter_had_selected_before_it(
    node: Embedded, stream: str, cutter: Cutter, far: veredus.Node, mode: Mode, taken: int
) -> None:
    fill(node, stream, 10)
    with subscribed(far, stream, mode, 8 << 20) as subscription:
        got = take(subscription, 1)
        position = change(subscription, "b")
        got += take(subscription, taken - 1)
        cutter.cut()
        fill(node, stream, 10)
        got += rest(subscription)
        assert got == owed(1, position, 20)


@modes
def test_a_change_takes_nothing_away_that_came_before_a_far_word_over_a_link_that_is_gone(
    node: Embedded, stream: str, cutter: Cutter, far: veredus.Node, mode: Mode
) -> None:
    fill(node, stream, 20)
    with node.publisher(stream) as publisher:
        publisher.publish_many([b"b"] * 250_000, [b"x"] * 250_000)
    with subscribed(far, stream, mode, 8 << 20) as subscription:
        assert take(subscription, 1) == [1]
        wait_until(lambda: subscription.channel.queue.passed_to() > 100_000)
        cutter.cut()
        wait_until(lambda: subscription.channel.link_count == 2)
        assert change(subscription, "c") > 100_000
        assert rest(subscription) == [*range(3, 20, 2)]


@pytest.mark.parametrize("mode", ["in-order", "individual"])
def test_who_comes_next_and_keeps_the_filter_gets_what_is_unsettled_by_the_filter_that_selected_it(
    node: Embedded, stream: str, mode: Mode
) -> None:
    fill(node, stream, 10)
    with subscribed(node, stream, mode, 8 << 20) as subscription:
        assert take(subscription, 5) == [1, 3, 5, 7, 9]
        position = subscription.change_filter(keys="b")
        subscription.settle(1)
        subscription.wait_settled()
    fill(node, stream, 4)
    with node.subscribe(stream, subscriber="s", mode=mode) as subscription:
        assert rest(subscription) == owed(3, position, 14)
    with node.subscribe(stream, subscriber="s", keys="b", mode=mode) as subscription:
        expected = [n for n in range(4, 15, 2) if mode == "in-order" or n >= position]
        assert rest(subscription) == expected, "a filter that another owner brings applies from the floor on"


EARLIER, LATER = Filter(("literal:a",)), Filter(("literal:b",))


def granted(name: str) -> tuple[Any, SubscriptionChannel]:
    line: Any = Line()
    line.settings = ConnectionSettings((), timeout_s=0.01)
    channel = SubscriptionChannel(line, Wanted("s", name, "main" if name else "", EARLIER))
    channel.begin()
    channel.take(TellOpened(1, m.Subscribed(1, b"i" * 16, 1, 1, 1, 1, 100)))
    return line, channel


async def _change_in_doubt(name: str) -> Filter | None:
    line, channel = granted(name)
    change = asyncio.ensure_future(channel.change_filter(LATER))
    await asyncio.sleep(0)
    channel.lose()
    with pytest.raises(veredus.Unavailable, match="change the filter again") as error:
        await change
    assert error.value.code == "in-doubt"
    channel.begin()
    filter_: Filter | None = line.opened[-1].filter
    return filter_


def test_where_a_change_is_in_doubt_a_durable_subscription_keeps_what_the_node_has() -> None:
    assert asyncio.run(_change_in_doubt("s")) is None
    assert asyncio.run(_change_in_doubt("")) == EARLIER


async def _change_answered_late() -> None:
    line, channel = granted("s")
    for _ in range(2):
        with pytest.raises(veredus.Unavailable, match="has not answered in time"):
            await channel.change_filter(LATER)
    channel.take(TellMessage(1, m.FilterChanged(7)))
    channel.take(TellMessage(1, m.FilterChanged(8)))
    channel.take(TellMessage(1, m.FilterChanged(9)))
    channel.lose()
    channel.begin()
    assert line.opened[-1].filter == LATER


def test_a_change_that_is_answered_after_its_time_counts() -> None:
    asyncio.run(_change_answered_late())


async def _change_and_close() -> None:
    _, channel = granted("s")
    change = asyncio.ensure_future(channel.change_filter(LATER))
    await asyncio.sleep(0)
    channel._connection.detach = lambda *_: None  # type: ignore[method-assign]
    channel.fail(veredus.Misuse("closed", "this subscription was closed"))
    with pytest.raises(veredus.Misuse, match="closed"):
        await change


def test_a_change_that_waits_hears_that_the_subscription_was_closed() -> None:
    asyncio.run(_change_and_close())


def test_a_filter_may_be_taken_away(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a") as publisher:
        publisher.publish_many(["a", "b", "a"], [b"1", b"2", b"3"])
        publisher.flush()
        with node.subscribe(stream, start=veredus.beginning(), keys="literal:a") as subscription:
            taken = iter(subscription)
            bodies = [next(taken).body, next(taken).body]
            assert subscription.change_filter() == 4
            publisher.publish("b", b"4")
            assert [*bodies, next(taken).body] == [b"1", b"3", b"4"]
