"""The cursors of one principal have so many ranges together, and each may have a few whatever the others have."""

from __future__ import annotations

from tests.streams.rig import Rig
from veredus.streams import exchange as x
from veredus.streams.spread import RANGES_MIN
from veredus.streams.tables import StreamsLimits

OWN = {"mode": x.SettleMode.INDIVIDUAL}
COUNT = 1000


def rig_of(ranges_max: int) -> Rig:
    rig = Rig(limits=StreamsLimits(cursor_ranges_per_principal_max=ranges_max))
    grant = rig.attach(1)
    rig.publish(grant, 1, COUNT)
    return rig


def settle_every_other(rig: Rig, session: int) -> int:
    """Settle 2, 4, ... as far as it goes: how many ranges wait then."""
    for sequence in range(2, COUNT, 2):
        rig.settle(session, (sequence, sequence))
    rig.give_turns()
    (subscription,) = (s for s in rig.floor.tables.streams["s"].subscriptions.values() if s.session == session)
    return subscription.ledger.unsettled_count


def test_what_one_cursor_has_the_next_ones_of_its_owner_do_not_get() -> None:
    rig = rig_of(300)
    for session, name in ((5, "ann"), (6, "bob"), (7, "cleo")):
        rig.subscribe(session, name, principal="p", **OWN)
    rig.subscribe(8, "dora", principal="q", **OWN)
    waiting = [settle_every_other(rig, session) for session in (5, 6, 7, 8)]
    assert waiting[1:3] == [RANGES_MIN, RANGES_MIN]
    assert 290 <= waiting[0] <= 300
    assert 290 <= waiting[3] <= 300, "another principal has room of its own"
    refused = rig.said_to(6, x.Refuse)[-1]
    assert (refused.code, refused.is_final) == ("too-many-ranges", False)


def test_room_that_a_cursor_gives_back_another_gets() -> None:
    rig = rig_of(300)
    rig.subscribe(5, "ann", principal="p", **OWN)
    rig.subscribe(6, "bob", principal="p", **OWN)
    settle_every_other(rig, 5)
    rig.settle(5, (1, COUNT))
    assert settle_every_other(rig, 6) > 290


def test_a_cursor_that_was_removed_takes_no_room() -> None:
    rig = rig_of(300)
    rig.subscribe(5, "ann", principal="p", **OWN)
    settle_every_other(rig, 5)
    removal = {"stream": "s", "subscriber": "ann", "name": "main"}
    rig.do(x.AdminRequested(9, 1, "p", "subscription.remove", removal))
    rig.subscribe(6, "bob", principal="p", **OWN)
    assert settle_every_other(rig, 6) > 290


def test_after_a_restart_all_is_counted_that_the_journal_holds() -> None:
    rig = rig_of(300)
    rig.subscribe(5, "ann", principal="p", **OWN)
    settle_every_other(rig, 5)
    rig.restart()
    rig.subscribe(6, "bob", principal="p", **OWN)
    assert settle_every_other(rig, 6) < 200


def test_what_is_tried_counts_too() -> None:
    rig = rig_of(300)
    rig.subscribe(5, "ann", principal="p", **OWN)
    for sequence in range(1, COUNT, 2):
        rig.do(x.ReturnRequested(5, sequence, is_retry=True))
    rig.subscribe(6, "bob", principal="p", **OWN)
    assert RANGES_MIN <= settle_every_other(rig, 6) <= 151
