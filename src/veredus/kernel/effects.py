"""Orders that any engine with links may give; imperative, one class each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from veredus.kernel.octets import Octets


@dataclass(frozen=True, slots=True)
class Send:
    """Write these buffers to the link, in order, as one run of bytes (one frame on `zeromq`). Never copied by the
    engine.
    """

    link: int
    buffers: Sequence[Octets]


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close the link once what was ordered before has been written."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class Admit:
    """The peer has greeted, and is this principal: its link keeps its place among the node's connections."""

    link: int
    principal: str


@dataclass(frozen=True, slots=True)
class PauseReading:
    """Stop reading from the link: too many bytes wait for the disk."""

    link: int


@dataclass(frozen=True, slots=True)
class ResumeReading:
    """Read from the link again."""

    link: int


@dataclass(frozen=True, slots=True)
class Note:
    """Write one structured line to the log. `event` is a stable name, `fields` are what happened and where."""

    level: str
    event: str
    fields: dict[str, object] = field(default_factory=dict)
