"""What is no longer available is reported once, and only that: however often the link is lost before it is taken."""

import time
from typing import Literal

import pytest

import veredus
from tests.client.cutter import Cutter
from veredus.client.embedded import Embedded
from veredus.client.ends import Subscription
from veredus.client.wanting import Gap
from veredus.protocols.zeps import messages as m

COUNT = 10


def publish(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="p") as publisher:
        for number in range(COUNT):
            publisher.wait(publisher.publish("k", b"%d" % number))


def wait_for_gap(subscription: Subscription) -> None:
    """Until a gap waits to be taken."""
    queue = subscription.channel.queue
    deadline = time.monotonic() + 20
    while not any(isinstance(item, m.Gap) for item in list(queue)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def cut_off(cutter: Cutter) -> None:
    """Let the subscriber have no link any more."""
    cutter.is_open = False
    cutter.cut()


def trim_unheard(node: Embedded, cutter: Cutter, stream: str, floor: int) -> None:
    """Trim while nobody is attached, then let the subscriber in."""
    cut_off(cutter)
    node.streams.trim(stream, floor)
    cutter.is_open = True


def taken(subscription: Subscription) -> list[int]:
    """The sequences of what there is up to the end of the stream; what is reported behind them is heard, too."""
    sequences: list[int] = []
    while (batch := subscription.next_batch(timeout_s=5 if COUNT not in sequences else 0.5)) is not None:
        sequences += batch.sequences.tolist()
    return sequences


def missing_in(gaps: list[Gap]) -> list[int]:
    """The sequences that were reported as not available."""
    return [sequence for gap in gaps for sequence in range(gap.first_sequence, gap.next_sequence)]


@pytest.mark.parametrize("subscriber", ["risk", ""], ids=["durable", "ephemeral"])
def test_a_gap_that_was_lost_with_its_link_is_reported_over_the_next_one(
    node: Embedded, stream: str, subscriber: str
) -> None:
    publish(node, stream)
    gaps: list[Gap] = []
    with (
        Cutter(node.served.address) as cutter,
        veredus.connect(cutter.address) as far,
        far.subscribe(stream, subscriber=subscriber, on_gap=gaps.append) as subscription,
    ):
        trim_unheard(node, cutter, stream, 4)
        wait_for_gap(subscription)
        trim_unheard(node, cutter, stream, 7)
        wait_for_gap(subscription)
        sequences = taken(subscription)
    assert missing_in(gaps) == [1, 2, 3, 4, 5, 6]
    assert {gap.code for gap in gaps} == {"trimmed"}
    assert sequences == [7, 8, 9, 10]


def test_what_was_handed_out_before_its_gap_is_taken_is_no_gap(node: Embedded, stream: str) -> None:
    publish(node, stream)
    gaps: list[Gap] = []
    with (
        Cutter(node.served.address) as cutter,
        veredus.connect(cutter.address) as far,
        far.subscribe(stream, subscriber="risk", on_gap=gaps.append) as subscription,
    ):
        first = subscription.next_batch(timeout_s=5)
        assert first is not None
        trim_unheard(node, cutter, stream, 7)
        wait_for_gap(subscription)
        sequences = first.sequences.tolist() + taken(subscription)
    assert sorted(sequences + missing_in(gaps)) == list(range(1, COUNT + 1))


MODES: list[Literal["in-order", "individual"]] = ["in-order", "individual"]


@pytest.mark.parametrize("mode", MODES)
def test_a_gap_that_a_process_got_and_did_not_take_is_told_to_the_next_one(
    node: Embedded, stream: str, mode: Literal["in-order", "individual"]
) -> None:
    publish(node, stream)
    gaps: list[Gap] = []
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        subscription = far.subscribe(stream, subscriber="risk", mode=mode, window_size=1, on_gap=gaps.append)
        first = next(iter(subscription))
        trim_unheard(node, cutter, stream, 7)
        wait_for_gap(subscription)
        subscription.settle(first)
        subscription.wait_settled(first)
        assert gaps == []
        cut_off(cutter)
        with node.subscribe(stream, subscriber="risk", mode=mode, on_gap=gaps.append) as other:
            assert taken(other) == [7, 8, 9, 10]
        assert gaps == [Gap(2, 7, "trimmed")]
        with node.subscribe(stream, subscriber="risk", mode=mode, on_gap=gaps.append) as third:
            assert taken(third) == [7, 8, 9, 10]
        assert len(gaps) == 1, "nobody is told of what one knows"


@pytest.mark.parametrize("mode", MODES)
def test_what_was_in_hands_and_is_trimmed_is_told_to_the_next_process(
    node: Embedded, stream: str, mode: Literal["in-order", "individual"]
) -> None:
    publish(node, stream)
    gaps: list[Gap] = []
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        subscription = far.subscribe(stream, subscriber="risk", mode=mode, window_size=1, on_gap=gaps.append)
        for _, publication in zip(range(3), subscription, strict=False):
            last = publication
        subscription.settle(last.sequence - 2)
        trim_unheard(node, cutter, stream, 7)
        wait_for_gap(subscription)
        assert [publication.sequence for _, publication in zip(range(2), subscription, strict=False)] == [7, 8]
        assert gaps == [Gap(4, 7, "trimmed")]
        subscription.wait_settled()
        cut_off(cutter)
        with node.subscribe(stream, subscriber="risk", mode=mode, on_gap=gaps.append) as other:
            assert taken(other) == [7, 8, 9, 10]
        assert gaps[1] == Gap(2, 7, "trimmed"), "2 and 3 are with nobody any more"


@pytest.mark.parametrize("mode", MODES)
def test_a_gap_that_is_raised_is_known_once_all_before_it_is_settled(
    node: Embedded, stream: str, mode: Literal["in-order", "individual"]
) -> None:
    publish(node, stream)
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        with far.subscribe(stream, subscriber="risk", mode=mode, window_size=1, on_gap="raise") as subscription:
            first = next(iter(subscription))
            trim_unheard(node, cutter, stream, 7)
            wait_for_gap(subscription)
            with pytest.raises(veredus.Unavailable, match="sequences 2 to 6"):
                subscription.next_batch(timeout_s=5)
            subscription.settle(first)
            subscription.wait_settled()
        assert node.subscriptions.show(stream, "risk")["floor"] == 6
