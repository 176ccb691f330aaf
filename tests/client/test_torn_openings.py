"""What a signal's handler raises while something is opened, as Ctrl-C does in a notebook, leaves nothing open that
nobody has.
"""

import time
from collections.abc import Callable
from itertools import count as numbered
from pathlib import Path
from typing import Protocol

import pytest

import veredus
from tests.client.tears import torn
from veredus.client.embedded import Embedded
from veredus.client.pending import connections


class Closed(Protocol):
    """What is opened, and to be closed."""

    def close(self) -> None: ...


OPENING = frozenset(("blocking.py", "loops.py", "ends.py"))
SETTLED_S = 5.0


def settled(look: Callable[[], object], wanted: object) -> bool:
    """Whether `look` gives what is wanted, soon."""
    end_s = time.monotonic() + SETTLED_S
    while look() != wanted:
        if time.monotonic() > end_s:
            return False
        time.sleep(0.005)
    return True


def descriptor_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def torn_everywhere(open_: Callable[[], Closed], look: Callable[[], object], wanted: object) -> None:
    """What `open_` opens is closed where nobody has it: then `look` gives what is wanted."""
    where, at = "never", 0
    while where:
        at += 1
        opened = None
        with torn(OPENING, at) as tear:
            opened = open_()
        where = tear.where
        if opened is not None:
            opened.close()
        assert settled(look, wanted), f"torn at place {at}, {where}: {look()}"
    assert at > 10


def test_who_is_torn_out_of_connecting_leaves_no_connection(node: Embedded) -> None:
    count, known = descriptor_count(), list(connections)
    torn_everywhere(
        lambda: veredus.connect(node.served.address),
        lambda: sum(connection not in known for connection in connections),
        0,
    )
    assert settled(lambda: descriptor_count() <= count, True)


def test_who_is_torn_out_of_subscribing_leaves_no_subscription(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    torn_everywhere(lambda: node.subscribe(stream), lambda: node.streams.show(stream)["sessions"], 0)


def test_who_is_torn_out_of_opening_a_publisher_leaves_no_source_attached(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    numbers = numbered(1)

    def attached_count() -> int:
        return sum(source["is_attached"] for source in node.streams.show(stream)["source_list"])

    torn_everywhere(lambda: node.publisher(stream, source=f"p-{next(numbers)}"), attached_count, 0)


def test_who_is_torn_out_of_opening_a_run_leaves_no_run(node: Embedded, stream: str) -> None:
    attachments = node._node.connection._attachments
    torn_everywhere(node.sink(stream).open_run, lambda: len(attachments), len(attachments))


@pytest.mark.parametrize("mode", ["in-order", "individual"])
def test_who_is_torn_out_of_a_durable_subscribing_can_subscribe_again(node: Embedded, stream: str, mode: str) -> None:
    node.streams.create(stream)
    where, at = "never", 0
    while where:
        at += 1
        subscription = None
        with torn(OPENING, at) as tear:
            subscription = node.subscribe(stream, subscriber="torn", mode=mode)  # type: ignore[arg-type]
        where = tear.where
        if subscription is not None:
            subscription.close()
        node.subscribe(stream, subscriber="torn", mode=mode).close()  # type: ignore[arg-type]
    assert at > 10
