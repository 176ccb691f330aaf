"""A client leaves, and one of two servers does not hear of it: what that gives it all the same comes once."""

from __future__ import annotations

import pytest
from msgspec import structs

from veredus.protocols.topics.messages import Get, Put, Subscribe, Unsubscribe

from .test_given_on import FIRST, MIDDLE, TOPIC, Place, get, merge, received, say

MS = 1_000_000
ALICE = "alice"
AFTERWARDS = ("", "kill", "checkpoint")


def put(place: Place, *counters: int, client: str = "bob") -> None:
    for counter in counters:
        say(place, Put(client, TOPIC, counter, b"%d" % counter))


def take(place: Place, count: int, last_id: str = "-1") -> tuple[list[bytes], str]:
    """Get so many, name the last one as well, and say what they are."""
    bodies = []
    for _ in range(count):
        status = get(place, last_id)
        bodies.append(status.body)
        last_id = status.message_id
    get(place, last_id)
    return bodies, last_id


def pass_time(*places: Place) -> None:
    now = max(place.rig.time_ns for place in places) + 10 * MS
    for place in places:
        place.rig.time_ns = now


def outlive(place: Place, after: str) -> None:
    if after == "checkpoint":
        place.rig.checkpoint()
    if after:
        place.restart()
        place.sync()
        place.ended.clear()


@pytest.mark.parametrize("after", AFTERWARDS)
@pytest.mark.parametrize("is_at_keeper", [True, False])
def test_what_a_subscription_that_was_left_has_given_comes_no_more_when_it_began_anew_and_was_merged(
    is_at_keeper: bool, after: str
) -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    late, other = (keeper, giver) if is_at_keeper else (giver, keeper)
    say(late, Subscribe(ALICE, TOPIC, 1))
    put(late, 1, 2)
    assert take(late, 1)[0] == [b"1"]
    put(other, 1, client="carol")
    pass_time(giver, keeper)
    assert other.say(Unsubscribe(ALICE, TOPIC, 2)).status == "NOT_SUBSCRIBED"
    say(other, Subscribe(ALICE, TOPIC, 3, 2))
    pass_time(giver, keeper)
    put(late, 3, 4, 5)
    bodies, last_id = take(late, 3)
    assert bodies == [b"2", b"3", b"4"], "it does not know yet that she has left"
    say(late, Subscribe(ALICE, TOPIC, 4, 2))
    assert get(late, last_id).status == "NO_MESSAGES"
    outlive(late, after)
    put(late, 6)
    pass_time(giver, keeper)
    merge(giver, keeper)
    assert sorted(received(keeper, last_id)) == [b"5", b"6"]


@pytest.mark.parametrize("after", AFTERWARDS)
def test_who_asks_again_for_what_it_had_left_is_given_what_is_put_from_then_on_and_nothing_older(after: str) -> None:
    place = Place(MIDDLE)
    say(place, Subscribe(ALICE, TOPIC, 1))
    put(place, 1, 2, 3)
    assert take(place, 1)[0] == [b"1"]
    say(place, Subscribe(ALICE, TOPIC, 3, 2))
    assert place.say(Subscribe(ALICE, TOPIC, 1)).status == "REFUSED"
    assert place.say(Unsubscribe(ALICE, TOPIC, 2)).status == "REFUSED"
    assert place.say(Subscribe(ALICE, TOPIC, 3, 2)).status == "ALREADY_SUBSCRIBED"
    outlive(place, after)
    put(place, 4)
    assert received(place, "-1") == [b"4"]
    say(place, Unsubscribe(ALICE, TOPIC, 4))
    assert place.say(Get(ALICE, TOPIC, "-1")).status == "NOT_SUBSCRIBED"


def test_who_leaves_and_comes_back_again_and_again_makes_a_server_remember_a_bounded_number_of_ranges() -> None:
    place = Place(MIDDLE)
    place.rig.floor.tables.limits = structs.replace(place.rig.limits, unsettled_max=8)
    say(place, Subscribe(ALICE, TOPIC, 1))
    last_id = "-1"
    for number in range(20):
        put(place, 3 * number + 1, 3 * number + 2)
        (body,), last_id = take(place, 1)
        assert body == b"%d" % (3 * number + 1)
        say(place, Subscribe(ALICE, TOPIC, 2 * number + 3, 2 * number + 2))
        (subscription,) = place.rig.floor.tables.streams[TOPIC].subscriptions.values()
        assert len(subscription.unwanted) <= 8
    put(place, 100)
    assert received(place, last_id) == [b"100"]
