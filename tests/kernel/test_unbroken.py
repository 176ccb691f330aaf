"""What is done unbroken is done whole, whatever a signal's handler raises meanwhile."""

from __future__ import annotations

import os
import signal
import threading

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
