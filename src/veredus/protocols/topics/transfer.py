"""What a TRANSFER carries beyond the page, and the rows of a stream as it carries them.

A topic moves in parts, each one TRANSFER with its own answer:

    Begin ──► Sources … ──► Rows … ──► End          each answered by Heard

The messages of `Rows` are in the places that the page has for them, with their ids; what it has no place for (keys,
attributes, times, and who put them under which counter) goes beside, in columns. All of it is msgpack, behind the last
message.
Source: seed 000, section 3.1.7; docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, starmap
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from veredus.delivery.batch import BatchHeader, Layout, read_header, signed_record, token_of
from veredus.delivery.columns import encode_columns
from veredus.delivery.payload import columns_of, read_rows
from veredus.delivery.publication import AttributeValue, Rows, in_dates
from veredus.delivery.record import ENVELOPE_SIZE, records_in
from veredus.delivery.rows import ROWS_COUNT_TAKEN_MAX, RawAttributes, check_flat
from veredus.kernel.errors import InvariantBroken, PeerFault, Refused
from veredus.kernel.names import INCARNATION_SIZE, KEY_SIZE_MAX, U63_MAX, checked_name
from veredus.kernel.octets import Octets
from veredus.streams.departures import HAD_ORIGINS_MAX, HAD_RANGES_MAX, HAD_RUNS_MAX, LEFT_MAX
from veredus.streams.facts import Gone, Had, Lost, Origin
from veredus.streams.removed import OF_NAME_MAX
from veredus.streams.stream import Left

from .losing import GONE_MAX
from .many import pack
from .messages import Transfer
from .putting import DIGEST_SIZE, digest_of
from .transfer_text import other_form

PUT_CLIENT, PUT_COUNTER = "put-client", "put-counter"
"""Attributes of a row that was put at another server: by whom, and under which number, its counter and one more."""
PUT_LAST, PUT_DIGEST = "put-last", "put-digest"
"""Of one that was put with others at once: the number of the last of them, and the digest of all."""
MERGED_SOURCE, MERGED_NUMBER = "merged-source", "merged-number"
"""Attributes of a row that a source published at another server."""
APPENDED_US = "appended-us"
"""The attribute of either: when that server appended it, by this one's clock, or a moment later."""
PAGE_SOURCE = "page/"
"""So begins the name under which messages of a server from the page count as put; its address follows."""
TIME_MAX_US = 1 << 62
"""No time that a peer says is later: what is added to it stays a number that the journal takes."""
STANDINGS_MAX = 100_000
"""More subscriptions than a topic has."""
_LIVES_MAX = 64
_SOURCE_TOKEN_SIZE_MAX = 4096
_OWNER_SIZE_MAX = 255
_Whole = Annotated[int, msgspec.Meta(ge=0, le=U63_MAX)]
_Put = Annotated[int, msgspec.Meta(ge=1, le=U63_MAX)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX_US)]
_Life = Annotated[bytes, msgspec.Meta(max_length=INCARNATION_SIZE)]
_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_SIZE, max_length=INCARNATION_SIZE)]
_Offset = Annotated[int, msgspec.Meta(ge=-TIME_MAX_US, le=TIME_MAX_US)]
_Owner = Annotated[str, msgspec.Meta(max_length=_OWNER_SIZE_MAX)]
_Range: TypeAlias = tuple[_Whole, _Whole]
Bounds: TypeAlias = tuple[_Offset, _Offset]
Attributes: TypeAlias = dict[str, AttributeValue]


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Where a subscription stands in its stream.

    What is settled was received, but for what lies below `start` and in `unwanted`: that was put before it subscribed.
    """

    opened_us: _Time
    start: _Whole
    floor: _Whole
    settled: tuple[_Range, ...] = ()
    origins: tuple[Origin, ...] = ()
    unwanted: tuple[_Range, ...] = ()
    renewed_us: _Time = 0
    """When it was asked for last, though it may have been there."""
    wish: _Whole = 0
    """The highest number under which it was asked for; 0 for none."""
    next: _Range = (0, 0)
    """What is handed out next, and up to where it goes on from there; (0, 0): the first that is not settled."""
    owner: _Owner = ""
    """The principal whose it is; "" for nobody's."""
    lost: tuple[Lost, ...] = ()
    """What its subscriber is still to be told of: it was gone before earlier merges."""


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """The giver wants to give a topic away. `incarnation` is here and in each part the present life of its stream."""

    incarnation: _Incarnation
    lives: Annotated[list[tuple[_Incarnation, _Whole]], msgspec.Meta(max_length=_LIVES_MAX)] = []
    """All that are known, and the sequence with which each begins, ascending; none: it has had this one alone."""


class Sources(msgspec.Struct, frozen=True, tag="sources"):
    """How far clients have put: name, number (the last counter and one more), and the digest of the last body."""

    incarnation: _Incarnation
    sources: list[tuple[str, _Put, Annotated[bytes, msgspec.Meta(max_length=_SOURCE_TOKEN_SIZE_MAX)]]]
    owners: dict[str, _Owner] = {}
    """The principals whose names these are, by name; "" for nobody's."""


PART_COUNT_MAX = ROWS_COUNT_TAKEN_MAX
"""The most rows of a part."""
_SHORT = msgspec.Meta(max_length=PART_COUNT_MAX)


class RowsPart(msgspec.Struct, frozen=True, tag="rows"):
    """Rows of the giver's stream, in ascending sequences; a column each, the bodies in the messages.

    The keeper's clock was `offset_us` (at least, at most) before the giver's, as far as is known by now.
    """

    incarnation: _Incarnation
    sequences: Annotated[list[int], _SHORT]
    times_us: Annotated[list[int], _SHORT]
    event_times_us: Annotated[list[int], _SHORT]
    keys: Annotated[list[bytes], _SHORT]
    attributes: Annotated[list[dict[str, Any] | None], _SHORT]
    clients: Annotated[list[str], _SHORT]
    """Who put a row, "" for one that was published otherwise."""
    counters: Annotated[list[int], _SHORT]
    offset_us: Bounds


class _Outline(msgspec.Struct):
    attributes: RawAttributes | None = None


class End(msgspec.Struct, frozen=True, tag="end"):
    """All rows up to `head` were sent, and nothing more comes to be: the topic is the keeper's.

    The keeper's clock was `offset_us` (at least, at most) before the giver's.
    """

    incarnation: _Incarnation
    head: _Whole
    offset_us: Bounds
    standings: dict[str, Standing]
    """By subscriber."""
    left: dict[str, dict[_Owner, Left]] = {}
    """By subscriber and principal, when those that left did so, under which number, and what they had."""
    appended_us: _Time = 0
    """No row was appended at the giver later than this; 0: that is not known."""
    gone: Annotated[tuple[Gone, ...], msgspec.Meta(max_length=GONE_MAX)] = ()
    """What earlier merges into the giver's stream did not bring, by its clock."""
    merged: Annotated[tuple[_Life, ...], msgspec.Meta(max_length=OF_NAME_MAX)] = ()
    """The lives of what was merged into the giver's stream, or removed there."""


class _OriginThere(msgspec.Struct, frozen=True, array_like=True):
    incarnation: bytes
    next_sequence: int
    runs: Annotated[tuple[tuple[int, int, int], ...], msgspec.Meta(max_length=HAD_RUNS_MAX)] = ()
    gone: Annotated[tuple[tuple[int, Lost], ...], msgspec.Meta(max_length=HAD_RUNS_MAX)] = ()


class _HadThere(msgspec.Struct, frozen=True, array_like=True):
    received: Annotated[tuple[tuple[int, int], ...], msgspec.Meta(max_length=HAD_RANGES_MAX)] = ()
    origins: Annotated[tuple[_OriginThere, ...], msgspec.Meta(max_length=HAD_ORIGINS_MAX)] = ()


class _LeftThere(msgspec.Struct, frozen=True, array_like=True):
    removed_us: int
    wish: int = 0
    had: msgspec.Raw = msgspec.Raw()

    def taken(self, is_had_known: bool) -> Left:
        if not (is_had_known and self.had):
            return Left(self.removed_us, self.wish)
        had = _decode_had(self.had)
        origins = (Origin(one.incarnation, one.next_sequence, one.runs, one.gone) for one in had.origins)
        return Left(self.removed_us, self.wish, Had(had.received, tuple(origins)))


_Many = msgspec.Meta(max_length=LEFT_MAX)
HAD_SIZE_MAX = 1 << 20
"""Of what all had that left, the newest ones first, so many bytes are taken: a hundred of each where many have left."""


class _EndThere(End, frozen=True, tag="end"):
    """An end as it comes: who left had no more than a server remembers of it, and so many have left, or are there."""

    standings: Annotated[dict[str, Standing], msgspec.Meta(max_length=STANDINGS_MAX)]
    left: Annotated[dict[str, Annotated[dict[_Owner, _LeftThere], _Many]], _Many] = {}  # type: ignore[assignment]


Part: TypeAlias = Begin | Sources | RowsPart | End


class Heard(msgspec.Struct, frozen=True):
    """The keeper has committed the rows up to `committed` (-1 for none yet), and staged those up to `staged`."""

    committed: Annotated[int, msgspec.Meta(ge=-1, le=U63_MAX)]
    staged: Annotated[int, msgspec.Meta(ge=-1, le=U63_MAX)]
    clock_us: _Time


_encode = msgspec.msgpack.Encoder().encode
_decode_part = msgspec.msgpack.Decoder(Begin | Sources | RowsPart | _EndThere).decode
_decode_had = msgspec.msgpack.Decoder(_HadThere).decode
_decode_outline = msgspec.msgpack.Decoder(_Outline).decode
_decode_heard = msgspec.msgpack.Decoder(Heard).decode


def encode_beyond(part: Part | Heard) -> bytes:
    """The bytes behind the last message, or in the answer."""
    return _encode(part)


def decode_part(transfer: Transfer) -> Part:
    """What a TRANSFER carries, checked. Raises `PeerFault("bad-message")` and `Refused("bad-name")`."""
    if not transfer.beyond:
        said = "these servers send an extended TRANSFER, and this one is not extended"
        raise PeerFault("bad-message", f"{said}: use the same kind of server on both sides")
    try:
        check_flat(_decode_outline(transfer.beyond).attributes)
        came = _decode_part(transfer.beyond)
        part: Part = _end_of(came) if isinstance(came, _EndThere) else came
    except (ValueError, RecursionError, PeerFault) as error:
        raise PeerFault("bad-message", f"the extension of a TRANSFER does not decode: {error}") from None
    if isinstance(part, RowsPart):
        _check_rows(part, len(transfer.messages))
    elif transfer.messages:
        raise PeerFault("bad-message", f"{len(transfer.messages)} messages arrived in a part that must have none")
    if isinstance(part, End):
        for subscriber in (*part.standings, *part.left):
            checked_name("subscriber", subscriber)
        _check_end(part)
    return part


def _end_of(came: _EndThere) -> End:
    if sum(map(len, came.left.values())) > LEFT_MAX:
        raise ValueError(f"more than {LEFT_MAX} have left")
    known_size, left = 0, {who: dict[str, Left]() for who in came.left}
    those_that_left = ((who, whose, one) for who, lefts in came.left.items() for whose, one in lefts.items())
    for who, whose, one in sorted(those_that_left, key=_removed_us, reverse=True):
        known_size += len(one.had)
        left[who][whose] = one.taken(known_size <= HAD_SIZE_MAX)
    return End(
        came.incarnation, came.head, came.offset_us, came.standings, left, came.appended_us, came.gone, came.merged
    )


def _removed_us(one: tuple[str, str, _LeftThere]) -> int:
    return one[2].removed_us


def _check_end(part: End) -> None:
    for who, standing in part.standings.items():
        ranges = (*standing.settled, *standing.unwanted)
        if not all(first <= last for first, last in ranges):
            raise PeerFault("bad-message", f"a range of {who}'s ends before it begins")
        if not all(map(_is_sound, standing.origins)):
            raise PeerFault("bad-message", f"{who} cannot have stood so in another stream")
        if not all(map(_is_of_a_stream, standing.lost)):
            raise PeerFault("bad-message", f"{who} cannot have lost that of another stream")
    for who, lefts in part.left.items():
        for left in lefts.values():
            if not (0 <= left.removed_us <= TIME_MAX_US and 0 <= left.wish <= U63_MAX):
                raise PeerFault("bad-message", f"{who} cannot have left at {left.removed_us} µs by wish {left.wish}")
            received = (0, *chain.from_iterable(left.had.received), U63_MAX)
            if list(received) != sorted(received) or not all(map(_is_sound, left.had.origins)):
                raise PeerFault("bad-message", f"{who} cannot have had that when it left")
    if not all(_is_of_a_stream(one) and 0 <= one.until_us <= TIME_MAX_US for one in part.gone):
        raise PeerFault("bad-message", "that cannot be gone from another stream")


def _is_of_a_stream(one: Lost | Gone) -> bool:
    return len(one.incarnation) <= INCARNATION_SIZE and 0 < one.first <= one.last <= U63_MAX


def _is_sound(origin: Origin) -> bool:
    numbers = (origin.next_sequence, *chain.from_iterable(origin.runs), *(first for first, _ in origin.gone))
    are_whole = all(0 <= number <= U63_MAX for number in numbers)
    are_of_streams = all(_is_of_a_stream(one) for _, one in origin.gone)
    return are_whole and are_of_streams and len(origin.incarnation) <= INCARNATION_SIZE


def _check_rows(part: RowsPart, count: int) -> None:
    columns: Sequence[Sequence[object]] = (
        part.sequences, part.times_us, part.event_times_us, part.keys, part.attributes, part.clients, part.counters
    )  # fmt: skip
    if any(len(column) != count for column in columns):
        raise PeerFault("bad-message", f"{count} messages arrived with columns of another length")
    previous = 0
    for sequence in part.sequences:
        if not previous < sequence <= U63_MAX:
            raise PeerFault("bad-message", f"sequence {sequence} is not after {previous}")
        previous = sequence
    if max(map(len, part.keys), default=0) > KEY_SIZE_MAX:
        raise PeerFault("bad-message", f"a key has more than {KEY_SIZE_MAX} bytes")
    late_us = part.offset_us[1]
    for time_us in part.times_us:
        if not (0 <= time_us <= TIME_MAX_US and 0 <= time_us + late_us <= TIME_MAX_US):
            raise PeerFault("bad-message", f"a row cannot have been put at {time_us}, {late_us} µs before now")
    for client, counter in zip(part.clients, part.counters, strict=True):
        if client and (checked_name("source", client) and not 0 < counter <= U63_MAX):
            raise PeerFault("bad-message", f"{client} cannot have put under the counter {counter}")


def decode_heard(body: bytes) -> Heard | None:
    """What a keeper's answer says, None where it says nothing of the kind."""
    try:
        heard: Heard = _decode_heard(body)
    except (ValueError, RecursionError):
        return None
    return heard


class Row(NamedTuple):
    """One row of a stream; `time_us` is when its first server appended it, `client` "" where it is no put."""

    sequence: int
    time_us: int
    event_time_us: int
    key: bytes
    body: bytes
    attributes: Attributes | None
    client: str
    counter: int
    digest: bytes = b""
    """Of the body of a put."""

    @property
    def put(self) -> tuple[str, int, bytes]:
        """What is known of its client once this was put: the last counter, and the digest of what was put with it."""
        attributes = self.attributes or {}
        last, digest = attributes.get(PUT_LAST), attributes.get(PUT_DIGEST)
        if isinstance(last, int) and last >= self.counter:
            if isinstance(digest, bytes):
                return self.client, last, digest
            if last > self.counter:
                return self.client, last, b""
        return self.client, self.counter, self.digest


def rows_in(buffers: Sequence[Octets], names: Mapping[int, str]) -> Iterator[Row]:
    """The rows that were pushed, in whole batches: what was put at once is known by all of it. `names` of their sources
    by id.
    """
    data, end = buffers[0] if len(buffers) == 1 else b"".join(buffers), 0
    for view in records_in(data):
        batch, end = view.body, view.offset + len(view.memory)
        header = read_header(batch)
        rows = read_rows(batch, header)
        name = names.get(header.source_id, "")
        token = token_of(batch, header) if name and header.token_size == DIGEST_SIZE else b""
        is_single = header.count == 1 and token == digest_of(rows.bodies[0])
        is_put = is_single or (token != b"" and token == digest_of(pack(rows.bodies)))
        for index in range(len(rows.keys)):
            attributes = rows.attributes[index] if rows.attributes else None
            client, counter = (name, header.first_number + index) if is_put else put_of(attributes)
            if is_put and not is_single:
                attributes = {PUT_LAST: header.last_number, PUT_DIGEST: token}
            if name and not client and not (attributes and MERGED_SOURCE in attributes):
                merged: Attributes = {MERGED_SOURCE: name, MERGED_NUMBER: header.first_number + index}
                attributes = {**(attributes or {}), **merged}
            event_us = rows.event_times_us[index] if rows.event_times_us else in_dates(header.event_time_min_us)
            time_us = view.envelope.append_time_us
            if not header.source_id and attributes:
                known_us = attributes.get(APPENDED_US)
                time_us = known_us if type(known_us) is int and 0 <= known_us <= TIME_MAX_US else time_us
            sequence, body = view.envelope.first_sequence + index, rows.bodies[index]
            digest = token if is_single else digest_of(body) if client else b""
            yield Row(sequence, time_us, event_us, rows.keys[index], body, attributes, client, counter, digest)
    if end != len(data):
        raise InvariantBroken(f"what was pushed holds no sound record at {end}")


def page_number(message_id: str) -> int:
    """The number that a message of a server from the page has, by its id there."""
    return int.from_bytes(blake2b(message_id.encode(), digest_size=8).digest()) >> 2 | 1


def page_numbers(message_id: str) -> tuple[int, ...]:
    """The numbers of messages that may be meant by this id: as it is, and in its other form."""
    other = other_form(message_id)
    return (page_number(message_id), page_number(other)) if other else (page_number(message_id),)


def put_of(attributes: Mapping[str, Any] | None) -> tuple[str, int]:
    """Who put a row that came from another server, and under which counter; ("", 0) for any other.

    Anybody may publish attributes of these names: what cannot be a put's is none.
    """
    if not attributes or PUT_CLIENT not in attributes:
        return "", 0
    client, counter = attributes[PUT_CLIENT], attributes.get(PUT_COUNTER)
    if not isinstance(client, str) or type(counter) is not int or not 0 < counter <= U63_MAX:
        return "", 0
    try:
        return checked_name("source", client), counter
    except Refused:
        return "", 0


def part_of(incarnation: bytes, rows: Sequence[Row], offset_us: Bounds) -> RowsPart:
    """Rows as a part carries them."""
    return RowsPart(
        incarnation,
        [row.sequence for row in rows],
        [row.time_us for row in rows],
        [row.event_time_us for row in rows],
        [row.key for row in rows],
        [row.attributes for row in rows],
        [row.client for row in rows],
        [row.counter for row in rows],
        offset_us,
    )


def rows_of(part: RowsPart, transfer: Transfer) -> Iterator[Row]:
    """The rows of a part that came, with the attributes that they have in the keeper's stream."""
    late_us = part.offset_us[1]
    bodies = [body for _, body in transfer.messages]
    put = list(zip(part.times_us, part.attributes, part.clients, part.counters, strict=True))
    attributes = [_staged(known, time_us + late_us, client, counter) for time_us, known, client, counter in put]
    digests = [digest_of(body) if client else b"" for client, body in zip(part.clients, bodies, strict=True)]
    columns = zip(
        part.sequences, part.times_us, map(in_dates, part.event_times_us), part.keys, bodies, attributes, part.clients,
        part.counters, digests, strict=True,
    )  # fmt: skip
    return starmap(Row, columns)


def _staged(known: Attributes | None, appended_us: int, client: str, counter: int) -> Attributes:
    own: Attributes = {APPENDED_US: appended_us}
    if client:
        own = {APPENDED_US: appended_us, PUT_CLIENT: client, PUT_COUNTER: counter}
    return {**known, **own} if known else own


def staged_record(rows: Sequence[Row], stream_id: int, first_number: int) -> tuple[bytearray, BatchHeader]:
    """Rows as a batch for a stage of the keeper's stream. Raises `PeerFault` where attributes do not go together."""
    attributes = [row.attributes for row in rows]
    times = [row.event_time_us for row in rows]
    columns = columns_of(Rows([row.key for row in rows], [row.body for row in rows], times, attributes))
    count = len(rows)
    header = BatchHeader(
        int(Layout.COLUMNS), 0, 0, 0, count, stream_id, 0, 0, count, first_number, min(times), max(times)
    )
    record = signed_record(header, encode_columns(columns))
    return record, read_header(memoryview(record)[ENVELOPE_SIZE:])


def in_batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Runs of rows whose attributes go together: puts with puts, all else by the names and kinds that it has."""
    run: list[Row] = []
    kind: object = None
    for row in rows:
        own = {name: type(value) for name, value in (row.attributes or {}).items()}
        if run and own != kind:
            yield run
            run = []
        kind = own
        run.append(row)
    if run:
        yield run
