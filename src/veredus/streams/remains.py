"""What streams had that were deleted goes in turns: one may have had a hundred thousand sources and subscriptions.

    stream deleted ──► its cursors are journaled no more ──► some of what it had is let go ──► more, in the next turn …

Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from veredus.kernel.engine import Now

from .cursors import Cursors
from .stream import Stream

TURN_COUNT = 1_000
"""So many sources and subscriptions are let go in a turn: that takes about two milliseconds."""


class Remains:
    """Owns what is still to be let go: to free the memory of all at once takes longer than a turn may."""

    __slots__ = ("_cursors", "_due_ns", "_left")

    def __init__(self, cursors: Cursors) -> None:
        """Nothing is left of anything."""
        self._cursors = cursors
        self._left: list[tuple[Stream, list[tuple[str, str]]]] = []
        """Streams, and the keys of those of their subscriptions that were not let go yet."""
        self._due_ns = 0

    @property
    def count(self) -> int:
        """How many sources and subscriptions are still to be let go."""
        return sum(len(keys) + len(stream.sources) for stream, keys in self._left)

    def take(self, stream: Stream, now: Now) -> None:
        """The stream was deleted."""
        self._cursors.ended.add(stream.stream_id)
        self._left.append((stream, list(stream.subscriptions)))
        self._due_ns = now.monotonic_ns + 1

    def next_ns(self) -> int | None:
        """When the next turn is due: at once, if anything is left."""
        return self._due_ns if self._left else None

    def give_turn(self, now: Now) -> None:
        """Let go of a turn's share."""
        count = TURN_COUNT
        while self._left and count:
            count -= 1
            self._let_go()
        self._due_ns = now.monotonic_ns + 1

    def _let_go(self) -> None:
        stream, keys = self._left[-1]
        if keys:
            subscription = stream.subscriptions.get(keys[-1])
            if subscription is not None:
                self._cursors.drop(subscription)
                if not subscription.is_changing:
                    # Else whoever changes it looks for it there.
                    stream.subscriptions.take(keys[-1])
            keys.pop()
        elif stream.sources:
            _, source = stream.sources.popitem()
            del stream.source_names[source.source_id]
        else:
            self._left.pop()
            self._cursors.ended.discard(stream.stream_id)
