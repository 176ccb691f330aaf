"""A native link that is lost: whatever its peer had opened is over, and nobody is fed on."""

from veredus.kernel.events import LinkClosed
from veredus.protocols.links import session_of
from veredus.protocols.zeps import messages as m
from veredus.streams import exchange as x

from .place import Pair, Place

ME = b"1" * 16


def test_a_lost_link_closes_each_session_of_its_peer_once() -> None:
    pair = Pair(Place())
    first, run = pair.open(m.OpenRun("sink", ME))
    openings = (
        m.AttachSource("s", "me", ME),
        m.Subscribe("s", credit=1 << 40),
        m.Subscribe("s", "me", "main", incarnation=ME),
        m.OpenStage("sink", run.epoch, "s", ME),
    )
    channels = [first, *(pair.open(opening)[0] for opening in openings)]
    floor = pair.place.streams
    assert (len(floor.flows), floor.attached_count) == (2, 2)
    pair.place.tell(LinkClosed(1, "reset"))
    closed = [fact.session for fact in pair.place.down if isinstance(fact, x.SessionClosed)]
    assert sorted(closed) == sorted(session_of(1, channel) for channel in channels)
    assert (len(floor.flows), floor.attached_count) == (0, 0)
