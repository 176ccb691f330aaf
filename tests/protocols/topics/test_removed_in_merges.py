"""A topic that is removed while it is merged, and made anew: what is put since is there once, and the merge goes on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from veredus.delivery.batch import BatchHeader, Layout, signed_record
from veredus.delivery.publication import Rows
from veredus.delivery.rows import encode_rows
from veredus.protocols.topics.exchange import Answer, Answered, Ask
from veredus.protocols.topics.messages import Merge, Message, Put, Status, Subscribe, decode_message, encode_message
from veredus.protocols.topics.transfer import End, decode_part
from veredus.sim.ports import batch_offered
from veredus.streams import exchange as x
from veredus.streams.removed import GIVEN

from .floor import PROXY
from .test_given_on import FIRST, MIDDLE, SECOND, TOPIC, Place, say

OLD = [b"old %d" % number for number in range(5)]
ROUNDS_MAX = 100
sessions = count(100_001)


def remove(place: Place) -> None:
    place.rig.tell(x.AdminRequested(next(sessions), 1, "local", "stream.delete", {"name": TOPIC}))
    place.sync()


def publish(place: Place, source: str, *bodies: bytes) -> None:
    """By another door, which nobody holds."""
    session = next(sessions)
    place.rig.tell(x.SourceAttachRequested(session, "local", TOPIC, source, b"w" * 16))
    place.sync()
    grant = next(said for said in place.rig.said if isinstance(said, x.GrantSource) and said.session == session)
    payload = [encode_rows(Rows([b"k"] * len(bodies), list(bodies)))]
    header = BatchHeader(
        int(Layout.ROWS), 0, 0, 0, len(bodies), grant.stream_id, grant.source_id, grant.epoch, len(bodies),
        grant.last_number + 1, 0, 0,
    )  # fmt: skip
    place.rig.tell(batch_offered(session, signed_record(header, payload)))
    place.sync()


def transfers_of(place: Place) -> list[Ask]:
    """What it asks other servers; proxies know what it announces."""
    asked = place.take(Ask)
    for one in asked:
        if one.address == PROXY:
            place.tell(Answered(one.token, encode_message(Status(PROXY, "OK"))))
    return [one for one in asked if one.address != PROXY]


def merge(giver: Place, keeper: Place, at_step: int, act: Callable[[], None] = lambda: None) -> int:
    """Merge until the giver has nothing, and `act` before the answer to one of its questions; how many there were."""
    steps = 0
    for _ in range(ROUNDS_MAX):
        if TOPIC not in giver.rig.floor.tables.streams:
            return steps
        giver.ask(Merge(PROXY, TOPIC, MIDDLE))
        giver.sync()
        while asked := transfers_of(giver):
            for one in asked:
                keeper.ask(one.data)
                keeper.sync()
                (answer,) = keeper.take(Answer)
                steps += 1
                if steps == at_step:
                    act()
                giver.tell(Answered(one.token, answer.data))
                giver.sync()
        for place in (giver, keeper):
            place.pass_time(SECOND)
            place.sync()
    raise AssertionError(f"{TOPIC} is still at both after {steps} parts")


def both() -> tuple[Place, Place]:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    say(giver, Subscribe("alice", TOPIC))
    for counter, body in enumerate(OLD, 1):
        say(giver, Put("bob", TOPIC, counter, body))
    say(keeper, Subscribe("carol", TOPIC), Put("dave", TOPIC, 1, b"kept"))
    return giver, keeper


STEPS = range(1, merge(*both(), 0) + 1)


@pytest.mark.parametrize("at_step", STEPS)
def test_a_topic_that_is_removed_at_its_giver_and_made_anew_there_is_merged_all_the_same(at_step: int) -> None:
    giver, keeper = both()

    def act() -> None:
        remove(giver)
        publish(giver, "sensor", b"new")

    merge(giver, keeper, at_step, act)
    bodies = keeper.bodies(TOPIC)
    assert bodies.count(b"new") == 1, bodies
    assert bodies.count(b"kept") == 1
    assert all(bodies.count(body) <= 1 for body in OLD)


@pytest.mark.parametrize("at_step", STEPS)
def test_a_topic_that_is_removed_at_its_keeper_and_made_anew_there_is_merged_all_the_same(at_step: int) -> None:
    giver, keeper = both()

    def act() -> None:
        remove(keeper)
        publish(keeper, "sensor", b"new")

    merge(giver, keeper, at_step, act)
    bodies = keeper.bodies(TOPIC)
    assert bodies.count(b"new") == 1, bodies
    assert bodies.count(b"kept") == 0
    assert at_step == STEPS[-1] or all(bodies.count(body) == 1 for body in OLD), bodies


def test_what_is_made_anew_is_marked_before_the_keeper_is_asked_to_take_all_of_it() -> None:
    giver, keeper = both()
    marked: list[bool] = []

    def act() -> None:
        remove(giver)
        publish(giver, "sensor", b"new")

    ask = keeper.ask

    def asked(question: Message | bytes) -> int:
        assert isinstance(question, bytes)
        if isinstance(decode_part(decode_message(question)), End):  # type: ignore[arg-type]
            names = [name for _, name in giver.rig.floor.tables.streams[TOPIC].subscriptions]
            marked.append(GIVEN in names)
        return ask(question)

    keeper.ask = asked  # type: ignore[method-assign]
    merge(giver, keeper, STEPS[-1], act)
    assert marked == [True, True]
