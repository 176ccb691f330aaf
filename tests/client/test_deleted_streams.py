"""A publisher without a source that comes back does not create anew what somebody has deleted meanwhile."""

from collections.abc import Iterator

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.client.without_a_node import cut_off
from tests.processes import wait_until
from veredus.client.embedded import Embedded


@pytest.fixture
def cutter(node: Embedded) -> Iterator[Cutter]:
    with Cutter(node.served.address) as cutter:
        yield cutter


def come_back(cutter: Cutter) -> None:
    """Let the node be there again."""
    cutter.is_open = True
    count = cutter.connection_count
    wait_until(lambda: cutter.connection_count > count)


@pytest.mark.parametrize("is_taken", [True, False], ids=["taken", "in-doubt"])
@pytest.mark.parametrize(
    ("is_replaced", "code"), [(False, "stream-deleted"), (True, "stream-replaced")], ids=["deleted", "replaced"]
)
def test_who_published_to_a_stream_that_is_gone_is_told(
    node: Embedded, stream: str, cutter: Cutter, is_taken: bool, is_replaced: bool, code: str
) -> None:
    with veredus.connect(cutter.address) as far:
        publisher = far.publisher(stream)
        if is_taken:
            publisher.wait(publisher.publish("k", b"1"))
        cut_off(cutter)
        publisher.publish("k", b"2")
        node.streams.delete(stream)
        if is_replaced:
            node.streams.create(stream)
        come_back(cutter)
        with pytest.raises(veredus.Refused) as refused:
            publisher.flush(timeout_s=20)
        assert refused.value.code == code
    if is_replaced:
        assert node.streams.show(stream)["head"] == 0
    else:
        assert stream not in [shown["name"] for shown in node.streams.list()]


def test_who_published_nothing_goes_on(node: Embedded, stream: str, cutter: Cutter) -> None:
    with veredus.connect(cutter.address) as far, far.publisher(stream) as publisher:
        for sequence in (1, 2):
            cut_off(cutter)
            if sequence == 1:
                node.streams.delete(stream)
            come_back(cutter)
            # Who publishes before it is attached again publishes to what was deleted.
            wait_until(lambda: stream in [shown["name"] for shown in node.streams.list()])
            assert publisher.wait(publisher.publish("k", b""), timeout_s=20).sequence == sequence
