"""What is no longer available is reported once, and only that: however often the link is lost before it is taken."""

import time

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


def trim_unheard(node: Embedded, cutter: Cutter, stream: str, floor: int) -> None:
    """Trim while nobody is attached, then let the subscriber in."""
    cutter.is_open = False
    cutter.cut()
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
