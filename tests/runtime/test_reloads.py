"""However often a process is asked to read its settings again, it does so once for all, and does other things too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from veredus.runtime.reloads import Reloads


class Loop:
    """A loop whose time passes when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> None:
        self.calls.append((at_s, call))

    def run_next(self) -> None:
        at_s, call = self.calls.pop(0)
        self.now_s = max(self.now_s, at_s)
        call()


def test_settings_are_read_once_for_all_who_asked_meanwhile_and_never_without_a_pause() -> None:
    loop = Loop()
    read_at: list[float] = []

    def reload() -> None:
        read_at.append(loop.now_s)
        loop.now_s += 0.05

    reloads = Reloads(cast(asyncio.AbstractEventLoop, loop), reload)
    for _ in range(1000):
        reloads.ask()
    assert [at_s for at_s, _ in loop.calls] == [100.0]
    loop.run_next()
    for _ in range(1000):
        reloads.ask()
    assert [at_s for at_s, _ in loop.calls] == [pytest.approx(100.55)]
    loop.run_next()
    assert (read_at, loop.calls) == ([100.0, pytest.approx(100.55)], [])


def test_who_asks_after_a_reading_that_failed_is_heard() -> None:
    loop = Loop()

    def reload() -> None:
        raise ValueError("no")

    reloads = Reloads(cast(asyncio.AbstractEventLoop, loop), reload)
    for _ in range(2):
        reloads.ask()
        try:
            loop.run_next()
        except ValueError:
            continue
    assert loop.calls == []


def test_a_reading_that_takes_very_long_delays_the_next_by_a_second() -> None:
    loop = Loop()

    def reload() -> None:
        loop.now_s += 60

    reloads = Reloads(cast(asyncio.AbstractEventLoop, loop), reload)
    reloads.ask()
    loop.run_next()
    reloads.ask()
    assert [at_s for at_s, _ in loop.calls] == [161.0]
