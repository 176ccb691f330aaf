"""What streams had that were deleted goes in turns: one may have had a hundred thousand sources and subscriptions, and
ten thousand who publish to it.

    stream deleted ──► its cursors are journaled no more ──► some of what it had is let go ──► more, in the next turn …

Who hung on it is told so when its turn comes, or when it asks for something before that.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from typing import NamedTuple

from veredus.kernel.engine import Now

from .cursors import Cursors
from .feeding import Feeding
from .publishing import Publishing
from .stream import Stream
from .tables import Tables

TURN_COUNT = 1_000
"""So many sources are let go in a turn: that takes about two milliseconds."""
KEPT_COUNT = 2
"""A stage, or a subscription, takes as long as so many of these."""
TOLD_COUNT = 5
"""So does who hung on it, and is told."""


class _Left(NamedTuple):
    """What is left of a stream, but for its sources; what goes next is last."""

    stream: Stream
    sessions: list[int]
    """That were not told yet."""
    stages: list[int]
    subscriptions: list[tuple[str, str]]


class Remains:
    """Owns what is still to be let go: to free the memory of all at once takes longer than a turn may."""

    __slots__ = ("_cursors", "_due_ns", "_feeding", "_left", "_publishing", "_share", "_tables")

    def __init__(self, tables: Tables, cursors: Cursors, publishing: Publishing, feeding: Feeding) -> None:
        """Nothing is left of anything."""
        self._tables = tables
        self._cursors = cursors
        self._publishing = publishing
        self._feeding = feeding
        self._left: list[_Left] = []
        self._share = 0
        """How much more may go before `_due_ns`."""
        self._due_ns = 0

    @property
    def count(self) -> int:
        """How many sources, subscriptions, stages and sessions are still to be let go."""
        return sum(
            len(left.sessions) + len(left.stages) + len(left.subscriptions) + len(left.stream.sources)
            for left in self._left
        )

    def take(self, stream: Stream, now: Now) -> None:
        """The stream was deleted: what is little of it goes at once."""
        self._cursors.ended.add(stream.stream_id)
        sessions = [*self._publishing.attached_to(stream), *stream.flows]
        stages = list(self._tables.stages_of(stream.stream_id))
        self._left.append(_Left(stream, sessions[::-1], stages, list(stream.subscriptions)))
        self.give_turn(now)

    def next_ns(self) -> int | None:
        """When the next turn is due: at once, if anything is left."""
        return self._due_ns if self._left else None

    def give_turn(self, now: Now) -> None:
        """Let go of a turn's share, or what is left of it."""
        if now.monotonic_ns >= self._due_ns:
            self._share, self._due_ns = TURN_COUNT, now.monotonic_ns + 1
        while self._left and self._share > 0:
            self._share -= self._let_go(self._left[-1])

    def _let_go(self, left: _Left) -> int:
        """Let go of one more thing; how many that counts for."""
        stream = left.stream
        if left.sessions:
            session = left.sessions.pop()
            # Each is told so when it is looked for, unless it has gone by now, or hangs on another stream.
            self._publishing.attachment_of(session)
            self._feeding.flow_of(session)
            return TOLD_COUNT
        if left.stages:
            self._tables.take_stages((left.stages.pop(),))
            return KEPT_COUNT
        if left.subscriptions:
            self._let_go_of_subscription(stream, left.subscriptions.pop())
            return KEPT_COUNT
        if stream.sources:
            _, source = stream.sources.popitem()
            del stream.source_names[source.source_id]
        else:
            self._left.pop()
            self._cursors.ended.discard(stream.stream_id)
        return 1

    def _let_go_of_subscription(self, stream: Stream, key: tuple[str, str]) -> None:
        subscription = stream.subscriptions.get(key)
        if subscription is not None:
            self._cursors.drop(subscription)
            if not subscription.is_changing:
                # Else whoever changes it looks for it there.
                stream.subscriptions.take(key)
