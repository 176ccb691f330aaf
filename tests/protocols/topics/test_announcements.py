"""Whose announcements a proxy takes, and how much of them it keeps."""

from dataclasses import replace

import pytest

from veredus.kernel.errors import Refused
from veredus.protocols.topics import messages as m
from veredus.protocols.topics.announcements import NAME_SIZE, SERVERS_FULL, SERVERS_MAX, Announcements
from veredus.protocols.topics.exchange import Answer, Asked

from .proxy_scene import SETTINGS, Scene, said

TOPICS_MAX = 10


def test_a_server_that_announces_more_than_one_may_have_is_refused_and_its_topics_stay() -> None:
    scene = Scene(replace(SETTINGS, topics_max=TOPICS_MAX))
    scene.claim("s1:1", "kept", *map(str, range(TOPICS_MAX - 1)))
    many = tuple(map(str, range(TOPICS_MAX + 1)))
    for topics in (many, ("x" * NAME_SIZE * TOPICS_MAX, "y")):
        ((_, status, text),) = said(scene.ask(1, m.Periodic("s1:1", topics)))
        assert (status, f"s1:1 announces {len(many)} topics" in text) == ("REFUSED", True)
        assert "raise limits.streams_max" in text
    assert scene.proxy.topics.topic_count("s1:1") == TOPICS_MAX
    assert scene.proxy.topics.server_of("kept") == "s1:1"
    assert scene.fields["announcement-refused"]["code"] == "too-many-topics"


def test_servers_that_announce_together_more_than_all_may_have_are_refused_until_others_have_less() -> None:
    scene = Scene(replace(SETTINGS, topics_max=TOPICS_MAX))
    for number in range(SERVERS_FULL):
        scene.claim(f"s{number}:1", *(f"{number}-{topic}" for topic in range(TOPICS_MAX)))
    ((_, status, text),) = said(scene.ask(1, m.Periodic("late:1", ("t",))))
    assert (status, "announces 1 topics and other servers 50" in text) == ("REFUSED", True)
    assert "late:1" not in scene.proxy.topics
    scene.claim("s1:1", "one")
    scene.claim("late:1", "t")


def test_nothing_is_known_of_a_server_whose_announcement_cannot_be_read() -> None:
    scene = Scene()
    ((_, status, _),) = said(scene.tell(Asked(1, b"PERIODIC s1:1\r\n\r\n\0", origin=b"1")))
    assert (status, scene.met) == ("BAD_MESSAGE", [])
    scene.proxy.check()


def test_an_announcement_that_cannot_be_read_makes_no_room_for_others() -> None:
    scene = Scene(replace(SETTINGS, topics_max=TOPICS_MAX))
    for number in range(SERVERS_FULL):
        scene.claim(f"s{number}:1", *(f"{number}-{topic}" for topic in range(TOPICS_MAX)))
    ((_, status, _),) = said(scene.tell(Asked(1, b"PERIODIC s0:1\r\n\r\n\0")))
    assert status == "BAD_MESSAGE"
    assert [status for _, status, _ in said(scene.ask(1, m.Periodic("late:1", ("t",))))] == ["REFUSED"]


def test_what_is_refused_is_counted_and_not_read() -> None:
    scene = Scene(replace(SETTINGS, topics_max=TOPICS_MAX))
    (answer,) = scene.tell(Asked(1, b"PERIODIC s1:1\r\n\r\n" + b"t " * 2 * TOPICS_MAX + b"\0"))
    assert isinstance(answer, Answer)
    assert answer.data.startswith(b"STATUS p1 REFUSED")


def test_no_more_servers_are_known_than_may_be_where_none_are_listed() -> None:
    announcements = Announcements((), TOPICS_MAX, 1, "p1:1")
    for number in range(SERVERS_MAX):
        announcements.judge(f"s{number}:1", b"", b"1", 0)
        announcements.keep(f"s{number}:1", b"", b"1", 0)
    announcements.check()
    with pytest.raises(Refused, match="knows 1000 servers, the limit"):
        announcements.judge("late:1", b"", b"1", 0)
    announcements.judge("s1:1", b"t", b"1", 0)


@pytest.mark.parametrize(
    ("server", "wanted"),
    [
        ("s1", "write host:port"),
        ("127.0.0.1:0", "a port from 1 to 65535"),
        ("127.0.0.1:99999", "'99999' is not a port"),
        ("127.0.0.1:" + "9" * 300, "is not a port"),
        ("*:7091", "the name or address of a host"),
        ("::1:7091", "an IPv6 host in brackets"),
        (":7091", "write host:port"),
        ("a..b:7091", "cannot be the name of a host"),
        ("127.0.0.1:7081", "the address of this proxy"),
        ("localhost:7081", "the address of this proxy"),
        ("127.1:7081", "the address of this proxy"),
        ("127.0.0.1:07081", "the address of this proxy"),
        ("[::ffff:127.0.0.1]:7081", "the address of this proxy"),
        ("0.0.0.0:7091", "the name or address of a host"),
    ],
)
@pytest.mark.parametrize("is_listed", [False, True])
def test_no_topic_goes_to_a_server_whose_id_is_no_address_at_which_it_can_be_reached(
    server: str, wanted: str, is_listed: bool
) -> None:
    scene = Scene(replace(SETTINGS, proxy_id="127.0.0.1:7081", servers=(server, "s2:1") if is_listed else ()))
    (answer,) = scene.ask(1, m.Periodic(server, ("t",)))
    assert isinstance(answer, Answer)
    status = m.decode_message(answer.data)
    assert isinstance(status, m.Status)
    assert (status.status, wanted in status.body.decode()) == ("REFUSED", True)
    assert b"topics.id" in status.body
    assert scene.fields["announcement-refused"]["code"] == "not-an-address"
    assert (scene.met, scene.proxy.topics.servers) == ([], [])


@pytest.mark.parametrize("server", ["127.0.0.1:1", "[::1]:65535", "no-such-host.example:7091", "127.0.0.1:7082"])
def test_a_server_is_taken_by_its_address_whether_or_not_anybody_is_there(server: str) -> None:
    scene = Scene(replace(SETTINGS, proxy_id="127.0.0.1:7081"))
    (answer,) = scene.ask(1, m.Periodic(server, ("t",)))
    assert answer == Answer(1, b"STATUS 127.0.0.1:7081 OK\r\n\r\n")
    assert scene.proxy.topics.server_of("t") == server
