"""Whoever has no room is told so, again and again, and is not counted for each time; who made room is told of it."""

from __future__ import annotations

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.streams import exchange as x
from veredus.streams.kept import Kept
from veredus.streams.room import RECOUNTED_NS, Amounts, Room
from veredus.streams.tables import StreamsLimits

MOST = 5


def subscribe(rig: Rig, number: int) -> object:
    wanted = x.SubscribeRequested(
        number << 16 | 1, "desk", "s", f"me-{number}", "main", None, x.Start(), 0, x.SettleMode.IN_ORDER,
        incarnation(1), 0, 0,
    )  # fmt: skip
    said = [one for one in rig.do(wanted) if isinstance(one, x.GrantSubscription | x.Refuse)]
    return said[-1].code if isinstance(said[-1], x.Refuse) else "granted"


def open_run(rig: Rig, number: int) -> object:
    (said,) = rig.do(x.RunOpenRequested(number << 16 | 1, "desk", f"sink-{number}", incarnation(1), 0, False))
    return said.code if isinstance(said, x.Refuse) else "granted"


def ask(rig: Rig, verb: str, **arguments: object) -> object:
    return rig.do(x.AdminRequested(1, 1, "desk", verb, arguments))[-1]


def test_what_is_left_stands_until_it_is_used_up_and_is_then_counted_anew() -> None:
    counted: list[str] = []
    left: Amounts = (2, 100)

    def left_of(owner: str) -> Amounts:
        counted.append(owner)
        return left

    room = Room(left_of)
    assert room.take("a", (1, 60), 0, 0) == (2, 100)
    assert room.take("a", (1, 0), 0, 0) == (1, 40)
    assert counted == ["a"]
    left = (0, 40)
    assert [room.take("a", (1, 0), 0, RECOUNTED_NS)[0] for _ in range(3)] == [0, 0, 0]
    assert room.take("a", (0, 40), 0, RECOUNTED_NS) == (0, 40)
    assert counted == ["a", "a"]
    left = (1, 40)
    assert room.take("a", (1, 0), 1, RECOUNTED_NS) == (1, 40)
    assert room.take("a", (1, 0), 1, 2 * RECOUNTED_NS) == (1, 40)
    assert counted == ["a", "a", "a", "a"]


def test_who_has_all_the_subscriptions_that_he_may_is_counted_once_however_often_he_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(StreamsLimits(subscriptions_per_principal_max=MOST))
    assert [subscribe(rig, number) for number in range(1, MOST + 1)] == ["granted"] * MOST
    counted = []
    left_of = Kept._left_of
    monkeypatch.setattr(Kept, "_left_of", lambda kept, owner: counted.append(owner) or left_of(kept, owner))
    rig.floor._subscribing.kept = Kept(rig.floor.tables, rig.floor._subscribing.opening)
    refused = [subscribe(rig, number) for number in range(100, 150)]
    assert (set(refused), len(counted)) == ({"too-many-subscriptions"}, 1)
    ask(rig, "subscription.remove", stream="s", subscriber="me-1", name="main")
    assert [subscribe(rig, 200), subscribe(rig, 201)] == ["granted", "too-many-subscriptions"]


def test_who_has_all_the_sinks_that_he_may_has_no_more_until_one_is_removed() -> None:
    rig = Rig(StreamsLimits(sinks_per_principal_max=MOST))
    assert [open_run(rig, number) for number in range(1, MOST + 1)] == ["granted"] * MOST
    refused = [open_run(rig, number) for number in range(100, 150)]
    assert set(refused) == {"too-many-sinks"}
    rig.do(x.SessionClosed(1 << 16 | 1))
    assert isinstance(ask(rig, "sink.remove", sink="sink-1"), x.AnswerAdmin)
    assert [open_run(rig, 200), open_run(rig, 201)] == ["granted", "too-many-sinks"]
