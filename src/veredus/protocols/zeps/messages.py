"""What the control frames of the native protocol say: one msgpack map each, with the field names below.

Unknown fields are skipped, so that a newer peer may say more. A field whose name ends in "!" must be understood: one
that is not known here is refused (`bad-frame`). Fields with a default may be left out, and are when they hold it.
Source: docs/internals/DESIGN.md, "Native protocol"; docs/reference/wire/native.md, which repeats this table.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from veredus.delivery.batch import BatchLimits
from veredus.delivery.content import Content
from veredus.kernel.names import INCARNATION_SIZE, NAME_SIZE_MAX, U63_MAX
from veredus.matching import Filter
from veredus.streams.exchange import EVERYTHING_KEPT, Durability, SettleMode, Start

Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=U63_MAX)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=U63_MAX)]
"""A whole number from 0 that fits 63 bits."""
Signed: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=U63_MAX)]
"""A whole number that fits 63 bits, or -1 for none."""
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=NAME_SIZE_MAX)]
"""A name as veredus.kernel.names has it; the streams floor looks at its characters."""
Incarnation: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=INCARNATION_SIZE)]
Token: TypeAlias = Annotated[str, msgspec.Meta(max_length=4096)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=65_536)]
CONTENTS_MAX = 4_096
"""Streams of one commit whose contents its sink may say."""
Contents: TypeAlias = Annotated[tuple[Content, ...], msgspec.Meta(max_length=CONTENTS_MAX)]
Terms: TypeAlias = Annotated[tuple[tuple[Whole, Whole], ...], msgspec.Meta(max_length=64)]
Stages: TypeAlias = Annotated[tuple[Whole, ...], msgspec.Meta(max_length=65_536)]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all control frames have in common: a map, fields by name."""


# ── the connection ───────────────────────────────────────────────────────────────────────────────────────────────────


class Hello(Message, frozen=True):
    """The client introduces itself; `token` proves who it is where the transport does not."""

    client: Name = ""
    """What the node calls this client in its logs."""
    token: Token = ""
    version: Whole = 2


class Welcome(Message, frozen=True, omit_defaults=False):
    """The node takes the client, as `principal`, and says what it takes from it. Sizes in bytes."""

    node: Name
    principal: str
    version: Whole
    frame_size_max: Whole
    channel_count_max: Whole
    silence_max_ms: Whole
    """The node lets a peer go that it has not heard for so long; send a PING when there is nothing else to send."""
    batch_size_max: Whole
    body_size_max: Whole
    count_max: Count
    attributes_max: Whole
    token_size_max: Whole

    @property
    def limits(self) -> BatchLimits:
        """What a batch may hold."""
        return BatchLimits(
            self.batch_size_max, self.body_size_max, self.count_max, self.attributes_max, self.token_size_max
        )


class Goodbye(Message, frozen=True):
    """Whoever says it closes the connection next: `code` is `draining`, `leaving`, or that of a fault."""

    code: str
    message: str = ""


# ── the way in ───────────────────────────────────────────────────────────────────────────────────────────────────────


class AttachSource(Message, frozen=True):
    """Publish to `stream` as `source`, "" for an anonymous one; see `SourceAttachRequested`."""

    stream: Name
    source: Name = ""
    incarnation: Incarnation = b""
    epoch: Whole = 0
    sparse: bool = False
    stream_incarnation: Incarnation = b""


class SourceAttached(Message, frozen=True, omit_defaults=False):
    """What the source needs to number, sign and resume; see `GrantSource`."""

    stream_id: Whole
    stream_incarnation: bytes
    source_id: Whole
    epoch: Whole
    last_number: Whole
    token: bytes
    token_number: Whole
    durability: Durability


class BatchRefused(Message, frozen=True, omit_defaults=False):
    """The batch that starts at `first_number` was not taken; see `RefuseBatch`."""

    first_number: Whole
    code: str
    message: str
    last_number: Whole


class StoreToken(Message, frozen=True):
    """Store `token`, which no publication carries; answered by a `Reply`; see `TokenStoreRequested`."""

    request: Count
    number: Whole
    token: bytes


# ── the way out ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Subscribe(Message, frozen=True):
    """Push what `stream` holds and will hold; see `SubscribeRequested`."""

    stream: Name
    subscriber: Name = ""
    name: Name = ""
    filter: Filter | None = None
    start: Start = EVERYTHING_KEPT
    until: Whole = 0
    mode: SettleMode = SettleMode.IN_ORDER
    incarnation: Incarnation = b""
    epoch: Whole = 0
    credit: Whole = 0
    stream_incarnation: Incarnation = b""
    attempts_max: Whole = 0
    parked_to: Name = ""
    term: Whole = 0
    terms: Terms = ()


class Subscribed(Message, frozen=True, omit_defaults=False):
    """Pushing begins at `position`; see `GrantSubscription`."""

    stream_id: Whole
    stream_incarnation: bytes
    term: Whole
    epoch: Whole
    position: Whole
    floor: Whole
    head: Whole
    changed_from: Whole = 0
    terms: Terms = ()


class Sources(Message, frozen=True):
    """The names of source ids that the next records carry; 0 is the anonymous source and never announced."""

    names: tuple[tuple[Whole, str], ...]


class Progress(Message, frozen=True):
    """Everything before `position` was examined and did not match."""

    position: Whole


class Gap(Message, frozen=True):
    """What lay from `first_sequence` to before `next_sequence` cannot be had: `trimmed` or `damaged`."""

    first_sequence: Whole
    next_sequence: Whole
    code: str


class End(Message, frozen=True):
    """All that was asked for was pushed; `final` says that the channel is closed with it.

    A durable subscription's channel stays open until the client closes it, for what is still to be settled.
    """

    next_sequence: Whole
    final: bool = True


class Return(Message, frozen=True):
    """What was pushed at `sequence` is given back; see `ReturnRequested`."""

    sequence: Whole
    retry: bool = False
    reason: Text = ""
    taken: bool = False


class Returned(Message, frozen=True):
    """`parked`: what was given back is a dead letter; else it may be handed out again."""

    sequence: Whole
    parked: bool = False


class ChangeFilter(Message, frozen=True):
    """Another filter from the next unexamined sequence on, at or behind `position`: before that all was taken."""

    filter: Filter
    position: Whole = 0


class FilterChanged(Message, frozen=True):
    """The new filter is journaled and counts from `position` on."""

    position: Whole


# ── sinks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class OpenRun(Message, frozen=True):
    """Begin a run of a sink (`epoch` 0), or join the present one; see `RunOpenRequested`."""

    sink: Name
    incarnation: Incarnation
    epoch: Whole = 0
    ephemeral: bool = False


class RunOpened(Message, frozen=True, omit_defaults=False):
    """The run is this peer's; see `GrantRun`. `commit_id` is -1 when nothing was committed yet."""

    epoch: Whole
    commit_id: Signed
    detail: bytes


class OpenStage(Message, frozen=True):
    """Write rows for `stream` under a new stage of a run; see `StageOpenRequested`."""

    sink: Name
    run_epoch: Whole
    stream: Name
    key: Incarnation
    commit_id: Signed = -1
    stage: Whole = 0


class StageOpened(Message, frozen=True):
    """The stage is open; batches are offered on this channel with source id 0 and numbers from `last_number` + 1.

    A stage that was lost with its link is opened again with the same key and its number: it holds the rows up to
    `last_number`.
    """

    stage: Whole
    stream_id: Whole
    last_number: Whole = 0


class Commit(Message, frozen=True):
    """Make the stages visible at once, in this order; see `CommitRequested`."""

    request: Count
    sink: Name
    run_epoch: Whole
    commit_id: Whole
    stages: Stages
    contents: Contents = ()
    counts: Stages = ()
    after: Signed = -1


class Committed(Message, frozen=True, omit_defaults=False):
    """The commit is durable; `streams` holds (name, first sequence, count) of each stream that it touched."""

    request: Whole
    commit_id: Whole
    duplicate: bool
    streams: tuple[tuple[str, Whole, Whole], ...]


class DropStages(Message, frozen=True):
    """These stages will not be committed; see `StagesDropRequested`; answered by a `Reply` of {"dropped": stages}."""

    request: Count
    sink: Name
    run_epoch: Whole
    stages: Stages
    commit_id: Signed = -1


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Request(Message, frozen=True):
    """One of the verbs by which people and tools look at streams and change them; its answer carries `request`."""

    request: Whole
    verb: Name
    arguments: dict[str, Any] = {}


class Reply(Message, frozen=True, omit_defaults=False):
    """The answer to a request: plain data."""

    request: Whole
    result: Any


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Refusal(Message, frozen=True):
    """What was asked is not granted, and why; `final` says that the channel is closed with it."""

    code: str
    message: Text
    details: dict[str, Any] = {}
    request: Whole = 0
    final: bool = True


class Fencing(Message, frozen=True):
    """A newer incarnation, with this epoch, took over; the channel is closed and must not be opened again by itself."""

    epoch: Whole
    message: Text
