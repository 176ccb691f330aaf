"""What a proxy knows of servers and topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursus.kernel.errors import Refused
from cursus.protocols.topics.mapping import Conflict, TopicMap


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
    topics.withdraw("t")
    topics.withdraw("x")
    assert (topics.server_of("t"), topics.server_of("x"), topics.topic_count("a")) == (None, "b", 0)
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


def test_a_claim_wins_over_what_was_assigned_and_both_are_known_once_both_claim() -> None:
    topics = mapped(a="", b="")
    assert topics.assign("t") == "a"
    assert topics.learn("b", ["t"]) == []
    assert topics.server_of("t") == "b"
    assert topics.learn("a", ["t"]) == [Conflict("t", "b", "a")], "another proxy's was taken, and so was ours"
    topics.check()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from("tuvw"), max_size=6)),
            st.sampled_from("tuvw"),
        ),
        max_size=30,
    )
)
def test_whatever_is_learned_and_assigned_the_map_agrees_with_itself(steps: list[str | tuple[str, list[str]]]) -> None:
    topics = TopicMap()
    for step in steps:
        if isinstance(step, tuple):
            server, claimed = step
            conflicts = topics.learn(server, claimed)
            assert all(conflict in topics.conflicts and conflict.keeper < conflict.giver for conflict in conflicts)
        elif topics.servers and topics.server_of(step) is None:
            fewest = min(map(topics.topic_count, topics.servers))
            server = topics.assign(step)
            assert topics.topic_count(server) == fewest + 1
            assert topics.server_of(step) == server
        topics.check()
