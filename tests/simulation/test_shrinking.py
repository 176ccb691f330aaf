"""A failing world is cut down to what its failure needs, and the cut can be run again."""

from collections import Counter

import pytest

from veredus.sim import campaign
from veredus.sim.running import Outcome, run_seed
from veredus.sim.shrinking import RUN_COUNT_MAX, Shrinking
from veredus.sim.workloads import Part
from veredus.streams.replay import Replay

NAMES = ("source-1", "source-2", "subscriber-1", "sink-1")
STRIKES = tuple((number, "kill") for number in range(1, 41))


class World:
    """Fails by `taken` while `source-2` and the strikes 7 and 31 are there."""

    def __init__(self) -> None:
        self.run_count = 0

    def run(self, part: Part) -> Outcome:
        """How that part of it ends."""
        self.run_count += 1
        names = tuple(name for name in NAMES if name not in part.without)
        strikes = tuple(s for s in STRIKES if part.strikes is None or s[0] in part.strikes)
        fails = "source-2" in names and {7, 31} <= {number for number, _ in strikes}
        return Outcome(1, "taken: 3 is gone" if fails else "order: other", "", 0, Counter(), names, strikes)


def test_what_a_failure_does_not_need_is_left_out() -> None:
    world = World()
    shrinking = Shrinking(world.run, world.run(Part()))
    shrinking.shrink()
    assert shrinking.outcome.names == ("source-2",)
    assert shrinking.part.strikes == {7, 31}
    assert world.run_count <= RUN_COUNT_MAX


def test_a_strike_that_is_left_out_shifts_none_of_the_others() -> None:
    whole = run_seed(2)
    assert len(whole.strikes) > 3
    numbers = [number for number, _ in whole.strikes]
    part = run_seed(2, part=Part(strikes=frozenset(numbers[1::2])))
    wanted = [strike for strike in whole.strikes if strike[0] in numbers[1::2]]
    assert list(part.strikes)[: len(wanted)] == wanted


def test_a_shrunk_world_says_how_to_run_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "finish", lambda *_: None)
    failing = next(seed for seed in range(1, 41) if run_seed(seed).violation.startswith("marked"))
    said: list[str] = []
    campaign.main(["--seed", str(failing)], said.append)
    (again,) = (line for line in "".join(said).splitlines() if line.startswith("repeat: veredus sim run "))
    assert campaign.main(again.split()[4:], said.append) == campaign.EXIT_VIOLATED
