"""Announcements that are lost, late and held back, as worlds of topics play them."""

from collections import Counter

import pytest

from veredus.sim.dice import Die
from veredus.sim.topics_heralds import Herald, HeraldTemper, drawn_temper
from veredus.sim.world import SECOND, World

PROXY = "proxy-1"


class Scene:
    """A herald, and what it has sent."""

    def __init__(self, **temper: float) -> None:
        self.world = World(1)
        self.sent: list[tuple[int, bytes]] = []
        self.herald = Herald(
            self.world, Die(1), HeraldTemper(**temper), lambda _, token, data: self.sent.append((token, data))
        )

    def announce(self, *tokens: int) -> None:
        for token in tokens:
            self.herald.announce(PROXY, token, b"%d" % token)


def test_what_is_told_at_once_goes_as_it_comes() -> None:
    scene = Scene()
    scene.announce(1, 2, 3)
    assert scene.sent == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_what_is_lost_never_comes() -> None:
    scene = Scene(loses=1.0)
    scene.announce(1, 2)
    scene.world.run(10 * SECOND)
    assert scene.sent == []


def test_what_is_late_comes_in_another_order_and_not_from_a_process_that_has_ended() -> None:
    scene = Scene(delays=1.0)
    scene.announce(*range(20))
    assert scene.sent == []
    scene.world.run(10 * SECOND)
    tokens = [token for token, _ in scene.sent]
    assert sorted(tokens) == [*range(20)]
    assert tokens != sorted(tokens)
    scene.sent.clear()
    scene.announce(20)
    scene.herald.is_open = False
    scene.world.run(20 * SECOND)
    assert scene.sent == []


@pytest.mark.parametrize("is_answered", [True, False])
def test_of_what_is_held_back_the_newest_comes_once_the_one_before_is_answered_or_was_waited_for(
    is_answered: bool,
) -> None:
    scene = Scene(holds=1.0)
    scene.announce(1, 2, 3)
    assert scene.sent == [(1, b"1")]
    if is_answered:
        scene.herald.answered(7)
        assert scene.sent == [(1, b"1")]
        scene.herald.answered(1)
    else:
        scene.world.run(10 * SECOND)
    assert scene.sent == [(1, b"1"), (3, b"3")]
    scene.herald.rest()
    scene.announce(4, 5)
    assert scene.sent[2:] == [(4, b"4"), (5, b"5")]


def test_in_most_worlds_announcements_go_as_they_come_and_elsewhere_in_every_way() -> None:
    tempers = [drawn_temper(Die(seed), SECOND) for seed in range(1000)]
    drawn: Counter[str] = Counter()
    for temper in tempers:
        drawn.update(kind for kind in ("loses", "delays", "holds") if getattr(temper, kind))
        drawn["none"] += temper == HeraldTemper()
    assert 600 < drawn["none"] < 800
    assert min(drawn.values()) > 70
