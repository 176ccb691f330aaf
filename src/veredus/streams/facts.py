"""What the journal remembers beside publications: one tagged msgpack map for each change of a table.

A fact is written before what rests on it is said, and replaying the facts behind a snapshot in their order gives the
tables back. Unknown fields are skipped; an unknown tag is refused by recovery as a newer format.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from veredus.kernel.octets import Octets
from veredus.matching import Filter


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a stream was asked to be; creating it again is idempotent if this is equal."""

    retention_age_s: float = 0.0
    """Publications older than this may go; 0 keeps them for ever."""
    retention_size: int = 0
    """The oldest go when more bytes than this are kept; 0 for no bound."""
    retention_count: int = 0
    """The oldest go when more publications than this are kept; 0 for no bound."""
    lag_size_max: int = 0
    """A durable cursor pins at most this many bytes behind the head, then is released with a gap; 0 for no bound."""
    sources_max: int = 100_000
    """Sources that the stream knows at once."""


class StreamCreated(msgspec.Struct, frozen=True, tag="stream"):
    """A stream came into being under a new incarnation."""

    stream_id: int
    name: str
    incarnation: bytes
    config: StreamConfig
    created_us: int
    creator: str = ""
    """The principal who made it, "" for the node's own settings."""


class StreamConfigured(msgspec.Struct, frozen=True, tag="configure"):
    """The settings give a stream that exists another configuration."""

    stream_id: int
    config: StreamConfig


class StreamTrimmed(msgspec.Struct, frozen=True, tag="trim"):
    """Nothing below `floor` is kept."""

    stream_id: int
    floor: int


class StreamDeleted(msgspec.Struct, frozen=True, tag="delete"):
    """The stream and all that hangs on it is gone; its id is never used again."""

    stream_id: int
    is_removed: bool = False
    """Whether nothing of it is owed to anybody; not so for one that was given to another node, and not known of one
    that an earlier version deleted."""


class TermRaised(msgspec.Struct, frozen=True, tag="term"):
    """An unclean stop under weak durability, or damage, may have lost the end of the stream.

    What lay from `first_sequence` on, if anything did, is gone: publications of this term and later ones lie there.
    """

    stream_id: int
    term: int
    first_sequence: int = 1


class SourceOpened(msgspec.Struct, frozen=True, tag="source"):
    """A source was attached under a new epoch."""

    stream_id: int
    source_id: int
    name: str
    epoch: int
    incarnation: bytes
    is_sparse: bool
    owner: str = ""
    """The principal whose name it is, "" for nobody in particular."""


class TokenStored(msgspec.Struct, frozen=True, tag="token"):
    """A source's resume token, which no publication carries, speaks up to `number`."""

    stream_id: int
    source_id: int
    number: int
    token: bytes


class RaisedSource(msgspec.Struct, frozen=True, array_like=True):
    """Up to `number` a source has published, if elsewhere; the last of it closed with `token`. Where nobody owns it
    here, it is its `owner`'s.
    """

    source_id: int
    name: str
    number: int
    token: bytes
    owner: str = ""


class SourcesRaised(msgspec.Struct, frozen=True, tag="raise"):
    """Sparse sources, some of them new, have published more than this stream holds: in one that is merged into it."""

    stream_id: int
    sources: tuple[RaisedSource, ...]


class Lost(msgspec.Struct, frozen=True, array_like=True):
    """What a subscription was to be pushed, and was gone from the stream of which this is a life before a merge."""

    incarnation: bytes
    first: int
    last: int


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Where a subscription stood in another stream when that was merged into this one.

    Everything below `next_sequence` of the stream of this incarnation was done with. What may have been given from
    there on lies in this stream in `runs`: a first sequence there, its place here, and how many lie one behind the
    other. What was done with from there on has the place 0.
    """

    incarnation: bytes
    next_sequence: int
    runs: tuple[tuple[int, int, int], ...] = ()
    gone: tuple[tuple[int, Lost], ...] = ()
    """What of it was gone when a stream in between was merged, from which sequence on, and as what it is told."""

    @property
    def sequence(self) -> int:
        """Where `next_sequence` lies here, 0 where it lies nowhere."""
        places = self.places_to(self.next_sequence)
        return places[0][0] if places else 0

    @property
    def last_place(self) -> int:
        """The last of all places here, 0 for none."""
        return max((place + count - 1 for _, place, count in self.runs if place), default=0)

    def is_done(self, sequence: int) -> bool:
        """Whether it was done with there."""
        done = (first <= sequence < first + count for first, place, count in self.runs if not place)
        return sequence < self.next_sequence or any(done)

    def places_to(self, last: int) -> tuple[tuple[int, int], ...]:
        """Where what is from `next_sequence` to `last` lies here, as ranges in any order."""
        cut = ((place, min(count, last - first + 1)) for first, place, count in self.runs if place)
        return tuple((place, place + count - 1) for place, count in cut if count > 0)

    def gone_to(self, last: int) -> tuple[Lost, ...]:
        """What is told of what is from `next_sequence` to `last`, if that is gone."""
        cut = ((one, min(one.last, one.first + last - first)) for first, one in self.gone)
        return tuple(Lost(one.incarnation, one.first, end) for one, end in cut if one.first <= end)


class Gone(msgspec.Struct, frozen=True, array_like=True):
    """What was gone from a stream of which this is a life before a merge took the others of it, and none of which was
    appended after `until_us`, by the wall clock of the node that has it on record.
    """

    incarnation: bytes
    first: int
    last: int
    until_us: int


class Had(msgspec.Struct, frozen=True, array_like=True):
    """What whoever left had of a stream, as far as that is remembered: a merge with where it is subscribed since gives
    none of it again.
    """

    received: tuple[tuple[int, int], ...] = ()
    """Ranges of the stream's sequences."""
    origins: tuple[Origin, ...] = ()
    """What it may have been given and not named: in this stream, and in those that were merged into it."""


NOTHING_HAD = Had()


class LeftElsewhere(msgspec.Struct, frozen=True, array_like=True):
    """A principal's subscription was removed elsewhere: when, under which number (0 for none), and what it had, by the
    sequences of the stream here.
    """

    principal: str
    removed_us: int
    wish: int
    had: Had = NOTHING_HAD


class MergedBefore(msgspec.Struct, frozen=True, array_like=True):
    """All that is on record of merges into a stream: what they did not bring, and the lives of all that they took."""

    stream_id: int
    gone: tuple[Gone, ...]
    lives: tuple[bytes, ...] = ()


class SubscriptionOpened(msgspec.Struct, frozen=True, tag="subscription"):
    """A durable subscription came into being, or changed its owner, its filter or its mode."""

    stream_id: int
    subscriber: str
    name: str
    epoch: int
    incarnation: bytes
    filter: Filter
    filter_sequence: int
    mode: int
    floor: int
    settled: tuple[tuple[int, int], ...]
    pushed_to: int
    """Nothing above was pushed, for all that is known."""
    pushed_known: int = 0
    """What is unsettled up to here was pushed for certain."""
    handed_to: int = 0
    """What of that is unsettled up to here the application was handed, by the client's word."""
    attempts_max: int = 0
    attempts: tuple[tuple[int, int, int], ...] = ()
    """How often applications of before were handed unsettled ranges: (first, last, count)."""
    parked_to: str = ""
    opened_us: int = 0
    """When it came into being, by the node's wall clock."""
    start: int = 0
    """The first sequence that it was to be pushed."""
    origins: tuple[Origin, ...] = ()
    unwanted: tuple[tuple[int, int], ...] = ()
    """What behind that it was never to be pushed: a commit has put it there, and settled it."""
    renewed_us: int = 0
    """When it was asked for last, by the node's wall clock."""
    wish: int = 0
    """The highest number under which it was asked for; 0 for none."""
    owner: str = ""
    """The principal whose subscription it is, "" for nobody in particular."""
    before: tuple[tuple[Filter, int], ...] = ()
    """The filters of before, each with the last sequence that it counts for, as far as that is above the floor."""
    returned: tuple[int, ...] = ()
    """What the application of now gave back to be tried again, and has not taken again."""
    from_us: int = 0
    """What was appended before this time is not wanted; 0 for a start that was no time."""
    lost: tuple[Lost, ...] = ()
    """What its subscriber is to be told of, and has not said that it knows."""


class SubscriptionSettled(msgspec.Struct, frozen=True, tag="settled"):
    """A durable subscription's cursor moved. `is_detached`: its owner left; nothing above `pushed_to` was pushed."""

    stream_id: int
    subscriber: str
    name: str
    floor: int
    settled: tuple[tuple[int, int], ...]
    pushed_to: int
    is_detached: bool = False
    pushed_known: int = 0
    handed_to: int = 0
    attempts: tuple[tuple[int, int, int, bool], ...] = ()
    """What has changed since the last fact of how often unsettled ranges were tried: (first, last, count, whether the
    application gave them back to be tried again, and has not taken them again).
    """


class SubscriptionRenewed(msgspec.Struct, frozen=True, tag="renew"):
    """A durable subscription that is there was asked for again, at `renewed_us` by the node's wall clock."""

    stream_id: int
    subscriber: str
    name: str
    renewed_us: int
    wish: int = 0
    left: int = 0
    """The number by which its subscriber had left, where it was from before that: it begins anew behind `head`, but
    what it has received stays received; 0 where it goes on.
    """
    head: int = 0


class SubscriptionTold(msgspec.Struct, frozen=True, tag="told"):
    """The subscriber of a durable subscription knows what is lost of another stream: see `Lost`."""

    stream_id: int
    subscriber: str
    name: str
    incarnation: bytes
    first: int
    last: int


class SubscriptionRemoved(msgspec.Struct, frozen=True, tag="unsubscribed"):
    """A subscription is gone, since `removed_us` by the node's wall clock; or was not there, and is not to be."""

    stream_id: int
    subscriber: str
    name: str
    removed_us: int = 0
    wish: int = 0
    """The highest number under which its end, or before that the subscription, was asked for; 0 for none."""
    principal: str = ""
    """Whose it was; where it was nobody's, or not there, who asked for it."""
    had: Had = NOTHING_HAD


class LeftAhead(msgspec.Struct, frozen=True, tag="left-ahead"):
    """A principal wishes to be without a subscription of a stream that is not there; the fields are those of
    `SubscriptionRemoved`, but for the stream's name.
    """

    stream: str
    subscriber: str
    name: str
    removed_us: int
    wish: int
    principal: str


class RunOpened(msgspec.Struct, frozen=True, tag="run"):
    """A sink's new run fenced the older ones; their open stages are dropped."""

    sink: str
    epoch: int
    incarnation: bytes
    owner: str = ""
    """The principal whose sink it is, "" for nobody in particular."""
    is_ephemeral: bool = False
    """Whether the sink goes with its lease."""


class SinkRemoved(msgspec.Struct, frozen=True, tag="unsink"):
    """A sink is forgotten; what it committed stays."""

    sink: str


class StageOpened(msgspec.Struct, frozen=True, tag="stage"):
    """Rows may be written under this stage."""

    stage: int
    sink: str
    run_epoch: int
    stream_id: int
    stage_key: bytes
    commit_id: int = -1


class StagesDropped(msgspec.Struct, frozen=True, tag="drop"):
    """These stages' rows will never be seen."""

    stages: tuple[int, ...]


class CommittedStage(msgspec.Struct, frozen=True, array_like=True):
    """One stage's place in its stream."""

    stage: int
    stream_id: int
    first_sequence: int
    count: int


class CursorMoved(msgspec.Struct, frozen=True, array_like=True):
    """Where a commit puts a subscription, which may be new. What it had settled from `kept_from` on stays settled, but
    for what it had never wanted: that is `unwanted` now.
    """

    stream_id: int
    subscriber: str
    name: str
    opened_us: int
    start: int
    floor: int
    kept_from: int
    settled: tuple[tuple[int, int], ...]
    origins: tuple[Origin, ...] = ()
    is_removed: bool = False
    """Whether it is gone instead, since `opened_us`."""
    unwanted: tuple[tuple[int, int], ...] = ()
    """What from `start` on it was never to be pushed; settled like all else that is."""
    left: tuple[LeftElsewhere, ...] = ()
    renewed_us: int = 0
    wish: int = 0
    owner: str = ""
    """Whose it is from now on; "" for whose it is here."""
    lost: tuple[Lost, ...] = ()


class Woven(msgspec.Struct, frozen=True, array_like=True):
    """In which order a stream's sequences go to subscribers who ask for that: legs, each of which ascends."""

    stream_id: int
    legs: tuple[tuple[int, int], ...]


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """What a commit put into one stream: so many rows, of this digest, b"" where the sink gave none."""

    stream: str
    incarnation: bytes
    """The stream's; b"" where there was none of that name, and no row for it."""
    count: int
    digest: bytes = b""


class Committed(msgspec.Struct, frozen=True, tag="commit"):
    """The stages became visible, all at once."""

    sink: str
    run_epoch: int
    commit_id: int
    stages: tuple[CommittedStage, ...]
    append_time_us: int
    cursors: tuple[CursorMoved, ...] = ()
    contents: tuple[Contents, ...] = ()
    """By stream, in the order of their names."""
    weaves: tuple[Woven, ...] = ()
    """Each takes the place of the one that the stream had."""
    owner: str = ""
    """The principal whose sink it is: the record that opened the run may be damaged since."""
    merged: tuple[MergedBefore, ...] = ()
    """Each takes the place of the one that the stream had."""


Fact: TypeAlias = (
    StreamCreated
    | StreamConfigured
    | StreamTrimmed
    | StreamDeleted
    | TermRaised
    | SourceOpened
    | TokenStored
    | SourcesRaised
    | SubscriptionOpened
    | SubscriptionSettled
    | SubscriptionRenewed
    | SubscriptionTold
    | SubscriptionRemoved
    | LeftAhead
    | RunOpened
    | SinkRemoved
    | StageOpened
    | StagesDropped
    | Committed
)

encode_fact = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Fact).decode


def decode_fact(payload: Octets) -> Fact:
    """The fact in a FACT record's payload. Raises `msgspec.DecodeError` for what this version does not know."""
    fact: Fact = _decode(payload)
    return fact
