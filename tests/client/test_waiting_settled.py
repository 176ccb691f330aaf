"""Waiting for settlements: for those that were made, and for none that nobody made."""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any, Literal, TypeAlias

import pytest

import veredus
from tests.client.line import Line
from veredus.client.embedded import Embedded
from veredus.client.publishing import Waiter
from veredus.client.settling import SettleWait
from veredus.client.subscribing import SubscriptionChannel
from veredus.client.wanting import Wanted
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client_exchange import TellMessage, TellOpened, TellSettled
from veredus.streams.exchange import SettleMode

Mode: TypeAlias = Literal["in-order", "individual"]
MODES: tuple[Mode, ...] = ("in-order", "individual")
Wait: TypeAlias = Callable[[Any, Any], None]


def publish(node: Embedded, stream: str, count: int) -> None:
    with node.publisher(stream) as publisher:
        publisher.publish_many(["k"] * count, [b"%d" % index for index in range(count)])


def assert_forgotten(subscription: Any, *everything: Any) -> None:
    for what in everything:
        with pytest.raises(veredus.Misuse, match="call settle first") as caught:
            subscription.wait_settled(what, timeout_s=10)
        assert caught.value.code == "not-settled"


@pytest.mark.parametrize("mode", MODES)
def test_who_waits_for_what_it_never_settled_is_told_so_at_once(node: Embedded, stream: str, mode: Mode) -> None:
    publish(node, stream, 5)
    with node.subscribe(stream, subscriber="a", mode=mode) as own:
        first, second = islice(own, 2)
        assert_forgotten(own, first, 1, 4, 99, first.batch)
        first.settle()
        own.wait_settled(first, timeout_s=10)
        assert_forgotten(own, second, 2)
        second.settle()
        own.wait_settled(second, timeout_s=10)
        own.wait_settled(second.batch, timeout_s=10)
        own.wait_settled(timeout_s=10)


@pytest.mark.parametrize("mode", MODES)
def test_who_waits_for_a_batch_is_told_at_once_that_nothing_of_it_was_settled(
    node: Embedded, stream: str, mode: Mode
) -> None:
    publish(node, stream, 5)
    with node.subscribe(stream, subscriber="a", mode=mode) as own:
        batch = next(own.batches())
        assert_forgotten(own, batch)
        batch.settle()
        own.wait_settled(batch, timeout_s=10)


async def _forget_to_settle(address: str, stream: str, mode: Mode) -> list[str]:
    said = []
    async with veredus.connect_async(address) as far, far.subscribe(stream, subscriber="a", mode=mode) as own:
        async for publication in own:
            try:
                await own.wait_settled(publication, timeout_s=10)
            except veredus.Misuse as misuse:
                said.append(misuse.code)
            publication.settle()
            await own.wait_settled(publication, timeout_s=10)
            await own.wait_settled(publication.batch, timeout_s=10)
            break
    return said


@pytest.mark.parametrize("mode", MODES)
def test_with_asyncio_who_waits_for_what_it_never_settled_is_told_so_at_once(
    node: Embedded, stream: str, mode: Mode
) -> None:
    publish(node, stream, 5)
    assert asyncio.run(_forget_to_settle(node.served.address, stream, mode)) == ["not-settled"]


def test_what_was_given_back_was_not_settled(node: Embedded, stream: str) -> None:
    publish(node, stream, 3)
    with node.subscribe(stream, subscriber="a", mode="individual") as own:
        first, second, _ = islice(own, 3)
        first.retry(60)
        first.settle()
        assert_forgotten(own, first)
        second.settle()
        own.wait_settled(second.batch, timeout_s=10)


def test_who_waits_for_all_waits_for_those_settlements_that_were_made(node: Embedded, stream: str) -> None:
    publish(node, stream, 3)
    with node.subscribe(stream, subscriber="a", mode="individual") as own:
        own.wait_settled(timeout_s=10)
        _, second, _ = islice(own, 3)
        second.settle()
        own.wait_settled(timeout_s=10)


def test_what_was_rejected_counts_as_settled_once_it_is_a_dead_letter_and_later(node: Embedded, stream: str) -> None:
    publish(node, stream, 3)
    node.streams.create(f"{stream}-dead")
    with node.subscribe(stream, subscriber="a", mode="individual", parked_to=f"{stream}-dead") as own:
        _, second, third = islice(own, 3)
        second.reject("broken")
        own.wait_settled(second, timeout_s=10)
        assert node.streams.show(f"{stream}-dead")["head"] == 1
        third.settle()
        own.wait_settled(third, timeout_s=10)
        own.wait_settled(second, timeout_s=10)
        assert_forgotten(own, 1)


@pytest.mark.parametrize("mode", MODES)
def test_what_was_settled_before_this_subscription_began_counts_up_to_its_floor(
    node: Embedded, stream: str, mode: Mode
) -> None:
    publish(node, stream, 5)
    with node.subscribe(stream, subscriber="a", mode=mode) as own:
        for publication in islice(own, 3):
            publication.settle()
    with node.subscribe(stream, subscriber="a", mode=mode) as own:
        own.wait_settled(3, timeout_s=10)
        assert_forgotten(own, 4)


def test_an_ephemeral_subscription_has_no_settlement_to_wait_for(node: Embedded, stream: str) -> None:
    publish(node, stream, 1)
    with node.subscribe(stream) as own, pytest.raises(veredus.Refused) as caught:
        own.wait_settled(next(iter(own)), timeout_s=10)
    assert caught.value.code == "not-durable"


async def _wait_across_lives(mode: SettleMode) -> None:
    line: Any = Line()
    channel = SubscriptionChannel(line, Wanted("s", "a", "main", mode=mode))
    channel.begin()
    channel.take(TellOpened(1, m.Subscribed(1, b"i" * 16, 7, 1, 1, 1, 100, 0, ((7, 1),))))
    former = channel.settlings.first
    former.settle_to = 6
    former.to_settle.append((1, 6))
    channel.pump_settlements()
    channel.take(TellSettled(1, 6, ()))
    channel.position = 9
    channel.lose()
    channel.begin()
    channel.take(TellOpened(1, m.Subscribed(1, b"i" * 16, 9, 1, 1, 1, 3, 4, ((7, 1), (9, 4)))))
    present = channel.settlings._all[-1]

    def outcome(sequence: int, settling: Any = present) -> str:
        told: list[str] = []
        tell: Waiter = lambda: told.append("told")  # noqa: E731
        wait = SettleWait((sequence, sequence), settling, is_all=False)
        wait.tell = tell
        channel.add_settle_waiter(wait)
        if not told:
            return "waits"
        try:
            wait.check()
        except veredus.Misuse as misuse:
            return misuse.code
        return "settled"

    assert [outcome(sequence) for sequence in (3, 4, 6)] == ["waits", "not-settled", "not-settled"]
    channel.take(TellSettled(1, 3, ()))
    assert outcome(3) == "settled", "the copy did not know of it: it was said once more"
    assert outcome(6, former) == "settled", "it is gone: there is nothing to wait for"
    present.settle_to = 5
    present.to_settle.append((5, 5))
    assert outcome(5) == "waits"
    channel.take(TellSettled(1, 3 if mode is SettleMode.INDIVIDUAL else 5, ((5, 5),)))
    assert outcome(5) == "settled"
    assert outcome(6) == "not-settled"


@pytest.mark.parametrize("mode", list(SettleMode))
def test_what_was_settled_in_a_life_of_the_stream_that_is_lost_says_nothing_of_what_took_its_place(
    mode: SettleMode,
) -> None:
    asyncio.run(_wait_across_lives(mode))


async def _confirm_in_parts() -> None:
    line: Any = Line()
    channel = SubscriptionChannel(line, Wanted("s", "a", "main", mode=SettleMode.INDIVIDUAL))
    channel.begin()
    channel.take(TellOpened(1, m.Subscribed(1, b"i" * 16, 1, 1, 1, 1, 100)))
    channel.settlings.first.to_settle.extend([(3, 3), (5, 5)])
    channel.pump_settlements()
    channel.take(TellSettled(1, 0, ((3, 3),)))
    channel.take(TellSettled(1, 0, ((5, 5),)))
    channel.take(TellMessage(1, m.Returned(7, parked=True)))
    for sequence in (3, 5, 7):
        wait = SettleWait((sequence, sequence), channel.settlings.first, is_all=False)
        channel.add_settle_waiter(wait)
        wait.check()


def test_a_node_that_confirms_in_several_parts_has_confirmed_them_all() -> None:
    asyncio.run(_confirm_in_parts())
