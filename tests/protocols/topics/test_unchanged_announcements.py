"""An announcement that says what the one before it said costs no work by topic, and another one is taken rightly."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.topics.floor import LINK, MS, PROXY, SERVER, SETTINGS, ServerScene
from veredus.protocols.topics import messages as m
from veredus.protocols.topics.exchange import Answered, Ask, Asked
from veredus.protocols.topics.mapping import TopicMap
from veredus.streams import exchange as x
from veredus.streams.tables import StreamsLimits

from .proxy_scene import Scene, said

SECOND = 1000 * MS
LARGE = "t" * 250
COUNT = 2000
"""So many topics with long names are half a megabyte."""
Calls = list[Any]


def counted(calls: Calls, do: Callable[..., Any]) -> Callable[..., Any]:
    def count(*arguments: Any) -> Any:
        calls.append(arguments)
        return do(*arguments)

    return count


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The announcements that were encoded."""
    calls: Calls = []
    monkeypatch.setitem(m._PARTS, m.Periodic, counted(calls, m._PARTS[m.Periodic]))
    return calls


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The announcements of which the names were read."""
    calls: Calls = []
    monkeypatch.setitem(m._READERS, "PERIODIC", counted(calls, m._READERS["PERIODIC"]))
    return calls


def announced(scene: ServerScene, *, is_answered: bool = True) -> list[tuple[str, ...]]:
    """What the proxies were told since the last time, each of which answers or not."""
    asks = scene.take(Ask)
    for ask in asks if is_answered else ():
        scene.tell(Answered(ask.token, m.encode_message(m.Status(ask.address, "OK")), LINK))
    told = [m.decode_message(ask.data) for ask in asks]
    assert all(isinstance(one, m.Periodic) and one.sender == SERVER for one in told)
    return [one.topics for one in told if isinstance(one, m.Periodic)]


def create(scene: ServerScene, *names: str) -> None:
    for name in names:
        scene.rig.do(x.AdminRequested(9, 1, "local", "stream.create", {"name": name}))


def delete(scene: ServerScene, name: str) -> None:
    scene.rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": name}))


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_server_looks_at_its_topics_once_and_again_only_at_those_that_changed(encoded: Calls) -> None:
    scene = ServerScene(replace(SETTINGS, proxies=(PROXY, "p2:1")))
    asked: list[str] = []

    def may(principal: str, verb: str, resource: Any) -> bool:
        if verb == "describe":
            asked.append(resource.name)
        return bool(verb != "describe" or resource.name != "shut")

    scene.rig.may = may
    scene.restart()
    create(scene, "b", "a", "shut")
    asked.clear()
    for _ in range(4):
        scene.pass_time(5 * SECOND)
        assert announced(scene)[-1] == ("a", "b")
    assert (sorted(asked), [periodic.topics for (periodic,) in encoded]) == (["a", "b", "shut"], [("a", "b")])
    create(scene, "ab")
    asked.clear()
    scene.pass_time(5 * SECOND)
    assert (announced(scene), asked) == ([("a", "ab", "b")] * 2, ["ab"])
    delete(scene, "a")
    scene.pass_time(5 * SECOND)
    assert (announced(scene), asked) == ([("ab", "b")] * 2, ["ab"])
    assert len(encoded) == 3


def test_topics_that_come_and_go_between_two_announcements_are_told_rightly() -> None:
    scene = ServerScene()
    create(scene, "a", "b")
    scene.pass_time(0)
    assert announced(scene) == [("a", "b")]
    delete(scene, "a")
    create(scene, "a", "c")
    delete(scene, "c")
    scene.pass_time(5 * SECOND)
    assert announced(scene) == [("a", "b")]


def test_what_rules_that_changed_let_a_server_see_is_what_it_announces() -> None:
    scene = ServerScene()
    is_shut = True
    scene.rig.may = lambda _, verb, resource: not (is_shut and verb == "describe" and resource.name == "a")
    scene.restart()
    create(scene, "a", "b")
    scene.pass_time(0)
    assert announced(scene) == [("b",)]
    is_shut = False
    scene.rig.floor.renew_rights(scene.rig.now)
    scene.pass_time(5 * SECOND)
    assert announced(scene) == [("a", "b")]


def test_a_large_announcement_is_not_sent_again_while_it_may_still_be_on_its_way() -> None:
    scene = ServerScene(limits=StreamsLimits())
    names = [f"{LARGE}{number:04}" for number in range(COUNT)]
    create(scene, *names)
    scene.pass_time(0)
    assert announced(scene, is_answered=False) == [tuple(names)]
    scene.pass_time(200 * MS)
    assert announced(scene) == [], "half a megabyte takes a while"
    scene.pass_time(100 * MS)
    assert announced(scene) == [tuple(names)]
    scene.pass_time(SECOND)
    assert announced(scene) == []


# ── the proxy ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_proxy_reads_an_announcement_once_while_it_stays_the_same(parsed: Calls) -> None:
    scene = Scene()
    for _ in range(3):
        assert scene.claim("s1:1", "a", "b") == []
    assert len(parsed) == 1
    scene.claim("s1:1", "a", "c")
    scene.claim("s1:1", "a", "b")
    assert len(parsed) == 3, "what counts is what it said last"
    assert [scene.proxy.topics.server_of(topic) for topic in "abc"] == ["s1:1", "s1:1", None]


def test_topics_added_removed_and_moved_are_known_from_the_announcement_on_that_says_so() -> None:
    scene = Scene()
    scene.claim("s1:1", "a", "b")
    scene.claim("s2:1", "c")
    scene.claim("s1:1", "a")
    scene.claim("s2:1", "b", "c", "d")
    scene.claim("s1:1", "a")
    topics = scene.proxy.topics
    assert [topics.server_of(topic) for topic in "abcd"] == ["s1:1", "s2:1", "s2:1", "s2:1"]
    scene.claim("s2:1")
    assert [topics.server_of(topic) for topic in "abcd"] == ["s1:1", None, None, None]


def test_a_proxy_that_restarted_reads_what_the_one_before_it_had_taken(parsed: Calls) -> None:
    for _ in range(2):
        scene = Scene()
        scene.claim("s1:1", "a")
        assert scene.proxy.topics.server_of("a") == "s1:1"
    assert len(parsed) == 2


def test_of_two_servers_of_one_topic_one_is_asked_to_give_it_at_each_announcement_also_of_the_same(
    parsed: Calls,
) -> None:
    scene = Scene()
    scene.claim("s1:1", "a", "t", "z")
    (merge,) = scene.claim("s2:1", "b", "t")
    for server, topics in (("s2:1", ("b", "t")), ("s1:1", ("a", "t", "z"))):
        assert isinstance(merge, Ask)
        scene.answer(merge.token, "TRANSFER_TOPIC_ERROR")
        (merge,) = scene.claim(server, *topics)
        assert isinstance(merge, Ask)
        assert (merge.address, merge.data) == ("s2:1", m.encode_message(m.Merge("p1", "t", "s1:1")))
    assert len(parsed) == 2
    scene.answer(merge.token)
    assert scene.claim("s2:1", "b") == []
    assert scene.claim("s1:1", "a", "t", "z") == []


def test_what_a_server_was_assigned_and_twice_does_not_claim_is_forgotten_also_where_it_says_the_same() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    scene.ask(1, m.Get("alice", "named", "-1"))
    assert scene.proxy.topics.server_of("named") == "s1:1"
    scene.claim("s1:1", "a")
    scene.claim("s1:1", "a")
    assert scene.proxy.topics.server_of("named") is None


def test_an_announcement_of_the_page_is_known_again_as_it_was_written(parsed: Calls) -> None:
    scene = Scene()
    written = b"PERIODIC s1:1 \r\n\r\nb a "
    for _ in range(2):
        assert [status for _, status, _ in said(scene.tell(Asked(1, written)))] == ["OK"]
    assert len(parsed) == 1
    assert [scene.proxy.topics.server_of(topic) for topic in "ab"] == ["s1:1", "s1:1"]
    ((_, status, text),) = said(scene.tell(Asked(1, b"PERIODIC s1:1 more\r\n\r\nb a ")))
    assert (status, "PERIODIC <SENDER_ID> has 1 fields" in text) == ("BAD_MESSAGE", True)


def test_a_server_in_whose_place_a_proxy_was_is_read_anew(parsed: Calls) -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    (ask,) = scene.ask(1, m.Get("alice", "a", "-1"))
    assert isinstance(ask, Ask)
    scene.answer(ask.token, "PROXY_DOES_NOT_KNOW_ANY_SERVER")
    scene.pass_time(61 * SECOND)
    scene.claim("s1:1", "a")
    assert (scene.proxy.topics.server_of("a"), len(parsed)) == ("s1:1", 2)


TOPICS = st.frozensets(st.sampled_from("abcdef"))


@given(st.lists(st.tuples(st.sampled_from("xyz"), TOPICS), max_size=12))
def test_what_a_map_knows_by_differences_is_what_servers_said_last(spoken: list[tuple[str, frozenset[str]]]) -> None:
    topics, last = TopicMap(), dict[str, frozenset[str]]()
    for server, names in spoken:
        again = last.get(server) == names
        last[server] = names
        conflicts = topics.learn(server, None if again else sorted(names))
        topics.check()
        claims = {topic: sorted(one for one in last if topic in last[one]) for topic in "abcdef"}
        assert {topic: list(topics.claimants_of(topic)) for topic in "abcdef"} == claims
        assert conflicts == [
            (topic, giver, of[0]) for topic, of in claims.items() for giver in of[1:] if server in (giver, of[0])
        ]
