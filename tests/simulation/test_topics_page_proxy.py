"""A proxy that was written from the page stands between our clients and our servers."""

from __future__ import annotations

from dataclasses import replace

from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked
from veredus.sim import topics_page_codec as page
from veredus.sim.running import run_seed
from veredus.sim.topics_page_proxy import RETRIES_MAX, WAIT_NS, PageProxy
from veredus.sim.topology import DRAWN

EARLY = Now(1, 1)


def told_of(**topics: list[str]) -> PageProxy:
    proxy = PageProxy("proxy")
    for server, has in topics.items():
        first, *_ = proxy.handle(Asked(9, page.periodic(server, has)), EARLY)
        assert first == Answer(9, page.status("proxy", page.OK))
    return proxy


def test_a_topic_is_asked_where_it_is_and_a_new_one_goes_where_the_fewest_are() -> None:
    proxy = told_of(a=["prices", "news"], b=["sport"])
    for topic, server in (("prices", "a"), ("sport", "b"), ("new", "b"), ("new", "b")):
        (asked,) = proxy.handle(Asked(1, page.get("alice", topic)), EARLY)
        assert isinstance(asked, Ask)
        assert (asked.address, asked.data) == (server, page.get("alice", topic))
    assert list(proxy.handle(Answered(asked.token, b"STATUS"), EARLY)) == [Answer(1, b"STATUS")]
    (said,) = PageProxy("proxy").handle(Asked(1, page.get("alice", "prices")), EARLY)
    assert said == Answer(1, page.status("proxy", page.NO_SERVER))


def test_of_two_that_have_a_topic_the_higher_one_is_told_to_give_it() -> None:
    proxy = told_of(b=["prices"])
    _, merge = proxy.handle(Asked(9, page.periodic("a", ["prices"])), EARLY)
    assert isinstance(merge, Ask)
    assert (merge.address, merge.data) == ("b", page.merge("proxy", "prices", "a"))


def test_a_silent_server_is_asked_three_times_more_and_then_is_unavailable() -> None:
    proxy = told_of(a=["prices"])
    list(proxy.handle(Asked(1, page.put("bob", "prices", 7, b"x")), EARLY))
    for count in range(1, RETRIES_MAX + 1):
        (again,) = proxy.handle(DeadlineReached(), Now(1 + count * WAIT_NS, 1))
        assert isinstance(again, Ask)
    (said,) = proxy.handle(DeadlineReached(), Now(1 + (RETRIES_MAX + 1) * WAIT_NS, 1))
    assert said == Answer(1, page.status("proxy", page.UNAVAILABLE))
    assert proxy.deadline() is None


def test_worlds_of_topics_have_such_proxies() -> None:
    worlds = (run_seed(seed, replace(DRAWN, scene="topics")) for seed in range(1, 100))
    met = next(world for world in worlds if world.counts["topics.page-proxies"] and world.counts["topics.puts"])
    assert not met.violation
