"""A clock that is wrong ends nothing."""

import time

import pytest

import veredus
from veredus.runtime.clocks import read_clocks


def test_before_1970_it_is_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: -5_000_000_000)
    assert read_clocks().wall_ns == 0


def test_a_node_with_a_clock_before_1970_takes_publications_and_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: -5_000_000_000)
    with veredus.embedded() as node:
        with node.publisher("s", source="a") as publisher:
            publisher.publish_many(["k", "k"], ["one", "two"])
        with node.subscribe("s", start=veredus.beginning(), until=3) as subscription:
            assert [publication.body for publication in subscription] == [b"one", b"two"]
