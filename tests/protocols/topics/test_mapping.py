"""What a proxy knows of servers and topics."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.errors import Refused
from veredus.protocols.topics.mapping import Conflict, TopicMap


def mapped(**claims: str) -> TopicMap:
    """A map in which each server claims the topics named in its words."""
    topics = TopicMap()
    for server, words in claims.items():
        topics.learn(server, words.split())
    return topics


def test_a_topic_goes_to_the_server_with_the_fewest_and_the_least_id() -> None:
    topics = mapped(b="t1", a="t2 t3", c="t4")
    assert [topics.assign(topic) for topic in ("n1", "n2", "n3", "n4", "n5")] == ["b", "c", "a", "b", "c"]
    topics.check()


def test_nobody_is_responsible_while_no_server_is_known() -> None:
    topics = TopicMap()
    assert topics.server_of("t") is None
    with pytest.raises(Refused) as raised:
        topics.assign("t")
    assert raised.value.code == "no-server"
    assert "start one that lists this proxy" in raised.value.message


def test_what_was_assigned_stays_until_its_server_claims_it_and_goes_when_it_does_not_any_more() -> None:
    topics = mapped(a="", b="x")
    assert topics.assign("t") == "a"
    assert topics.learn("a", []) == [], "said before the first message came"
    assert topics.server_of("t") == "a"
    topics.learn("a", ["t"])
    assert (topics.server_of("t"), topics.topic_count("a")) == ("a", 1)
    topics.learn("a", [])
    assert (topics.server_of("t"), topics.topic_count("a")) == (None, 0)
    topics.check()


def test_what_never_reached_its_server_may_be_assigned_anew() -> None:
    topics = mapped(a="", b="x")
    topics.assign("t")
    topics.withdraw("t", "b")
    assert topics.server_of("t") == "a", "it was not b's"
    topics.withdraw("t", "a")
    topics.withdraw("x", "b")
    assert (topics.server_of("t"), topics.server_of("x"), topics.topic_count("a")) == (None, "b", 0)
    topics.check()


def test_what_was_assigned_and_never_came_into_being_is_forgotten_unless_it_is_asked_for_again() -> None:
    topics = mapped(a="")
    for number in range(100):
        topics.assign(f"t{number}")
    topics.learn("a", ["t0"])
    assert topics.choose("t1") == "a"
    topics.learn("a", ["t0"])
    assert [topics.server_of(topic) for topic in ("t0", "t1", "t2")] == ["a", "a", None]
    assert topics.topic_count("a") == 2
    topics.learn("a", ["t0"])
    assert (topics.server_of("t1"), topics.topic_count("a")) == (None, 1)
    topics.check()


def test_of_two_that_claim_a_topic_the_one_with_the_higher_id_gives_it_away() -> None:
    topics = mapped(b="t other")
    assert topics.learn("a", ["t"]) == [Conflict("t", "b", "a")]
    assert (topics.server_of("t"), topics.rivals_of("t"), topics.rivals_of("other")) == ("a", ("b",), ())
    assert topics.learn("b", ["t", "other"]) == [Conflict("t", "b", "a")], "until it has"
    assert topics.learn("b", ["other"]) == []
    assert (topics.server_of("t"), topics.conflicts) == ("a", [])
    topics.check()


def test_of_three_that_claim_a_topic_two_give_it_to_the_first() -> None:
    topics = mapped(c="t", a="t")
    assert topics.learn("b", ["t"]) == [Conflict("t", "b", "a")]
    assert topics.conflicts == [Conflict("t", "b", "a"), Conflict("t", "c", "a")]
    assert topics.learn("a", []) == []
    assert (topics.server_of("t"), topics.conflicts) == ("b", [Conflict("t", "c", "b")])
    topics.check()


def test_whoever_a_topic_goes_to_keeps_it_until_it_claims_it_no_more() -> None:
    topics = mapped(b="t")
    assert topics.choose("t") == "b"
    topics.learn("a", ["t"])
    topics.learn("c", ["t"])
    assert (topics.choose("t"), topics.rivals_of("t")) == ("b", ("a", "c"))
    assert topics.conflicts == [Conflict("t", "b", "a"), Conflict("t", "c", "a")], "all the same"
    topics.learn("c", [])
    topics.learn("a", ["t"])
    assert topics.choose("t") == "b"
    topics.learn("b", [])
    assert (topics.choose("t"), topics.rivals_of("t")) == ("a", ())
    topics.check()


def test_a_giver_that_says_that_it_gave_the_topic_is_not_chosen_any_more_though_it_may_claim_it() -> None:
    topics = mapped(b="t")
    assert topics.choose("t") == "b"
    topics.note_given("t", "b")
    assert topics.choose("t") == "b", "nobody else claims it"
    topics.learn("a", ["t"])
    assert topics.choose("t") == "b", "it may be giving the topic, and a client's puts stay in order"
    topics.note_given("t", "b")
    topics.check()
    assert (topics.choose("t"), topics.rivals_of("t")) == ("a", ("b",))
    assert topics.learn("b", ["t"]) == [Conflict("t", "b", "a")]
    assert topics.choose("t") == "a"


def test_a_giver_that_does_not_say_that_it_gave_the_topic_is_not_given_up() -> None:
    topics = mapped(b="t")
    assert topics.choose("t") == "b"
    topics.learn("a", ["t"])
    for _ in range(30):
        topics.learn("b", ["t"])
    assert topics.choose("t") == "b"


def test_whoever_hears_of_a_topic_with_several_claims_begins_with_the_least_id() -> None:
    topics = mapped(c="t", b="t", a="")
    assert topics.choose("t") == "b"
    topics.learn("a", ["t"])
    assert topics.choose("t") == "b"
    assert mapped(c="t", b="t", a="t").choose("t") == "a"


def test_what_was_assigned_stays_where_it_is_though_another_claims_it_until_its_own_server_has_spoken() -> None:
    topics = mapped(a="", b="")
    assert topics.assign("t") == "a"
    assert topics.learn("b", ["t"]) == []
    assert (topics.choose("t"), topics.rivals_of("t")) == ("a", ("b",)), "what was sent there may be under way"
    assert topics.learn("a", ["t"]) == [Conflict("t", "b", "a")], "another proxy's was taken, and so was ours"
    assert topics.choose("t") == "a"
    topics.check()


def test_what_was_assigned_goes_to_whoever_claims_it_where_its_own_server_does_not() -> None:
    topics = mapped(a="", b="")
    assert topics.assign("t") == "a"
    topics.learn("b", ["t"])
    topics.learn("a", [])
    assert (topics.choose("t"), topics.rivals_of("t"), topics.topic_count("a")) == ("b", (), 0)
    topics.check()


class Withdrawn(NamedTuple):
    """A server was asked for a topic in vain."""

    topic: str
    server: str


TOPICS, SERVERS = "tuvw", "abc"
STEPS = st.one_of(
    st.tuples(st.sampled_from(SERVERS), st.lists(st.sampled_from(TOPICS), max_size=6)),
    st.builds(Withdrawn, st.sampled_from(TOPICS), st.sampled_from(SERVERS)),
    st.sampled_from(TOPICS),
)


@given(st.lists(STEPS, max_size=30))
def test_whatever_is_learned_and_assigned_the_map_agrees_with_itself(
    steps: list[str | Withdrawn | tuple[str, list[str]]],
) -> None:
    topics = TopicMap()
    chosen: dict[str, str] = {}
    for step in steps:
        if isinstance(step, Withdrawn):
            topics.withdraw(step.topic, step.server)
            if chosen.get(step.topic) not in (None, topics.server_of(step.topic)):
                assert chosen.pop(step.topic) == step.server
        elif isinstance(step, tuple):
            server, claimed = step
            conflicts = topics.learn(server, claimed)
            assert all(conflict in topics.conflicts and conflict.keeper < conflict.giver for conflict in conflicts)
            for topic in [topic for topic, before in chosen.items() if topics.server_of(topic) != before]:
                assert chosen.pop(topic) == server, "it changes when the one that had it speaks"
                assert topic not in claimed, "and does not claim it"
                claims = [conflict.keeper for conflict in topics.conflicts if conflict.topic == topic]
                assert all(topics.server_of(topic) == keeper for keeper in claims)
        else:
            server_or_none = topics.choose(step)
            if server_or_none is None and topics.servers:
                fewest = min(map(topics.topic_count, topics.servers))
                server_or_none = topics.assign(step)
                assert topics.topic_count(server_or_none) == fewest + 1
            if server_or_none is not None:
                assert chosen.setdefault(step, server_or_none) == server_or_none
                assert server_or_none not in topics.rivals_of(step)
        topics.check()
