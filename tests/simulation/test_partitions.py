"""The shapes of partitions: who hears whom no longer."""

from veredus.sim.dice import Die
from veredus.sim.partitions import halves, isolated, one_way, party_of, ring

PARTIES = ["node-1", "source-1", "source-2", "subscriber-1", "subscriber-2", "sink-1"]
PAIRS = [(a, b) for a in PARTIES for b in PARTIES if a != b]


def test_two_halves_hear_their_own_side_alone() -> None:
    for seed in range(20):
        parts = halves(PARTIES, Die(seed))
        side = [party for party in PARTIES if not parts(PARTIES[0], party)]
        assert all(parts(a, b) == ((a in side) != (b in side)) for a, b in PAIRS)


def test_one_that_is_isolated_hears_nobody_and_the_others_hear_one_another() -> None:
    parts = isolated(PARTIES, Die(1))
    (alone,) = [party for party in PARTIES if all(parts(party, other) for other in PARTIES if other != party)]
    assert all(parts(a, b) == (alone in (a, b)) for a, b in PAIRS)


def test_in_a_ring_each_hears_two_others() -> None:
    parts = ring(PARTIES, Die(1))
    for party in PARTIES:
        assert sum(not parts(party, other) for other in PARTIES if other != party) == 2
    assert all(parts(a, b) == parts(b, a) for a, b in PAIRS)


def test_one_way_one_side_is_heard_by_nobody_on_the_other_and_hears_them() -> None:
    parts = one_way(PARTIES, Die(3))
    deaf = [(a, b) for a, b in PAIRS if parts(a, b)]
    assert deaf
    assert not any(parts(b, a) for a, b in deaf)


def test_a_party_is_the_same_in_each_of_its_lives() -> None:
    assert party_of("source-1#17") == party_of("source-1") == "source-1"
