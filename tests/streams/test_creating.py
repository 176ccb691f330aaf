"""What is on its way to the journal: whoever asks for one more stream or subscription looks at none of the others."""

from __future__ import annotations

import pytest

from tests.streams.rig import Rig
from veredus.streams import creating, subscribing
from veredus.streams import exchange as x
from veredus.streams.tables import StreamsLimits

MANY = 200
LIMITS = StreamsLimits(streams_per_principal_max=MANY)


class Looked(creating._Creation):
    """A creation that counts how often anybody looks at any of them."""

    count = 0

    def __getattribute__(self, name: str) -> object:
        Looked.count += 1
        return super().__getattribute__(name)


def ask(rig: Rig, number: int, principal: str = "alice", session: int = 1) -> None:
    """Ask for one more stream; the disk does not answer."""
    rig.tell(x.AdminRequested(session, number, principal, "stream.create", {"name": f"s-{number}"}))


def codes(rig: Rig) -> list[str]:
    return [said.code for said in rig.said if isinstance(said, x.Refuse)]


def test_a_stream_is_asked_for_without_a_look_at_those_that_are_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creating, "_Creation", Looked)
    rig, looks = Rig(), []
    for number in range(1, MANY):
        Looked.count = 0
        ask(rig, number)
        looks.append(Looked.count)
    assert looks == looks[:1] * len(looks)
    rig.tell(*(x.SessionClosed(session) for session in range(2, MANY)))
    assert Looked.count == looks[0], "sessions that wait for none of them are over"
    rig.carry_out()
    assert len(rig.floor.tables.streams) == MANY - 1


def test_those_on_their_way_count_for_their_creator_alone_until_the_journal_has_answered() -> None:
    rig = Rig(limits=LIMITS)
    for number in range(MANY + 1):
        ask(rig, number + 1)
    assert codes(rig) == ["too-many-streams"]
    ask(rig, 1000, "bob")
    assert codes(rig) == ["too-many-streams"]
    rig.carry_out()
    ask(rig, 2000)
    assert codes(rig) == ["too-many-streams"] * 2
    rig.do(x.AdminRequested(1, 3000, "alice", "stream.delete", {"name": "s-1"}))
    ask(rig, 4000)
    assert codes(rig) == ["too-many-streams"] * 2
    assert rig.floor.tables.created_by["alice"] == MANY - 1


def test_those_that_the_journal_did_not_take_count_no_more() -> None:
    rig = Rig(limits=LIMITS)
    rig.is_full = True
    for number in range(MANY):
        ask(rig, number + 1)
    rig.carry_out()
    assert codes(rig) == ["disk-full"] * MANY
    rig.is_full = False
    for number in range(MANY):
        ask(rig, number + 1)
    rig.carry_out()
    assert len(rig.floor.tables.streams) == MANY


def test_who_is_gone_is_told_nothing_of_what_it_waited_for_and_others_are() -> None:
    rig = Rig()
    for session in (1, 2, 1):
        rig.tell(x.AdminRequested(session, len(rig.said) + session, "alice", "stream.create", {"name": "s"}))
    rig.tell(x.SessionClosed(1))
    rig.carry_out()
    assert [said.session for said in rig.said if isinstance(said, x.AnswerAdmin)] == [2]


def test_a_subscription_is_asked_for_without_a_look_at_those_that_are_on_their_way_elsewhere() -> None:
    rig = Rig()
    for number, stream in enumerate(("s", "t"), 1):
        rig.attach(number, stream=stream)
    opening = subscribing.ByStream.of
    looks: list[int] = []

    def watched(self: subscribing.ByStream[tuple[str, str], object], stream_id: int) -> object:
        found = opening(self, stream_id)
        looks.append(len(found))
        return found

    for number in range(MANY):
        rig.tell(
            x.SubscribeRequested(
                10 + number, "alice", "t", subscriber=f"a-{number}", name="main", incarnation=bytes(16)
            )
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscribing.ByStream, "of", watched)
        rig.tell(x.SubscribeRequested(1000, "bob", "s", subscriber="b", name="main", incarnation=bytes(16)))
    assert looks
    assert max(looks) == 0
    rig.carry_out()
    assert len(rig.floor.tables.streams["t"].subscriptions) == MANY
