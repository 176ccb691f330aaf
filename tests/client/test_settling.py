"""What of a subscriber's settlements is confirmed, when answers are late, refused, or lost with their link."""

import asyncio
from typing import Any

import pytest

import veredus
from tests.client.line import Line
from veredus.client.links import ConnectionSettings
from veredus.client.subscribing import SubscriptionChannel
from veredus.client.wanting import Wanted
from veredus.kernel.errors import Unavailable
from veredus.matching import Filter
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client_exchange import (
    HandedOut,
    SettleRequested,
    TellClosed,
    TellMessage,
    TellOpened,
    TellSettled,
)
from veredus.streams.exchange import SettleMode

GRANT = m.Subscribed(1, b"i" * 16, 1, 1, 1, 1, 100)


def settle(channel: SubscriptionChannel, sequence: int) -> None:
    channel.settlings.first.to_settle.append((sequence, sequence))
    channel.pump_settlements()


async def _settle_between_links() -> None:
    line: Any = Line()
    channel = SubscriptionChannel(line, Wanted("s", "a", "main", mode=SettleMode.INDIVIDUAL))
    channel.begin()
    channel.take(TellOpened(1, GRANT))
    channel.lose()
    channel.begin()
    settle(channel, 3)
    channel.grant_credit(100, link_count=1)
    assert line.said == [], "nothing may be said on a channel that is not granted yet"
    with pytest.raises(Unavailable):
        await channel.change_filter(Filter(keys=("prefix:a",)))
    channel.take(TellOpened(1, GRANT))
    assert line.said == [SettleRequested(1, ((3, 3),))]


def test_what_is_settled_while_a_new_link_is_not_granted_yet_is_sent_when_it_is() -> None:
    asyncio.run(_settle_between_links())


async def _confirm_once_over_a_new_link() -> None:
    line: Any = Line()
    channel = SubscriptionChannel(line, Wanted("s", "a", "main", mode=SettleMode.INDIVIDUAL))
    channel.begin()
    channel.take(TellOpened(1, GRANT))
    settle(channel, 1)
    channel.take(TellMessage(1, m.Refusal("disk-full", "no space left")))
    channel.lose()
    channel.begin()
    channel.take(TellOpened(1, GRANT))
    settle(channel, 5)
    for timer in line.timers:
        timer()
    assert line.said == [SettleRequested(1, ((1, 1),)), SettleRequested(1, ((1, 1),))]
    channel.take(TellSettled(1, 1, ()))
    assert channel.unconfirmed.is_settled((1, 1))
    assert not channel.unconfirmed.is_settled((5, 5)), "nobody has said that 5 is settled"
    assert line.said[-1] == SettleRequested(1, ((5, 5),))


def test_a_settlement_that_was_refused_before_its_link_was_lost_is_confirmed_by_its_own_answer_alone() -> None:
    asyncio.run(_confirm_once_over_a_new_link())


async def _hand_out_while_an_answer_is_awaited(mode: SettleMode) -> None:
    line: Any = Line()
    channel = SubscriptionChannel(line, Wanted("s", "a", "main", mode=mode))
    channel.begin()
    channel.take(TellOpened(1, GRANT))
    for sequence in (1, 2):
        channel.settlings.first.settle_to = sequence
        settle(channel, sequence)
    assert line.said == [SettleRequested(1, ((1, 1),))]
    for _ in range(2):
        channel.settlings.first.handed_to = 3
        channel.add_handed_waiter(3, lambda: None)
    assert line.said == [SettleRequested(1, ((1, 1),)), SettleRequested(1, ((1, 2),)), HandedOut(1, 3)]
    channel.take(TellSettled(1, 1, ()))
    assert [channel.unconfirmed.is_settled((1, last)) for last in (1, 2)] == [True, False]
    channel.take(TellSettled(1, 2, ()))
    assert channel.unconfirmed.is_settled((1, 2))


@pytest.mark.parametrize("mode", list(SettleMode))
def test_what_was_settled_is_sent_before_what_may_end_the_application_is_handed_out(mode: SettleMode) -> None:
    asyncio.run(_hand_out_while_an_answer_is_awaited(mode))


async def _settle_again_over_the_same_link() -> None:
    line: Any = Line()
    channel = SubscriptionChannel(line, Wanted("s", "a", "main", mode=SettleMode.INDIVIDUAL))
    channel.begin()
    channel.take(TellOpened(1, GRANT))
    settle(channel, 1)
    channel.take(TellClosed(1, m.Refusal("disk-full", "the node could not store the dead letters: subscribe again")))
    for timer in line.timers:
        timer()
    channel.take(TellOpened(1, GRANT))
    assert line.said == [SettleRequested(1, ((1, 1),)), SettleRequested(1, ((1, 1),))]
    channel.take(TellSettled(1, 1, ()))
    assert channel.unconfirmed.is_settled((1, 1))


def test_a_settlement_whose_channel_ended_before_its_answer_is_sent_again_over_the_same_link() -> None:
    asyncio.run(_settle_again_over_the_same_link())


async def _believe_what_an_answer_says(mode: SettleMode) -> None:
    line: Any = Line()
    channel = SubscriptionChannel(line, Wanted("s", "a", "main", mode=mode))
    channel.begin()
    channel.take(TellOpened(1, GRANT))
    channel.settlings.first.settle_to = 6
    channel.settlings.first.to_settle.append((1, 6))
    channel.pump_settlements()
    channel.take(TellSettled(1, 3, ((5, 5),)))
    assert [channel.unconfirmed.is_settled((1, last)) for last in (3, 4, 6)] == [True, False, False]
    assert line.said == [SettleRequested(1, ((1, 6),))], "its own answer is on its way"
    channel.take(TellSettled(1, 3, ((4, 6),)))
    assert channel.unconfirmed.is_settled((1, 6))
    assert len(line.said) == 1


async def _settle_again_what_an_answer_leaves_out() -> None:
    line: Any = Line()
    channel = SubscriptionChannel(line, Wanted("s", "a", "main", mode=SettleMode.INDIVIDUAL))
    channel.begin()
    channel.take(TellOpened(1, GRANT))
    for sequence in (1, 3):
        channel.settlings.first.to_settle.append((sequence, sequence))
    channel.pump_settlements()
    channel.take(TellSettled(1, 1, ()))
    settle(channel, 5)
    for timer in line.timers:
        timer()
    assert line.said[1:] == [SettleRequested(1, ((3, 3), (5, 5)))]


def test_what_an_answer_leaves_out_is_sent_again() -> None:
    asyncio.run(_settle_again_what_an_answer_leaves_out())


@pytest.mark.parametrize("mode", list(SettleMode))
def test_the_answer_to_what_an_owner_before_settled_confirms_nothing_else(mode: SettleMode) -> None:
    asyncio.run(_believe_what_an_answer_says(mode))


async def _wait_for_a_grant_that_the_node_cannot_store() -> None:
    line: Any = Line()
    line.settings = ConnectionSettings((), timeout_s=0.05)
    line.describe = lambda: ("there", "")
    line.attach = line.begin
    line.detach = lambda *_: None
    channel = SubscriptionChannel(line, Wanted("s", "a", "main"))
    waiting = asyncio.ensure_future(channel.attach())
    await asyncio.sleep(0)
    channel.take(TellClosed(1, m.Refusal("disk-full", "the node could not store the new stream: try again later")))
    with pytest.raises(Unavailable, match=r"granted the subscription .* could not store the new stream") as told:
        await waiting
    assert told.value.code == "disk-full"


def test_whoever_waits_for_a_subscription_that_the_node_cannot_store_is_told_why() -> None:
    asyncio.run(_wait_for_a_grant_that_the_node_cannot_store())


async def _ask_for_a_subscription_in_vain() -> None:
    channel = SubscriptionChannel(Line(), Wanted("s", "a", "main"))  # type: ignore[arg-type]
    channel.begin()
    for _ in range(3):
        channel.take(TellClosed(1, m.Refusal("disk-full", "the node could not store the new stream: try again later")))
    channel.take(TellOpened(1, GRANT))
    channel.take(TellClosed(1, m.Refusal("disk-full", "the node could not store the new epoch: try again later")))


def test_the_log_says_once_that_the_node_grants_no_subscription_for_now(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_ask_for_a_subscription_in_vain())
    said = "the node grants no subscription (stream 's', a/main) for now, and is asked again: the node could"
    assert [record.getMessage().startswith(said) for record in caplog.records] == [True, True]


def test_what_the_node_refuses_for_now_is_logged_once_and_named_with_the_reason_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("veredus.client.pending.FINISH_TIMEOUT_S", 1.0)
    with veredus.embedded(limits={"unsettled_max": 2}) as node:
        with node.publisher("s", source="a") as publisher:
            publisher.publish_many(["k"] * 10, [b"x"] * 10)
        far = veredus.connect(node.served.address)
        subscription = far.subscribe("s", subscriber="a", mode="individual")
        batch = subscription.next_batch(timeout_s=10)
        assert batch is not None
        for sequence in (2, 4, 6):
            subscription.settle(sequence)
        with pytest.raises(Unavailable) as told:
            far.close()
    where = f"the node at {node.served.address} has not confirmed settlements (stream 's', a/main): "
    assert where in told.value.message
    assert "[too-many-ranges]" in told.value.message
    (logged,) = (record.getMessage() for record in caplog.records if record.name == "veredus")
    assert logged.startswith("the node refuses settlements (stream 's', a/main), and is asked again: ")


def test_whoever_waits_for_a_settlement_that_the_node_refuses_for_now_is_told_why() -> None:
    with veredus.embedded(limits={"unsettled_max": 2}) as node:
        with node.publisher("s", source="a") as publisher:
            publisher.publish_many(["k"] * 10, [b"x"] * 10)
        with node.subscribe("s", subscriber="a", mode="individual") as subscription:
            batch = subscription.next_batch(timeout_s=10)
            assert batch is not None
            for sequence in (2, 4, 6):
                subscription.settle(sequence)
            with pytest.raises(Unavailable, match="in-doubt") as told:
                subscription.wait_settled(timeout_s=0.5)
            assert "[too-many-ranges]" in told.value.message
            assert node.subscriptions.show("s", "a")["waits_for"] == "settlement"
            subscription.settle(batch)
            subscription.wait_settled(timeout_s=10)
            assert node.subscriptions.show("s", "a")["waits_for"] == "publications"


def test_a_subscription_that_is_closed_in_doubt_says_that_it_sends_the_settlement_no_more() -> None:
    with veredus.embedded(limits={"unsettled_max": 2}) as node:
        with node.publisher("s", source="a") as publisher:
            publisher.publish_many(["k"] * 10, [b"x"] * 10)
        subscription = node.subscribe("s", subscriber="a", mode="individual")
        assert subscription.next_batch(timeout_s=10) is not None
        for sequence in (2, 4, 6):
            subscription.settle(sequence)
        with pytest.raises(Unavailable, match="sends it no more, and what is not settled is delivered again"):
            subscription.close(timeout_s=0.2)
