"""What costs much is checked by threads: addresses take turns, and what nobody waits for any more is not checked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from veredus.runtime.checks import Checks, Crowded, Unwanted

FLOOD, VICTIM = "192.0.2.1", "192.0.2.2"


@contextmanager
def held(waiting_max: int = 100) -> Iterator[tuple[Checks, threading.Event]]:
    """Checks by one thread, which goes on with the next once the event is set."""
    checks, may_go_on = Checks(asyncio.get_running_loop(), "checks", 1, waiting_max), threading.Event()
    checks.ask(FLOOD, lambda: may_go_on.wait(20), lambda _: None, lambda: True)
    try:
        yield checks, may_go_on
    finally:
        may_go_on.set()
        checks.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))


def test_an_address_waits_for_one_check_of_another_that_asks_for_many() -> None:
    async def story() -> None:
        checked: list[str] = []
        done = asyncio.Event()
        with held() as (checks, may_go_on):
            for _ in range(50):
                checks.ask(FLOOD, lambda: checked.append(FLOOD), lambda _: None, lambda: True)
            checks.ask(VICTIM, lambda: checked.append(VICTIM), lambda _: done.set(), lambda: True)
            may_go_on.set()
            await done.wait()
        assert checked.index(VICTIM) <= 1

    run(story)


@pytest.mark.parametrize("how", ["is gone", "was forgotten"])
def test_what_nobody_waits_for_when_its_turn_has_come_is_not_checked(how: str) -> None:
    async def story() -> None:
        checked: list[str] = []
        answers: list[object] = []
        done = asyncio.Event()
        with held() as (checks, may_go_on):
            key = checks.ask(FLOOD, lambda: checked.append("gone"), answers.append, lambda: how != "is gone")
            if how == "was forgotten":
                checks.forget(key)
            checks.ask(FLOOD, lambda: checked.append("there"), lambda _: done.set(), lambda: True)
            may_go_on.set()
            await done.wait()
        assert checked == ["there"]
        assert [type(answer) for answer in answers] == ([Unwanted] if how == "is gone" else [])

    run(story)


def test_where_too_many_wait_the_last_of_the_address_with_the_most_is_told_so() -> None:
    async def story() -> None:
        told: asyncio.Queue[tuple[str, object]] = asyncio.Queue()
        with held(2) as (checks, _):
            for who in ("first", "second", "third"):
                checks.ask(FLOOD, lambda: None, lambda found, who=who: told.put_nowait((who, found)), lambda: True)
            who, found = await told.get()
        assert who == "third"
        assert isinstance(found, Crowded)

    run(story)


def test_a_check_that_fails_is_answered_and_the_next_one_is_done() -> None:
    async def story() -> None:
        answers: asyncio.Queue[object] = asyncio.Queue()
        checks = Checks(asyncio.get_running_loop(), "checks", 1, 100)
        for numbers in ([], [7]):
            checks.ask(VICTIM, numbers.pop, answers.put_nowait, lambda: True)
        assert isinstance(await answers.get(), IndexError)
        assert await answers.get() == 7
        checks.close()

    run(story)


def test_where_no_thread_can_be_started_it_is_checked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> None:
        answers: asyncio.Queue[object] = asyncio.Queue()
        checks = Checks(asyncio.get_running_loop(), "checks", 1, 100)
        checks.ask(VICTIM, lambda: 7, answers.put_nowait, lambda: True)
        assert await answers.get() == 7
        checks.close()

    monkeypatch.setattr("veredus.runtime.checks.Thread.start", start)
    run(story)
