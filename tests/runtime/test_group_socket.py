"""The socket that sends to a multicast group counts what it sends, and what the network does not take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from veredus.node.settings import MulticastSection
from veredus.runtime.multicast import GroupSocket


@pytest.fixture
def group() -> Iterator[GroupSocket]:
    group = GroupSocket(MulticastSection(group="239.195.7.8:7074", streams="s"))
    yield group
    group.close()


def test_datagrams_that_are_sent_and_those_that_are_dropped_are_counted(group: GroupSocket) -> None:
    for _ in range(3):
        group.send(b"datagram")
    group.send(bytes(70_000))
    assert (group.sent_count, group.dropped_count) == (3, 1)
