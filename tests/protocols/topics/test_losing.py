"""What was trimmed before servers merged: whoever is owed it is told, until it names what it was told."""

from __future__ import annotations

import pytest

from veredus.kernel.effects import Note
from veredus.protocols.topics.ids import MessageId, shown_of
from veredus.protocols.topics.losing import (
    GONE_MAX,
    Arrivals,
    all_of,
    in_lives,
    known_by,
    lost_in,
    named_in,
    on_record,
    owed_since,
)
from veredus.protocols.topics.many import pack
from veredus.protocols.topics.messages import Get, GetMany, Put, PutMany, Status, Subscribe, Unsubscribe
from veredus.streams import exchange as x
from veredus.streams.facts import Gone, Lost, Origin
from veredus.streams.lives import Lives
from veredus.streams.lost import but_for

from .test_given_on import FIRST, LAST, MIDDLE, TOPIC, Place, merge

OWN, OTHER = b"a" * 16, b"b" * 16


def get(place: Place, client: str, last_id: str = "-1") -> Status:
    return place.say(Get(client, TOPIC, last_id))


def put(place: Place, client: str, *counters: int) -> None:
    for counter in counters:
        assert place.say(Put(client, TOPIC, counter, b"%s %d" % (client.encode(), counter))).status == "OK"


def subscribe(place: Place, *clients: str) -> None:
    for client in clients:
        assert place.say(Subscribe(client, TOPIC)).status == "OK"


def trim(place: Place, floor: int) -> None:
    place.rig.do(x.AdminRequested(9_999, 1, "local", "stream.trim", {"name": TOPIC, "floor": floor}))
    place.sync()


def wait(*places: Place) -> None:
    for place in places:
        place.rig.time_ns += 1_000_000_000


def life(place: Place) -> str:
    return shown_of(place.rig.floor.tables.streams[TOPIC].incarnation)


def story(place: Place, client: str, last_id: str = "-1", restarts: bool = False) -> list[str]:
    """The ends of the ids of gaps that it is told of, each again until it names it, and the bodies that it gets."""
    found: list[str] = []
    while True:
        said = get(place, client, last_id)
        if said.status == "NO_MESSAGES":
            return found
        if restarts:
            place.restart()
        assert get(place, client, last_id) == said, "until it is named"
        assert said.status in ("OK", "INTERNAL_ERROR"), said
        last_id = said.message_id
        found.append(said.body.decode() if said.status == "OK" else last_id)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_trimmed_at_the_giver_is_told_to_all_who_are_owed_it_until_they_name_it(restarts: bool) -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    subscribe(giver, "al", "none")
    subscribe(keeper, "ka")
    put(keeper, "kit", 1)
    put(giver, "bo", *range(1, 11))
    first = get(giver, "al").message_id
    trim(giver, 9)
    of_giver = life(giver)
    keeper.ended.clear()
    merge(giver, keeper)
    noted = [note.fields for note in keeper.take(Note) if note.event == "topic-messages-gone"]
    assert noted == [{"topic": TOPIC, "giver": FIRST, "publications": 8, "told": 3}]
    last = ["bo 9", "bo 10"]
    assert story(keeper, "al", first, restarts) == [f"{of_giver}-2..8", "kit 1", *last], "behind what it names"
    assert story(keeper, "none", restarts=restarts) == [f"{of_giver}-1..8", "kit 1", *last]
    assert story(keeper, "ka", restarts=restarts) == [f"{of_giver}-1..8", "kit 1", *last]
    shown = keeper.listed(TOPIC)["subscription_list"]
    assert [one["lost"] for one in shown] == [(), (), ()]


def test_whose_wishes_have_numbers_is_told_until_it_names_it() -> None:
    place = Place(FIRST)
    assert place.say(Subscribe("al", TOPIC, 1)).status == "OK"
    put(place, "bo", 1, 2, 3)
    trim(place, 3)
    place.restart()
    for _ in range(20):
        told = get(place, "al")
        assert told.message_id == f"{life(place)}-1..2"
        wait(place)
    assert get(place, "al", told.message_id).body == b"bo 3"


def test_who_is_told_and_names_nothing_is_told_eight_times_a_second_apart() -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    subscribe(giver, "al")
    put(giver, "bo", 1, 2, 3)
    trim(giver, 3)
    subscribe(keeper, "ka")
    merge(giver, keeper)
    told = []
    for _ in range(7):
        told += [get(keeper, "al") for _ in range(20)]
        wait(keeper)
    told.append(get(keeper, "al"))
    assert {(one.status, one.message_id) for one in told} == {("INTERNAL_ERROR", told[0].message_id)}
    assert b"messages 1 to 2 of prices are no longer available" in told[0].body
    assert get(keeper, "al").body == b"bo 3"
    keeper.restart()
    assert get(keeper, "al").body == b"bo 3"


def test_what_was_told_and_not_named_before_a_merge_is_named_behind_it() -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    subscribe(giver, "al")
    put(giver, "bo", 1, 2, 3, 4)
    trim(giver, 4)
    giver.restart()
    told = get(giver, "al")
    assert (told.status, told.message_id) == ("INTERNAL_ERROR", f"{life(giver)}-1..3")
    subscribe(keeper, "ka")
    merge(giver, keeper)
    assert get(keeper, "al", told.message_id).body == b"bo 4"
    assert get(keeper, "al", told.message_id).body == b"bo 4", "its answer was lost"


@pytest.mark.parametrize("is_told_between", [False, True])
def test_what_was_trimmed_before_the_first_of_two_merges_is_told_behind_the_second(is_told_between: bool) -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    subscribe(first, "al")
    put(first, "bo", 1, 2, 3)
    trim(first, 3)
    of_first = life(first)
    subscribe(middle, "ka")
    merge(first, middle)
    of_middle = life(middle)
    put(middle, "kit", 1, 2)
    told = get(middle, "al").message_id if is_told_between else "-1"
    trim(middle, 3)
    subscribe(last, "di")
    merge(middle, last)
    expected = [] if is_told_between else [f"{of_first}-1..2"]
    assert story(last, "al", told) == [*expected, f"{of_middle}-1..2", "kit 2"]
    assert get(last, "al", f"{of_first}-1..2").status == "NO_MESSAGES", "it is known though it was named before"


def test_who_names_what_it_got_before_two_merges_is_answered_though_that_was_trimmed_between_them() -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    subscribe(first, "al")
    put(first, "bo", 1, 2)
    got = get(first, "al")
    assert got.body == b"bo 1"
    subscribe(middle, "ka")
    merge(first, middle)
    of_middle = life(middle)
    trim(middle, 3)
    subscribe(last, "di")
    merge(middle, last)
    assert story(last, "al", got.message_id) == [f"{of_middle}-2..2"], "what it names it has got"
    assert get(last, "al", got.message_id).status == "NO_MESSAGES"
    assert story(last, "ka") == [f"{of_middle}-1..2"]


@pytest.mark.parametrize("is_twin", [False, True])
def test_of_many_that_were_got_at_once_before_a_merge_the_rest_does_not_come_again_where_the_first_is_trimmed(
    is_twin: bool,
) -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    subscribe(giver, "al")
    put(giver, "bo", 1, 2, 3, 4, 5)
    if is_twin:
        put(keeper, "bo", 1, 2, 3, 4, 5)
    subscribe(keeper, "ka")
    got = giver.say(GetMany("al", TOPIC, "-1", 4))
    assert got.message_id == f"{life(giver)}-1..4"
    trim(giver, 3)
    merge(giver, keeper)
    # Nothing says that those which are there twice were the ones that are gone.
    assert story(keeper, "al", got.message_id) == [*(["bo 1", "bo 2"] if is_twin else []), "bo 5"]


def test_of_many_that_were_got_at_once_before_two_merges_those_that_are_still_there_do_not_come_again() -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    subscribe(first, "al")
    put(first, "bo", 1, 2, 3, 4, 5)
    got = first.say(GetMany("al", TOPIC, "-1", 4))
    assert got.message_id == f"{life(first)}-1..4"
    subscribe(middle, "ka")
    merge(first, middle)
    of_middle = life(middle)
    trim(middle, 3)
    subscribe(last, "di")
    merge(middle, last)
    assert story(last, "al", got.message_id) == ["bo 5"]
    assert story(last, "ka") == [f"{of_middle}-1..2", "bo 3", "bo 4", "bo 5"]


def test_all_that_a_topic_had_may_have_been_trimmed() -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    wait(giver, keeper)
    subscribe(giver, "al")
    subscribe(keeper, "ka")
    put(giver, "bo", 1, 2)
    trim(giver, 3)
    wait(giver, keeper)
    subscribe(keeper, "late")
    of_giver = life(giver)
    merge(giver, keeper)
    assert story(keeper, "al") == story(keeper, "ka") == [f"{of_giver}-1..2"]
    assert story(keeper, "late") == [], "all of that was there before it subscribed"


def test_what_was_trimmed_at_the_keeper_is_told_to_who_comes_from_the_giver_and_is_owed_it() -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    subscribe(keeper, "ka")
    put(keeper, "kit", 1)
    wait(giver, keeper)
    subscribe(giver, "al")
    put(keeper, "kit", 2, 3)
    wait(giver, keeper)
    subscribe(giver, "late")
    put(keeper, "kit", 4)
    trim(keeper, 4)
    merge(giver, keeper)
    of_keeper = life(keeper)
    assert story(keeper, "ka") == story(keeper, "al") == [f"{of_keeper}-1..3", "kit 4"]
    assert story(keeper, "late") == [f"{of_keeper}-1..3", "kit 4"], "nobody knows when it was put"


def test_who_subscribed_behind_a_message_that_is_still_there_is_told_of_nothing_before_it() -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    subscribe(keeper, "ka")
    put(keeper, "kit", 1, 2)
    put(giver, "bo", 1, 2)
    wait(giver, keeper)
    subscribe(giver, "al")
    subscribe(keeper, "late")
    trim(keeper, 2)
    trim(giver, 2)
    merge(giver, keeper)
    assert story(keeper, "al") == story(keeper, "late") == []


def trimmed_at(place: Place) -> str:
    """Everything that a server has of the topic is trimmed there; the id of what is gone."""
    put(place, "bo", 1, 2)
    trim(place, 3)
    wait(place)
    return f"{life(place)}-1..2"


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_gone_before_an_earlier_merge_is_told_to_who_comes_from_the_other_side_of_a_later_one(
    restarts: bool,
) -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    wait(first, middle, last)
    subscribe(last, "early")
    subscribe(middle, "ka")
    gone = trimmed_at(first)
    wait(middle, last)
    subscribe(last, "late")
    merge(first, middle)
    if restarts:
        middle.restart()
        last.restart()
    assert story(middle, "ka") == [gone]
    merge(middle, last)
    assert story(last, "early", restarts=restarts) == [gone], "of the third server it heard through the second"
    assert story(last, "late") == [], "all of that was there before it subscribed"
    assert story(last, "ka", gone) == [], "it knows"


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_gone_before_an_earlier_merge_is_told_to_who_is_given_by_a_later_one(restarts: bool) -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    wait(first, middle, last)
    subscribe(middle, "early")
    subscribe(last, "di")
    gone = trimmed_at(first)
    wait(middle, last)
    subscribe(middle, "late")
    merge(first, last)
    if restarts:
        middle.restart()
        last.restart()
    merge(middle, last)
    assert story(last, "early", restarts=restarts) == story(last, "di") == [gone]
    assert story(last, "late") == []


def test_who_came_to_one_server_too_late_for_what_is_gone_and_to_another_in_time_is_told() -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    wait(first, middle, last)
    subscribe(last, "al")
    put(first, "bo", 1, 2)
    wait(first, middle, last)
    subscribe(first, "al", "late")
    put(first, "bo", 3, 4)
    of_first = life(first)
    received = get(first, "al").message_id
    assert received == f"{of_first}-3"
    trim(first, 5)
    subscribe(middle, "ka")
    merge(first, middle)
    merge(middle, last)
    assert story(last, "al", received) == [f"{of_first}-1..2", f"{of_first}-4..4"]
    assert story(last, "late") == [f"{of_first}-3..4"]


def test_who_was_told_behind_one_merge_is_not_told_again_behind_the_next() -> None:
    first, middle, last = Place(FIRST), Place(MIDDLE), Place(LAST)
    for place in (first, middle, last):
        subscribe(place, "al")
    gone = trimmed_at(first)
    merge(first, middle)
    told = get(middle, "al").message_id
    assert told == gone
    assert get(middle, "al", told).status == "NO_MESSAGES"
    merge(middle, last)
    assert story(last, "al", told) == []


def test_of_what_is_gone_a_stream_has_a_bounded_record_of_what_was_there_last() -> None:
    gone = [Gone(OWN, place, place, 10 * place) for place in range(1, GONE_MAX + 3)]
    kept = on_record((*reversed(gone), *gone, Gone(OTHER, 1, 1, -5)), 10 * GONE_MAX)
    assert len(kept) == GONE_MAX
    assert kept[0] == Gone(OWN, 3, 3, 30)
    assert kept[-1].until_us == 10 * GONE_MAX, "nothing was there later than now"
    assert {one.first for one in owed_since(kept, 10 * GONE_MAX)} == {GONE_MAX, GONE_MAX + 1, GONE_MAX + 2}


def test_what_is_gone_is_known_by_who_received_it_or_was_told() -> None:
    told = Origin(OWN, 0, ((3, 0, 2), (9, 4, 1)))
    passed = Origin(OWN, 8, ((8, 5, 1), (20, 0, 4)))
    known = list(known_by((told, passed)))
    assert known == [Lost(OWN, 3, 4)], "what lies below a next sequence may never have been wanted"
    assert list(but_for((Lost(OWN, 1, 6), Lost(OTHER, 3, 4)), known)) == [
        Lost(OWN, 1, 2),
        Lost(OWN, 5, 6),
        Lost(OTHER, 3, 4),
    ]


def test_what_is_left_of_a_put_of_many_at_the_keeper_comes_behind_what_its_client_put_before() -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    subscribe(keeper, "al")
    assert keeper.say(PutMany("bo", TOPIC, 10, pack([b"bo 10", b"bo 11", b"bo 12"]))).status == "OK"
    put(giver, "bo", 5)
    trim(keeper, 3)
    merge(giver, keeper)
    assert story(keeper, "al") == [f"{life(keeper)}-1..2", "bo 5", "bo 12"]


def test_what_is_left_of_a_put_of_many_at_the_giver_is_found_at_the_keeper() -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    subscribe(keeper, "al")
    many = PutMany("bo", TOPIC, 1, pack([b"bo 1", b"bo 2", b"bo 3"]))
    for place in (giver, keeper):
        assert place.say(many).status == "OK"
    trim(giver, 3)
    of_giver = life(giver)
    merge(giver, keeper)
    assert story(keeper, "al") == [f"{of_giver}-1..2", "bo 1", "bo 2", "bo 3"], "each once, the gap for certainty"


def test_whoever_leaves_is_told_of_nothing_that_was_lost_before() -> None:
    giver, keeper = Place(FIRST), Place(MIDDLE)
    subscribe(giver, "al")
    put(giver, "bo", 1, 2)
    trim(giver, 2)
    subscribe(keeper, "ka")
    merge(giver, keeper)
    assert keeper.say(Unsubscribe("al", TOPIC)).status == "OK"
    subscribe(keeper, "al")
    assert story(keeper, "al") == []


def test_a_place_is_before_a_time_if_something_behind_it_was_appended_before() -> None:
    arrivals = Arrivals()
    for place, time_us in ((3, 10), (4, 10), (7, 20), (6, 30), (9, 15)):
        arrivals.note(place, time_us)
    assert [arrivals.before(us) for us in (10, 11, 20, 21, 99)] == [0, 4, 4, 7, 7]


def test_what_is_lost_is_told_apart_by_lives_and_joined_within_one() -> None:
    lives = Lives([(OWN, 1), (OTHER, 5)])
    lost = tuple(in_lives(((2, 7),), lives))
    assert lost == (Lost(OWN, 2, 4), Lost(OTHER, 5, 7))
    assert all_of((*lost, Lost(OWN, 5, 5), Lost(OTHER, 6, 9))) == (Lost(OWN, 2, 5), Lost(OTHER, 5, 9))
    named = named_in(lost, MessageId(shown_of(OTHER), 1, 6))
    assert named == Lost(OTHER, 5, 6)
    assert list(but_for(lost, (named,))) == [Lost(OWN, 2, 4), Lost(OTHER, 7, 7)]
    assert named_in(lost, MessageId(shown_of(OWN), 5, 6)) is None
    assert lost_in(((1, 9),), ((1, 2),), ((4, 6),), ((0, 5),)) == ((3, 3), (6, 9))
