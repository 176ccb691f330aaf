"""A signal ends a command where it waits, and nowhere else."""

import os
import signal

import pytest

from veredus.cli.interrupts import SAME_S, Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_waits_is_kept_for_the_next_wait(number: int) -> None:
    done = []

    def work(interrupts: Interrupts) -> None:
        os.kill(os.getpid(), number)
        done.append("went on")
        with interrupts.waiting():
            done.append("waited")

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        work(interrupts)
    assert done == ["went on"]


def test_a_signal_during_a_wait_ends_it() -> None:
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.waiting():
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_second_signal_ends_anything_and_an_echo_of_the_first_does_not() -> None:
    seconds = [0.0]
    with Interrupts(lambda: seconds[0]):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        seconds[0] += SAME_S
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_signals_are_handled_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
