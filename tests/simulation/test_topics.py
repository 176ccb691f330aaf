"""Worlds of topics: they hold what section 2 of seed 000 promises, repeat themselves, and say where it is broken."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest

from veredus.protocols.topics import keeping, merged
from veredus.protocols.topics.desk import AdminThen
from veredus.protocols.topics.server import Server
from veredus.protocols.topics.transfer import Row
from veredus.protocols.topics.weaving import Woven
from veredus.sim import campaign
from veredus.sim.dice import Dice
from veredus.sim.running import run_seed
from veredus.sim.topics_leanings import Busy, Hasty, Leaning, drawn_leaning
from veredus.sim.topics_seats import Seat
from veredus.sim.topics_told import ASKED, LEAVING, Told, judge
from veredus.sim.topology import DRAWN, topology_of
from veredus.sim.witnesses import EVENTS
from veredus.sim.workloads import Part
from veredus.sim.world import Clock, Violation, World

TOPICS = replace(DRAWN, scene="topics")
STREAMS = replace(DRAWN, scene="streams")
WITHIN = range(1, 61)


def test_a_dozen_worlds_of_topics_hold_every_guarantee_and_merge() -> None:
    outcomes = [run_seed(seed, TOPICS) for seed in range(1, 13)]
    assert [outcome.violation for outcome in outcomes if outcome.violation] == []
    for what in ("conflicts", "topic-merged", "puts", "gets", "subscribed", "unsubscribed", "page-clients"):
        assert sum(outcome.counts[f"topics.{what}"] for outcome in outcomes), what


def test_a_world_of_topics_repeats_itself_whoever_listens() -> None:
    lines: list[str] = []
    assert run_seed(3, TOPICS, lines.append) == run_seed(3, TOPICS)
    assert any("has topic-1" in line for line in lines)


def test_a_hundred_thousand_messages_of_two_servers_are_merged_without_loss_or_double() -> None:
    large = topology_of({"scene": "topics", "streams": 1, "servers": 2, "clients": 2, "bulk": 50_000})
    outcome = run_seed(1, large)
    assert outcome.violation == ""
    assert outcome.counts["topics.puts"] >= 100_000
    assert outcome.counts["topics.topic-merged"] >= 1


def test_a_part_of_a_world_of_topics_takes_place_alone() -> None:
    whole = run_seed(2, TOPICS)
    outcome = run_seed(2, TOPICS, part=Part(frozenset(whole.names) - {"client-1"}, frozenset(), 3))
    assert (outcome.violation, outcome.names, outcome.strikes) == ("", ("client-1",), ())
    assert 0 < outcome.counts["topics.puts"] <= 3


def test_worlds_of_topics_are_asked_for_on_the_command_line_and_reported() -> None:
    said: list[str] = []
    assert campaign.main(["--seeds", "2", "--workers", "1", "--scene", "topics"], said.append) == 0
    assert any(line.split()[:2] == ["topics", "2"] for line in "".join(said).splitlines())


def test_one_world_in_eight_is_of_topics_and_the_others_are_what_they_are() -> None:
    drawn = [seed for seed in range(1, 1001) if DRAWN.is_of_topics(Dice(seed).die("scene"))]
    assert 100 < len(drawn) < 150
    assert drawn[0] > 14
    assert run_seed(14) == run_seed(14, STREAMS)
    assert run_seed(drawn[0]) == run_seed(drawn[0], TOPICS)


def test_a_sensor_offers_once_however_often_a_careless_network_repeats_what_it_is_told() -> None:
    assert run_seed(44, TOPICS).counts[EVENTS] < 50_000


# ── the order of what one client put ─────────────────────────────────────────────────────────────────────────────────


def told_of_two_puts(servers_of_the_second: tuple[str, ...]) -> Told:
    """One server has the topic and was asked for two puts, one after the other; the second one came elsewhere, too."""
    world = World(1)
    told = Told(world, ("topic-1",))
    for name in ("server-1", "server-2"):
        told.servers[name] = Clock(world, 0.0, 0)
    told.has("server-2", ("topic-1",))
    for number, servers in ((1, ("server-2",)), (2, servers_of_the_second)):
        world.run(world.now_ns + 1000)
        body = f"client-1|{number}".encode()
        put = told.begins_put("topic-1", "client-1", number, body)
        for server in servers:
            told.asked(server, number, b"PUT client-1 topic-1 %d\r\n\r\n%b" % (number, body))
        world.run(world.now_ns + 1000)
        told.taken(put)
    world.run(world.now_ns + 1000)
    told.has("server-1", ("topic-1",))
    return told


def test_what_a_late_copy_brought_to_a_second_server_lies_before_what_that_takes_over() -> None:
    rows = {"topic-1": [b"client-1|2", b"client-1|1"]}
    judge(told_of_two_puts(("server-2", "server-1")), rows, ())
    with pytest.raises(Violation, match=r"the stream has the 1\. put of client-1 to topic-1 behind the 2\."):
        judge(told_of_two_puts(("server-2",)), rows, ())


@pytest.mark.parametrize(
    ("server_count", "streams", "is_excused"), [(2, "ab", False), (3, "aa", False), (3, "ab", True)]
)
def test_what_is_published_to_one_servers_stream_may_be_overtaken_by_the_next_one_only_among_three(
    server_count: int, streams: str, is_excused: bool
) -> None:
    world = World(1)
    told = Told(world, ("topic-1",))
    told.servers |= {f"server-{number}": Clock(world, 0.0, 0) for number in range(1, server_count + 1)}
    for number, stream in enumerate(streams, 1):
        put = told.begins_put("topic-1", "sensor-1", number, b"sensor-1|%d" % number)
        put.stream = stream.encode()
        told.taken(put)
    rows = {"topic-1": [b"sensor-1|2", b"sensor-1|1"]}
    with nullcontext() if is_excused else pytest.raises(Violation, match=r"1\. put of sensor-1"):
        judge(told, rows, ())


# ── what comes late, and has no number ───────────────────────────────────────────────────────────────────────────────


def told_of_a_late_copy(number: bytes) -> tuple[Told, Seat]:
    """Somebody subscribes, leaves, and subscribes again, and is told so each time; then UNSUBSCRIBE comes once more."""
    world = World(1)
    told = Told(world, ("topic-1",))
    told.servers["server-1"] = Clock(world, 0.0, 0)
    told.has("server-1", ("topic-1",))
    seat = told.seat("client-1", "topic-1")
    for wish in (ASKED, LEAVING, ASKED):
        world.run(world.now_ns + 1000)
        told.wishes(seat, wish)
        if wish == ASKED:
            told.subscribed(seat, world.now_ns)
        else:
            told.leaves(seat)
            told.left(seat, "server-1", True, world.now_ns)
    world.run(world.now_ns + 1000)
    told.asked("server-1", 7, LEAVING + b" client-1 topic-1\r\n\r\n" + number)
    return told, seat


def put_and_judge(told: Told) -> None:
    told.world.run(told.world.now_ns + 1000)
    told.taken(told.begins_put("topic-1", "client-2", 1, b"client-2|1"))
    judge(told, {"topic-1": [b"client-2|1"]}, ())


def test_who_may_have_left_by_what_came_late_without_a_number_is_owed_nothing() -> None:
    told, seat = told_of_a_late_copy(b"")
    told.not_subscribed(seat, "server-1", told.world.now_ns)
    put_and_judge(told)


def test_who_numbers_what_they_ask_for_is_owed_what_is_put_whatever_comes_late() -> None:
    told, seat = told_of_a_late_copy(b"7")
    with pytest.raises(Violation, match="then by server-1 that it is not"):
        told.not_subscribed(seat, "server-1", told.world.now_ns)
    with pytest.raises(Violation, match="never got 1 messages"):
        put_and_judge(told)


def test_who_subscribes_again_after_what_came_late_is_owed_what_is_put_from_then_on() -> None:
    told, seat = told_of_a_late_copy(b"")
    before_ns = told.world.now_ns
    told.answered("server-1", 7, b"", b"STATUS server-1 OK\r\n\r\n")
    told.subscribed(seat, before_ns)
    assert seat.told_ns is None, "it asked before"
    told.world.run(told.world.now_ns + 1000)
    told.subscribed(seat, told.world.now_ns)
    with pytest.raises(Violation, match="never got 1 messages"):
        put_and_judge(told)


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def look_for_no_twins(plant: pytest.MonkeyPatch) -> None:
    def never(_: keeping.Keeping, row: Row) -> bool:
        return row.sequence < 0

    plant.setattr(keeping.Keeping, "_is_twin", never)


def weave_nothing(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(keeping, "woven", lambda *_: Woven((), is_whole=True))


def place_everybody_at_the_end(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(merged.Times, "before", lambda *_: ((0, 1 << 62),))


@pytest.mark.parametrize("plant_bug", [look_for_no_twins, weave_nothing, place_everybody_at_the_end])
def test_a_bug_that_is_planted_in_a_merge_is_found(
    plant_bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_bug(monkeypatch)
    assert any(run_seed(seed, TOPICS).violation for seed in WITHIN)


def ask_otherwise(plant: pytest.MonkeyPatch, verb: str, without: str, **more: object) -> None:
    """Let servers ask the streams floor this verb without one of its arguments, and with others."""
    honest = Server.administer

    def administer(server: Server, asked: str, said: dict[str, object], then: AdminThen) -> None:
        changed = {name: value for name, value in said.items() if name != without} | more
        honest(server, asked, changed if asked == verb else said, then)

    plant.setattr(Server, "administer", administer)


def raise_nobody(plant: pytest.MonkeyPatch) -> None:
    ask_otherwise(plant, "source.raise", "sources", sources=[])


def delete_whatever_came_late(plant: pytest.MonkeyPatch) -> None:
    ask_otherwise(plant, "stream.delete", "head")


@pytest.mark.parametrize(("plant_bug", "leaning"), [(raise_nobody, Hasty), (delete_whatever_came_late, Busy)])
def test_a_bug_that_wants_a_rare_moment_is_found_where_worlds_lean_to_it(
    plant_bug: Callable[[pytest.MonkeyPatch], None], leaning: type[Leaning], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_bug(monkeypatch)
    leaning_so = [seed for seed in range(1, 1001) if type(drawn_leaning(Dice(seed).die("leaning/topics"))) is leaning]
    assert any(run_seed(seed, TOPICS).violation for seed in leaning_so)
