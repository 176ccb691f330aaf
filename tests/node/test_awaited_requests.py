"""Requests that wait for the disk are answered together: so few of them are on their way on one link."""

from __future__ import annotations

from tests.node.test_costly_frames import BOMBER, PING, VICTIM
from tests.node.test_large_answers import SlowNode
from veredus.kernel.events import LinkClosed, Received
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native
from veredus.protocols.zeps.channel import REQUESTS_MAX
from veredus.protocols.zeps.native import Kind

COUNT = 3 * REQUESTS_MAX
CREATIONS = b"".join(
    native.encode_message(0, m.Request(number, "stream.create", {"name": f"s-{number}"}))
    for number in range(1, COUNT + 1)
)


def test_so_many_requests_are_answered_at_once_as_may_be_on_their_way_and_the_others_later() -> None:
    node = SlowNode()
    node.hold()
    node.tell(Received(BOMBER, CREATIONS + PING))
    node.turns(COUNT)
    node.tell(Received(VICTIM, PING))
    assert (len(node.said(BOMBER, Kind.REPLY)), node.pongs(BOMBER), node.pongs(VICTIM)) == (0, 0, 1)
    node.release()
    at_once = len(node.said(BOMBER, Kind.REPLY))
    assert REQUESTS_MAX // 2 < at_once <= REQUESTS_MAX
    node.turns(COUNT)
    assert [reply.request for reply in node.said(BOMBER, Kind.REPLY)] == list(range(1, COUNT + 1))
    assert node.pongs(BOMBER) == 1


def test_requests_that_are_refused_at_once_leave_room_for_others() -> None:
    node = SlowNode()
    unknown = b"".join(
        native.encode_message(0, m.Request(number, "stream.nothing", {})) for number in range(1, COUNT + 1)
    )
    node.tell(Received(BOMBER, unknown + PING))
    node.turns(COUNT)
    assert (len(node.said(BOMBER, Kind.REFUSED)), node.pongs(BOMBER)) == (COUNT, 1)


def test_a_link_that_is_gone_while_its_requests_wait_is_let_go_when_they_are_answered() -> None:
    node = SlowNode()
    node.hold()
    node.tell(Received(BOMBER, CREATIONS))
    node.turns(COUNT)
    node.tell(LinkClosed(BOMBER, "closed"))
    node.release()
    node.turns(2 * COUNT)
    assert BOMBER not in node.engine.links
