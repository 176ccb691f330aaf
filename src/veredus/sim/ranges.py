"""Within what things go wrong: least and most, the widest by default. A world draws its own within these."""

from __future__ import annotations

from typing import NamedTuple

from .dice import Die
from .world import SECOND

Span = tuple[float, float]
"""Least and most."""


class Ranges(NamedTuple):
    """Times in seconds (`_s`), the rest probabilities by item."""

    pause_s: Span = (0.001, 120.0)
    """How long a process is stopped."""
    partition_s: Span = (0.1, 60.0)
    """How long some do not hear some others."""
    block_s: Span = (0.001, 10.0)
    """How long a way is held back."""
    late_s: Span = (0.01, 10.0)
    """How long, at most, what was sent over a link that was given up is late."""
    delay_s: Span = (0.001, 30.0)
    """By how much something may be late, now and then."""
    clock_step_s: Span = (0.001, 3600.0)
    """By how much a wall clock is set."""
    sync_s: Span = (0.01, 10.0)
    """How long a slow sync takes."""
    loss: Span = (0.0, 0.3)
    repeat: Span = (0.0, 0.5)
    reorder: Span = (0.0, 0.3)
    """What a careless way does to offers."""


def time_ns(die: Die, span: Span) -> int:
    """A time in a span of seconds, every order of magnitude as likely."""
    low, high = (max(1, int(end * SECOND)) for end in span)
    return die.spread(low, high)
