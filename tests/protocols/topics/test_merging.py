"""A server that is told to give a topic, or is given one: what it refuses, word for word, and parts that come again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec
import pytest

from veredus.kernel.effects import Note
from veredus.kernel.events import DeadlineReached
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.topics import giving, keeping
from veredus.protocols.topics import transfer as t
from veredus.protocols.topics.exchange import Answered, Ask
from veredus.protocols.topics.giving import address_of, name_of
from veredus.protocols.topics.ids import SUBSCRIPTION
from veredus.protocols.topics.many import pack
from veredus.protocols.topics.merging import GIVINGS_MAX, KEEPINGS_MAX
from veredus.protocols.topics.messages import (
    Get,
    Merge,
    Put,
    PutMany,
    Status,
    Subscribe,
    Transfer,
    Unsubscribe,
    decode_message,
    encode_message,
)
from veredus.protocols.topics.placing import PLACED_NS
from veredus.protocols.topics.putting import digest_of
from veredus.streams import exchange as x
from veredus.streams.facts import Had
from veredus.streams.stream import Left

from .floor import LINK, MS, PROXY, SERVER, SETTINGS, ServerScene

TOPIC = "prices"
LOWER, HIGHER = "127.0.0.1:8999", "127.0.0.1:9002"
GIVER = HIGHER
INCARNATION, OTHER = b"g" * 16, b"h" * 16
LISTED = replace(SETTINGS, servers=(SERVER, LOWER, HIGHER))
STRANGER = "127.0.0.1:8001"


def part(*rows: tuple[int, str, int, bytes], incarnation: bytes = INCARNATION, **columns: Any) -> Transfer:
    """Rows of the giver's: sequence, who put it, counter, body; `columns` stand in for what they would be."""
    listed = [t.Row(q, 1000 + q, 0, b"", body, None, who, counter + bool(who)) for q, who, counter, body in rows]
    beyond = msgspec.structs.replace(t.part_of(incarnation, listed, (0, 0)), **columns)
    messages = tuple((f"6767-{row.sequence}", row.body) for row in listed)
    return Transfer(GIVER, TOPIC, (), messages, t.encode_beyond(beyond))


def begin(giver: str = GIVER, incarnation: bytes = INCARNATION) -> Transfer:
    return Transfer(giver, TOPIC, (), (), t.encode_beyond(t.Begin(incarnation)))


def end(head: int, incarnation: bytes = INCARNATION, **standings: t.Standing) -> Transfer:
    beyond = t.End(incarnation, head, (0, 0), standings)
    return Transfer(GIVER, TOPIC, tuple((who, ()) for who in standings), (), t.encode_beyond(beyond))


def merge(scene: ServerScene, incarnation: bytes = INCARNATION, **standings: t.Standing) -> None:
    """Let a topic of the giver's with nothing in it be the keeper's."""
    assert scene.say(begin(incarnation=incarnation)).status == "OK"
    assert scene.say(end(0, incarnation, **standings)).status == "OK"


CUT_OFF = encode_message(part((1, "bob", 1, b"one")))[:-9]
REFUSALS: dict[str, tuple[Any, str, str]] = {
    "give-to-itself": (
        Merge(PROXY, TOPIC, SERVER),
        "REFUSED",
        f"{SERVER} is asked to give prices to itself: name another server",
    ),
    "give-to-nobody": (
        Merge(PROXY, TOPIC, "127.0.0.1:0"),
        "REFUSED",
        (
            f"{SERVER} is asked to give prices to nobody: '127.0.0.1:0' is not an address at which others reach"
            " anybody: write host:port with the name or address of a host and a port from 1 to 65535"
        ),
    ),
    "give-to-no-address": (
        Merge(PROXY, TOPIC, "127.0.0.1:-1"),
        "REFUSED",
        f"{SERVER} is asked to give prices to nobody: '127.0.0.1:-1': '-1' is not a port from 0 to 65535",
    ),
    "a-life-of-one-byte": (
        begin(incarnation=b"g"),
        "BAD_MESSAGE",
        "the extension of a TRANSFER does not decode: Expected `bytes` of length >= 16 - at `$.incarnation`",
    ),
    "give-to-a-higher-id": (
        Merge(PROXY, TOPIC, HIGHER),
        "REFUSED",
        f"{SERVER} gives topics to servers with a lower id only, and the id {HIGHER} is not lower",
    ),
    "give-to-a-stranger": (
        Merge(PROXY, TOPIC, STRANGER),
        "REFUSED",
        f"{STRANGER} is not one of the servers of {SERVER}: list it under topics.servers",
    ),
    "given-by-itself": (
        begin(SERVER),
        "REFUSED",
        f"{SERVER} is given prices by itself: two servers have this id, give each its own",
    ),
    "given-by-a-stranger": (
        begin(STRANGER),
        "REFUSED",
        f"{STRANGER} is not one of the servers of {SERVER}: list it under topics.servers",
    ),
    "rows-before-they-began": (
        part((1, "bob", 1, b"one")),
        "SERVER_UNAVAILABLE",
        f"{SERVER} has not begun to take prices from {GIVER}: begin again",
    ),
    "garbage-behind": (
        Transfer(GIVER, TOPIC, (), (), b"\xc1"),
        "BAD_MESSAGE",
        ("the extension of a TRANSFER does not decode: MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)"),
    ),
    "another-kind-behind": (
        Transfer(GIVER, TOPIC, (), (), msgspec.msgpack.encode({"type": "begin"})),
        "BAD_MESSAGE",
        "the extension of a TRANSFER does not decode: Object missing required field `incarnation`",
    ),
    "columns-of-another-length": (
        part((1, "bob", 1, b"one"), clients=[]),
        "BAD_MESSAGE",
        "1 messages arrived with columns of another length",
    ),
    "messages-where-none-are": (
        Transfer(GIVER, TOPIC, (), (("b-1", b"x"),), t.encode_beyond(t.Begin(INCARNATION))),
        "BAD_MESSAGE",
        "1 messages arrived in a part that must have none",
    ),
    "sequences-that-fall": (
        part((2, "bob", 1, b"one"), (1, "bob", 2, b"two")),
        "BAD_MESSAGE",
        "sequence 1 is not after 2",
    ),
    "a-counter-of-nothing": (
        part((1, "bob", -1, b"one")),
        "BAD_MESSAGE",
        "bob cannot have put under the counter 0",
    ),
    "a-client-of-no-name": (
        part((1, "b*b", 1, b"one")),
        "BAD_MESSAGE",
        (
            "source name 'b*b': character '*' at position 1 is not allowed (allowed: A-Z, a-z, 0-9 and"
            " _.:@/+=-; the first is one of A-Z, a-z, 0-9 and _)"
        ),
    ),
    "cut-off": (
        CUT_OFF,
        "BAD_MESSAGE",
        "a TRANSFER must end with a line end, and this one has none after {size} bytes",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_topic_that_cannot_move_stays_and_whoever_asks_is_told_why(name: str) -> None:
    scene = ServerScene(LISTED)
    scene.say(Subscribe("alice", TOPIC))
    scene.say(Put("bob", TOPIC, 2, b"two"))
    before = scene.listed(TOPIC)
    message, status, text = REFUSALS[name]
    said = scene.say(message)
    size = len(CUT_OFF.partition(b"\r\n\r\n")[2])
    assert (said.status, said.body.decode()) == (status, text.replace("{size}", str(size)))
    assert scene.listed(TOPIC) == before
    assert scene.rig.floor.tables.stages == {}


NOW_US = 1_800_000_000_000_000
STANDING = t.Standing(NOW_US, 1, 1)
BEYOND = {
    "offset": {"offset_us": (1 << 64) - 1},
    "head": {"head": -1},
    "opened": {"standings": {"alice": msgspec.structs.replace(STANDING, opened_us=-(1 << 63))}},
    "renewed": {"standings": {"alice": msgspec.structs.replace(STANDING, renewed_us=(1 << 62) + 1)}},
    "floor": {"standings": {"alice": msgspec.structs.replace(STANDING, floor=(1 << 64) - 1)}},
    "wish": {"standings": {"alice": msgspec.structs.replace(STANDING, wish=(1 << 64) - 1)}},
    "backwards": {"standings": {"alice": msgspec.structs.replace(STANDING, settled=((3, 1),))}},
    "origin": {"standings": {"alice": msgspec.structs.replace(STANDING, origins=(t.Origin(OTHER, -1),))}},
    "runs": {"standings": {"alice": msgspec.structs.replace(STANDING, origins=(t.Origin(OTHER, 1, ((1, -1, 1),)),))}},
    "owner": {"standings": {"alice": msgspec.structs.replace(STANDING, owner="o" * 5000)}},
    "left": {"left": {"alice": ((1 << 64) - 1, 0)}},
    "left-wish": {"left": {"alice": (0, (1 << 64) - 1)}},
}


@pytest.mark.parametrize("name", BEYOND)
def test_an_end_with_numbers_that_nothing_can_have_is_refused_before_they_are_added_to(name: str) -> None:
    scene = ServerScene()
    assert scene.say(begin()).status == "OK"
    sound = msgspec.to_builtins(t.End(INCARNATION, 0, (0, 0), {}))
    beyond = sound | BEYOND[name]
    beyond["offset_us"] = (0, BEYOND[name].get("offset_us", 0))
    said = scene.say(Transfer(GIVER, TOPIC, (), (), msgspec.msgpack.encode(beyond)))
    assert (said.status, TOPIC in scene.rig.floor.tables.streams) == ("BAD_MESSAGE", True), said
    assert scene.say(end(0, alice=STANDING)).status == "OK"


def test_times_that_differ_by_more_than_a_number_holds_stay_numbers_that_the_journal_takes() -> None:
    scene = ServerScene()
    assert scene.say(begin()).status == "OK"
    far = t.End(INCARNATION, 0, (-t.TIME_MAX_US, t.TIME_MAX_US), {"alice": STANDING}, {"bob": {"": t.Left(NOW_US)}})
    assert scene.say(Transfer(GIVER, TOPIC, (("alice", ()),), (), t.encode_beyond(far))).status == "OK"
    (alice,) = scene.rig.floor.tables.streams[TOPIC].subscriptions.values()
    assert alice.opened_us == 0


@pytest.mark.parametrize(
    "answer",
    [{"clock_us": -(1 << 63)}, {"clock_us": (1 << 64) - 1}, {"committed": -2}, {"staged": (1 << 64) - 1}],
)
def test_a_keeper_that_answers_with_numbers_that_nothing_can_have_fails_the_attempt(answer: dict[str, int]) -> None:
    beyond = {"committed": -1, "staged": 0, "clock_us": NOW_US} | answer
    assert t.decode_heard(msgspec.msgpack.encode(beyond)) is None


def heard(scene: ServerScene, message: Transfer) -> t.Heard:
    said = scene.say(message)
    assert said.status == "OK", said
    found = t.decode_heard(said.body)
    assert found is not None
    return found


def test_parts_that_come_again_are_answered_alike_and_taken_once() -> None:
    scene = ServerScene()
    scene.say(Put("ada", TOPIC, 1, b"mine"))
    rows = part((1, "bob", 1, b"one"), (2, "bob", 4, b"two"))
    for _ in range(2):
        assert heard(scene, begin()).committed == -1
        assert heard(scene, rows).staged == 2
    standing = t.Standing(0, 1, 1)
    for _ in range(3):
        assert scene.say(end(2, alice=standing)).status in ("OK", "SERVER_UNAVAILABLE")
        heard(scene, begin())
    assert heard(scene, begin()).committed == 2
    assert scene.bodies(TOPIC) == [b"mine", b"one", b"two"]
    assert scene.say(Put("bob", TOPIC, 4, b"two")).status == "OK"
    assert scene.say(Put("bob", TOPIC, 4, b"other")).status == "REFUSED"
    assert scene.bodies(TOPIC) == [b"mine", b"one", b"two"]
    assert scene.say(Get("alice", TOPIC, "6767676767676767-2")).body == b"mine"
    assert scene.say(Get("alice", TOPIC, "-1")).body == b"mine", "what was named is received, what was given is not"


def test_a_put_that_both_have_is_there_once_if_it_is_the_same() -> None:
    scene = ServerScene()
    scene.say(Put("bob", TOPIC, 1, b"one"))
    scene.say(Put("eve", TOPIC, 1, b"hers"))
    heard(scene, begin())
    heard(scene, part((1, "bob", 1, b"one"), (2, "eve", 1, b"of another life")))
    heard(scene, end(2))
    assert scene.bodies(TOPIC) == [b"one", b"hers", b"of another life"]


def test_a_late_copy_of_a_put_is_not_given_behind_the_merge_to_who_subscribed_after_the_first() -> None:
    scene = ServerScene()
    scene.rig.time_ns += 1000 * MS
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    assert scene.say(Put("bob", TOPIC, 1, b"put long before")).status == "OK"
    heard(scene, begin())
    heard(scene, part((1, "bob", 1, b"put long before"), (2, "eve", 1, b"hers, too")))
    heard(scene, end(2))
    assert scene.say(Get("alice", TOPIC, "-1")).status == "NO_MESSAGES"
    assert scene.say(Put("bob", TOPIC, 2, b"since")).status == "OK"
    assert scene.say(Get("alice", TOPIC, "-1")).body == b"since"


def test_what_was_put_at_once_is_known_as_one_put_from_its_first_row_on() -> None:
    scene = ServerScene()
    both = PutMany("bob", TOPIC, 1, pack([b"one", b"two"]))
    at_once = {t.PUT_LAST: 3, t.PUT_DIGEST: digest_of(both.body)}
    heard(scene, begin())
    heard(scene, part((1, "bob", 1, b"one"), attributes=[at_once]))
    assert scene.say(both).status == "OK", "it is on its way here"
    assert scene.say(Put("bob", TOPIC, 1, b"one")).status == "REFUSED"
    heard(scene, part((2, "bob", 2, b"two"), (3, "bob", 3, b"three"), attributes=[at_once, None]))
    heard(scene, end(3))
    assert scene.bodies(TOPIC) == [b"one", b"two", b"three"]
    first, second, third = rows_of(scene)
    assert first.put == second.put == ("bob", 3, digest_of(both.body))
    assert third.put == ("bob", 4, digest_of(b"three"))


def test_what_was_put_at_once_at_both_is_there_once() -> None:
    scene = ServerScene()
    both = PutMany("bob", TOPIC, 1, pack([b"one", b"two"]))
    assert scene.say(both).status == "OK"
    at_once = {t.PUT_LAST: 3, t.PUT_DIGEST: digest_of(both.body)}
    heard(scene, begin())
    heard(scene, part((1, "bob", 1, b"one"), (2, "bob", 2, b"two"), attributes=[at_once] * 2))
    heard(scene, end(2))
    assert scene.bodies(TOPIC) == [b"one", b"two"]
    assert scene.say(both).status == "OK"


def test_what_both_have_is_found_however_long_ago_it_was_put_here() -> None:
    scene = ServerScene()
    scene.say(Put("bob", TOPIC, 1, b"one"))
    scene.rig.time_ns += 7 * 24 * 3600 * 1000 * MS
    scene.say(Put("ada", TOPIC, 1, b"late"))
    heard(scene, begin())
    heard(scene, part((1, "bob", 1, b"one"), (2, "bob", 2, b"two")))
    heard(scene, end(2))
    assert scene.bodies(TOPIC) == [b"one", b"late", b"two"]


def test_what_came_from_one_server_is_found_when_another_one_has_it_too() -> None:
    scene = ServerScene()
    scene.say(Put("eve", TOPIC, 1, b"hers"))
    scene.say(Put("bob", TOPIC, 5, b"five"))
    heard(scene, begin())
    heard(scene, part((1, "eve", 1, b"of another life"), (2, "bob", 2, b"two")))
    heard(scene, end(2))
    scene.restart()
    again = part((1, "eve", 1, b"of another life"), (2, "bob", 2, b"two"), (3, "bob", 3, b"three"), incarnation=OTHER)
    heard(scene, begin(incarnation=OTHER))
    heard(scene, again)
    heard(scene, end(3, incarnation=OTHER))
    assert scene.bodies(TOPIC) == [b"hers", b"five", b"of another life", b"two", b"three"]


def test_a_row_keeps_the_time_at_which_it_was_put_by_the_keepers_clock() -> None:
    scene = ServerScene()
    heard(scene, begin())
    known: list[Any] = [None, {t.APPENDED_US: 3}]
    heard(scene, part((1, "bob", 1, b"one"), (2, "bob", 2, b"two"), times_us=[700, 500], attributes=known))
    heard(scene, part((3, "bob", 3, b"three"), times_us=[900], offset_us=(-100, 40)))
    heard(scene, end(3))
    assert [row.time_us for row in rows_of(scene)] == [700, 500, 940]


def test_a_time_that_cannot_be_is_refused() -> None:
    scene = ServerScene()
    heard(scene, begin())
    for wrong in ({"times_us": [-1]}, {"times_us": [1 << 62], "offset_us": (0, 1 << 62)}, {"offset_us": (0, -5000)}):
        assert scene.say(part((1, "bob", 1, b"one"), **wrong)).status == "BAD_MESSAGE"


def rows_of(scene: ServerScene) -> list[t.Row]:
    session = scene.next_id()
    scene.rig.do(x.SubscribeRequested(session, "local", TOPIC, credit=1 << 40))
    return [row for push in scene.rig.pushes(session) for row in t.rows_in(push.buffers, {0: ""})]


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_was_given_to_a_subscription_that_has_left_may_be_named_when_one_comes_from_the_giver(
    is_forgotten: bool,
) -> None:
    """Its client heard no answer to UNSUBSCRIBE, subscribed at the other server, and holds what it got here last."""
    scene = ServerScene(LISTED)
    scene.say(Subscribe("alice", TOPIC, 1))
    for counter, body in enumerate([b"one", b"two"], 1):
        scene.say(Put("bob", TOPIC, counter, body))
    first = scene.say(Get("alice", TOPIC, "-1"))
    second = scene.say(Get("alice", TOPIC, first.message_id))
    scene.say(Unsubscribe("alice", TOPIC, 2))
    left = scene.rig.floor.tables.streams[TOPIC].left
    if is_forgotten:
        del left["alice", SUBSCRIPTION, "local"]
    merge(scene, alice=t.Standing(0, 1, 0, wish=3))
    following = b"one" if is_forgotten else b""
    assert scene.say(Get("alice", TOPIC, second.message_id)).body == following
    merge(scene, OTHER)
    scene.restart()
    assert scene.say(Get("alice", TOPIC, second.message_id)).body == following


def test_a_full_disk_puts_a_part_off_and_what_was_staged_stays() -> None:
    scene = ServerScene()
    heard(scene, begin())
    heard(scene, part((1, "bob", 1, b"one")))
    scene.rig.is_full = True
    assert scene.say(part((2, "bob", 2, b"two"))).status == "INTERNAL_ERROR"
    scene.rig.is_full = False
    assert heard(scene, begin()).staged == 1
    assert heard(scene, part((2, "bob", 2, b"two"))).staged == 2
    scene.rig.is_full = True
    assert scene.say(end(2)).status == "INTERNAL_ERROR"
    assert scene.say(Put("ada", TOPIC, 1, b"x")).status == "INTERNAL_ERROR", "the topic is held no longer"
    scene.rig.is_full = False
    assert heard(scene, begin()).staged == 2
    assert heard(scene, end(2)).committed == 2
    assert scene.bodies(TOPIC) == [b"one", b"two"]


def test_what_was_staged_before_a_kill_is_sent_again_and_what_was_committed_is_not() -> None:
    scene = ServerScene()
    heard(scene, begin())
    heard(scene, part((1, "bob", 1, b"one")))
    scene.restart()
    assert heard(scene, begin()).staged == 0
    heard(scene, part((1, "bob", 1, b"one")))
    heard(scene, end(1))
    scene.restart()
    assert heard(scene, begin()).committed == 1
    assert heard(scene, part((1, "bob", 1, b"one"))).staged == 1
    assert heard(scene, end(1)).committed == 1
    assert scene.bodies(TOPIC) == [b"one"]


def test_rows_whose_attributes_are_none_are_refused_and_nothing_is_staged() -> None:
    scene = ServerScene()
    heard(scene, begin())
    said = scene.say(part((1, "bob", 1, b"one"), attributes=[{"a": {"b": 1}}]))
    assert said.status == "BAD_MESSAGE", said
    assert heard(scene, begin()).staged == 0


def test_one_giver_at_a_time_gives_a_topic_and_a_quiet_one_is_forgotten() -> None:
    scene = ServerScene()
    heard(scene, begin())
    other = b"h" * 16
    said = scene.say(begin("127.0.0.1:9003", other))
    assert (said.status, said.body.decode()) == (
        "SERVER_UNAVAILABLE",
        f"{TOPIC} is moving to {SERVER} from {GIVER}: try again",
    )
    scene.pass_time(31_000 * MS)
    scene.sync()
    scene.ended.clear()
    assert heard(scene, begin("127.0.0.1:9003", other)).committed == -1
    assert len(scene.rig.floor.tables.stages) == 1


def test_a_topic_that_is_given_away_takes_none_and_few_are_given_at_once() -> None:
    scene = ServerScene()
    names = [f"t{number}" for number in range(GIVINGS_MAX + 1)]
    for name in names:
        scene.say(Put("bob", name, 1, b"x"))
    for name in names[:-1]:
        assert scene.say(Merge(PROXY, name, LOWER)).status == "OK"
    said = scene.say(Merge(PROXY, names[-1], LOWER))
    assert (said.status, said.body.decode()) == (
        "SERVER_UNAVAILABLE", f"{GIVINGS_MAX} topics are already moving: try again"
    )  # fmt: skip
    assert scene.say(Merge(PROXY, names[0], LOWER)).status == "OK"
    beyond = t.encode_beyond(t.Begin(INCARNATION))
    said = scene.say(Transfer(GIVER, names[0], (), (), beyond))
    assert said.body.decode() == f"{names[0]} is moving from {SERVER} to {LOWER}: try again"
    asked = [decode_message(order.data) for order in scene.take(Ask) if order.address == LOWER]
    assert {message.topic for message in asked if isinstance(message, Transfer)} == set(names[:-1])


def begun(giver: str, topic: str) -> Transfer:
    """The first part of a topic that nobody goes on with."""
    return Transfer(giver, topic, (), (), t.encode_beyond(t.Begin(topic.encode().ljust(16))))


def test_a_giver_that_begins_many_topics_and_leaves_keeps_no_other_one_waiting() -> None:
    scene = ServerScene()
    for number in range(KEEPINGS_MAX):
        scene.pass_time(MS)
        assert scene.say(begun(GIVER, f"t{number}")).status == "OK"
    assert scene.say(begun("127.0.0.1:9003", "another")).status == "OK"
    first, newest = (scene.say(begun(GIVER, f"t{number}")) for number in (0, KEEPINGS_MAX - 1))
    assert (first.status, newest.status) == ("OK", "OK"), "what was forgotten begins again"


def test_a_giver_that_goes_quiet_is_forgotten_but_not_for_the_time_in_which_the_keeper_was_away() -> None:
    scene = ServerScene()
    assert scene.say(begin()).status == "OK"
    scene.rig.time_ns += 10 * keeping.QUIET_NS
    scene.tell(DeadlineReached())
    assert scene.say(part((1, "bob", 1, b"one"))).status == "OK", "it is not forgotten"
    scene.pass_time(keeping.QUIET_NS)
    assert "giver-quiet" in [note.event for note in scene.take(Note)]
    assert scene.say(part((2, "bob", 2, b"two"))).status == "SERVER_UNAVAILABLE"


def test_so_many_topics_come_at_once_and_no_more() -> None:
    scene = ServerScene()
    givers = [f"127.0.0.1:{9003 + number // GIVINGS_MAX}" for number in range(KEEPINGS_MAX)]
    for number, giver in enumerate(givers):
        assert scene.say(begun(giver, f"t{number}")).status == "OK"
    said = scene.say(begun(GIVER, "another"))
    text = f"{KEEPINGS_MAX} topics are already moving to this server: try again"
    assert (said.status, said.body.decode()) == ("SERVER_UNAVAILABLE", text)


@pytest.mark.parametrize("count", [4, 5])
def test_the_sources_of_a_topic_are_given_in_parts_and_each_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving, "SOURCES_COUNT", 2)
    scene = ServerScene()
    for number in range(count):
        scene.say(Put(f"client-{number}", TOPIC, number, b"x"))
    scene.say(Merge(PROXY, TOPIC, LOWER))
    answer = encode_message(Status(LOWER, "OK", "", t.encode_beyond(t.Heard(-1, -1, 0))))
    given: list[Any] = []
    while not isinstance(given[-1] if given else None, t.RowsPart):
        (asked,) = scene.take(Ask)
        message = decode_message(asked.data)
        assert isinstance(message, Transfer)
        given.append(t.decode_part(message))
        scene.tell(Answered(asked.token, answer, LINK))
        scene.sync()
    parts = [[(name, number) for name, number, _ in part.sources] for part in given if isinstance(part, t.Sources)]
    assert [len(part) for part in parts] == [2, 2, 1][: len(parts)]
    assert list(chain(*parts)) == [(f"client-{number}", number + 1) for number in range(count)]


def test_a_giver_that_hears_nothing_serves_the_topic_on() -> None:
    scene = ServerScene()
    scene.say(Put("bob", TOPIC, 1, b"x"))
    scene.say(Merge(PROXY, TOPIC, LOWER))
    scene.pass_time(2_000 * MS)
    scene.sync()
    scene.ended.clear()
    assert scene.say(Put("bob", TOPIC, 2, b"y")).status == "OK"
    assert scene.bodies(TOPIC) == [b"x", b"y"]


@pytest.mark.parametrize("address", ["127.0.0.1:7091", "host-1.example:80", "[::1]:7091"])
def test_an_address_is_found_again_by_the_name_that_it_has_as_a_subscriber(address: str) -> None:
    assert address_of(name_of(address)) == address
    scene = ServerScene()
    said = scene.rig.do(
        x.SubscribeRequested(9, "local", TOPIC, name_of(address), "topics-given", incarnation=digest_of(b""))
    )
    assert any(isinstance(one, x.GrantSubscription) for one in said)


def test_a_sink_of_somebody_elses_whose_name_looks_like_a_merges_keeps_no_server_from_starting() -> None:
    scene = ServerScene()
    (grant,) = scene.rig.do(x.RunOpenRequested(900, "local", "topics-merge/xyz", INCARNATION, 0))
    assert isinstance(grant, x.GrantRun)
    (done,) = scene.rig.do(x.CommitRequested(900, 1, "local", "topics-merge/xyz", grant.epoch, 7, ()))
    assert isinstance(done, x.ConfirmCommitted)
    scene.restart()
    scene.sync()
    assert scene.say(Put("bob", TOPIC, 1, b"one")).status == "OK"


@pytest.mark.parametrize(
    "attributes",
    [
        {t.PUT_CLIENT: "bob", t.PUT_COUNTER: "x"},
        {t.PUT_CLIENT: "bob"},
        {t.PUT_CLIENT: 7, t.PUT_COUNTER: 1},
        {t.PUT_CLIENT: "", t.PUT_COUNTER: 1},
        {t.PUT_CLIENT: "b ob", t.PUT_COUNTER: 1},
        {t.PUT_CLIENT: "bob", t.PUT_COUNTER: -1},
        {t.PUT_CLIENT: "bob", t.PUT_COUNTER: True},
    ],
)
def test_attributes_that_no_put_has_make_none(attributes: dict[str, Any]) -> None:
    assert t.put_of(attributes) == ("", 0)
    assert t.put_of({**attributes, t.PUT_CLIENT: "bob", t.PUT_COUNTER: 1}) == ("bob", 1)


def test_where_many_subscriptions_are_to_stand_is_found_out_in_turns_and_others_are_served_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, in_turns = ServerScene(LISTED), [0]
    find = keeping.moves

    def counted(*asked: Any) -> Iterator[Any]:
        for move in find(*asked):
            in_turns[-1] += 1
            yield move

    monkeypatch.setattr(keeping, "moves", counted)
    assert scene.say(begin()).status == "OK"
    left = {f"who-{at}": {"": Left(5, 1, Had(((1, 1), (3, 3))))} for at in range(400)}
    ending = t.encode_beyond(t.End(INCARNATION, 0, (0, 0), {"ada": t.Standing(1, 1, 0)}, left))
    scene.ask(Transfer(GIVER, TOPIC, (("ada", ()),), (), ending))
    scene.sync()
    assert scene.answers() == []
    assert scene.say(Put("eve", "other", 1, b"x")).status == "OK"
    while not (answers := scene.answers()):
        in_turns.append(0)
        scene.pass_time(1)
        scene.sync()
    assert [status.status for _, status in answers] == ["OK"]
    assert sum(in_turns) == 401
    assert max(in_turns) <= QUANTUM_NS // PLACED_NS
    assert scene.listed(TOPIC)["subscriptions"] == 1


def test_a_merge_that_fails_while_it_is_found_out_where_subscriptions_are_to_stand_leaves_nothing_behind() -> None:
    scene = ServerScene(LISTED)
    assert scene.say(begin()).status == "OK"
    left = {f"who-{at}": {"": Left(5, 1)} for at in range(400)}
    ending = Transfer(GIVER, TOPIC, (), (), t.encode_beyond(t.End(INCARNATION, 0, (0, 0), {}, left)))
    scene.ask(ending)
    scene.sync()
    scene.follow([x.AdminRequested(0, 900, "local", "stream.delete", {"name": TOPIC})])
    scene.sync()
    ((_, refused),) = scene.answers()
    assert refused.status == "INTERNAL_ERROR"
    scene.pass_time(100)
    assert scene.say(begin()).status == "OK"
