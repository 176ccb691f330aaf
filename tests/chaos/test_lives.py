"""Who ends by itself, is not fenced, or waits for ever is named: a run does not pass over it."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

import veredus
from veredus.chaos import conductor
from veredus.chaos import lives as lifes
from veredus.chaos.conductor import Outcome
from veredus.chaos.layout import Layout
from veredus.chaos.lives import Life, Lives, Ports
from veredus.chaos.plan import NODE, Member, draw

ASLEEP = ["timeit", "-n1", "-r1", "import time; time.sleep(60)"]
FAILED = ["json.tool", "no-such-file"]


def member(name: str, role: str = "source") -> Member:
    return Member(name=name, role=role, stream="s", door="tcp")  # type: ignore[arg-type]


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    layout = Layout(tmp_path)
    layout.make()
    return Lives(layout, [member("one"), member("desk", "subscriber")], Ports(1))


def begun(lives: Lives, name: str, arguments: list[str]) -> Life:
    life = Life(name, lives.layout.logs / f"{name}.log", arguments, {})
    lives.running[name] = life
    return life


def ended(life: Life) -> int:
    assert asyncio.run(life.wait(20))
    assert life.exit_code is not None
    return life.exit_code


def test_a_member_that_ends_though_nobody_struck_it_is_a_surprise_and_lives_again(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: list[str] = []
    monkeypatch.setattr(lives, "begin", again.append)
    assert ended(begun(lives, "one", FAILED))
    lives.look()
    assert again == ["one"]
    (surprise,) = lives.surprises
    assert surprise.startswith("one ended by itself with")
    assert "no-such-file" in surprise


def test_a_life_has_no_settings_of_whoever_runs_this_and_the_door_goes_with_the_node(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VEREDUS_CHAOS_NAMESPACE", "1")
    monkeypatch.setenv("VEREDUS_LISTEN_TCP", "127.0.0.1:1")
    code = "import os; print(sorted(name for name in os.environ if name.startswith('VEREDUS_')))"
    life = begun(lives, "one", ["timeit", "-n1", "-r1", code])
    assert ended(life) == 0
    assert life.log.read_text().startswith("[]")
    Path(lives.layout.socket).touch()
    asyncio.run(lives.end())
    assert not Path(lives.layout.socket).exists()


def test_a_node_that_does_not_begin_is_told_with_what_it_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "START_S", 3.0)
    monkeypatch.setitem(lifes.NODE_SETTINGS, "JOURNAL_SEGMENT_SIZE", "nonsense")
    with pytest.raises(veredus.Unavailable, match=r"the node ended with 2 before .*node\.log: .*nonsense"):
        asyncio.run(conductor.run(draw(2, 3, ("kill",)), Layout(tmp_path / "run"), lambda _: None))


def test_two_runs_that_begin_at_once_in_one_directory_are_one(tmp_path: Path) -> None:
    Layout(tmp_path).plan.touch()
    with pytest.raises(FileExistsError):
        asyncio.run(conductor.run(draw(2, 3, ("kill",)), Layout(tmp_path), lambda _: None))


def test_a_member_that_was_struck_is_no_surprise(lives: Lives) -> None:
    life = begun(lives, "one", ASLEEP)
    lives.down.add("one")
    life.kill()
    lives.look()
    assert lives.surprises == []


def test_a_member_may_leave_once_it_was_told_to_and_not_before(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "begin", lambda name: None)
    lives.layout.no_more.touch()
    assert ended(begun(lives, "one", ["this"])) == 0
    assert ended(begun(lives, "desk", ["this"])) == 0
    lives.look()
    assert [surprise.split()[0] for surprise in lives.surprises] == ["desk"]


def test_a_former_life_that_goes_on_is_named_and_so_is_one_that_ends_otherwise(lives: Lives) -> None:
    lives.zombies = [begun(lives, "one", ASLEEP), begun(lives, "desk", FAILED)]
    first, second = asyncio.run(lives.end_zombies(0.5))
    assert first == "a former life of one was not fenced in 0.5 s"
    assert second.startswith("a former life of desk ended with")
    lives.zombies[0].kill()


def test_a_life_is_stopped_goes_on_and_is_killed(lives: Lives) -> None:
    life = begun(lives, "one", ASLEEP)
    life.signal(signal.SIGSTOP)
    assert life.is_stopped
    life.signal(signal.SIGCONT)
    assert not life.is_stopped
    life.kill()
    assert life.exit_code == -signal.SIGKILL
    life.signal(signal.SIGCONT)


def test_who_does_not_leave_in_time_is_named(lives: Lives) -> None:
    life = begun(lives, "one", ASLEEP)
    assert asyncio.run(lives.wait_over(("source",), 0.2)) == ["one"]
    life.kill()


def test_a_subscription_that_never_settles_is_stuck_and_says_what_it_waits_for(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "END_S", 0.3)
    monkeypatch.setattr(lives, "look", lambda: None)

    async def story() -> list[str]:
        async with (
            veredus.embedded_async() as node,
            node.publisher("s", source="p") as publisher,
            node.subscribe("s", subscriber="desk", name="main") as subscription,
        ):
            await publisher.publish("k", b"1")
            await publisher.flush()
            waiting = await conductor._wait_settled(lives, node)
            batch = await subscription.next_batch()
            assert batch is not None
            batch.settle()
            await subscription.wait_settled()
            assert await conductor._wait_settled(lives, node) == []
            return waiting

    (stuck,) = asyncio.run(story())
    assert stuck.startswith("desk on s has not settled everything: ")
    assert "'lag': 1" in stuck


def test_a_source_that_cannot_reach_a_node_is_stuck_and_everybody_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "END_S", 0.5)
    monkeypatch.setattr(conductor, "FENCED_S", 0.1)
    layout = Layout(tmp_path)
    layout.make()
    plan = draw(1, 3, (), 1, 1, 0)
    lives = Lives(layout, [member("source-1")], Ports(1))
    outcome = Outcome(plan)

    async def story() -> None:
        begun(lives, "source-1", ASLEEP)
        begun(lives, NODE, ASLEEP)
        monkeypatch.setattr(conductor, "_wait_settled", _nothing)
        async with veredus.embedded_async(listen={"tcp": "127.0.0.1:0"}) as node:
            lives.node_address = node.served.address
            await conductor._come_to_an_end(lives, _Healer(), outcome, lambda _: None)  # type: ignore[arg-type]
        await lives.end()

    began = time.monotonic()
    asyncio.run(story())
    assert time.monotonic() - began < 20
    assert [said.partition(":")[0] for said in outcome.stuck] == ["source-1 still waits for the node"]
    assert all(life.exit_code is not None for life in lives.running.values())


async def _nothing(*_: object) -> list[str]:
    return []


class _Healer:
    def heal(self) -> None:
        pass
