"""A process that is stopped does nothing, and then what had waited, in its order."""

from veredus.sim.gates import Gate
from veredus.sim.world import SECOND, World


def test_what_happens_to_a_stopped_process_waits_for_it_in_its_order() -> None:
    world, done = World(1), list[int]()
    gate = Gate(world)
    gate.through(lambda: done.append(1))
    gate.stop(2 * SECOND)
    for number in (2, 3):
        gate.through(lambda number=number: done.append(number))
    world.run(SECOND)
    assert done == [1]
    world.run(3 * SECOND)
    assert done == [1, 2, 3]


def test_a_process_that_is_stopped_again_while_it_catches_up_stops_there() -> None:
    world, done = World(1), list[int]()
    gate = Gate(world)
    gate.stop(SECOND)
    gate.through(lambda: gate.stop(10 * SECOND))
    gate.through(lambda: done.append(1))
    world.run(5 * SECOND)
    assert done == []
    world.run(12 * SECOND)
    assert done == [1]


def test_an_earlier_stop_does_not_wake_who_was_stopped_for_longer_since() -> None:
    world, done = World(1), list[int]()
    gate = Gate(world)
    gate.stop(SECOND)
    gate.stop(5 * SECOND)
    gate.through(lambda: done.append(1))
    world.run(3 * SECOND)
    assert done == []


def test_what_a_process_is_stopped_for_is_no_time_at_work() -> None:
    world = World(1)
    gate = Gate(world)
    for begins_s, lasts_s in ((2, 3), (6, 1)):
        world.run(begins_s * SECOND)
        gate.stop(lasts_s * SECOND)
    world.run(9 * SECOND)
    at_work_since = [gate.at_work_since(seconds * SECOND) for seconds in (1, 2, 3, 4, 5, 9)]
    assert at_work_since == [8 * SECOND, 7 * SECOND, 5 * SECOND, SECOND, 0, 0]
    gate.stop(SECOND)
    world.run(9 * SECOND + SECOND // 2)
    assert gate.at_work_since(SECOND) == 8 * SECOND


def test_what_waited_in_a_process_that_was_killed_never_happens() -> None:
    world, done = World(1), list[int]()
    gate = Gate(world)
    gate.stop(SECOND)
    gate.through(lambda: done.append(1))
    gate.clear()
    gate.through(lambda: done.append(2))
    world.run(5 * SECOND)
    assert done == [2]
