"""A program that is interrupted in its requests, a thousand times and at any moment, goes on with the same objects."""

import gc
import random
import signal
from collections.abc import Iterator

import pytest

from veredus.client.embedded import Embedded

COUNT = 15_000


class Interrupted(BaseException):
    """What the signal's handler raises."""


@pytest.fixture
def alarm() -> Iterator[list[bool]]:
    """Whether an alarm raises `Interrupted`: one that comes late must not."""
    is_armed = [False]

    def ring(_number: int, _frame: object) -> None:
        if is_armed[0]:
            is_armed[0] = False
            raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)
    yield is_armed
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore:Exception ignored in. <function WeakSet:pytest.PytestUnraisableExceptionWarning")
def test_requests_that_are_interrupted_at_any_moment_hang_nothing(
    node: Embedded, stream: str, alarm: list[bool]
) -> None:
    node.streams.create(stream)
    dice, interrupted_count = random.Random(7), 0
    for _ in range(COUNT):
        try:
            alarm[0] = True
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(2e-5, 1e-3))
            node.streams.show(stream)
            alarm[0] = False
        except Interrupted:
            interrupted_count += 1
    gc.collect()
    assert interrupted_count > COUNT // 10
    assert node.streams.show(stream)["name"] == stream
