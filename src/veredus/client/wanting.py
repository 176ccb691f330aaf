"""What a subscription asks for, and what it is told that it cannot have any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from veredus.kernel.terms import Terms
from veredus.matching.wanted import Filter
from veredus.streams.exchange import SettleMode, Start

WINDOW_SIZE = 8 << 20


class Gap(NamedTuple):
    """What cannot be had any more, from `first_sequence` to before `next_sequence`, and why.

    Codes: `trimmed` (also what a durable cursor was too far behind to keep), `damaged`, and `lost` (what was pushed is
    gone, by damage or by a node that does not sync; something else may lie there).
    """

    first_sequence: int
    next_sequence: int
    code: str


GapPolicy: TypeAlias = Literal["raise"] | Callable[[Gap], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a subscription asks for."""

    stream: str
    subscriber: str = ""
    name: str = ""
    filter: Filter | None = None
    start: Start = field(default_factory=Start)
    until: int = 0
    mode: SettleMode = SettleMode.IN_ORDER
    window_size: int = WINDOW_SIZE
    on_gap: GapPolicy = "raise"
    attempts_max: int = 0
    parked_to: str = ""
    stream_incarnation: bytes = b""
    """Which stream of that name it was, and of which term, where the subscriber has known it before."""
    term: int = 0
    terms: Terms = ()

    @property
    def words(self) -> str:
        """What it subscribes to, and as whom, for a message."""
        return f"stream {self.stream!r}, {self.subscriber}/{self.name}"

    @property
    def is_durable(self) -> bool:
        """Whether the node keeps a cursor for it."""
        return bool(self.subscriber)
