"""Who left one server and subscribed again there: another one, which hears of it late, gives it messages meanwhile."""

from __future__ import annotations

import pytest

from veredus.protocols.topics.messages import Put, Subscribe, Unsubscribe

from .test_given_on import FIRST, LAST, MIDDLE, SECOND, TOPIC, Place, get, merge_on, received, say

BODIES = [b"one", b"two", b"three", b"four"]


def be_given_and_leave_late(stale: Place, fresh: Place, count: int) -> str:
    """Alice gets so many of `BODIES` where she had left long ago; the id that she has then."""
    for place in (stale, fresh):
        place.rig.time_ns += SECOND
        say(place, Subscribe("alice", TOPIC, 5), Put("dave", TOPIC, 1, b"before"))
    say(fresh, Unsubscribe("alice", TOPIC, 6), Subscribe("alice", TOPIC, 7))
    stale.rig.time_ns = fresh.rig.time_ns = max(stale.rig.time_ns, fresh.rig.time_ns) + SECOND
    before = get(stale)
    assert before.body == b"before"
    last_id = before.message_id
    for counter, body in enumerate(BODIES, 1):
        say(stale, Put("bob", TOPIC, counter, body))
    for body in BODIES[:count]:
        status = get(stale, last_id)
        assert status.body == body
        last_id = status.message_id
    if count == len(BODIES):
        assert get(stale, last_id).status == "NO_MESSAGES"
    say(stale, Unsubscribe("alice", TOPIC, 6))
    fresh.rig.time_ns = stale.rig.time_ns
    return last_id


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("count", range(len(BODIES) + 1))
@pytest.mark.parametrize("is_giver_stale", [False, True])
def test_what_it_got_there_before_that_does_not_come_again_behind_the_merge(
    is_giver_stale: bool, count: int, is_restarted: bool
) -> None:
    giver, keeper = Place(MIDDLE), Place(LAST)
    stale, fresh = (giver, keeper) if is_giver_stale else (keeper, giver)
    last_id = be_given_and_leave_late(stale, fresh, count)
    if is_restarted:
        stale.rig.checkpoint()
        stale.restart()
        stale.sync()
        stale.ended.clear()
    merge_on((giver, keeper), is_restarted=is_restarted)
    assert received(keeper, last_id) == BODIES[count:]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("count", range(len(BODIES) + 1))
def test_what_it_got_there_before_that_does_not_come_again_behind_two_merges(count: int, is_restarted: bool) -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    say(middle, Put("erin", TOPIC, 1, b"long ago"))
    last_id = be_given_and_leave_late(first, last, count)
    middle.rig.time_ns = first.rig.time_ns
    merge_on((first, middle), (middle, last), is_restarted=is_restarted)
    assert received(last, last_id) == BODIES[count:]


@pytest.mark.parametrize("count", range(len(BODIES) + 1))
def test_what_it_got_where_it_subscribes_once_more_does_not_come_again_either(count: int) -> None:
    giver, keeper = Place(MIDDLE), Place(LAST)
    be_given_and_leave_late(giver, keeper, count)
    say(giver, Subscribe("alice", TOPIC, 8))
    merge_on((giver, keeper), is_restarted=False)
    assert received(keeper, "-1") == BODIES[max(0, count - (count < len(BODIES))) :]
