"""Wishes that cross on their way to the journal: a numbered departure is known, whatever it was behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streams.rig import Rig
from tests.streams.test_departures import create
from veredus.streams import exchange as x


def subscribed(wish: int, session: int, principal: str = "mallory") -> x.SubscribeRequested:
    return x.SubscribeRequested(
        session,
        principal,
        "a",
        "u",
        "main",
        start=x.Start(x.StartKind.HEAD),
        mode=x.SettleMode.INDIVIDUAL,
        incarnation=bytes([session]) * 16,
        credit=1000,
        wish=wish,
    )


def asked(verb: str, request: int, **arguments: Any) -> x.AdminRequested:
    names = {"stream": "a", "subscriber": "u", "name": "main"}
    return x.AdminRequested(10, request, "mallory", f"subscription.{verb}", {**names, **arguments})


def answered(rig: Rig, *events: Any) -> list[Any]:
    """What is said when all of them are told before any is in the journal."""
    count = len(rig.said)
    rig.tell(*events)
    rig.carry_out()
    return rig.said[count:]


def is_subscribed(said: list[Any]) -> bool:
    return any(isinstance(order, x.GrantSubscription) for order in said)


@pytest.mark.parametrize("is_there", [True, False], ids=["subscribed", "not subscribed"])
def test_who_leaves_behind_the_deletion_of_the_stream_has_left_it_when_it_is_made_again(is_there: bool) -> None:
    rig = Rig()
    create(rig, "a")
    if is_there:
        assert is_subscribed(answered(rig, subscribed(7, 20)))
    answered(rig, x.AdminRequested(9, 1, "local", "stream.delete", {"name": "a"}), asked("remove", 2, wish=8))
    assert [(left.subscriber, left.wish) for left in rig.floor.tables.ahead.rows()] == [("u", 8)]
    for _ in range(2):
        assert not is_subscribed(answered(rig, subscribed(7, 30)))
        rig.restart()


def test_who_leaves_behind_a_removal_without_a_number_has_left_by_its_number() -> None:
    rig = Rig()
    create(rig, "a")
    answered(rig, subscribed(5, 20))
    answered(rig, asked("remove", 1, wish=0), asked("remove", 2, wish=9))
    for _ in range(2):
        assert not is_subscribed(answered(rig, subscribed(7, 30)))
        rig.restart()


@pytest.mark.parametrize("verb", ["remove", "renew"])
def test_who_leaves_takes_no_subscription_of_another_principal_along_in_a_restart(verb: str) -> None:
    rig = Rig()
    create(rig, "a")
    said = answered(rig, subscribed(7, 20, "alice"), asked(verb, 1, wish=9, **({"left": 8} if verb == "renew" else {})))
    assert is_subscribed(said)
    for _ in range(2):
        assert [(s.subscriber, s.owner) for s in rig.floor.tables.streams["a"].subscriptions.values()] == [
            ("u", "alice")
        ]
        rig.restart()
