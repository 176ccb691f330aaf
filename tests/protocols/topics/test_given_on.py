"""A server that took a topic over, gave it on, and was assigned it anew: what was there before is owed elsewhere."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import pytest

from veredus.protocols.topics.exchange import Answer, Answered, Ask
from veredus.protocols.topics.messages import Get, Merge, Message, Put, Status, Subscribe, Unsubscribe
from veredus.streams import exchange as x

from .floor import PROXY, SETTINGS, ServerScene

TOPIC = "prices"
LAST, MIDDLE, FIRST = "127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002"
PAGE = b"TRANSFER 127.0.0.1:9009 prices\r\n\r\nalice 7 8\r\n*7\r\nseven\r\n*8\r\neight\r\n"
"""Alice may have got the first one, and names it then."""
SECOND = 1_000_000_000


class Place(ServerScene):
    """Streams of several servers are told apart by ids."""

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__(replace(SETTINGS, server_id=name))

    def boot(self) -> None:
        self.rig.floor.tables.ids = lambda: blake2b(f"{self._name} {self.next_id()}".encode(), digest_size=16).digest()
        super().boot()


def get(place: ServerScene, last_id: str = "-1") -> Status:
    return place.say(Get("alice", TOPIC, last_id))


def say(place: ServerScene, *questions: Message | bytes) -> None:
    for question in questions:
        assert place.say(question).status == "OK", question


def merge(giver: ServerScene, keeper: Place) -> None:
    """Let the giver have given everything, and pass nothing on any more."""
    keeper.rig.time_ns = giver.rig.time_ns
    say(giver, Merge(PROXY, TOPIC, keeper.settings.server_id))
    for _ in range(100):
        giver.sync()
        asked = giver.take(Ask)
        for one in asked:
            keeper.ask(one.data)
            keeper.sync()
            (answer,) = keeper.take(Answer)
            giver.tell(Answered(one.token, answer.data))
        if not asked:
            break
    assert TOPIC not in giver.rig.floor.tables.streams
    giver.pass_time(30 * SECOND)
    giver.sync()
    giver.ended.clear()
    keeper.rig.time_ns = giver.rig.time_ns


def received(place: ServerScene, last_id: str) -> list[bytes]:
    bodies: list[bytes] = []
    while (status := get(place, last_id)).status == "OK":
        last_id = status.message_id
        bodies.append(status.body)
    assert status.status == "NO_MESSAGES", status
    return bodies


@pytest.mark.parametrize("is_of_page", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_a_client_got_of_a_topic_that_was_given_on_is_not_passed_over_where_it_began_anew(
    is_restarted: bool, is_of_page: bool
) -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    if is_of_page:
        say(middle, PAGE)
        named, got, owed = "7", [b"seven"], [b"eight"]
    else:
        say(first, Subscribe("alice", TOPIC), Put("bob", TOPIC, 0, b"one"), Put("bob", TOPIC, 1, b"two"))
        status = get(first)
        named, got, owed = status.message_id, [status.body], [b"two"]
        merge(first, middle)
    merge(middle, last)
    if is_restarted:
        middle.restart()
        middle.sync()
        middle.ended.clear()
    assert get(middle, named).status == "NOT_SUBSCRIBED"
    say(middle, Subscribe("alice", TOPIC), Put("carol", TOPIC, 0, b"anew"))
    assert get(middle, named).status in ("SERVER_UNAVAILABLE", "REFUSED"), "where it went to, it would come again"
    merge(middle, last)
    assert got + received(last, named) == [*got, *owed, b"anew"]


@pytest.mark.parametrize("is_of_page", [False, True])
def test_what_was_merged_into_a_topic_that_was_removed_is_passed_over_where_it_began_anew(is_of_page: bool) -> None:
    first, middle = Place(FIRST), Place(MIDDLE)
    if is_of_page:
        say(middle, PAGE)
        named = "7"
    else:
        say(first, Subscribe("alice", TOPIC), Put("bob", TOPIC, 0, b"one"))
        named = get(first).message_id
        merge(first, middle)
    say(middle, Unsubscribe("alice", TOPIC))
    middle.rig.do(x.AdminRequested(9_999, 1, "local", "stream.delete", {"name": TOPIC}))
    say(middle, Subscribe("alice", TOPIC), Put("carol", TOPIC, 0, b"anew"))
    assert get(middle, named).body == b"anew", "nothing of it is owed"
    middle.restart()
    middle.sync()
    middle.ended.clear()
    assert get(middle, named).body == b"anew"


@pytest.mark.parametrize("is_giver", [False, True])
def test_what_was_told_to_be_no_longer_available_before_a_merge_may_be_named_behind_it(is_giver: bool) -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    place, other = (giver, keeper) if is_giver else (keeper, giver)
    say(place, Subscribe("alice", TOPIC), *(Put("bob", TOPIC, n, b"%d" % n) for n in range(4)))
    place.rig.do(x.AdminRequested(9_999, 1, "local", "stream.trim", {"name": TOPIC, "floor": 3}))
    place.restart()
    place.ended.clear()
    told = get(place)
    assert (told.status, told.message_id.partition("-")[2]) == ("INTERNAL_ERROR", "1..2")
    other.rig.time_ns = place.rig.time_ns
    say(other, Put("carol", TOPIC, 0, b"elsewhere"))
    place.rig.time_ns = other.rig.time_ns
    merge(giver, keeper)
    assert sorted(received(keeper, told.message_id)) == [b"2", b"3", b"elsewhere"]


def merge_on(*merges: tuple[Place, Place], is_restarted: bool) -> None:
    """One merge after the other; `is_restarted`: each keeper is killed behind its checkpoint, and begins anew."""
    for giver, keeper in merges:
        merge(giver, keeper)
        if is_restarted:
            keeper.rig.checkpoint()
            keeper.restart()
            keeper.sync()
            keeper.ended.clear()


ONE_BY_ONE, NEWEST_FIRST, TWICE = "one by one", "newest first", "twice by one way"


@pytest.mark.parametrize("is_of_page", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("order", [ONE_BY_ONE, NEWEST_FIRST, TWICE])
def test_who_left_a_topic_and_comes_back_where_it_went_over_two_merges_names_what_it_had_got_there(
    order: str, is_restarted: bool, is_of_page: bool
) -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    ways = {
        ONE_BY_ONE: ((first, middle), (middle, last)),
        NEWEST_FIRST: ((middle, last), (first, middle), (middle, last)),
        TWICE: ((first, middle), (middle, last), (first, middle), (middle, last)),
    }[order]
    say(middle, Put("dave", TOPIC, 0, b"there"))
    if is_of_page:
        say(first, PAGE)
        named = "7"
    else:
        say(first, Subscribe("alice", TOPIC), Put("bob", TOPIC, 0, b"one"), Put("bob", TOPIC, 1, b"two"))
        named = get(first).message_id
    say(first, Unsubscribe("alice", TOPIC))
    for giver, keeper in ways:
        if TOPIC not in giver.rig.floor.tables.streams:
            say(giver, Put("erin", TOPIC, 0, b"anew"))
        merge_on((giver, keeper), is_restarted=is_restarted)
    say(last, Subscribe("alice", TOPIC), Put("carol", TOPIC, 0, b"new"))
    assert received(last, named) == [b"new"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_who_moved_on_before_two_merges_gets_behind_them_all_that_it_was_owed_at_either(is_restarted: bool) -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    say(first, Subscribe("alice", TOPIC), Put("bob", TOPIC, 0, b"one"), Put("bob", TOPIC, 1, b"two"))
    named = get(first).message_id
    last.rig.time_ns = first.rig.time_ns
    say(last, Subscribe("alice", TOPIC), Put("carol", TOPIC, 0, b"new"))
    assert get(last, named).status == "SERVER_UNAVAILABLE"
    merge_on((first, middle), (middle, last), is_restarted=is_restarted)
    assert sorted(received(last, named)) == [b"new", b"two"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_removed_is_passed_over_where_the_topic_that_was_made_anew_there_went(is_restarted: bool) -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    say(first, Subscribe("alice", TOPIC), Put("bob", TOPIC, 0, b"one"))
    of_first = get(first).message_id
    merge_on((first, middle), is_restarted=is_restarted)
    say(middle, Put("bob", TOPIC, 1, b"two"))
    of_middle = get(middle, of_first).message_id
    middle.rig.do(x.AdminRequested(9_999, 1, "local", "stream.delete", {"name": TOPIC}))
    say(middle, Put("carol", TOPIC, 0, b"anew"))
    merge_on((middle, last), is_restarted=is_restarted)
    say(last, Subscribe("alice", TOPIC), Put("carol", TOPIC, 1, b"new"))
    for named in (of_first, of_middle):
        assert get(last, named).body == b"new"
