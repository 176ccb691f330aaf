"""What a subscriber gives back: it is tried again after a while, or becomes a dead letter with its reason."""

import asyncio
import threading
import time
from itertools import islice
from typing import Any
from unittest.mock import Mock

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.client.line import Line
from tests.processes import wait_until
from veredus.client.embedded import Embedded
from veredus.client.ends import Subscription
from veredus.client.settling import Settling
from veredus.client.subscribing import SubscriptionChannel
from veredus.client.wanting import Wanted
from veredus.kernel.errors import Misuse
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client_exchange import SettleRequested, TellMessage, TellOpened
from veredus.streams.exchange import SettleMode

COUNT = 5


@pytest.fixture
def jobs(node: Embedded, stream: str) -> str:
    """A stream of five jobs, and one for dead letters."""
    node.streams.create(f"{stream}.dead")
    with node.publisher(stream, source="desk") as publisher:
        publisher.publish_many(
            [b"k"] * COUNT, [b"%d" % n for n in range(1, COUNT + 1)], [{"n": n} for n in range(COUNT)]
        )
    return stream


def worker(node: Embedded, stream: str, attempts_max: int = 0) -> Subscription:
    return node.subscribe(
        stream, subscriber="worker", mode="individual", until=COUNT + 1, attempts_max=attempts_max,
        parked_to=f"{stream}.dead",
    )  # fmt: skip


def dead(node: Embedded, stream: str, count: int) -> list[dict[str, object]]:
    with node.subscribe(f"{stream}.dead", until=count + 1) as letters:
        found = [dict(letter.attributes) | {"body": letter.body} for letter in letters]
    assert node.streams.show(f"{stream}.dead")["head"] == count
    return found


def test_what_is_tried_again_comes_again_behind_its_delay_and_the_end_waits_for_it(node: Embedded, jobs: str) -> None:
    seen: list[int] = []
    with worker(node, jobs) as subscription:
        began = time.monotonic()
        for job in subscription:
            seen.append(job.sequence)
            if seen.count(2) == 1 and job.sequence == 2:
                job.retry(delay_s=0.2)
            else:
                subscription.settle(job)
        assert time.monotonic() - began >= 0.2
    assert seen == [1, 2, 3, 4, 5, 2]
    assert node.subscriptions.show(jobs, "worker")["floor"] == COUNT


@pytest.mark.parametrize("attempts_max", [0, 9])
@pytest.mark.parametrize("batch_size", [10, 2_000])
def test_what_comes_again_takes_turns_with_what_is_new_also_within_a_batch(
    node: Embedded, stream: str, batch_size: int, attempts_max: int
) -> None:
    count, again_count = 2_000, 20
    with node.publisher(stream) as publisher:
        for first in range(0, count, batch_size):
            numbers = range(first, first + batch_size)
            publisher.publish_many([b"k"] * batch_size, [b"%d" % number for number in numbers])
            publisher.flush()
    seen: list[int] = []
    node.streams.create(f"{stream}.dead")
    with node.subscribe(
        stream, subscriber="worker", mode="individual", until=count + 1, attempts_max=attempts_max,
        parked_to=f"{stream}.dead",
    ) as subscription:  # fmt: skip
        for job in subscription:
            seen.append(job.sequence)
            assert subscription.position == max(seen) + 1
            if job.sequence <= again_count and not job.is_redelivered:
                job.retry()
                if job.sequence == again_count:
                    wait_until(lambda: len(subscription.channel.again) + len(seen) >= 2 * again_count)
            else:
                subscription.settle(job)
    assert sorted(seen) == sorted([*range(1, count + 1), *range(1, again_count + 1)])
    places = {sequence: place for place, sequence in enumerate(seen)}
    for sequence in range(1, again_count + 1):
        before = seen[: places[sequence]]
        assert len(set(before)) <= 2 * again_count + 1, "what comes again waits for no more than its turn"
        assert len(before) - len(set(before)) <= len(set(before)), "what is new takes turns, too"


def test_batches_go_on_where_an_iteration_was_interrupted_by_what_comes_again(node: Embedded, stream: str) -> None:
    with node.publisher(stream) as publisher:
        publisher.publish_many([b"k"] * 1_000, [b"%d" % number for number in range(1, 1_001)])
    with node.subscribe(stream, subscriber="worker", mode="individual", until=1_001) as subscription:
        publications = iter(subscription)
        first = next(publications)
        first.retry()
        wait_until(lambda: bool(subscription.channel.again))
        assert [next(publications).sequence for _ in range(3)] == [1, 2, 3]
        batch = subscription.next_batch()
        assert batch is not None
        assert [publication.sequence for publication in batch] == [*range(4, 1_001)]
        assert subscription.next_batch() is None
        assert subscription.is_ended


def test_what_comes_again_is_as_it_was_and_said_to_be_redelivered(node: Embedded, jobs: str) -> None:
    with worker(node, jobs) as subscription:
        for job in subscription:
            if job.sequence == 3 and not job.is_redelivered:
                subscription.retry(job)
                continue
            if job.sequence == 3:
                assert (job.key, job.body, job.number, job.source) == (b"k", b"3", 3, "desk")
                assert job.attributes == {"n": 2}
            subscription.settle(job)


def test_what_fails_too_often_is_a_dead_letter_that_says_so(node: Embedded, jobs: str) -> None:
    tries = 0
    with worker(node, jobs, attempts_max=3) as subscription:
        for job in subscription:
            if job.sequence == 4:
                tries += 1
                job.retry(delay_s=0.01)
            else:
                subscription.settle(job)
    assert tries == 3
    (letter,) = dead(node, jobs, 1)
    wanted = {
        "veredus.stream": jobs, "veredus.sequence": 4, "veredus.source": "desk", "veredus.number": 4,
        "veredus.subscription": "worker/main", "veredus.reason": "attempts", "veredus.attempts": 3, "body": b"4",
        "n": 3,
    }  # fmt: skip
    assert letter == wanted


def test_what_is_rejected_is_a_dead_letter_with_the_reason_and_never_comes_again(node: Embedded, jobs: str) -> None:
    with worker(node, jobs) as subscription:
        for job in subscription:
            if job.sequence in (2, 5):
                job.reject("no such flight")
            else:
                subscription.settle(job)
        subscription.wait_settled(timeout_s=10)
        assert node.subscriptions.show(jobs, "worker")["floor"] == COUNT
    letters = dead(node, jobs, 2)
    assert [(one["veredus.sequence"], one["veredus.reason"], one["veredus.attempts"]) for one in letters] == [
        (2, "no such flight", 1), (5, "no such flight", 1),
    ]  # fmt: skip


def test_who_cannot_give_back_is_told_why(node: Embedded, jobs: str) -> None:
    with node.subscribe(jobs, subscriber="orderly") as in_order:
        job = next(iter(in_order))
        with pytest.raises(Misuse, match="not-individual"):
            job.retry()
    with node.subscribe(jobs, subscriber="x", mode="individual") as alone:
        job = next(iter(alone))
        with pytest.raises(Misuse, match="no-dead-letters"):
            job.reject("bad")
        with pytest.raises(Misuse, match="delay_s"):
            job.retry(-1)
        with pytest.raises(Misuse, match="delay_s"):
            job.retry(float("inf"))
        with pytest.raises(Misuse, match="bad-argument"):
            alone.reject(5, "bad")  # type: ignore[arg-type]


def test_what_is_rejected_after_it_was_trimmed_is_settled_and_the_subscription_goes_on(stream: str) -> None:
    sections = {"journal": {"sync": "none"}, "limits": {"tail_size_max": 0}}
    with veredus.embedded(**sections) as node:
        node.streams.create(f"{stream}.dead")
        with node.publisher(stream, source="desk") as publisher:
            for n in range(1, COUNT + 1):
                publisher.wait(publisher.publish("k", b"%d" % n))
        with worker(node, stream, attempts_max=1) as subscription:
            held = list(islice(subscription, COUNT))
            node.streams.trim(stream, COUNT)
            held[0].reject("no such flight")
            held[1].retry()
            for job in held[2:]:
                subscription.settle(job)
            subscription.wait_settled(timeout_s=10)
        assert node.subscriptions.show(stream, "worker")["floor"] == COUNT
        assert node.streams.show(f"{stream}.dead")["head"] == 0


async def _reject_what_is_gone(code: str) -> list[object]:
    line: Any = Line()
    channel = SubscriptionChannel(line, Wanted("s", "a", "main", mode=SettleMode.INDIVIDUAL, parked_to="dead"))
    channel.begin()
    channel.take(TellOpened(1, m.Subscribed(1, b"i" * 16, 1, 1, 1, 1, 100)))
    channel.returns.add(Mock(sequence=3, batch=Mock(settling=Settling())), False, 0.0, "bad")
    channel.take(TellMessage(1, m.Refusal(code, "3 can no longer be read (trimmed): settle it", {"returned": 3})))
    return [channel.failure, line.said[1:], channel.unconfirmed.is_settled((3, 3))]


def test_a_node_that_asks_to_settle_what_is_gone_is_told_that_it_is_settled() -> None:
    assert asyncio.run(_reject_what_is_gone("unreadable")) == [None, [SettleRequested(1, ((3, 3),))], False]


async def _work(own: veredus.AsyncNode) -> list[int]:
    seen = []
    await own.streams.create("dead")
    async with own.publisher("jobs", source="desk") as publisher:
        await publisher.publish_many([b"k"] * COUNT, [b""] * COUNT)
    async with own.subscribe(
        "jobs", subscriber="worker", mode="individual", until=COUNT + 1, parked_to="dead"
    ) as subscription:
        async for job in subscription:
            seen.append(job.sequence)
            if job.sequence == 1:
                job.reject("bad")
            elif seen.count(2) == 1 and job.sequence == 2:
                job.retry(0.05)
            else:
                subscription.settle(job)
        await subscription.wait_settled()
    assert (await own.streams.show("dead"))["head"] == 1
    return seen


def test_with_asyncio_it_is_the_same() -> None:
    async def live() -> list[int]:
        async with veredus.embedded_async() as own:
            return await _work(own)

    assert asyncio.run(live()) == [1, 2, 3, 4, 5, 2]


def test_what_waits_for_an_application_that_died_was_tried_as_often_as_that_was_handed_it(
    node: Embedded, jobs: str
) -> None:
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        subscription = worker(far, jobs, attempts_max=2)  # type: ignore[arg-type]
        job = next(iter(subscription))
        job.retry()
        while not subscription.channel.again:
            time.sleep(0.01)
        cutter.is_open = False
        cutter.cut()
        with worker(node, jobs, attempts_max=2) as other:
            assert next(iter(other)).sequence == 1, "it was handed out once"
        with worker(node, jobs, attempts_max=2) as other:
            assert next(iter(other)).sequence == 2, "and now it was twice"
        cutter.is_open = True
    assert [letter["veredus.attempts"] for letter in dead(node, jobs, 1)] == [2]


def test_who_waits_to_take_something_again_hears_that_the_subscription_was_closed(node: Embedded, jobs: str) -> None:
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        subscription = worker(far, jobs, attempts_max=2)  # type: ignore[arg-type]
        rows = iter(subscription)
        for job in [next(rows) for _ in range(COUNT)]:
            job.retry()
        while len(subscription.channel.again) < COUNT:
            time.sleep(0.01)
        cutter.is_open = False
        cutter.cut()
        closing = threading.Timer(0.3, far.close)
        closing.start()
        with pytest.raises(veredus.VeredusError, match="closed"):
            next(rows)
        closing.join()


VERDICTS = {
    "reject, settle": (lambda job: (job.reject("bad"), job.settle()), 0, True),
    "retry, settle": (lambda job: job.settle() if job.is_redelivered else (job.retry(), job.settle()), 1, False),
    "settle, reject": (lambda job: (job.settle(), job.reject("bad")), 0, False),
    "settle, retry": (lambda job: (job.settle(), job.retry()), 0, False),
}


@pytest.mark.parametrize("name", VERDICTS)
@pytest.mark.parametrize("pause_s", [0.0, 0.002])
def test_the_first_word_on_a_publication_counts(node: Embedded, stream: str, name: str, pause_s: float) -> None:
    count = 300 if not pause_s else 50
    node.streams.create(f"{stream}.dead")
    with node.publisher(stream) as publisher:
        for first in range(0, count, 10):
            publisher.publish_many([b"k"] * 10, [b"%d" % number for number in range(first, first + 10)])
            publisher.flush()
    judge, again_count, is_dead = VERDICTS[name]
    seen: list[int] = []
    with node.subscribe(
        stream, subscriber="worker", mode="individual", parked_to=f"{stream}.dead", until=count + 1
    ) as subscription:
        for job in subscription:
            seen.append(job.sequence)
            judge(job)
            time.sleep(pause_s)
        subscription.wait_settled()
    assert sorted(seen) == sorted([*range(1, count + 1)] * (1 + again_count))
    assert node.streams.show(f"{stream}.dead")["head"] == (count if is_dead else 0)
    assert node.subscriptions.show(stream, "worker")["floor"] == count


def test_a_batch_that_is_settled_leaves_out_what_was_given_back_of_it(node: Embedded, stream: str) -> None:
    node.streams.create(f"{stream}.dead")
    with node.publisher(stream) as publisher:
        publisher.publish_many([b"k"] * 10, [b"%d" % number for number in range(10)])
    with node.subscribe(
        stream, subscriber="worker", mode="individual", parked_to=f"{stream}.dead", until=11
    ) as subscription:
        batch = subscription.next_batch()
        assert batch is not None
        for job in batch:
            if job.sequence in (3, 4):
                job.reject("bad")
            elif job.sequence == 7:
                job.retry(delay_s=0.1)
        batch.settle()
        subscription.wait_settled()
        assert node.streams.show(f"{stream}.dead")["head"] == 2
        assert node.subscriptions.show(stream, "worker")["floor"] == 6
        again = subscription.next_batch()
        assert again is not None
        assert again.sequences.tolist() == [7]
        again.settle()
        assert subscription.next_batch() is None
        subscription.wait_settled()
    assert node.subscriptions.show(stream, "worker")["floor"] == 10
