"""Parking: what was pushed too often moves to another stream, once, or stays as it was."""

from typing import Any

from tests.streams.rig import Rig
from veredus.streams import exchange as x

PARKING = {"attempts_max": 1, "parked_to": "parked"}


def tried(count: int) -> Rig:
    """A stream with so many publications, all of which an owner was handed once before it left, and a place to park."""
    rig = Rig()
    grant = rig.attach(1)
    rig.attach(2, stream="parked")
    rig.publish(grant, 1, count)
    rig.subscribe(5, "bob", **PARKING)
    rig.hand_out(5)
    rig.do(x.SessionClosed(5))
    return rig


def own(rig: Rig, session: int, **more: Any) -> None:
    """Become the next owner; what was pushed too often is parked as soon as there is credit."""
    rig.subscribe(session, "bob", who=session, **PARKING, **more)


def parked(rig: Rig, session: int) -> list[int]:
    """The numbers of what is parked."""
    rig.subscribe(session, stream="parked")
    return [row.number for _, row in rig.rows(session)]


def test_what_the_journal_would_not_park_is_parked_when_it_takes_it() -> None:
    rig = tried(3)
    own(rig, 6, credit=0)
    rig.is_full = True
    (refusal,) = rig.do(x.CreditGranted(6, 1 << 40))
    assert (refusal.code, refusal.is_final, parked(rig, 90)) == ("disk-full", True, [])
    assert rig.floor.counts.dead_letters == 0
    rig.is_full = False
    rig.do(x.SessionClosed(6))
    own(rig, 7)
    assert (rig.pushed(6), rig.pushed(7), parked(rig, 91)) == ([], [], [1, 2, 3])
    assert rig.floor.counts.dead_letters == 3


def test_what_is_parked_is_settled_with_the_same_append() -> None:
    rig = tried(3)
    own(rig, 6)
    assert (rig.pushed(6), parked(rig, 90)) == ([], [1, 2, 3])
    rig.restart()
    own(rig, 7)
    assert (rig.pushed(7), parked(rig, 91)) == ([], [1, 2, 3]), "neither pushed nor parked once more"
