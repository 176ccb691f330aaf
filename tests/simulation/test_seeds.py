"""Worlds repeat themselves from their seed, hold every guarantee, and would say so if one were broken."""

from __future__ import annotations

import os
import sys

import pytest

from tests.processes import ended
from veredus.sim.campaign import run_seed, run_seeds
from veredus.streams.cursors import Cursors
from veredus.streams.source import SourceState, Verdict

BROKEN_WITHIN = range(1, 41)


def test_a_seed_tells_the_same_story_whatever_the_hash_seed() -> None:
    digests = {
        ended(
            [sys.executable, "-m", "veredus.sim", "--seed", "7"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout.splitlines()[-1]
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_a_dozen_worlds_hold_every_guarantee() -> None:
    outcomes = list(run_seeds(range(1, 13), worker_count=1))
    assert [outcome.violation for outcome in outcomes if outcome.violation] == []
    assert sum(outcome.counts["taken"] for outcome in outcomes) > 0


def _first_violation() -> str:
    return next((outcome.violation for seed in BROKEN_WITHIN if (outcome := run_seed(seed)).violation), "")


def test_a_stream_that_takes_duplicates_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = SourceState.judge

    def lenient(self: SourceState, first: int, last: int) -> Verdict:
        verdict = judge(self, first, last)
        return Verdict.NEXT if verdict is Verdict.DUPLICATE else verdict

    monkeypatch.setattr(SourceState, "judge", lenient)
    assert _first_violation()


def test_a_cursor_that_is_confirmed_and_not_journaled_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Cursors, subscription: object, now: object) -> None:
        subscription.waiting.clear()  # type: ignore[attr-defined]

    monkeypatch.setattr(Cursors, "journal", forgetful)
    assert _first_violation()
