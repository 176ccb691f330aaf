"""A TRANSFER of the page's form alone: a server from the page gives a topic to one of ours, which never forgets it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from veredus.kernel.effects import Note
from veredus.protocols.topics import transfer as t
from veredus.protocols.topics.exchange import Answered, Ask
from veredus.protocols.topics.messages import (
    Get,
    Merge,
    Message,
    Put,
    Status,
    Subscribe,
    Unsubscribe,
    decode_message,
    encode_message,
)

from .floor import LINK, PROXY, SERVER, SETTINGS, ServerScene
from .town import SECOND, Node, Town

TOPIC, GIVER = "prices", "127.0.0.1:9002"
TRANSFER = b"TRANSFER 127.0.0.1:9002 prices\r\n\r\nalice 7 8\r\ncarol 8\r\ndave\r\n*7\r\nseven /s\r\n*8\r\neight\r\n"
"""As the authors' program writes it."""


def received(scene: ServerScene, client: str, last_id: str = "-1") -> list[bytes]:
    """All that a client gets."""
    bodies: list[bytes] = []
    while (status := scene.say(Get(client, TOPIC, last_id))).status == "OK":
        last_id = status.message_id
        bodies.append(status.body)
    assert status.status == "NO_MESSAGES", status
    return bodies


def test_each_subscriber_gets_what_it_had_yet_to_receive_and_what_is_put_since() -> None:
    scene = ServerScene()
    assert scene.say(Put("bob", TOPIC, 1, b"before")).status == "OK"
    scene.rig.time_ns += 1_000_000_000
    assert scene.say(TRANSFER).status == "OK"
    assert scene.say(Put("bob", TOPIC, 2, b"since")).status == "OK"
    assert received(scene, "alice") == [b"seven *", b"eight", b"since"]
    assert received(scene, "carol") == [b"eight", b"since"]
    assert received(scene, "dave") == [b"since"]


def test_whoever_is_subscribed_here_alone_gets_what_comes() -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("erin", TOPIC)).status == "OK"
    assert scene.say(TRANSFER).status == "OK"
    assert received(scene, "erin") == [b"seven *", b"eight"]


def test_the_id_that_a_client_holds_of_its_server_is_known_here() -> None:
    scene = ServerScene()
    assert scene.say(TRANSFER).status == "OK"
    scene.restart()
    status = scene.say(Get("alice", TOPIC, "7"))
    assert (status.status, status.body) == ("OK", b"eight"), "it had got the first one"
    assert received(scene, "carol", "3") == [b"eight"], "what it names was let go of long ago"


def test_the_id_that_a_client_holds_of_its_server_is_known_behind_what_waits_for_it_here() -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    for counter, body in enumerate((b"here", b"x" * 100_000, b"and here"), 1):
        assert scene.say(Put("bob", TOPIC, counter, body)).status == "OK"
    assert scene.say(TRANSFER).status == "OK"
    scene.restart()
    assert received(scene, "alice", "7") == [b"here", b"x" * 100_000, b"and here", b"eight"]


def test_the_id_of_a_second_server_from_the_page_is_known_behind_what_the_first_one_gave() -> None:
    scene = ServerScene()
    assert scene.say(TRANSFER).status == "OK"
    assert scene.say(TRANSFER.replace(b"9002", b"9003").replace(b"7", b"9").replace(b"seven", b"nine")).status == "OK"
    assert received(scene, "alice", "9") == [b"seven *", b"eight", b"eight"]


def test_the_id_of_a_server_from_the_page_is_known_where_the_topic_went_on_to() -> None:
    town = Town(1)
    near, far = (town.servers.setdefault(name, Node(town, name, ())) for name in ("s2:1", "s1:1"))
    for node in (near, far):
        node.start()

    def say(node: Node, question: Message | bytes) -> Status:
        heard: list[bytes] = []
        data = question if isinstance(question, bytes) else encode_message(question)
        town.ask("somebody", node.address, data, heard.append)
        town.run(town.time_ns + 5 * SECOND, lambda: bool(heard))
        status = decode_message(heard[0])
        assert isinstance(status, Status)
        return status

    assert say(far, Subscribe("alice", TOPIC)).status == "OK"
    assert say(far, Put("bob", TOPIC, 1, b"far")).status == "OK"
    assert say(near, TRANSFER).status == "OK"
    assert say(near, Merge("p:1", TOPIC, far.address)).status == "OK"
    town.run(town.time_ns + 5 * SECOND)
    assert near.topics() == []
    last_id, bodies = "7", []
    while (status := say(far, Get("alice", TOPIC, last_id))).status == "OK":
        last_id = status.message_id
        bodies.append(status.body)
    assert bodies == [b"far", b"eight"]


def test_servers_from_the_page_that_give_a_topic_often_leave_no_more_behind_than_the_last_time() -> None:
    scene = ServerScene()
    for number in range(1, 21):
        said = b"TRANSFER 127.0.0.1:9002 prices\r\n\r\nalice %d\r\n*%d\r\nbody\r\n" % (number, number)
        assert scene.say(said).status == "OK"
        assert received(scene, "alice", str(number)) == []
    assert len(scene.listed(TOPIC)["subscription_list"][0]["origins"]) <= 2


def test_a_transfer_that_comes_again_with_what_was_put_since_doubles_nothing() -> None:
    scene = ServerScene()
    assert scene.say(TRANSFER).status == "OK"
    assert received(scene, "carol") == [b"eight"]
    more = TRANSFER.replace(b"alice 7 8", b"alice 7 8 9").replace(b"carol 8", b"carol 8 9") + b"*9\r\nnine\r\n"
    for _ in range(2):
        assert scene.say(more).status == "OK"
        scene.restart()
    assert scene.bodies(TOPIC) == [b"seven *", b"eight", b"nine"]
    assert received(scene, "alice") == [b"seven *", b"eight", b"nine"]
    assert received(scene, "carol", "8") == [b"nine"]


def test_what_a_subscriber_got_from_its_server_between_two_transfers_does_not_come_again() -> None:
    scene = ServerScene()
    lines = [
        (b"alice 1 2 3\r\nbob 1 2 3", (1, 2, 3)),  # the giver does not hear that it was taken, and serves on
        (b"alice 2 3 4 5\r\nbob 1 2 3 4 5", (1, 2, 3, 4, 5)),
        (b"alice 5 6\r\nbob 2 3 4 5 6", (2, 3, 4, 5, 6)),
    ]
    for said, numbers in lines:
        rows = b"".join(b"*%d\r\n%d\r\n" % (number, number) for number in numbers)
        assert scene.say(b"TRANSFER 127.0.0.1:9002 prices\r\n\r\n" + said + b"\r\n" + rows).status == "OK"
        scene.restart()
    assert received(scene, "alice", "5") == [b"6"], "it had got 1 to 5 there"
    assert received(scene, "bob") == [b"2", b"3", b"4", b"5", b"6"]


def test_what_waits_here_since_an_earlier_transfer_was_taken_is_not_lost_when_the_topic_comes_anew() -> None:
    scene = ServerScene()
    for said in (
        b"alice 1 2\r\n*1\r\n1\r\n*2\r\n2\r\n",
        b"alice 3 4\r\n*3\r\n3\r\n*4\r\n4\r\n",
        b"alice 4\r\n*4\r\n4\r\n",
    ):
        assert scene.say(b"TRANSFER 127.0.0.1:9002 prices\r\n\r\n" + said).status == "OK"
    assert received(scene, "alice") == [b"1", b"2", b"4"], "of the second transfer the giver heard nothing"


def test_messages_come_in_the_order_in_which_their_server_would_have_given_them() -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("erin", TOPIC)).status == "OK"
    rows = b"".join(b"*%d\r\n%d\r\n" % (number, number) for number in (5, 3, 1, 4, 2))
    said = b"alice 1 2 3\r\nbob 3 4 5\r\ncarol 2 4\r\n"
    assert scene.say(b"TRANSFER 127.0.0.1:9002 prices\r\n\r\n" + said + rows).status == "OK"
    assert received(scene, "alice") == [b"1", b"2", b"3"], "the authors' program sends messages in no order"
    assert received(scene, "bob") == [b"3", b"4", b"5"]
    assert received(scene, "erin") == [b"1", b"2", b"3", b"4", b"5"]


def test_an_id_of_a_server_from_the_page_is_known_though_it_looks_like_one_of_ours() -> None:
    scene = ServerScene()
    first, second = b"0123456789abcdef-1", b"0123456789abcdef-2"
    rows = b"*%s\r\none\r\n*%s\r\ntwo\r\n" % (first, second)
    lines = b"alice %s %s\r\nbob %s\r\n" % (first, second, second)
    assert scene.say(b"TRANSFER 127.0.0.1:9002 prices\r\n\r\n" + lines + rows).status == "OK"
    for _ in range(2):
        status = scene.say(Get("alice", TOPIC, first.decode()))
        assert (status.status, status.body) == ("OK", b"two"), "asked again, it is known still"
    assert scene.say(Get("bob", TOPIC, "fedcba9876543210-7")).status == "SERVER_UNAVAILABLE", (
        "one of ours may have given it"
    )


def test_a_topic_without_messages_or_subscribers_is_taken_too() -> None:
    scene = ServerScene()
    for said in (b"", b"alice\r\n", b"*1\r\none\r\n"):
        assert scene.say(b"TRANSFER 127.0.0.1:9002 prices\r\n\r\n" + said).status == "OK"
    assert scene.say(Unsubscribe("alice", TOPIC)).status == "OK"
    assert scene.bodies(TOPIC) == [b"one"]


def test_a_transfer_that_is_asked_again_meanwhile_is_answered_with_the_first() -> None:
    scene = ServerScene()
    first, second = scene.ask(TRANSFER), scene.ask(TRANSFER)
    scene.sync()
    assert [(peer, status.status) for peer, status in scene.answers()] == [(first, "OK"), (second, "OK")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"alice", "zoé".encode()),
        (b"alice", b"a" * 256),
        (b"prices", b"-prices"),
        (b"127.0.0.1:9002", b"s" * 251),
    ],
)
def test_a_topic_stays_where_it_is_if_it_has_a_name_that_is_not_allowed_here(old: bytes, new: bytes) -> None:
    scene = ServerScene()
    status = scene.say(TRANSFER.replace(old, new))
    assert status.status == "REFUSED"
    assert b"[bad-name]" in status.body
    assert scene.say(TRANSFER).status == "OK", "nothing of it is in the way"


def test_a_stranger_gives_nothing() -> None:
    scene = ServerScene(replace(SETTINGS, servers=(PROXY,)))
    assert scene.say(TRANSFER).status == "REFUSED"


def test_a_topic_stays_where_it_is_if_its_keeper_knows_the_page_alone_and_the_log_says_so() -> None:
    scene = ServerScene()
    assert scene.say(Subscribe("alice", TOPIC)).status == "OK"
    assert scene.say(Put("bob", TOPIC, 1, b"here")).status == "OK"
    keeper = "127.0.0.1:9000"
    assert scene.say(Merge(PROXY, TOPIC, keeper)).status == "OK"
    (asked,) = scene.take(Ask)
    scene.tell(Answered(asked.token, encode_message(Status(keeper, "OK")), LINK))
    scene.sync()
    (noted,) = [note for note in scene.take(Note) if note.event == "topic-not-given"]
    assert noted.fields["reason"] == (
        "127.0.0.1:9000 is a server written by others, which cannot take a topic from this one: give it a higher id"
    )
    assert received(scene, "alice") == [b"here"]


def test_a_proxy_that_asks_again_for_what_could_not_be_given_hears_why_until_the_keeper_takes_it() -> None:
    scene = ServerScene()
    assert scene.say(Put("bob", TOPIC, 1, b"here")).status == "OK"
    keeper = "127.0.0.1:9000"
    why = "127.0.0.1:9000 is a server written by others, which cannot take a topic from this one: give it a higher id"
    merge = Merge(PROXY, TOPIC, keeper)
    assert scene.say(merge) == Status(SERVER, "OK", "", b"under way")
    for _ in range(3):
        (asked,) = scene.take(Ask)
        scene.tell(Answered(asked.token, encode_message(Status(keeper, "OK")), LINK))
        scene.sync()
        assert scene.say(merge) == Status(SERVER, "TRANSFER_TOPIC_ERROR", "", why.encode()), "and it tries once more"
    (asked,) = scene.take(Ask)
    taken = t.encode_beyond(t.Heard(-1, -1, 0))
    scene.tell(Answered(asked.token, encode_message(Status(keeper, "OK", "", taken)), LINK))
    scene.sync()
    assert scene.say(merge) == Status(SERVER, "OK", "", b"under way"), "what was in the way is not any more"


def test_why_a_topic_was_not_given_is_noted_once_a_minute_however_often_it_is_asked_for() -> None:
    scene = ServerScene()
    assert scene.say(Put("bob", TOPIC, 1, b"here")).status == "OK"
    keeper, noted_counts = "127.0.0.1:9000", []
    for pause_ns in (0, 500_000_000, 500_000_000, 60_000_000_000):
        scene.pass_time(pause_ns)
        scene.take(Ask)
        scene.say(Merge(PROXY, TOPIC, keeper))
        (asked,) = scene.take(Ask)
        scene.tell(Answered(asked.token, encode_message(Status(keeper, "OK")), LINK))
        scene.sync()
        noted_counts.append([note.event for note in scene.take(Note)].count("topic-not-given"))
    assert noted_counts == [1, 0, 0, 1]


SLASHED = b"TRANSFER 127.0.0.1:9002 prices\r\n\r\nalice %b %b\r\n*%b\r\none\r\n*%b\r\ntwo\r\n"


@pytest.mark.parametrize(
    ("first", "second"), [(b"b/7", b"b/8"), (b"b/s7", b"b/s8"), (b"b//7", b"b//8"), (b"b/s7", b"c/8"), (b"/", b"/x")]
)
def test_a_message_whose_id_was_not_escaped_is_known_by_it(first: bytes, second: bytes) -> None:
    scene = ServerScene()
    assert scene.say(SLASHED % (first, second, first, second)).status == "OK"
    assert received(scene, "alice", first.decode()) == [b"two"]


@pytest.mark.parametrize(("written", "named"), [(b"b/s7", "b*7"), (b"b//7", "b/7"), (b"b///s", "b/*")])
def test_a_message_whose_id_was_escaped_is_known_by_what_it_was(written: bytes, named: str) -> None:
    scene = ServerScene()
    assert scene.say(SLASHED % (written, b"8", written, b"8")).status == "OK"
    scene.restart()
    assert received(scene, "alice", named) == [b"two"]


@pytest.mark.parametrize(
    ("line", "client"), [(b"team/a", "team/a"), (b"team//a", "team/a"), (b"team//a x/y", "team//a"), (b"a", "a")]
)
def test_a_subscriber_whose_id_has_a_slash_gets_what_it_had_yet_to_receive(line: bytes, client: str) -> None:
    scene = ServerScene()
    said = SLASHED.replace(b"alice %b %b", line + b" 8") % (b"x/y" if b"x/y" in line else b"7", b"8")
    assert scene.say(said).status == "OK"
    assert received(scene, client)[-1:] == [b"two"]


def test_two_messages_of_which_a_client_could_mean_either_by_one_id_stay_where_they_are() -> None:
    scene = ServerScene()
    status = scene.say(SLASHED % (b"b/7", b"b//7", b"b/7", b"b//7"))
    assert (status.status, b"[ambiguous-id]" in status.body) == ("REFUSED", True)
    assert TOPIC not in scene.rig.floor.tables.streams
