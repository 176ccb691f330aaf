"""In which order a merged topic goes out: what a client put comes by its counters, whatever lies where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veredus.kernel.effects import Note
from veredus.protocols.topics import transfer as t
from veredus.protocols.topics import weaving
from veredus.protocols.topics.many import unpack
from veredus.protocols.topics.messages import Get, GetMany, Put, Subscribe
from veredus.protocols.topics.twins import KnownPuts
from veredus.protocols.topics.weaving import Woven, woven

from .floor import ServerScene
from .test_merging import GIVER, INCARNATION, OTHER, TOPIC, begin, end, part

ROWS = st.lists(st.tuples(st.sampled_from("abcx"), st.integers(1, 9)), max_size=24)
"""What `x` published has no counter."""


def known(rows: list[tuple[str, int]], first: int) -> KnownPuts:
    puts = KnownPuts()
    for place, (client, counter) in enumerate(rows, first):
        if client != "x":
            puts.note(client, counter, b"%16d" % place, place)
    return puts


def order_of(woven: Woven, head: int, row_count: int) -> list[int]:
    """The places in the order in which they are gone through."""
    if not woven.legs:
        return list(range(1, head + row_count + 1))
    starts = [(place.sequence if place.row < 0 else head + 1 + place.row, count) for place, count in woven.legs]
    places = [place for start, count in starts for place in range(start, start + count)]
    return [*range(1, min(places)), *places]


@settings(deadline=None)
@given(ROWS, ROWS, st.integers(0, 4))
def test_each_place_comes_once_and_the_messages_of_each_client_by_their_counters(
    keeper: list[tuple[str, int]], giver: list[tuple[str, int]], floor: int
) -> None:
    head, floor = len(keeper), min(floor, len(keeper))
    made = woven(known(keeper, 1), known(giver, 0), head, len(giver), floor)
    order = order_of(made, head, len(giver))
    assert sorted(order) == list(range(1, head + len(giver) + 1))
    rows = [*keeper, *giver]
    for client in "abc":
        counters = [rows[place - 1][1] for place in order if place > floor and rows[place - 1][0] == client]
        assert counters == sorted(counters)
    for rows_of in (range(1, head + 1), range(head + 1, len(rows) + 1)):
        as_they_lie = [place for place in order if place in rows_of and rows[place - 1][0] == "x"]
        assert as_they_lie == sorted(as_they_lie)
    assert not made.unkept
    assert made.legs or order == sorted(order)


def test_the_givers_rows_come_together_where_one_of_them_is_waited_for() -> None:
    keeper = [("a", 1), ("b", 1), ("c", 9), ("a", 2), ("c", 10), ("b", 2)]
    giver = [("c", 6), ("b", 3), ("c", 7), ("c", 8), ("d", 1)]
    order = order_of(woven(known(keeper, 1), known(giver, 0), 6, 5, 0), 6, 5)
    assert order == [1, 2, 7, 9, 10, 3, 4, 5, 6, 8, 11], "b's third message waits for its second one"


def test_a_merge_of_one_message_keeps_the_order_of_a_merge_of_thousands_in_a_few_legs() -> None:
    early = [(client, 500 + number) for number in range(5) for client in "abc"]
    late = [(client, number) for number in range(1, 500) for client in "abc"]
    keeper, giver = [*early, *late, ("a", 900)], [("b", 800)]
    made = woven(known(keeper, 1), known(giver, 0), len(keeper), 1, 0)
    order = order_of(made, len(keeper), 1)
    for client in "abc":
        counters = [counter for name, counter in ([*keeper, *giver][place - 1] for place in order) if name == client]
        assert counters == sorted(counters)
    assert not made.unkept
    assert len(made.legs) <= 10


def test_what_lies_in_order_or_has_none_goes_as_it_lies() -> None:
    page = f"{t.PAGE_SOURCE}host:1"
    for keeper, giver in (([("a", 1)], [("a", 2)]), ([("a", 9)], [("b", 1)]), ([(page, 9)], [(page, 1)])):
        assert woven(known(keeper, 1), known(giver, 0), 1, 1, 0) == Woven(())


def test_what_would_need_too_many_legs_goes_as_it_lies_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weaving, "LEGS_MAX", 4)
    giver = [("a", counter) for one in range(20) for counter in (2 * one + 1, 2 * one)]
    made = woven(known([], 1), known(giver, 0), 0, 40, 0)
    assert made.unkept.startswith("from sequence 7 on, messages go as they lie here: they need more than 4 changes")
    assert len(made.legs) <= 8
    order = order_of(made, 0, 40)
    assert sorted(order) == list(range(1, 41))
    counters = [giver[place - 1][1] for place in order]
    assert counters[:4] == sorted(counters)[:4]
    assert counters != sorted(counters)


def test_who_has_had_what_would_need_too_many_legs_gets_the_rest_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weaving, "LEGS_MAX", 8)
    early, late = [("a", counter) for one in range(20) for counter in (2 * one + 1, 2 * one)], [("a", 99), ("a", 100)]
    keeper, giver = [*early, *late], [("a", 90), ("a", 91)]
    made = woven(known(keeper, 1), known(giver, 0), 42, 2, 0)
    order = order_of(made, 42, 2)
    assert sorted(order) == list(range(1, 45))
    counters = [[*keeper, *giver][place - 1][1] for place in order]
    assert counters[-4:] == [90, 91, 99, 100]
    said = ", messages go as they lie here: with them it needs more than 8 changes of the order, the limit"
    assert made.unkept.startswith("up to sequence ")
    assert said in made.unkept


@pytest.mark.parametrize(
    ("keeper", "giver", "floor", "is_told"),
    [
        ([5, 6, 9, 10], [7, 8], 0, False),
        ([9, 10, 11, 12], [7, 8], 0, True),
        ([9, 10, 11, 12], [7, 8], 2, False),
        ([5, 9, 6, 10], [7, 8], 0, True),
        ([9, 5, 6, 10], [4, 8], 1, True),
        ([9, 3, 6, 10], [4, 8], 1, False),
        ([1, 2, 3, 4], [5], 0, False),
    ],
)
def test_what_lies_before_the_last_messages_goes_as_it_lies_and_is_told_where_that_is_no_order(
    monkeypatch: pytest.MonkeyPatch, keeper: list[int], giver: list[int], floor: int, is_told: bool
) -> None:
    monkeypatch.setattr(weaving, "ROWS_MAX", 2)
    rows = [[("a", counter) for counter in counters] for counters in (keeper, giver)]
    made = woven(known(rows[0], 1), known(rows[1], 0), len(keeper), len(giver), floor)
    order = [[*keeper, *giver][place - 1] for place in order_of(made, len(keeper), len(giver))][floor:]
    assert (order != sorted(order)) == is_told
    said = "up to sequence 2, messages go as they lie here: only the last 2 are put in order"
    assert made.unkept.startswith(said) == is_told


# ── in a server ──────────────────────────────────────────────────────────────────────────────────────────────────────


def put(scene: ServerScene, *counters: int, client: str = "bob") -> None:
    for counter in counters:
        assert scene.say(Put(client, TOPIC, counter, b"%d" % counter)).status == "OK"


def give(scene: ServerScene, *counters: int, incarnation: bytes = INCARNATION, **standings: t.Standing) -> None:
    """The giver's rows are bob's puts under these counters."""
    rows = [(place, "bob", counter, b"%d" % counter) for place, counter in enumerate(counters, 1)]
    assert scene.say(begin(incarnation=incarnation)).status == "OK"
    times = {"times_us": [scene.rig.now.wall_us + one for one in range(len(rows))]}
    assert scene.say(part(*rows, incarnation=incarnation, **times)).status == "OK"
    assert scene.say(end(len(counters), incarnation, **standings)).status == "OK"


def got(scene: ServerScene, client: str = "alice", last_id: str = "-1", restarts: bool = False) -> list[int]:
    bodies = []
    while (status := scene.say(Get(client, TOPIC, last_id))).status == "OK":
        bodies.append(int(status.body))
        if restarts:
            scene.restart()
            assert scene.say(Get(client, TOPIC, last_id)) == status, "it stays the next one until it is named"
        last_id = status.message_id
    assert status.status == "NO_MESSAGES", status
    return bodies


@pytest.mark.parametrize("restarts", [False, True])
def test_who_has_received_nothing_yet_gets_all_by_its_counter(restarts: bool) -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    put(scene, 5, 9, 10)
    give(scene, 6, 7, 8)
    put(scene, 11)
    assert got(scene, restarts=restarts) == [5, 6, 7, 8, 9, 10, 11]
    assert scene.bodies(TOPIC) == [b"5", b"9", b"10", b"6", b"7", b"8", b"11"], "the stream stays what it is"


def test_who_subscribed_at_the_giver_gets_all_by_its_counter_too() -> None:
    scene = ServerScene()
    put(scene, 5, 9, 10)
    give(scene, 6, 7, 8, carol=t.Standing(0, 1, 0))
    assert got(scene, "carol") == [5, 6, 7, 8, 9, 10]


def test_what_was_received_before_stays_received_and_the_rest_comes_by_its_counter() -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    put(scene, 5, 9, 10)
    first = scene.say(Get("alice", TOPIC, "-1"))
    second = scene.say(Get("alice", TOPIC, first.message_id))
    assert second.body == b"9"
    give(scene, 6, 7, 8)
    assert got(scene, last_id=second.message_id) == [6, 7, 8, 10], "she had been given 9, which nobody takes back"


def test_the_last_id_is_known_though_its_answer_was_lost_and_what_lies_before_it_comes_later() -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    put(scene, 9)
    give(scene, 6, 7)
    first = scene.say(Get("alice", TOPIC, "-1"))
    second = scene.say(Get("alice", TOPIC, first.message_id))
    third = scene.say(Get("alice", TOPIC, second.message_id))
    assert [one.body for one in (first, second, third)] == [b"6", b"7", b"9"]
    scene.restart()
    assert scene.say(Get("alice", TOPIC, second.message_id)) == third
    assert scene.say(Get("alice", TOPIC, first.message_id)) == third


def test_many_at_once_are_of_one_leg() -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    put(scene, 5, 9, 10)
    give(scene, 6, 7, 8)
    bodies, last_id = [], "-1"
    while (status := scene.say(GetMany("alice", TOPIC, last_id, 100))).status == "OK":
        bodies.append([int(body) for body in unpack(status.body)])
        last_id = status.message_id
        scene.restart()
    assert bodies == [[5], [6, 7, 8], [9, 10]]


def give_of_several(scene: ServerScene, *puts: tuple[str, int], incarnation: bytes = INCARNATION) -> None:
    """The giver's rows are these puts, of a client and a counter each."""
    rows = [(place, client, counter, f"{client}{counter}".encode()) for place, (client, counter) in enumerate(puts, 1)]
    assert scene.say(begin(incarnation=incarnation)).status == "OK"
    times = {"times_us": [scene.rig.now.wall_us + one for one in range(len(rows))]}
    assert scene.say(part(*rows, incarnation=incarnation, **times)).status == "OK"
    assert scene.say(end(len(rows), incarnation)).status == "OK"


def test_an_id_of_many_over_several_legs_means_all_of_them_also_behind_another_merge() -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    assert scene.say(Put("ann", TOPIC, 3, b"ann3")).status == "OK"
    first = scene.say(Get("alice", TOPIC, "-1"))
    give_of_several(scene, ("ann", 1), ("ann", 2), ("bea", 0), ("cat", 1))
    many = scene.say(GetMany("alice", TOPIC, first.message_id, 10))
    assert unpack(many.body) == [b"ann1", b"ann2", b"bea0", b"cat1"]
    give_of_several(scene, ("ann", 0), ("cat", 0), incarnation=OTHER)
    bodies, last_id = [], many.message_id
    while (status := scene.say(Get("alice", TOPIC, last_id))).status == "OK":
        bodies.append(status.body)
        last_id = status.message_id
    assert bodies == [b"ann0", b"cat0"]


def test_a_second_merge_weaves_what_the_first_had_woven() -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    put(scene, 5, 12)
    give(scene, 6, 8, 9)
    first = scene.say(Get("alice", TOPIC, "-1"))
    second = scene.say(Get("alice", TOPIC, first.message_id))
    assert second.body == b"6"
    give(scene, 7, 10, 11, incarnation=OTHER)
    put(scene, 13)
    assert got(scene, last_id=second.message_id, restarts=True) == [7, 8, 9, 10, 11, 12, 13]


def test_a_merge_that_meets_a_limit_of_the_order_says_which_and_where_and_what_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weaving, "LEGS_MAX", 2)
    scene = ServerScene()
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    put(scene, 2, 4, 6, 8)
    give(scene, 1, 3, 5, 7)
    (noted,) = [note for note in scene.take(Note) if note.event == "topic-order-not-kept"]
    assert (noted.level, noted.fields["topic"], noted.fields["giver"]) == ("warning", TOPIC, GIVER)
    said = (
        "up to sequence 2, messages go as they lie here: with them it needs more than 2 changes of the order, the limit"
    )
    assert str(noted.fields["reason"]).startswith(said)
    assert sorted(got(scene)) == list(range(1, 9))
