"""Whoever is told why a source is over is told as well which of its publications the node has not acknowledged."""

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.client.without_a_node import cut_off
from veredus.client.embedded import Embedded
from veredus.client.ends import Publisher

COUNT = 5


def publish_and_be_fenced(node: Embedded, cutter: Cutter, far: veredus.Node, stream: str) -> Publisher:
    """A publisher with something pending, from which another one has taken over while its link was gone."""
    publisher = far.publisher(stream, source="a")
    publisher.wait(publisher.publish("k", b"1"))
    cut_off(cutter)
    publisher.publish_many(["k"] * (COUNT - 1), [b"x"] * (COUNT - 1))
    with node.publisher(stream, source="a") as newer:
        newer.wait(newer.publish("k", b"2"))
    cutter.is_open = True
    return publisher


def test_who_is_fenced_hears_at_the_close_what_was_not_acknowledged(node: Embedded, stream: str) -> None:
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        publisher = publish_and_be_fenced(node, cutter, far, stream)
        with pytest.raises(veredus.Fenced, match=rf"this one must stop; numbers 2 to {COUNT} are not ack") as caught:
            publisher.close()
        assert caught.value.details == {"epoch": 2, "number": COUNT, "taken_number": 1}


def test_an_exception_that_ends_a_block_has_a_note_of_it(node: Embedded, stream: str) -> None:
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        publisher = publish_and_be_fenced(node, cutter, far, stream)
        with pytest.raises(ZeroDivisionError) as caught, publisher:
            1 / 0  # noqa: B018
        (note,) = caught.value.__notes__
        assert f"numbers 2 to {COUNT} are not acknowledged" in note
        assert "[fenced]" in note
