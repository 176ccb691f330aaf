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
    scene.claim("s1", "kept", *map(str, range(TOPICS_MAX - 1)))
    many = tuple(map(str, range(TOPICS_MAX + 1)))
    for topics in (many, ("x" * NAME_SIZE * TOPICS_MAX, "y")):
        ((_, status, text),) = said(scene.ask(1, m.Periodic("s1", topics)))
        assert (status, f"s1 announces {len(many)} topics" in text) == ("REFUSED", True)
        assert "raise limits.streams_max" in text
    assert scene.proxy.topics.topic_count("s1") == TOPICS_MAX
    assert scene.proxy.topics.server_of("kept") == "s1"
    assert scene.fields["announcement-refused"]["code"] == "too-many-topics"


def test_servers_that_announce_together_more_than_all_may_have_are_refused_until_others_have_less() -> None:
    scene = Scene(replace(SETTINGS, topics_max=TOPICS_MAX))
    for number in range(SERVERS_FULL):
        scene.claim(f"s{number}", *(f"{number}-{topic}" for topic in range(TOPICS_MAX)))
    ((_, status, text),) = said(scene.ask(1, m.Periodic("late", ("t",))))
    assert (status, "announces 1 topics and other servers 50" in text) == ("REFUSED", True)
    assert "late" not in scene.proxy.topics
    scene.claim("s1", "one")
    scene.claim("late", "t")


def test_nothing_is_known_of_a_server_whose_announcement_cannot_be_read() -> None:
    scene = Scene()
    ((_, status, _),) = said(scene.tell(Asked(1, b"PERIODIC s1\r\n\r\n\0", origin=b"1")))
    assert (status, scene.met) == ("BAD_MESSAGE", [])
    scene.proxy.check()


def test_an_announcement_that_cannot_be_read_makes_no_room_for_others() -> None:
    scene = Scene(replace(SETTINGS, topics_max=TOPICS_MAX))
    for number in range(SERVERS_FULL):
        scene.claim(f"s{number}", *(f"{number}-{topic}" for topic in range(TOPICS_MAX)))
    ((_, status, _),) = said(scene.tell(Asked(1, b"PERIODIC s0\r\n\r\n\0")))
    assert status == "BAD_MESSAGE"
    assert [status for _, status, _ in said(scene.ask(1, m.Periodic("late", ("t",))))] == ["REFUSED"]


def test_what_is_refused_is_counted_and_not_read() -> None:
    scene = Scene(replace(SETTINGS, topics_max=TOPICS_MAX))
    (answer,) = scene.tell(Asked(1, b"PERIODIC s1\r\n\r\n" + b"t " * 2 * TOPICS_MAX + b"\0"))
    assert isinstance(answer, Answer)
    assert answer.data.startswith(b"STATUS p1 REFUSED")


def test_no_more_servers_are_known_than_may_be_where_none_are_listed() -> None:
    announcements = Announcements((), TOPICS_MAX, 1)
    for number in range(SERVERS_MAX):
        announcements.judge(f"s{number}", b"", b"1", 0)
        announcements.keep(f"s{number}", b"", b"1", 0)
    announcements.check()
    with pytest.raises(Refused, match="knows 1000 servers, the limit"):
        announcements.judge("late", b"", b"1", 0)
    announcements.judge("s1", b"t", b"1", 0)
