"""The one language that every dialect speaks with the streams floor.

Way in:   attach → offer → taken | refused | fenced.
Way out:  subscribe → push → settle → settled.
Sink:     open run → stage → commit | drop.
Admin:    one request, one answer.

A **session** is one attachment of one peer, as source, subscriber or sink: an integer, unique for the node's life.
Facts (past tense) go down to the streams; orders (imperative) come up, and its dialect makes frames of them. A request
gets one answer or a `Refuse`; `is_final` says that this ends the session. Source: docs/internals/DESIGN.md, "Exchange".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from veredus.delivery.batch import BatchHeader
from veredus.delivery.content import Content
from veredus.kernel.octets import Octets
from veredus.kernel.terms import Terms
from veredus.matching import Filter

from .attempts import ConfirmHanded as ConfirmHanded
from .attempts import ConfirmReturned as ConfirmReturned
from .attempts import HandedOut as HandedOut
from .attempts import ReturnRequested as ReturnRequested
from .facts import Gone
from .moves import CursorMove as CursorMove
from .moves import MovedLeft as MovedLeft
from .moves import MovedOrigin as MovedOrigin
from .moves import Place as Place
from .refused import BatchUnfit as BatchUnfit
from .refused import RefuseBatch as RefuseBatch
from .tokens import TokenStoreRequested as TokenStoreRequested

EVERYTHING = Filter(keys=(), where=None)


class Durability(IntEnum):
    """What an acknowledgement bought."""

    GROUP = 0
    """On disk: a sync that covers it has succeeded."""
    INTERVAL = 1
    """Written; a sync follows within the stream's interval."""
    NONE = 2
    """Written to the operating system only."""


class StartKind(IntEnum):
    """From where a subscription that has no cursor yet begins."""

    SEQUENCE = 0
    """At `value`; 0 from everything kept. Refused below the floor, unless 0, and above the head + 1."""
    TIME = 1
    """At the first publication appended at or after `value` microseconds."""
    HEAD = 2
    """After the newest durable publication: only what comes."""
    TAIL = 3
    """At the newest `value` publications."""
    AFTER_MINE = 4
    """After the last publication of the source named `source` in this stream; from everything kept if it has none."""


class Start(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where to begin."""

    kind: StartKind = StartKind.SEQUENCE
    value: int = 0
    source: str = ""


EVERYTHING_KEPT = Start()


# ── the way in ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SourceAttachRequested:
    """A peer wants to publish to `stream` as `source`; "" is an anonymous source, without deduplication.

    `epoch` 0 takes the name over; another re-attaches and is fenced when stale. `incarnation`: 16 random bytes that
    tell a retried attach from a second publisher. `stream_incarnation`: when given, it publishes to that stream and no
    other. `is_inquiry`: the peer has not said that it will publish; that it may not is no refusal yet, and not noted.
    """

    session: int
    principal: str
    stream: str
    source: str
    incarnation: bytes
    epoch: int = 0
    is_sparse: bool = False
    stream_incarnation: bytes = b""
    is_inquiry: bool = False


@dataclass(frozen=True, slots=True)
class GrantSource:
    """The peer is the source now: what it needs to number, sign and resume. `last_number` counts durable ones only."""

    session: int
    stream_id: int
    stream_incarnation: bytes
    source_id: int
    epoch: int
    last_number: int
    token: bytes
    token_number: int
    """The number of the last publication of the batch that `token` closed; what lies above came later."""
    durability: Durability


@dataclass(slots=True)
class BatchOffered:
    """A batch, verified whole (signature, limits, payload) by the dialect. `record` has a blank envelope in front."""

    session: int
    record: bytearray | memoryview
    header: BatchHeader


@dataclass(slots=True)
class ConfirmTaken:
    """The batch that ends at `last_number` is in the stream, as durable as `durability` says.

    `first_sequence` is that of the batch's first publication; 0 for a duplicate whose sequence has left the index.
    """

    session: int
    last_number: int
    first_sequence: int
    is_duplicate: bool
    durability: Durability


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The peer detached this session, or its link is gone."""

    session: int


# ── the way out ──────────────────────────────────────────────────────────────────────────────────────────────────────


class SettleMode(IntEnum):
    """How a subscription settles."""

    IN_ORDER = 0
    """Settling a sequence settles all before it."""
    INDIVIDUAL = 1
    """Each by itself, in ranges."""


@dataclass(frozen=True, slots=True)
class SubscribeRequested:
    """A peer wants what a stream holds and will hold.

    `subscriber` and `name` both "" make it ephemeral: no cursor, nothing to settle. `until` (0 for never): end before
    that sequence, with `EndSubscription`. `start` counts only when there is no cursor. `epoch` 0 takes the subscription
    over from its present owner; another re-attaches and is fenced when stale. `filter` None keeps the journaled one.
    """

    session: int
    principal: str
    stream: str
    subscriber: str = ""
    name: str = ""
    filter: Filter | None = None
    start: Start = EVERYTHING_KEPT
    until: int = 0
    mode: SettleMode = SettleMode.IN_ORDER
    incarnation: bytes = b""
    epoch: int = 0
    credit: int = 0
    stream_incarnation: bytes = b""
    """When given, the subscriber's cursor belongs to it; another one is refused with `stream-replaced`."""
    attempts_max: int = 0
    """A publication handed to applications so often and never settled is parked; 0 for never. Needs `parked_to`."""
    parked_to: str = ""
    """The stream that parked publications are moved to."""
    term: int = 0  # that of the stream when the subscriber was last granted this; 0 when it never was
    terms: Terms = ()  # and all that were known then, as it was told
    wish: int = 0
    """A number that grows with each wish of the subscriber's, where a late one must not make a new subscription."""
    is_woven: bool = False
    """Whether what commits have woven comes in that order, where each is settled by itself and no filter is set."""
    is_whole: bool = False
    """Whether a batch is pushed whole where the position is in the middle of it, without cursor and filter."""
    octet_ns: int = 1  # what it costs the node to send on a byte that is pushed; measured, roughly


@dataclass(frozen=True, slots=True)
class GrantSubscription:
    """Pushing begins at `position`. `floor` is the least sequence kept, `head` the newest durable one.

    What the subscriber was pushed from `changed_from` on, under the term that it knew, is gone, and something else
    lies there or will; 0 when all is as it was.
    """

    session: int
    stream_id: int
    stream_incarnation: bytes
    term: int
    epoch: int
    position: int
    floor: int
    head: int
    changed_from: int = 0
    terms: Terms = ()  # those of the stream that are known
    removed: tuple[bytes, ...] = ()  # the lives of streams of this name that were removed
    gone: tuple[Gone, ...] = ()  # what merges into the stream did not bring
    merged: tuple[bytes, ...] = ()  # the lives of all that they took


@dataclass(frozen=True, slots=True)
class CreditGranted:
    """The peer takes `size` more bytes of frames."""

    session: int
    size: int


@dataclass(slots=True)
class Push:
    """Hand these records to the peer, in order. What has a sequence ≤ `redelivered_to` may have been pushed before.

    `buffers` joined are whole records, each with envelope and padding; `size` is their size in bytes, which the streams
    floor has already taken from the session's credit together with `PUSH_OVERHEAD`.
    """

    session: int
    buffers: Sequence[Octets]
    size: int
    first_sequence: int
    last_sequence: int
    redelivered_to: int
    source_names: Sequence[tuple[int, str]] = ()
    """Source ids in these records that were not announced to this session before, with their names."""


PUSH_OVERHEAD = 16
"""What a frame costs beside its records, in bytes of credit."""


@dataclass(frozen=True, slots=True)
class PushProgress:
    """Everything before `position` was examined and did not match; an ephemeral subscriber may note it."""

    session: int
    position: int


@dataclass(frozen=True, slots=True)
class PushGap:
    """What lay from `first_sequence` to before `next_sequence` cannot be had: `trimmed` or `damaged`."""

    session: int
    first_sequence: int
    next_sequence: int
    code: str


@dataclass(frozen=True, slots=True)
class EndSubscription:
    """All before `until` was pushed. A durable subscription's session goes on, for what is still to be settled."""

    session: int
    next_sequence: int
    is_final: bool = True


@dataclass(frozen=True, slots=True)
class SettleRequested:
    """The peer has done with these inclusive ranges of sequences (in order mode: one range, all up to its end)."""

    session: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ConfirmSettled:
    """Everything up to `floor` is settled durably, and `ranges` above it: those that hold what was asked before."""

    session: int
    floor: int
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FilterChangeRequested:
    """From the next unexamined sequence on, another filter; answered by `ConfirmFilter`.

    `position`: the sequence behind what the subscriber has taken, over whichever link; it counts from there or later.
    """

    session: int
    filter: Filter
    position: int = 0


@dataclass(frozen=True, slots=True)
class ConfirmFilter:
    """The new filter is journaled and counts from `position` on."""

    session: int
    position: int


# ── sinks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RunOpenRequested:
    """A sink's run begins (`epoch` 0: fences older runs, drops their stages) or is joined. Ephemeral sinks expire."""

    session: int
    principal: str
    sink: str
    incarnation: bytes
    epoch: int = 0
    is_ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class GrantRun:
    """The run is the sink's: `epoch` names it. `commit_id` is the last one committed, -1 for none; `detail` its
    answer.
    """

    session: int
    epoch: int
    commit_id: int
    detail: bytes


@dataclass(frozen=True, slots=True)
class StageOpenRequested:
    """Rows for `stream` will be written under a new stage; `stage_key`: 16 random bytes that identify the attempt.

    `commit_id`: the commit that the stage is for, -1 for any. Once that is done or given up, the stage is dropped, or
    refused with `stage-closed`. `stage`: the number of the stage that is opened again, 0 for who was granted none yet:
    where it is not open any more, that is refused with `stage-closed`, and no other one is opened in its place.
    The key of a stage for another commit is refused with `stage-key-used`.
    """

    session: int
    principal: str
    sink: str
    run_epoch: int
    stream: str
    stage_key: bytes
    commit_id: int = -1
    stage: int = 0


@dataclass(frozen=True, slots=True)
class GrantStage:
    """The stage is open; batches are offered on its session with source id 0, this stream id, numbers from 1.

    Asked for again with its `stage_key`, it is granted again: then it holds the rows up to `last_number`.
    """

    session: int
    stage: int
    stream_id: int
    last_number: int = 0


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """Make the stages visible at once, in this order. Idempotent by (sink, commit id); `commit_id` only grows.

    Cursors of their streams may move with them, in the same fact. `contents` (() for what the stages hold, without
    digests) is kept with the commit, and compared when it is asked for again: refused with `commit-other-streams` or
    `commit-other-rows`.
    """

    session: int
    request: int
    principal: str
    sink: str
    run_epoch: int
    commit_id: int
    stages: tuple[int, ...]
    cursors: tuple[CursorMove, ...] = ()
    contents: tuple[Content, ...] = ()
    weaves: tuple[tuple[int, tuple[tuple[Place, int], ...]], ...] = ()
    """By stage, in which order its stream goes to who wants it woven, up to its last row: places, and how many each."""
    counts: tuple[int, ...] = ()
    """Of each of `stages`, how many rows the sink has receipts for at least; () where it says nothing of that."""
    after: int = -1
    """The last commit of the sink that it knows to be done; -1 where it knows of none."""
    merged: tuple[tuple[int, tuple[Gone, ...], tuple[bytes, ...]], ...] = ()
    """By stage, what is on record from now on of merges into its stream: what they did not bring, and the lives of all
    that they took.
    """


@dataclass(frozen=True, slots=True)
class ConfirmCommitted:
    """The commit is durable. `detail` has (stream name, first sequence, count) for each stream that it touched, in
    msgpack; all answers for one commit share these bytes.
    """

    session: int
    request: int
    commit_id: int
    is_duplicate: bool
    detail: bytes

    @property
    def streams(self) -> tuple[tuple[str, int, int], ...]:
        """What `detail` says."""
        return msgspec.msgpack.decode(self.detail, type=tuple[tuple[str, int, int], ...])


@dataclass(frozen=True, slots=True)
class StagesDropRequested:
    """These stages will not be committed. A stage that was committed, or is unknown, is left alone.

    `commit_id`: the run gives up this commit and those before it: all stages that are for them are dropped, also those
    that somebody is late to open. -1 for none.
    """

    session: int
    request: int
    principal: str
    sink: str
    run_epoch: int
    stages: tuple[int, ...]
    commit_id: int = -1


# ── administration ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class AdminRequested:
    """One of the verbs of docs/reference/wire/native.md ("Requests"): `stream.create`, `stream.list`, … with its
    arguments.
    """

    session: int
    request: int
    principal: str
    verb: str
    arguments: dict[str, object] = field(default_factory=dict)
    page_max: int = 0
    """The most rows of one answer; 0: a list is whole unless its arguments have a `limit`."""


@dataclass(frozen=True, slots=True)
class AnswerAdmin:
    """The answer: plain data, msgpack-encodable."""

    session: int
    request: int
    result: object


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Refuse:
    """A request was understood and is not granted; `request` names it where a session has several. Codes:
    docs/reference/errors.md.
    """

    session: int
    code: str
    message: str
    details: dict[str, object] = field(default_factory=dict)
    request: int = 0
    is_final: bool = True


@dataclass(frozen=True, slots=True)
class Fence:
    """A newer incarnation took over (its epoch is given); the session is over and must not ask again by itself."""

    session: int
    epoch: int
    message: str
