"""What a subscriber says of publications that the node has lost since says nothing of those in their places."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.client.line import Line
from tests.client.test_publication import FIRST, record_of, rows_of
from veredus.client.feed import Feed
from veredus.client.publication import Batch, Publication
from veredus.client.subscribing import SubscriptionChannel
from veredus.client.wanting import Wanted
from veredus.delivery.batch import Layout
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client_exchange import SettleRequested, TellDelivery, TellOpened
from veredus.streams.exchange import SettleMode

COUNT = 4


class Scene:
    """A subscriber of jobs whose node is put back to a state before the first of them; what its thread asks of the
    loop waits until `go_on`.
    """

    def __init__(self) -> None:
        self.line: Any = Line()
        wanted = Wanted("s", "a", "main", mode=SettleMode.INDIVIDUAL, on_gap=lambda gap: None, parked_to="dead")
        self.channel = SubscriptionChannel(self.line, wanted)
        self.asked: deque[Callable[[], None]] = deque()
        self.channel.begin()
        self.channel.take(TellOpened(1, m.Subscribed(1, b"i" * 16, 1, 1, FIRST, FIRST, FIRST + 100)))
        self.feed = Feed(self.channel, self.asked.append)

    def pushed(self) -> Batch:
        record = record_of(rows_of(COUNT), Layout.ROWS)
        self.channel.take(TellDelivery(1, 0, memoryview(record), len(record)))
        batch = self.feed.take()
        assert batch is not None
        return batch

    def lose_all(self) -> None:
        self.channel.lose()
        self.channel.begin()
        self.channel.take(TellOpened(1, m.Subscribed(1, b"i" * 16, 2, 1, FIRST, FIRST, FIRST + 100, FIRST)))

    def go_on(self) -> None:
        while self.asked:
            self.asked.popleft()()


async def _settle_beside(give_back: Callable[[Feed, Publication], None]) -> None:
    scene = Scene()
    _, job, *_ = scene.pushed()
    note = scene.channel.returns.note_given

    def lose_and_note(publication: Publication) -> None:
        scene.lose_all()  # by the loop, right behind the look whether it is gone
        note(publication)

    scene.channel.returns.note_given = lose_and_note  # type: ignore[method-assign]
    give_back(scene.feed, job)
    scene.feed.settle(scene.pushed())
    scene.go_on()
    assert scene.line.said[-1] == SettleRequested(1, ((FIRST, FIRST + COUNT - 1),))


def test_what_is_tried_again_as_the_node_loses_it_leaves_nothing_unsettled_of_what_takes_its_place() -> None:
    asyncio.run(_settle_beside(lambda feed, job: feed.retry(job)))


def test_what_is_rejected_as_the_node_loses_it_leaves_nothing_unsettled_of_what_takes_its_place() -> None:
    asyncio.run(_settle_beside(lambda feed, job: feed.reject(job, "bad")))


async def _give_back_both() -> None:
    scene = Scene()
    lost = next(iter(scene.pushed()))
    scene.lose_all()
    batch = scene.pushed()
    scene.feed.retry(next(iter(batch)), delay_s=60)
    scene.feed.retry(lost)
    scene.go_on()
    scene.feed.settle(batch)
    scene.go_on()
    assert scene.line.said[-1] == SettleRequested(1, ((FIRST + 1, FIRST + COUNT - 1),))


def test_what_was_given_back_stays_given_back_whatever_is_said_of_what_lay_in_its_place_before() -> None:
    asyncio.run(_give_back_both())
