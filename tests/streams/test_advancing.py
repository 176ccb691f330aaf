"""A cursor that nobody is attached to goes where its subscriber says that it has read to, for good."""

from typing import Any

import pytest

from tests.streams.rig import Rig
from veredus.streams import exchange as x

NAMED = {"stream": "s", "subscriber": "risk", "name": "spark"}


def ask(rig: Rig, verb: str, **arguments: object) -> Any:
    (answer,) = rig.do(x.AdminRequested(90, 1, "local", verb, {**NAMED, **arguments}))
    return answer


def floor_of(rig: Rig) -> int:
    return int(ask(rig, "subscription.show").result["floor"])


@pytest.fixture
def rig() -> Rig:
    """Ten rows, and a subscription that nobody is attached to."""
    rig = Rig()
    rig.publish(rig.attach(1), 1, 10)
    rig.do(x.SubscribeRequested(5, "local", "s", "risk", "spark", incarnation=bytes(16)))
    rig.do(x.SessionClosed(5))
    return rig


def test_a_cursor_goes_beyond_what_was_pushed_and_never_back(rig: Rig) -> None:
    assert ask(rig, "subscription.advance", floor=6).result == {"floor": 6}
    assert ask(rig, "subscription.advance", floor=4).result == {"floor": 6}
    rig.restart()
    assert floor_of(rig) == 6
    rig.do(x.SubscribeRequested(6, "local", "s", "risk", "spark", incarnation=bytes(15) + b"1", credit=1 << 20))
    assert rig.pushed(6) == [7, 8, 9, 10]


def test_a_cursor_that_the_journal_refuses_to_move_stays(rig: Rig) -> None:
    rig.is_full = True
    assert ask(rig, "subscription.advance", floor=6).code == "disk-full"
    rig.is_full = False
    assert floor_of(rig) == 0
    assert ask(rig, "subscription.advance", floor=6).result == {"floor": 6}


def test_a_cursor_with_an_owner_and_one_beyond_the_newest_row_are_refused(rig: Rig) -> None:
    assert ask(rig, "subscription.advance", floor=11).code == "bad-request"
    rig.do(x.SubscribeRequested(6, "local", "s", "risk", "spark", incarnation=bytes(15) + b"1"))
    assert ask(rig, "subscription.advance", floor=6).code == "subscription-in-use"
    assert ask(rig, "subscription.advance", floor=6, subscriber="other").code == "unknown-subscription"


def test_nobody_is_attached_any_more_whose_node_was_killed(rig: Rig) -> None:
    rig.do(x.SubscribeRequested(6, "local", "s", "risk", "spark", incarnation=bytes(16), credit=1 << 20))
    assert ask(rig, "subscription.advance", floor=6).code == "subscription-in-use"
    rig.restart()
    assert ask(rig, "subscription.show").result["is_attached"] is False
    assert ask(rig, "subscription.advance", floor=6).result == {"floor": 6}
    rig.restart()
    assert floor_of(rig) == 6
