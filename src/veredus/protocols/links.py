"""What the links of all dialects share: how their sessions are numbered, and what the node says to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from veredus.kernel.octets import Octets

SESSION_BITS = 32
"""A session is `link << SESSION_BITS | channel`: the join finds the link of an answer without a table."""


def session_of(link: int, channel: int) -> int:
    """The session that a channel of a link is to the streams floor."""
    return link << SESSION_BITS | channel


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The node ends the link, because it stops or for the reason that `code` names: say goodbye, and close it."""

    link: int
    message: str = ""
    code: str = "draining"


@dataclass(frozen=True, slots=True)
class ReadingPaused:
    """The node has stopped reading from the link: its silence is not the peer's."""

    link: int


@dataclass(frozen=True, slots=True)
class ReadingResumed:
    """The node reads from the link again."""

    link: int


class Unfinished(NamedTuple):
    """What a link has of a frame that is not whole, and that frame's size, in bytes; both 0 where there is none."""

    held_size: int
    frame_size: int


NOTHING = Unfinished(0, 0)


@dataclass(frozen=True, slots=True)
class FramesReceived:
    """Whole frames came over a framed transport, at least one: as many `Received` as there are frames, at once."""

    link: int
    frames: Sequence[Octets]


@dataclass(frozen=True, slots=True)
class FramesLeft:
    """Of the frames that came at once these are to be told again, in another turn: those before them were as much work
    as one may have.
    """

    frames: Sequence[Octets]


@dataclass(frozen=True, slots=True)
class FrameRefused:
    """The node takes no more of the frame that the peer began to send; nothing that follows it is read.

    What came before it has been told. The dialect says why, in its own words, and ends. Codes: `too-large`, `too-slow`.
    """

    link: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What the peer of a link asked for was done, and took about this long: its principal pays by waiting for turns."""

    link: int
    cost_ns: int


@dataclass(frozen=True, slots=True)
class TurnWanted:
    """The peer has asked for more than one turn's work: the rest waits for `TurnGiven`. It is the last that is said.

    The rest comes before what the peer says next; or behind that, where it is only to be delivered: then what comes may
    take the link's turn, and the link says again what it wants.
    """

    link: int
    is_behind: bool = False


@dataclass(frozen=True, slots=True)
class AnswersAwaited:
    """What the peer has asked for behind this waits for an answer: then the link says `TurnWanted`. It is the last that
    is said.
    """

    link: int


@dataclass(frozen=True, slots=True)
class TurnGiven:
    """It is the link's turn to go on with what waits."""

    link: int
