"""What a user may say to `format("veredus")`: every option, its default, and what is wrong with a bad one.

Spark hands over keys in lower case; here they are known by the names of docs/how-to/spark.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches

from veredus.client.arguments import U63_MAX_SHOWN, filter_of, shown
from veredus.delivery.publication import microseconds_of
from veredus.kernel.errors import Refused
from veredus.kernel.names import U63_MAX, checked_name
from veredus.matching import Filter
from veredus.node.rules import NamePatterns

ADDRESS_DEFAULT = "veredus://127.0.0.1:7071"
ROWS_PER_TRIGGER_DEFAULT = 1 << 20
ROWS_PER_PARTITION_DEFAULT = 1 << 18
TRIGGER_DELAY_SECONDS_DEFAULT = 60
TIMEOUT_SECONDS_DEFAULT = 120

_DIGITS_MAX = 100
"""Digits of a number in an option: Python refuses to read those of thousands."""
_COLUMN_ENDS = re.compile(r",(?![^<(]*[>)])")
_COLUMN = re.compile(r"\s*(`[^`]+`|\w+)\s*:?\s+([A-Za-z_]\w*)")
_TYPES = (
    "boolean", "bigint", "double", "string", "binary", "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint", "byte",
    "smallint", "short", "int", "integer", "long", "float", "real", "date", "time", "decimal", "dec", "numeric", "char",
    "character", "varchar", "interval", "array", "map", "struct", "void", "variant",
)  # fmt: skip
"""What Spark's DDL calls types; those that an attribute can have come first."""
_SET_BY_SPARK = ("path", "checkpointlocation", "queryname", "outputmode")
_NODE_OPTIONS = ("address", "stream", "token", "tokenFile", "caFile", "timeoutSeconds")
_READ_OPTIONS = (
    *_NODE_OPTIONS, "streams", "attributes", "onMismatch", "keys", "where", "startingSequence", "startingTimestamp",
    "endingSequence", "endingTimestamp", "maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger",
    "maxTriggerDelaySeconds", "rowsPerPartition", "failOnDataLoss", "subscriber",
)  # fmt: skip
_STREAMING_OPTIONS = (
    "maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "maxTriggerDelaySeconds", "subscriber"
)  # fmt: skip
"""A batch read has no use for these, and refuses them."""
_OF_KAFKA = {
    "kafka.bootstrap.servers": "address", "subscribe": "stream", "topic": "stream", "subscribepattern": "streams",
    "startingoffsets": "startingSequence", "endingoffsets": "endingSequence", "kafka.group.id": "subscriber",
    "maxoffsetspertrigger": "maxRowsPerTrigger", "minoffsetspertrigger": "minRowsPerTrigger",
    "maxtriggerdelay": "maxTriggerDelaySeconds", "minpartitions": "rowsPerPartition", "includeheaders": "attributes",
}  # fmt: skip
"""By what Kafka's connector calls an option, what does the same here."""
_WRITE_OPTIONS = (*_NODE_OPTIONS, "sink", "commitId", "onOtherRows", "failOnDataLoss")


@dataclass(frozen=True)
class NodeOptions:
    """Where the stream is and who asks: `addresses` are tried in turn, `timeout_seconds` bounds one wait.

    `stream` "": rows say themselves which stream they are for, or there are several; a connection serves any, so it
    does not count when options are compared. `token_file` is read wherever a connection is made.
    """

    addresses: tuple[str, ...]
    stream: str = field(compare=False)
    token: str | None = field(repr=False)
    token_file: str | None
    ca_file: str | None
    timeout_seconds: int

    @property
    def written(self) -> str:
        """What is written to, as a message names it."""
        return f"stream {self.stream!r}" if self.stream else "the streams that are named in the rows"


@dataclass(frozen=True)
class StartAtSequence:
    """At this sequence; 0 for the least that is kept."""

    sequence: int


@dataclass(frozen=True)
class StartAtHead:
    """Behind the newest row of the moment when it is first asked."""


@dataclass(frozen=True)
class StartAtTime:
    """At the first row appended at or after this time, microseconds since the Unix epoch."""

    time_us: int


@dataclass(frozen=True)
class ReadOptions:
    """How to read. `end_*` are exclusive and for batch reads; None is the head of the moment.

    `streams`: patterns of the streams to read, () where `node.stream` is the one. `bytes_per_trigger_max`, 0 for no
    bound: about so many bytes, as the journal keeps them. `rows_per_trigger_min` rows are waited for, at most
    `trigger_delay_seconds_max` after the batch before.
    `attributes`: columns added to the default schema, as DDL. `subscriber`: the durable subscription that pins the rows
    in the journal until a streaming query has done with them; "" for none. `of_streaming`: the options that were given
    and are for streaming queries only.
    """

    node: NodeOptions
    streams: tuple[str, ...]
    attributes: str
    is_mismatch_null: bool
    filter: Filter
    start: StartAtSequence | StartAtHead | StartAtTime
    is_start_given: bool
    end_sequence: int | None
    end_time_us: int | None
    rows_per_trigger_max: int
    bytes_per_trigger_max: int
    rows_per_trigger_min: int
    trigger_delay_seconds_max: int
    rows_per_partition: int
    fails_on_data_loss: bool
    subscriber: str
    of_streaming: tuple[str, ...]

    @property
    def attribute_names(self) -> frozenset[str]:
        """The names in `attributes`."""
        return frozenset(re.findall(r"(?:^|,)\s*`?(\w+)", self.attributes))

    def of_stream(self, stream: str) -> ReadOptions:
        """The same for one of several streams."""
        return replace(self, node=replace(self.node, stream=stream))


@dataclass(frozen=True)
class WriteOptions:
    """How to write. `sink` "": a streaming query's own id. `commit_id`: what a batch write commits under, if anything.

    `checkpoint`, `query_name`: what the query's own options say of its checkpoint, so that a deleted one can be told;
    "" where they do not. `keeps_other_rows`: whether a batch that comes again with other rows than were committed is
    passed over, instead of refused. `fails_on_data_loss`: whether a streaming query stops where the node does not have
    the batches before.
    """

    node: NodeOptions
    sink: str
    commit_id: int | None
    checkpoint: str
    query_name: str
    keeps_other_rows: bool
    fails_on_data_loss: bool


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a reader. Raises `Refused("bad-option")` that names the option, and the nearest known one."""
    options = _known(given, _READ_OPTIONS)
    streams = tuple(re.split(r"[\s,]+", options.text("streams").strip())) if options.text("streams").strip() else ()
    if bool(options.text("stream")) == bool(streams):
        said = (
            "one of the options `stream` and `streams` is needed, and not both: name one stream in `stream`, or several"
        )
        raise _fault("stream", f"{said} in `streams`")
    for pattern in streams:
        try:
            NamePatterns((pattern,))
        except Refused as refused:
            raise _refused("streams", f"has a {refused.message}") from None
    keys = [text.strip() for text in options.text("keys").split("\n") if text.strip()]
    wanted = filter_of(keys or None, options.text("where").strip() or None) or Filter()
    return ReadOptions(
        node=_node_options(options),
        streams=streams,
        attributes=_attributes(options.text("attributes")),
        is_mismatch_null=options.choice("onMismatch", {"fail": False, "null": True}, "fail"),
        filter=wanted,
        start=_start(options),
        is_start_given=bool(options.text("startingSequence") or options.text("startingTimestamp")),
        end_sequence=options.maybe_number("endingSequence", 1),
        end_time_us=options.time_us("endingTimestamp"),
        rows_per_trigger_max=options.number("maxRowsPerTrigger", ROWS_PER_TRIGGER_DEFAULT, 1),
        bytes_per_trigger_max=options.number("maxBytesPerTrigger", 0, 1),
        rows_per_trigger_min=options.number("minRowsPerTrigger", 0, 1),
        trigger_delay_seconds_max=options.number("maxTriggerDelaySeconds", TRIGGER_DELAY_SECONDS_DEFAULT, 1),
        rows_per_partition=options.number("rowsPerPartition", ROWS_PER_PARTITION_DEFAULT, 1024),
        fails_on_data_loss=options.choice("failOnDataLoss", {"true": True, "false": False}, "true"),
        subscriber=options.name("subscriber"),
        of_streaming=tuple(name for name in _STREAMING_OPTIONS if options.text(name).strip()),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a writer. Raises `Refused("bad-option")`, as `read_options`."""
    options = _known(given, _WRITE_OPTIONS)
    folded = {key.lower(): value for key, value in given.items()}
    return WriteOptions(
        node=_node_options(options),
        sink=options.name("sink"),
        commit_id=options.maybe_number("commitId", 0),
        checkpoint=folded.get("checkpointlocation", ""),
        query_name=folded.get("queryname", ""),
        keeps_other_rows=options.choice("onOtherRows", {"fail": False, "keep": True}, "fail"),
        fails_on_data_loss=options.choice("failOnDataLoss", {"true": True, "false": False}, "true"),
    )


def check_streaming(options: ReadOptions) -> None:
    """Raise `Refused("bad-option")` for what makes no sense, or would lose rows, in a streaming query."""
    if options.end_sequence is not None or options.end_time_us is not None:
        said = "the options `endingSequence` and `endingTimestamp` are for batch reads"
        raise _fault("endingSequence", f"{said}: a streaming query runs until it is stopped")
    if options.streams and isinstance(options.start, StartAtSequence) and options.start.sequence:
        raise _refused(
            "startingSequence", "is a place in one stream, and the query reads several: use `startingTimestamp`"
        )
    if isinstance(options.start, StartAtHead) and not options.subscriber:
        raise _refused(
            "startingSequence",
            "is 'latest', and Spark does not store that place before the first batch has finished:"
            " name a `subscriber`, so that the node stores it",
        )


def check_whole_batch(options: ReadOptions) -> None:
    """Raise `Refused("bad-option")` for what makes no sense in a batch read."""
    if isinstance(options.start, StartAtHead):
        raise _refused(
            "startingSequence",
            "is 'latest', and a batch read ends there: it would read nothing; use 'earliest', a sequence, or"
            " `startingTimestamp`",
        )
    if options.streams and (options.end_sequence or getattr(options.start, "sequence", 0)):
        said = (
            "the options `startingSequence` and `endingSequence` are places in one stream, and the query reads several"
        )
        raise _fault("startingSequence", f"{said}: use timestamps")
    for name in options.of_streaming:
        why = "settles nothing" if name == "subscriber" else "reads all at once"
        raise _refused(name, f"is for streaming queries: a batch read {why}")
    _check_end(options)


def _check_end(options: ReadOptions) -> None:
    """Raise `Refused("bad-option")` where a batch read would end before it begins; without rows it may be."""
    start = options.start
    if (
        isinstance(start, StartAtSequence)
        and options.end_sequence is not None
        and options.end_sequence < start.sequence
    ):
        raise _refused("endingSequence", f"is {options.end_sequence}, before `startingSequence`, {start.sequence}")
    if isinstance(start, StartAtTime) and options.end_time_us is not None and options.end_time_us < start.time_us:
        raise _refused("endingTimestamp", "is before `startingTimestamp`")


def check_batch_write(options: WriteOptions) -> None:
    """Raise `Refused("bad-option")` for what a plain batch write cannot do."""
    if (options.commit_id is None) != (not options.sink):
        said = "the options `commitId` and `sink` go together"
        raise _fault("commitId", f"{said}: one sink writes each `commitId` once, and each must be above the one before")
    if not options.fails_on_data_loss:
        raise _refused("failOnDataLoss", "is for streaming queries: a batch write does not know of one before it")


def check_stream_write(options: WriteOptions) -> None:
    """Raise `Refused("bad-option")` for what makes no sense in a streaming query."""
    if options.commit_id is not None:
        raise _refused("commitId", "is for batch writes: a streaming query commits each micro-batch under its number")


def check_append(overwrite: bool) -> None:
    """Raise `Refused("bad-option")` for the modes that replace what was written before."""
    if overwrite:
        said = "this mode replaces rows, and rows of a stream cannot be replaced"
        raise _fault("mode", f'{said}: use append, as mode("append"), or outputMode("append") in a streaming query')


@dataclass(frozen=True)
class _Options:
    values: Mapping[str, str]

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def name(self, name: str) -> str:
        return checked_name(name, self.text(name)) if self.text(name) else ""

    def number(self, name: str, default: int, least: int) -> int:
        value = self.maybe_number(name, least)
        return default if value is None else value

    def maybe_number(self, name: str, least: int) -> int | None:
        text = self.text(name).strip().replace("_", "")
        if not text:
            return None
        if not text.isdecimal() or len(text) > _DIGITS_MAX or not least <= int(text) <= U63_MAX:
            raise _refused(name, f"is {shown(self.text(name))}, not a whole number from {least} to {U63_MAX_SHOWN}")
        return int(text)

    def time_us(self, name: str) -> int | None:
        text = self.text(name).strip()
        if not text:
            return None
        try:
            return microseconds_of(datetime.fromisoformat(text))
        except ValueError:
            raise _refused(name, f"is {text!r}, not a time with a time zone, such as 2024-05-01T12:00:00Z") from None

    def choice(self, name: str, meanings: dict[str, bool], default: str) -> bool:
        text = self.text(name).strip().lower() or default
        if text not in meanings:
            raise _refused(name, f"is {text!r}, neither {' nor '.join(meanings)}")
        return meanings[text]


def _known(given: Mapping[str, str], names: tuple[str, ...]) -> _Options:
    by_key = {name.lower(): name for name in names}
    values: dict[str, str] = {}
    for key, value in given.items():
        name = by_key.get(key.lower())
        if name is not None:
            values[name] = value
        elif key.lower().startswith("option."):
            # CREATE TABLE gives each option a second time under such a name, and none to whoever reads the table.
            raise Refused("bad-option", "Spark does not keep the options of a table: use CREATE TEMPORARY VIEW")
        elif key.lower() not in _SET_BY_SPARK:
            near = [by_key[one] for one in get_close_matches(key.lower(), by_key, n=1)]
            near += [by_key[one] for one in by_key if one.startswith(key.lower())]
            meant = [name for name in (_OF_KAFKA.get(key.lower()), *near) if name in names]
            hint = f"; did you mean {meant[0]!r}?" if meant else f"; known options: {', '.join(names)}"
            raise _refused(key, f"is not known here{hint}")
    return _Options(values)


def _attributes(text: str) -> str:
    """Columns for attributes, as Spark's DDL. Raises `Refused("bad-option")` for what has no type, or none of Spark's.

    Spark would say of a column without one that the next has a syntax error.
    """
    for column in _COLUMN_ENDS.split(text) if text.strip() else ():
        match = _COLUMN.match(column)
        if match is None:
            raise _refused(
                "attributes",
                f"is {text!r}, and {column.strip()!r} is no name with a type: write for example"
                f" {_named(column)} double",
            )
        name, type_ = match.groups()
        if type_.lower() not in _TYPES:
            near = get_close_matches(type_.lower(), _TYPES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_TYPES[:6])}, …"
            raise _refused("attributes", f"gives {name} the type {type_!r}, which Spark does not have; {hint}")
    return text


def _named(column: str) -> str:
    words = column.split()
    return words[0] if words else "quote"


def _node_options(options: _Options) -> NodeOptions:
    if options.text("token") and options.text("tokenFile"):
        raise _fault("token", "the options `token` and `tokenFile` exclude each other: use one")
    if "token" in options.values and not options.text("token").strip():
        raise _fault("token", "the option `token` is empty: give the token, or leave the option out")
    return NodeOptions(
        addresses=tuple(address.strip() for address in (options.text("address") or ADDRESS_DEFAULT).split(",")),
        stream=options.name("stream"),
        token=options.text("token") or None,
        token_file=options.text("tokenFile") or None,
        ca_file=options.text("caFile") or None,
        timeout_seconds=options.number("timeoutSeconds", TIMEOUT_SECONDS_DEFAULT, 1),
    )


def _start(options: _Options) -> StartAtSequence | StartAtHead | StartAtTime:
    text = options.text("startingSequence").strip().lower()
    time_us = options.time_us("startingTimestamp")
    if text and time_us is not None:
        said = "the options `startingSequence` and `startingTimestamp` exclude each other: use one"
        raise _fault("startingSequence", said)
    if time_us is not None:
        return StartAtTime(time_us)
    if text == "latest":
        return StartAtHead()
    if text == "earliest":
        return StartAtSequence(0)
    if text and not text.replace("_", "").isdecimal():
        raise _refused("startingSequence", f"is {text!r}, not a whole number from 1, 'earliest' or 'latest'")
    return StartAtSequence(options.number("startingSequence", 0, 1))


def _refused(name: str, what: str) -> Refused:
    return _fault(name, f"the option `{name}` {what}")


def _fault(name: str, said: str) -> Refused:
    return Refused("bad-option", said, option=name)
