"""One client on one topic, as a server sees it that hands out messages: what it asked, and what waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from veredus.delivery.settlement import Range
from veredus.streams import exchange as x
from veredus.streams.facts import Lost, Origin
from veredus.streams.lives import Lives

from .ids import shown_of
from .messages import Get, GetMany, Subscribe, Unsubscribe
from .pushed import Gap, Message

GAP_TOLD_MAX, GAP_TOLD_NS = 8, 1_000_000_000
"""So often, at so long intervals, whoever knows the page alone is told what it missed: it may have no word for that."""
CREDIT_SIZE = 64 << 10
"""How many bytes of messages wait here for one client at most, and one frame more."""
HELD_SIZE_MAX = 512 << 20
"""When more waits for all clients together, those who ask nothing are let go: it is pushed again when they ask."""

Question: TypeAlias = Subscribe | Unsubscribe | Get | GetMany


class Asking(NamedTuple):
    """A question, and whoever is to be answered."""

    peer: int
    question: Question


@dataclass(slots=True)
class Getter:
    """One client on one topic, as one principal."""

    session: int
    topic: str
    client: str
    principal: str
    asked: deque[Asking] = field(default_factory=deque)
    """The first one is being worked on."""
    is_beginning: bool = False
    """Whether it is about to work on one question after the other, as far as they can be answered at once."""
    grant: x.GrantSubscription | None = None
    lives: Lives = field(default_factory=partial(Lives.of, b""))
    """Those of the stream, once it is granted."""
    is_removing: bool = False
    settling: tuple[Range, ...] = ()
    """The ranges of sequences that are being settled."""
    origins: dict[str, list[Origin]] = field(default_factory=dict)
    """By incarnation, as ids show it: what of it may still be named, and where that lies here."""
    done: tuple[Range, ...] = ()
    """What is settled, as far as the streams floor has said."""
    position: int = 0
    """Everything below it was pushed, or is not there, or comes behind what is above it."""
    messages: deque[Message | Gap] = field(default_factory=deque)
    freed_size: int = 0
    """Credit that is free and was not given back yet: half of all of it at once."""
    credit: int = 0
    """As the streams floor has it: it pushes while there is some."""
    credit_size: int = CREDIT_SIZE
    """How much of it there is when nothing waits."""
    counted_size: int = 0
    """What of `held_size` is in the sum of all."""
    has_caught_up: bool = False
    """Whether nothing lies behind what was pushed: then what comes is pushed at once."""
    lost: list[Lost] = field(default_factory=list)
    """What was gone before a merge, which it is told first of all."""
    is_telling: bool = False
    """Whether what it names of that is on its way to the journal."""
    names_gaps: bool = False
    """Whether it is told what it missed until it names that: its wishes have numbers, which are not on the page."""
    gap_told: tuple[str, int, int] = ("", 0, 0)
    """What it missed and was told last, how often it was told, and when last (monotonic nanoseconds)."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from others."""
        return self.topic, self.client, self.principal

    @property
    def held_size(self) -> int:
        """How many bytes wait here for it, with the frames in which they came."""
        return 0 if self.grant is None else max(0, self.credit_size - self.credit - self.freed_size)

    @property
    def asker(self) -> int:
        """Who is to be answered next, 0 for nobody."""
        return self.asked[0].peer if self.asked else 0

    @property
    def former(self) -> list[str]:
        """The lives, as ids show them, of what was merged into the stream, and of those of its name that were removed:
        nothing of them is owed, but for what `origins` say.
        """
        return [] if self.grant is None else [shown_of(life) for life in (*self.grant.merged, *self.grant.removed)]

    def tell_gap(self, named: str, now_ns: int) -> bool:
        """It is about to be told what it missed, under this id; whether it was told often enough, with this time.

        What is told within a second counts once: it may be the answer to many copies of one question.
        """
        before, count, at_ns = self.gap_told
        if before != named:
            self.gap_told = named, 1, now_ns
        elif now_ns >= at_ns + GAP_TOLD_NS:
            self.gap_told = named, count + 1, now_ns
        return not self.names_gaps and self.gap_told[1] >= GAP_TOLD_MAX

    @property
    def next_sequence(self) -> int:
        """Everything below it is done with."""
        return self.messages[0].sequence if self.messages else self.position


class Held:
    """Owns the sum of what waits for all clients."""

    def __init__(self) -> None:
        """Nothing waits."""
        self.size = 0
        self._getters: dict[tuple[str, str, str], Getter] = {}

    @property
    def is_too_much(self) -> bool:
        """Whether more waits than may."""
        return self.size > HELD_SIZE_MAX

    @property
    def getters(self) -> Iterable[Getter]:
        """For whom something waits; for whom that has changed last stands last."""
        return self._getters.values()

    def count(self, getter: Getter) -> None:
        """What waits for this one may have changed."""
        size = getter.held_size
        if size != getter.counted_size:
            self.size += size - getter.counted_size
            getter.counted_size = size
            self._getters.pop(getter.key, None)
            if size:
                self._getters[getter.key] = getter
