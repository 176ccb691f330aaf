"""What a stream may let go of: by age, size and count, but never what a durable cursor still needs.

A cursor pins everything above its floor, up to the stream's `lag_size_max` behind the head; beyond that it is released,
and its subscriber is told of the gap.
Source: docs/internals/DESIGN.md, "Retention".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veredus.journal.catalogue import Extent, Part
from veredus.journal.log import Log
from veredus.kernel.engine import Now
from veredus.streams.engine import StreamsEngine
from veredus.streams.facts import StreamConfig
from veredus.streams.stream import Stream

INTERVAL_NS = 5_000_000_000


def floor_of(config: StreamConfig, parts: Sequence[Part], head: int, pins: Iterable[int], wall_us: int) -> int:
    """The first sequence to be kept, 0 to let go of nothing.

    `parts` are the runs in which the stream is kept, ascending; `pins` the first sequences that cursors still need.
    """
    unwanted = 0
    if config.retention_age_s:
        cutoff_us = wall_us - config.retention_age_s * 1e6
        unwanted = max((part.last_sequence for part in parts if part.last_append_time_us < cutoff_us), default=0)
    if config.retention_size:
        unwanted = max(unwanted, _floor_by_size(parts, config.retention_size) - 1)
    if config.retention_count:
        unwanted = max(unwanted, head - config.retention_count)
    if unwanted <= 0:
        return 0
    released = _floor_by_size(parts, config.lag_size_max) if config.lag_size_max else 0
    pinned = min((max(pin, released) for pin in pins), default=unwanted + 1)
    return min(unwanted + 1, pinned)


def _may_have_too_much(config: StreamConfig, extent: Extent, wall_us: int) -> bool:
    """Whether it is worth looking at a stream's parts, which costs more than its extent."""
    is_old = config.retention_age_s and extent.first_append_time_us < wall_us - config.retention_age_s * 1e6
    is_large = config.retention_size and extent.size > config.retention_size
    is_long = config.retention_count and extent.count > config.retention_count
    return bool(is_old or is_large or is_long)


def _floor_by_size(parts: Sequence[Part], size_max: int) -> int:
    """The first sequence of the newest parts that together hold at least `size_max` bytes, 0 when all hold less."""
    size = 0
    for part in reversed(parts):
        size += part.size
        if size >= size_max:
            return part.first_sequence
    return 0


class Retention:
    """Looks at all streams now and then, and says which may be trimmed, and to where."""

    __slots__ = ("_due_ns",)

    def __init__(self) -> None:
        self._due_ns = 0

    def deadline(self) -> int:
        """When to look again."""
        return self._due_ns

    def due(self, floor: StreamsEngine, log: Log, now: Now) -> list[tuple[Stream, int]]:
        """The streams that may be trimmed now and their new floors; nothing before the deadline."""
        if now.monotonic_ns < self._due_ns:
            return []
        self._due_ns = now.monotonic_ns + INTERVAL_NS
        found: list[tuple[Stream, int]] = []
        for stream in floor.tables.streams.values():
            config = stream.config
            if not (config.retention_age_s or config.retention_size or config.retention_count):
                continue
            if not _may_have_too_much(config, log.extent(stream.stream_id), now.wall_us):
                continue
            pins = (subscription.floor_durable + 1 for subscription in stream.subscriptions.values())
            first = floor_of(config, log.parts(stream.stream_id), stream.head_durable, pins, now.wall_us)
            if first > stream.floor:
                found.append((stream, first))
        return found
