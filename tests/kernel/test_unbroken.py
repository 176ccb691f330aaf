"""What is done unbroken is done whole, whatever a signal's handler raises meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from veredus.kernel.unbroken import unbroken


def test_what_is_done_gives_what_it_gives_and_raises_what_it_raises() -> None:
    assert unbroken(lambda: 3) == 3

    def fail() -> int:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        unbroken(fail)


@pytest.mark.parametrize("is_done_before", [True, False])
def test_who_is_torn_out_of_the_wait_leaves_nothing_made_and_nothing_half_done(is_done_before: bool) -> None:
    steps: list[str] = []
    over, may_end = threading.Event(), threading.Event()

    def act() -> str:
        steps.append("begun")
        if not is_done_before:
            os.kill(os.getpid(), signal.SIGINT)
            may_end.wait(10)
        steps.append("done")
        if is_done_before:
            os.kill(os.getpid(), signal.SIGINT)
        return "made"

    def undo(made: str) -> None:
        steps.append(f"undone {made}")
        over.set()

    with pytest.raises(KeyboardInterrupt):
        unbroken(act, undo)
    may_end.set()
    assert over.wait(10)
    assert steps == ["begun", "done", "undone made"]


class Interrupted(BaseException):
    """What the signal's handler raises."""


def test_what_was_made_is_taken_or_undone_however_closely_one_signal_follows_another() -> None:
    made, taken, undone = list[int](), list[int](), list[int]()
    left = 0

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal left
        if left:
            left -= 1
            signal.setitimer(signal.ITIMER_REAL, 1e-6)
            raise Interrupted

    def make(each: int) -> int:
        made.append(each)
        return each

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for each in range(1000):
            left = 4
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (each % 200 + 1))
                taken.append(unbroken(lambda each=each: make(each), undone.append))
                left = 0
            except Interrupted:
                left = 0
    finally:
        left = 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    end_s = time.monotonic() + 10
    while len(taken) + len(undone) < len(made) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert sorted(taken + undone) == sorted(made)
    assert undone


def test_what_a_handler_raises_behind_the_start_of_the_thread_is_handed_on_also_where_it_is_a_runtime_error() -> None:
    steps: list[str] = []
    over = threading.Event()

    def interrupt(_number: int, _frame: object) -> None:
        raise RuntimeError("mine")

    def act() -> None:
        steps.append("begun")
        os.kill(os.getpid(), signal.SIGALRM)
        time.sleep(0.1)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(RuntimeError, match="mine"):
            unbroken(act, lambda _: over.set())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert over.wait(10)
    assert steps == ["begun"]


def test_who_is_interrupted_may_wait_for_the_end_all_the_same() -> None:
    steps: list[str] = []

    def act() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        steps.append("done")

    with pytest.raises(KeyboardInterrupt):
        unbroken(act, end_s=10)
    assert steps == ["done"]
