"""Where a commit puts subscriptions: part of the language of veredus.streams.exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .facts import Lost


class Place(NamedTuple):
    """A sequence of a stream, or a row of a stage, from 0, that has none yet."""

    sequence: int = 0
    row: int = -1


class MovedOrigin(NamedTuple):
    """As `veredus.streams.facts.Origin`, whose places here may be rows of the stage."""

    incarnation: bytes
    next_sequence: int
    runs: tuple[tuple[int, Place, int], ...] = ()
    gone: tuple[tuple[int, Lost], ...] = ()


class MovedLeft(NamedTuple):
    """As `veredus.streams.facts.LeftElsewhere`; what was received may be rows of the stage."""

    principal: str
    removed_us: int
    wish: int = 0
    received: tuple[tuple[int, int], ...] = ()
    received_rows: tuple[tuple[int, int], ...] = ()
    origins: tuple[MovedOrigin, ...] = ()


@dataclass(frozen=True, slots=True)
class CursorMove:
    """Put a subscription of a stage's stream, which may be new, where it is to stand once the stage is committed.

    It has done with everything up to `floor`, with the ranges `settled` and the rows `settled_rows` of the stage, and
    with what it had settled from `kept_from` on, but for what it had never wanted before: what it never wanted now is
    what lies below `start`, and `unwanted` and `unwanted_rows`. `owner`: whose it is from now on, "" for whose it is
    here.
    """

    stage: int
    subscriber: str
    name: str
    opened_us: int
    start: int
    floor: int
    kept_from: int
    settled: tuple[tuple[int, int], ...] = ()
    settled_rows: tuple[tuple[int, int], ...] = ()
    origins: tuple[MovedOrigin, ...] = ()
    is_removed: bool = False
    """Whether it is to be gone instead, since `opened_us`."""
    unwanted: tuple[tuple[int, int], ...] = ()
    unwanted_rows: tuple[tuple[int, int], ...] = ()
    left: tuple[MovedLeft, ...] = ()
    """Whose subscription of this name was removed elsewhere, or is removed by this."""
    renewed_us: int = 0
    wish: int = 0
    owner: str = ""
    lost: tuple[Lost, ...] = ()
    """All that its subscriber is to be told of: what was gone before the merge."""
