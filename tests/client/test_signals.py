"""A signal that comes just before the main thread begins to wait is not overlooked.

CPython carries a signal out in the main thread, and can overlook one until that has what it waits for. Here it is taken
by another thread, which leaves the main thread waiting in just that way.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from veredus.client.loops import LoopThread, Signal

LIMIT_S = 5.0


class Interrupted(Exception):
    """The signal was carried out."""


@contextmanager
def signalled_elsewhere(give_up: Callable[[], object]) -> Iterator[None]:
    """While the main thread waits in the block another one takes a signal; `give_up` ends a wait that overlooks it."""

    def carry_out(_number: int, _frame: object) -> None:
        raise Interrupted

    def take() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)
        if not is_over.wait(LIMIT_S):
            overlooked.set()
            give_up()

    is_over, overlooked = threading.Event(), threading.Event()
    before = signal.signal(signal.SIGUSR2, carry_out)
    taker = threading.Timer(0.1, take)
    taker.start()
    try:
        yield
    finally:
        is_over.set()
        taker.join()
        signal.signal(signal.SIGUSR2, before)
    assert not overlooked.is_set(), f"the signal was not carried out in {LIMIT_S:g} s"


def test_a_thread_that_waits_to_be_told_notices_a_signal() -> None:
    told = Signal()
    with signalled_elsewhere(told.tell), pytest.raises(Interrupted):
        told.wait()


def test_a_thread_that_waits_for_the_loop_notices_a_signal() -> None:
    loop = LoopThread()
    is_given_up = asyncio.Event()
    with signalled_elsewhere(lambda: loop.call(is_given_up.set)), pytest.raises(Interrupted):
        loop.run(is_given_up.wait)
    loop.stop()


def test_what_was_told_before_or_in_time_counts_and_nothing_else() -> None:
    told = Signal()
    assert not told.wait(0.0)
    assert not told.wait(0.3)
    told.tell()
    told.tell()
    assert told.wait(0.0)
    assert not told.wait(0.0)
    threading.Timer(0.3, told.tell).start()
    assert told.wait(LIMIT_S)
