"""What makes a world repeatable: dice by concern, time that only goes on, and a story with a digest."""

from veredus.sim.dice import Dice
from veredus.sim.world import SECOND, Clock, World


def test_a_new_throw_of_one_concern_shifts_no_other() -> None:
    plain, thrown = Dice(7), Dice(7)
    thrown.die("network").random()
    assert [plain.die("disk").random() for _ in range(5)] == [thrown.die("disk").random() for _ in range(5)]


def test_seeds_and_concerns_throw_differently() -> None:
    throws = {Dice(seed).die(concern).random() for seed in (1, 2) for concern in ("disk", "network", "disk/1")}
    assert len(throws) == 6


def test_a_spread_reaches_both_of_its_ends() -> None:
    die = Dice(1).die("any")
    throws = [die.spread(1, 100) for _ in range(5000)]
    assert (min(throws), max(throws)) == (1, 100)
    assert sum(throw <= 10 for throw in throws) > 2000, "every order of magnitude is as likely"


def test_things_happen_in_the_order_of_their_times_and_then_of_their_plans() -> None:
    world, happened = World(1), list[str]()
    world.after(5, lambda: happened.append("late"))
    world.after(1, lambda: happened.append("first"))
    world.after(1, lambda: world.after(0, lambda: happened.append("third")))
    world.after(1, lambda: happened.append("second"))
    world.run(SECOND)
    assert happened == ["first", "second", "third", "late"]
    assert world.now_ns == SECOND


def test_a_drifting_clock_is_never_woken_before_its_time() -> None:
    world = World(1)
    for drift in (-0.05, 0.0, 0.05):
        clock = Clock(world, drift, 0)
        for at_ns in (SECOND, SECOND + 1, 3 * SECOND + 7):
            world.now_ns = clock.true_ns(at_ns)
            assert at_ns <= clock.now().monotonic_ns <= at_ns + 3
        world.now_ns = 0


def test_a_stepped_clock_moves_its_wall_and_not_its_pace() -> None:
    world = World(1)
    clock = Clock(world, 0.0, 0)
    before = clock.now()
    clock.step(-3600 * SECOND)
    assert clock.now().monotonic_ns == before.monotonic_ns
    assert clock.now().wall_ns == before.wall_ns - 3600 * SECOND
