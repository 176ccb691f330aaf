"""Publications of two subscriptions that a program mixes up: none is settled, retried or rejected for another."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

import veredus
from veredus.client.embedded import Embedded

Act = Callable[[Any, Any], object]
ACTS: dict[str, Act] = {
    "settle": lambda own, publication: own.settle(publication),
    "settle a batch": lambda own, publication: own.settle(publication.batch),
    "wait": lambda own, publication: own.wait_settled(publication, timeout_s=1),
}
SINGLE: dict[str, Act] = ACTS | {
    "retry": lambda own, publication: own.retry(publication),
    "reject": lambda own, publication: own.reject(publication, "broken"),
}


def publish(node: Embedded, stream: str, count: int) -> None:
    with node.publisher(stream) as publisher:
        publisher.publish_many(["k"] * count, [b"%d" % index for index in range(count)])


def third_of(node: Embedded, stream: str) -> Any:
    subscription = node.subscribe(stream, subscriber="other")
    return list(islice(subscription, 3))[-1]


@pytest.mark.parametrize(
    ("mode", "act"),
    [pytest.param("in-order", act, id=f"in-order, {name}") for name, act in ACTS.items()]
    + [pytest.param("individual", act, id=f"individual, {name}") for name, act in SINGLE.items()],
)
def test_a_publication_of_another_stream_is_settled_by_nobody_here(
    node: Embedded, stream: str, mode: Any, act: Act
) -> None:
    for name in (stream, f"{stream}-b"):
        publish(node, name, 3)
    node.streams.create(f"{stream}-dead")
    foreign = third_of(node, f"{stream}-b")
    with node.subscribe(stream, subscriber="a", mode=mode, parked_to=f"{stream}-dead") as own:
        next(iter(own)).settle()
        with pytest.raises(veredus.Misuse, match=f"of stream '{stream}-b', and this subscription reads '{stream}'"):
            act(own, foreign)
    assert node.subscriptions.show(stream, "a")["floor"] == 1
    with node.subscribe(stream, subscriber="a", until=4) as own:
        assert [publication.sequence for publication in own] == [2, 3]


@pytest.mark.parametrize(
    ("mode", "act"),
    [("in-order", "settle"), ("individual", "settle"), ("individual", "retry"), ("individual", "reject")],
)
def test_what_another_subscription_was_handed_is_settled_here_when_it_was_handed_out_here(
    node: Embedded, stream: str, mode: Any, act: str
) -> None:
    publish(node, stream, 3)
    node.streams.create(f"{stream}-dead")
    foreign = third_of(node, stream)
    with node.subscribe(stream, subscriber="a", mode=mode, parked_to=f"{stream}-dead") as own:
        next(iter(own))
        with pytest.raises(veredus.Misuse, match="the last sequence that was handed out is 1"):
            SINGLE[act](own, foreign)
        assert len(list(islice(own, 2))) == 2
        SINGLE[act](own, foreign)
