"""How much of who left the streams of one creator remember, also by names that nobody ever had."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streams.rig import Rig
from veredus.streams import departures
from veredus.streams import exchange as x
from veredus.streams.facts import Had, Origin
from veredus.streams.tables import StreamsLimits

FEW = StreamsLimits(departures_per_creator_max=6)


def create(rig: Rig, *names: str, creator: str = "eve") -> None:
    for name in names:
        arguments: dict[str, object] = {"name": name, "config": {}}
        (answer,) = rig.do(x.AdminRequested(9, 1, creator, "stream.create", arguments))
        assert isinstance(answer, x.AnswerAdmin), answer


def ask(rig: Rig, verb: str, stream: str, subscriber: str, wish: int, principal: str = "mallory") -> str:
    """The code with which it is refused, "" for none."""
    arguments: dict[str, object] = {"stream": stream, "subscriber": subscriber, "name": "main", "wish": wish}
    said = rig.do(x.AdminRequested(9, 1, principal, verb, arguments))
    return next((one.code for one in said if isinstance(one, x.Refuse)), "")


def leave(rig: Rig, stream: str, *subscribers: str) -> None:
    for subscriber in subscribers:
        assert ask(rig, "subscription.remove", stream, subscriber, 5) == "unknown-subscription"


def left(rig: Rig, stream: str) -> list[str]:
    (answer,) = rig.do(x.AdminRequested(9, 1, "local", "subscription.left", {"stream": stream, "name": "main"}))
    return [who for who, *_ in answer.result]


def again(rig: Rig, after: str) -> None:
    """The node goes on, or was killed, before or after a checkpoint."""
    if after == "checkpoint":
        rig.checkpoint()
    if after:
        rig.restart()


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_the_streams_of_one_creator_remember_so_many_departures_together(after: str) -> None:
    rig = Rig(FEW)
    create(rig, "a", "b", "c")
    create(rig, "other", creator="bob")
    leave(rig, "other", *"uvwxyz")
    for stream in "abc":
        leave(rig, stream, *"uvwxyz")
        again(rig, after)
    assert sum(len(left(rig, stream)) for stream in "abc") == 6
    assert len(left(rig, "other")) == 6


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_a_flood_on_one_stream_takes_nothing_from_those_that_remember_less(after: str) -> None:
    rig = Rig(FEW)
    create(rig, "quiet", "loud")
    leave(rig, "quiet", "alice", "bob")
    again(rig, after)
    leave(rig, "loud", *"opqrstuvwxyz")
    assert (left(rig, "quiet"), left(rig, "loud")) == (["alice", "bob"], list("wxyz"))
    again(rig, after)
    assert ask(rig, "subscription.renew", "quiet", "alice", 4) == "outdated-wish"
    assert ask(rig, "subscription.renew", "loud", "o", 4) == "unknown-subscription"


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_a_stream_that_is_deleted_leaves_its_room_to_the_others(after: str) -> None:
    rig = Rig(FEW)
    create(rig, "a", "b")
    leave(rig, "a", *"uvwxyz")
    rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "a"}))
    again(rig, after)
    leave(rig, "b", *"uvwxyz")
    assert left(rig, "b") == list("uvwxyz")


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_of_streams_that_are_not_there_so_many_departures_are_remembered_and_a_flood_takes_its_own(after: str) -> None:
    rig = Rig(FEW)
    for who in ("alice", "bob", "alice"):
        assert ask(rig, "subscription.remove", "absent", who, 5, principal=who) == "unknown-stream"
    again(rig, after)
    for number in range(9):
        assert ask(rig, "subscription.remove", f"flooded-{number}", "eve", 5) == "unknown-stream"
    again(rig, after)
    assert ask(rig, "subscription.renew", "absent", "alice", 4, principal="alice") == "outdated-wish"
    assert ask(rig, "subscription.remove", "absent", "bob", 4, principal="bob") == "outdated-wish"
    codes = [ask(rig, "subscription.renew", f"flooded-{number}", "eve", 5) for number in range(9)]
    assert codes == ["unknown-stream"] * 5 + ["outdated-wish"] * 4
    assert ask(rig, "subscription.renew", "absent", "alice", 4, principal="mallory") == "unknown-stream"
    create(rig, "absent")
    again(rig, after)
    assert left(rig, "absent") == ["alice", "bob"]


@pytest.mark.parametrize("name", ["a name", "x" * 256])
def test_what_can_be_no_name_is_not_remembered(name: str) -> None:
    rig = Rig(FEW)
    assert ask(rig, "subscription.remove", name, "alice", 5) == "unknown-stream"
    assert ask(rig, "subscription.remove", "absent", name, 5) == "unknown-stream"
    assert list(rig.floor.tables.ahead.rows()) == []


def test_who_left_a_stream_is_remembered_behind_its_end_and_what_has_no_number_is_not() -> None:
    rig = Rig(FEW)
    create(rig, "a")
    leave(rig, "a", "alice")
    rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "a"}))
    assert [(one.subscriber, one.wish) for one in rig.floor.tables.ahead.rows()] == [("alice", 5)]
    create(rig, "a")
    assert left(rig, "a") == ["alice"]
    assert list(rig.floor.tables.ahead.rows()) == []


def test_a_departure_that_is_journaled_when_its_stream_is_gone_takes_no_room() -> None:
    rig = Rig(FEW)
    create(rig, "a", "b")
    asked: dict[str, Any] = {"stream": "a", "subscriber": "u", "name": "main", "wish": 5}
    rig.tell(
        x.AdminRequested(9, 1, "local", "stream.delete", {"name": "a"}),
        x.AdminRequested(9, 2, "mallory", "subscription.remove", asked),
    )
    rig.carry_out()
    leave(rig, "b", *"uvwxyz")
    assert left(rig, "b") == list("uvwxyz")


def test_whoever_leaves_again_is_counted_once() -> None:
    rig = Rig(FEW)
    create(rig, "a", "b")
    leave(rig, "a", *"uvwxyz")
    assert ask(rig, "subscription.remove", "a", "u", 6) == "unknown-subscription"
    assert left(rig, "a") == list("uvwxyz")
    leave(rig, "b", "alice")
    assert (left(rig, "a"), left(rig, "b")) == (["u", "w", "x", "y", "z"], ["alice"])


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_names_that_one_principal_floods_a_stream_with_take_nothing_from_what_others_have_left(after: str) -> None:
    rig = Rig(FEW)
    create(rig, "shared")
    for who in ("alice", "bob"):
        named: dict[str, object] = {"stream": "shared", "subscriber": who, "name": "main", "wish": 5}
        rig.do(x.AdminRequested(9, 1, who, "subscription.remove", named))
    again(rig, after)
    leave(rig, "shared", *"opqrstuvwxyz")
    again(rig, after)
    assert left(rig, "shared") == ["alice", "bob", "w", "x", "y", "z"]
    assert ask(rig, "subscription.renew", "shared", "alice", 4, "alice") == "outdated-wish"


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_nobody_wishes_to_be_without_the_subscription_of_another(after: str) -> None:
    rig = Rig()
    create(rig, "shared")
    most = (1 << 63) - 1
    assert ask(rig, "subscription.remove", "shared", "alice", 5, "alice") == "unknown-subscription"
    assert ask(rig, "subscription.remove", "shared", "alice", most) == "unknown-subscription"
    again(rig, after)
    assert ask(rig, "subscription.renew", "shared", "alice", 4, "alice") == "outdated-wish"
    assert ask(rig, "subscription.renew", "shared", "alice", 6, "alice") == "unknown-subscription"
    assert ask(rig, "subscription.renew", "shared", "alice", 6) == "outdated-wish"
    asked = x.SubscribeRequested(5, "alice", "shared", "alice", "main", incarnation=b"a" * 16, wish=6)
    assert [one for one in rig.do(asked) if isinstance(one, x.GrantSubscription)]


def had(rig: Rig) -> Had:
    (answer,) = rig.do(x.AdminRequested(9, 1, "local", "subscription.left", {"stream": "s", "name": "main"}))
    ((_, _, _, _, found),) = answer.result
    assert isinstance(found, Had)
    return found


def settle_and_leave(rig: Rig, *sequences: int) -> None:
    rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL, start=x.Start(x.StartKind.HEAD))
    grant = rig.attach(1)
    rig.publish(grant, grant.last_number + 1, 9)
    rig.settle(5, *((one, one) for one in sequences))
    ask(rig, "subscription.remove", "s", "bob", 0, "bob")


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_what_whoever_left_had_is_remembered_with_it_also_of_an_earlier_time(after: str) -> None:
    rig = Rig()
    rig.publish(rig.attach(1), 1, 1)
    life = rig.floor.tables.streams["s"].incarnation
    settle_and_leave(rig, 2, 3, 6)
    again(rig, after)
    first = Origin(life, 4, ((4, 4, 7),))
    assert had(rig) == Had(((2, 3), (6, 6)), (first,)), "the one before it had never wanted"
    settle_and_leave(rig, 12)
    again(rig, after)
    assert had(rig) == Had(((2, 3), (6, 6), (12, 12)), (Origin(life, 11, ((11, 11, 9),)), first))


def test_of_what_whoever_left_had_the_last_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "HAD_RANGES_MAX", 2)
    monkeypatch.setattr(departures, "HAD_ORIGINS_MAX", 1)
    rig = Rig()
    rig.publish(rig.attach(1), 1, 1)
    settle_and_leave(rig, 2, 4, 6)
    settle_and_leave(rig, 12, 14, 16)
    found = had(rig)
    assert (found.received, [one.next_sequence for one in found.origins]) == (((14, 14), (16, 16)), [11])
