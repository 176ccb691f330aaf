"""The language between an outbox, its owner and the link: facts in, orders out, and what is asked and set beside them.

Source: docs/internals/DESIGN.md, "Sources".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from veredus.kernel.events import DeadlineReached

from .batch import BatchLimits
from .cutting import Publications


class Demand(Enum):
    """What the outbox would cut now, if it were given it."""

    NOTHING = 0
    FULL = 1
    """A full batch, and nothing less: others are on their way, and what comes meanwhile makes a larger one."""
    ANY = 2
    """Whatever there is."""


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """How batches are cut and how many may be on their way."""

    batch_count: int = 16_384
    """What a batch holds at most; the node's own limits come on top."""
    window_size: int = 8 << 20
    """How many bytes of records may be in doubt before nothing more is cut."""
    eager_count: int = 4
    """With fewer batches than this on their way, what there is leaves at once."""
    linger_ns: int = 1_000_000
    """With more, what there is leaves this long after the last batch was cut, together with what has come meanwhile."""
    codec: str | None = None
    """`zstd`, `lz4` or None."""


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Granted:
    """The node takes this source's batches, under these ids. It has what the source published up to `last_number`."""

    stream_id: int
    source_id: int
    epoch: int
    last_number: int
    resume_number: int
    """Behind which number to go on when this is the first attachment: `last_number`, or that of the resume token."""
    durability: int
    limits: BatchLimits
    is_stage: bool = False
    """Whether this is a sink's stage: it has no source id, and its numbers go on all the same."""


@dataclass(frozen=True, slots=True)
class Published:
    """These come next, at least one; `token` closes the last of them. Only once the source was granted."""

    publications: Publications
    token: bytes = b""


@dataclass(frozen=True, slots=True)
class Taken:
    """The node has the batch that ends at `last_number`, as durable as it says."""

    last_number: int
    first_sequence: int
    is_duplicate: bool
    durability: int


@dataclass(frozen=True, slots=True)
class BatchRejected:
    """The node did not take the batch that starts at `first_number`; it has the source up to `last_number`."""

    first_number: int
    code: str
    message: str
    last_number: int


@dataclass(frozen=True, slots=True)
class Detached:
    """The link is gone, and with it all answers that had not come."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The source was fenced, or refused for good, or its owner is done."""


Event = Granted | Published | Taken | BatchRejected | Detached | Stopped | DeadlineReached

# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Offer:
    """Send this record; its envelope is blank."""

    record: bytearray


@dataclass(frozen=True, slots=True)
class Settle:
    """Tell the owner: publications `first_number` to `last_number` are in the stream.

    `first_sequence` is 0 where the node did not say: it had them when the source attached again, or long before.
    """

    first_number: int
    last_number: int
    first_sequence: int
    is_duplicate: bool
    durability: int


@dataclass(frozen=True, slots=True)
class Delay:
    """Tell the owner why nothing is taken for now; it will be offered again by itself."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tell the owner that this source cannot go on, and why; detach it."""

    code: str
    message: str
    last_number: int


@dataclass(frozen=True, slots=True)
class Spoil:
    """Tell the owner that what it gave as `number` is no publication, and why. What lies before goes on its way."""

    number: int
    code: str
    message: str


Effect = Offer | Settle | Delay | GiveUp | Spoil
