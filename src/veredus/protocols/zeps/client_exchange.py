"""What the library asks of a native link and is told by it: the language between the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets

from . import messages as m
from .native import Frame, Receipt

# ── what the library hears and asks ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class FramesReceived:
    """Frames that the socket cut with a `FrameParser`, and that parser's fault: in the place of `Received`."""

    link: int
    frames: Sequence[Frame]
    fault: PeerFault | None = None


Opening: TypeAlias = m.AttachSource | m.Subscribe | m.OpenRun | m.OpenStage


@dataclass(frozen=True, slots=True)
class OpenRequested:
    """Open `channel` (see `ClientLink.free_channel`); answered by `TellOpened` or `TellClosed`."""

    channel: int
    opening: Opening


@dataclass(frozen=True, slots=True)
class OfferRequested:
    """Offer a signed record on a source's or a stage's channel; the memory must not change until it was written."""

    channel: int
    record: Octets


@dataclass(frozen=True, slots=True)
class CreditRequested:
    """Take `size` more bytes of frames on a subscription's channel."""

    channel: int
    size: int


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The application was handed all up to `sequence` that a subscription's channel brought; see `TellHanded`."""

    channel: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SettleRequested:
    """Settle ranges of sequences, both ends inclusive, on a subscription's channel."""

    channel: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class MessageRequested:
    """Send `StoreToken`, `ChangeFilter`, `Return`, `Commit` or `DropStages` on their channel; `Request` on 0."""

    channel: int
    message: m.StoreToken | m.ChangeFilter | m.Return | m.Commit | m.DropStages | m.Request


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Close a channel; answered by `TellClosed` with nothing but `None`, or with what crossed it on its way."""

    channel: int


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """Say goodbye and close the link once all that was sent before has been written."""

    message: str = ""


# ── what the library is told ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TellWelcome:
    """The link is open, on these terms."""

    welcome: m.Welcome


@dataclass(frozen=True, slots=True)
class TellOpened:
    """The channel is open, on these terms."""

    channel: int
    grant: m.SourceAttached | m.Subscribed | m.RunOpened | m.StageOpened


@dataclass(frozen=True, slots=True)
class TellReceipts:
    """Batches were taken."""

    channel: int
    receipts: Sequence[Receipt]


@dataclass(slots=True)
class TellDelivery:
    """Whole records were pushed, for `size` bytes of credit. Those up to `redelivered_to` may be known already."""

    channel: int
    redelivered_to: int
    records: memoryview
    size: int


@dataclass(frozen=True, slots=True)
class TellHanded:
    """What was handed out up to `sequence` counts as tried."""

    channel: int
    sequence: int


@dataclass(frozen=True, slots=True)
class TellSettled:
    """Everything up to `floor` is settled durably, and `ranges` above it."""

    channel: int
    floor: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TellMessage:
    """What else a channel said.

    BatchRefused, Sources, Progress, Gap, FilterChanged, Committed, Reply, or a Refusal or End that is not final.
    """

    channel: int
    message: m.Message


@dataclass(frozen=True, slots=True)
class TellClosed:
    """The channel is over: by a final Refusal or End, a Fencing, or (None) because it was asked for."""

    channel: int
    cause: m.Refusal | m.Fencing | m.End | None


@dataclass(frozen=True, slots=True)
class TellLinkClosed:
    """The link is over, and so are all of its channels; what was on its way is in doubt.

    Codes: `link-lost`, `draining`, `leaving`, `silent`, `greeting-timeout`, `version-unknown`, `bad-frame` and others
    of a fault, and `unauthenticated` where the node does not know the principal.
    """

    code: str
    message: str
