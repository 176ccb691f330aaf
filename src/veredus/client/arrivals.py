"""What a subscription was pushed and its subscriber has not taken, in its order.

What is delivered is bounded by credit. Of what a node says beside that, only the last word about a place is kept.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from veredus.kernel.terms import Terms
from veredus.protocols.zeps import messages as m

from .settling import Settling


@dataclass(frozen=True, slots=True)
class Delivery:
    """Whole records that were pushed; `size` bytes of credit of the link of that count went with them."""

    records: memoryview
    redelivered_to: int
    size: int
    link_count: int


Known: TypeAlias = tuple[int, Terms]
"""A term, and all that were known in it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """What was pushed from `first_sequence` on is gone, and what comes behind this lies there, in a later term."""

    first_sequence: int
    next_sequence: int
    known: Known
    settling: Settling
    """Into what is written that is settled of what lies there now."""


Arrival: TypeAlias = Delivery | Lost | m.Progress | m.Gap | m.End


class Arrivals(deque[Arrival]):
    """The loop puts and clears, the subscriber's thread takes by `popleft`."""

    def put(self, item: Arrival) -> None:
        """Let this be the next; it takes the place of a word before it that says less of the same."""
        if isinstance(item, m.Progress | m.End):
            with suppress(IndexError):  # it is empty, or the subscriber's thread has just taken the last one
                if type(self[-1]) is type(item):
                    self.pop()
        self.append(item)

    def passed_to(self) -> int:
        """Where it goes on, if the next word says that there is nothing before; else 0."""
        try:
            item = self[0]
        except IndexError:
            return 0
        return item.position if isinstance(item, m.Progress) else 0
