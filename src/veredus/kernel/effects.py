"""Orders that any engine with links may give; imperative, one class each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from veredus.kernel.octets import Octets


class Send(msgspec.Struct, frozen=True):
    """Write these buffers to the link, in order, as one run of bytes (one frame on `zeromq`). Never copied by the
    engine.
    """

    link: int
    buffers: Sequence[Octets]


class CloseLink(msgspec.Struct, frozen=True):
    """Close the link once what was ordered before has been written."""

    link: int
    reason: str


class Admit(msgspec.Struct, frozen=True):
    """The peer has greeted, and is this principal: its link keeps its place among the node's connections."""

    link: int
    principal: str


class PauseReading(msgspec.Struct, frozen=True):
    """Stop reading from the link for now."""

    link: int


class ResumeReading(msgspec.Struct, frozen=True):
    """Read from the link again."""

    link: int


class Note(msgspec.Struct, frozen=True):
    """Write one structured line to the log. `event` is a stable name, `fields` are what happened and where."""

    level: str
    event: str
    fields: dict[str, object] = msgspec.field(default_factory=dict)
