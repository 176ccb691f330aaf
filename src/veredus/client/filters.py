"""The filter that a subscription subscribes with, changes of it that are not answered, and what it was before.

A new filter counts from the sequence on that the node says; what the one before selects below that comes first. Where
the link is lost meanwhile, the node knows what counts for which sequence of a durable subscription. Of an ephemeral one
it knows nothing, so that one is asked for in parts: up to where each filter counts, and then on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from veredus.kernel.errors import Unavailable, VeredusError
from veredus.matching.wanted import Filter

NEVER = 1 << 63


@dataclass(frozen=True, slots=True)
class Change:
    """A filter that the node was asked for; `answer` is the sequence from which on it counts."""

    filter: Filter
    answer: asyncio.Future[int]

    def fail(self, error: VeredusError) -> None:
        """It does not count, or nobody knows."""
        if not self.answer.done():
            self.answer.set_exception(error.again())
            self.answer.exception()


class Filters:
    """Owns what a subscription has asked for, and what of that counts; lives in the loop."""

    def __init__(self, filter_: Filter | None, is_durable: bool, until: int) -> None:
        """Begins with this filter, None for what the node has; ends before `until`, 0 for never."""
        self._filter = filter_
        self._is_durable = is_durable
        self._until = until
        self._changes: deque[Change] = deque()
        self._before: list[tuple[Filter | None, int]] = []
        """Ephemeral: the filters of before, each with the sequence from which on the next one counts."""

    def part_at(self, position: int) -> tuple[Filter | None, int]:
        """What to subscribe with at a position, and before which sequence that ends, 0 for never."""
        for filter_, end in self._before:
            if position < end < (self._until or NEVER):
                return filter_, end
        return self._filter, self._until

    def ask(self, filter_: Filter) -> asyncio.Future[int]:
        """The node is asked for another filter; the future of its answer."""
        change = Change(filter_, asyncio.get_running_loop().create_future())
        self._changes.append(change)
        return change.answer

    def confirm(self, sequence: int, position: int) -> None:
        """The oldest change counts from `sequence` on; the subscriber has taken all before `position`."""
        if not self._changes:
            return
        change = self._changes.popleft()
        if not self._is_durable:
            self._before = [(filter_, end) for filter_, end in self._before if position < end]
            self._before.append((self._filter, sequence))
        self._filter = change.filter
        if not change.answer.done():
            change.answer.set_result(sequence)

    def refuse(self, error: VeredusError) -> None:
        """The node has refused the oldest change."""
        if self._changes:
            self._changes.popleft().fail(error)

    def lose(self) -> None:
        """The link is gone. Where a change is in doubt, the node's word counts from now on, if it keeps one."""
        if self._changes and self._is_durable:
            self._filter = None
        self.fail(Unavailable("in-doubt", "the link was lost: change the filter again"))

    def fail(self, error: VeredusError) -> None:
        """No change will be answered."""
        while self._changes:
            self._changes.popleft().fail(error)


async def answered(answer: asyncio.Future[int], timeout_s: float) -> int:
    """The sequence from which on another filter counts. Raises `Refused`, and `Unavailable`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except TimeoutError:
        message = "the node has not answered in time and may have changed the filter: change it again"
        raise Unavailable("in-doubt", message) from None
