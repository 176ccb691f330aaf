"""A session's number may be used again at once: what the journal says late was for the one before, and nobody else."""

from dataclasses import replace

from tests.streams.rig import Rig, incarnation
from veredus.streams import exchange as x


def test_a_late_receipt_is_not_given_to_the_source_that_has_the_sessions_number_now() -> None:
    rig = Rig()
    grant = rig.attach(1, "alpha")
    rig.publish(rig.attach(3, "beta", who=2), 1)
    rig.offer(grant, 1, 5)
    rig.tell(x.SessionClosed(1), x.SourceAttachRequested(1, "local", "s", "beta", incarnation(2), 0))
    rig.carry_out()
    assert rig.said_to(1, x.ConfirmTaken) == []
    assert [granted.last_number for granted in rig.said_to(1, x.GrantSource)] == [0, 1]


def test_a_late_refusal_is_not_given_to_the_source_that_has_the_sessions_number_now() -> None:
    rig = Rig()
    grant = rig.attach(1, "alpha")
    rig.is_full = True
    rig.offer(grant, 1, 5)
    rig.is_full = False
    rig.tell(x.SessionClosed(1), x.SourceAttachRequested(1, "local", "s", "beta", incarnation(1), 0))
    rig.carry_out()
    assert rig.said_to(1, x.RefuseBatch) == []


def test_a_subscription_that_was_closed_before_it_was_granted_is_not_granted_to_the_next_of_its_number() -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 3)
    first = x.SubscribeRequested(
        5, "local", "s", subscriber="bob", name="main", incarnation=incarnation(1), credit=1 << 40
    )
    second = replace(first, subscriber="eve", start=x.Start(x.StartKind.HEAD))
    rig.tell(first, x.SessionClosed(5), second)
    rig.carry_out()
    assert [grant.position for grant in rig.said_to(5, x.GrantSubscription)] == [4]
    assert rig.pushed(5) == []
    (stream,) = rig.floor.tables.streams.values()
    assert stream.subscriptions["bob", "main"].session == 0
