"""`veredus journal`: looks into the directory of a journal that nobody uses, or marks it as restored; changes nothing
else in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import asdict

from veredus.cli.exits import Ended, Exit
from veredus.cli.terminal import (
    JSON,
    TABLE,
    CommandGroup,
    Naming,
    note,
    output_option,
    time_text,
    write_one,
    write_rows,
)

if TYPE_CHECKING:
    from veredus.journal.verify import DumpedRecord, Report
    from veredus.kernel.effects import Note
    from veredus.runtime.directory import Directory
    from veredus.streams.engine import StreamsEngine
    from veredus.topics.facts import Fact, Snapshot

SEGMENT_COLUMNS = ("segment", "state", "size", "groups", "batches", "staged", "facts", "rows", "streams", "damage")
RECORD_COLUMNS = ("segment", "offset", "size", "kind", "stream", "first_sequence", "count", "append_time", "fact")
GROUP = "group"
"""The record that opens each group: of use to recovery alone."""
_WHICH = "the directory of a node, or of a client of topics"
_directory_argument = click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))


@click.group(cls=CommandGroup)
def journal() -> None:
    """Verify, dump, or mark as restored the journal of a stopped node; the first two also of topic clients."""


@journal.command("verify", short_help="Report all damage in a journal.")
@_directory_argument
@output_option
def verify(directory: Path, output: str) -> None:
    """Read the whole journal in DIRECTORY, and report the content of each segment and all damage.

    A torn tail is not damage: the next start cuts it off. The exit code is 6 if there is damage.
    """
    from veredus.journal.settings import LogSettings
    from veredus.journal.verify import verify as look_through
    from veredus.runtime.disk import drive_steps

    contents = _Contents()
    with looked_at(directory) as opened:
        report = drive_steps(opened, look_through(opened.listing(), LogSettings()), contents.take)
    report.notes += contents.told(report)
    if output == TABLE:
        write_rows(_segments_of(report), output, SEGMENT_COLUMNS)
    else:
        write_one({"holds": contents.kind} | _described(report) | {"segments": _segments_of(report)}, output)
    for found in report.notes:
        note_down(found)
    for segment in report.segments:
        for damage in segment.damage:
            note(f"damage: {_fields(damage)}")
    contents.say()
    note("sound" if report.is_sound else "the journal has damage")
    if not report.is_sound:
        raise Ended(Exit.DAMAGED)


@journal.command("dump", short_help="List the records of a journal.")
@_directory_argument
@click.option("--stream", cls=Naming, help="Only records of this stream, or of this topic.")
@click.option("--segment", "segments", type=int, multiple=True, help="Only records of this segment; repeatable.")
@click.option(
    "--from",
    "first",
    type=click.IntRange(0),
    default=0,
    help="Of batches, only those from this sequence on.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after this many records of any kind.")
@output_option
def dump(
    directory: Path, stream: str | None, segments: tuple[int, ...], first: int, count: int | None, output: str
) -> None:
    """List the records of the journal in DIRECTORY: batches, rows of open stages, and facts.

    In a journal of topic clients, a fact belongs to the stream that has the name of its topic.
    """
    from veredus.journal.verify import dump as list_records
    from veredus.runtime.disk import drive_steps

    rows: list[dict[str, object]] = []
    with looked_at(directory) as opened:
        names, topics = _names_in_checkpoint(opened)
        files = opened.listing()
        listing = list_records(files, list(segments) or None)
        write = rows.append if output in (TABLE, JSON) else lambda row: write_rows([row], output)
        dumping = _Dumping(names, topics, stream, first, count, write)
        try:
            drive_steps(opened, listing, dumping.take)
        except _Enough:
            listing.close()
    if output in (TABLE, JSON):
        write_rows(rows, output, RECORD_COLUMNS)
    _note_missing(segments, files)
    kind, known = ("topic", topics) if topics else ("stream", set(names.values()))
    if stream is not None and stream not in known:
        note(f"there are no records of {kind} {stream!r}; {kind}s: {', '.join(sorted(known)) or 'none'}")


@journal.command("restored", short_help="Say that a journal was restored from a copy.")
@_directory_argument
def restored(directory: Path) -> None:
    """Say that DIRECTORY was restored from a copy, and the node had published more since that copy was made.

    At its next start the node begins a new term in every stream, once: subscribers that had received later
    publications than the copy has get a GAP with the code `lost`, and then all new ones.
    """
    from veredus.journal.settings import LogSettings
    from veredus.journal.verify import rehearse
    from veredus.kernel.errors import Refused
    from veredus.runtime.disk import drive_steps

    contents = _Contents()
    with looked_at(directory) as opened:
        drive_steps(opened, rehearse(opened.listing(), LogSettings(), []), contents.take)
        if contents.kind == "clients":
            said = f"the journal in {directory} is that of clients of topics: name the directory of a node"
            raise Refused("wrong-journal", said, path=str(directory))
        opened.mark_restored()
    note("the next start begins a new term in every stream")


def _note_missing(segments: tuple[int, ...], files: Iterable[str]) -> None:
    """Say which of the segments that were asked for are not there."""
    from veredus.journal.layout import number_of

    there = sorted(number for name in files if (number := number_of(name, ".segment")) is not None)
    for missing in sorted(set(segments).difference(there)):
        note(f"there is no segment {missing}; segments: {', '.join(map(str, there)) or 'none'}")


class _Enough(Exception):
    """As many records as were wanted were listed."""


class _Dumping:
    """Takes what is found, learns the names of streams and topics on the way, and writes what is wanted."""

    def __init__(
        self,
        names: dict[int, str],
        topics: set[str],
        stream: str | None,
        first: int,
        count: int | None,
        write: Callable[[dict[str, object]], None],
    ) -> None:
        self._names = names
        self._topics = topics
        self._stream = stream
        self._first = first
        self._count = count
        self._write = write

    def take(self, found: Any) -> None:
        """A record, or a note about what is not sound."""
        from veredus.journal.verify import DumpedRecord

        if not isinstance(found, DumpedRecord):
            note_down(found)
            return
        if found.kind == GROUP:
            return
        fact = _fact_of(found)
        if fact is not None and fact.get("type") == "stream":
            self._names[int(str(fact["stream_id"]))] = str(fact["name"])
        elif fact is not None and "topic" in fact:
            self._topics.add(str(fact["topic"]))
        row = self._row(found, fact)
        if self._stream is not None and row["stream"] != self._stream:
            return
        if found.kind == "batch" and found.first_sequence + found.count <= self._first:
            return
        self._write(row)
        if self._count is not None:
            self._count -= 1
            if not self._count:
                raise _Enough

    def _row(self, found: DumpedRecord, fact: dict[str, object] | None) -> dict[str, object]:
        stream_id = found.stream_id if fact is None else fact.get("stream_id", 0)
        topic = None if fact is None else fact.get("topic")
        return {
            "segment": found.segment,
            "offset": found.offset,
            "size": found.size,
            "kind": found.kind,
            "stream": topic or self._names.get(int(str(stream_id)), f"#{stream_id}" if stream_id else None),
            "first_sequence": found.first_sequence or None,
            "count": found.count or None,
            "append_time": time_text(found.append_time_us) if found.append_time_us else None,
            "is_continued": found.is_continued,
            "fact": fact,
        }


class _Contents:
    """Owns what the journal holds, as far as it can be had: the tables of a node, or what clients of topics remember.

    The first thing that is found says which; the other kind behind it is refused.
    """

    def __init__(self) -> None:
        self._floor: StreamsEngine | None = None
        self._states: Snapshot | None = None

    def take(self, found: Any) -> None:
        """What recovery hands out. Raises `Refused`: `wrong-journal`, `newer-format`."""
        from veredus.delivery.record import RecordKind
        from veredus.journal.steps import CheckpointLoaded
        from veredus.topics import facts

        is_snapshot = isinstance(found, CheckpointLoaded)
        is_fact = not is_snapshot and found.view.envelope.kind == RecordKind.FACT
        if self._floor is None and self._states is None:
            if (is_snapshot and facts.is_snapshot(found.state)) or (is_fact and facts.is_fact(found.view.payload)):
                self._states = {}
            else:
                self._floor = _empty_floor()
        if self._states is not None:
            if is_snapshot:
                self._states.update(facts.decode_snapshot(found.state))
            elif is_fact:
                facts.apply_fact(self._states, facts.decode_fact(found.view.payload))
        elif self._floor is not None:
            if is_snapshot:
                self._floor.load(found.state)
            else:
                self._floor.replay(found.view)

    @property
    def kind(self) -> str:
        """What the journal holds, in a word."""
        return "clients" if self._states is not None else "streams" if self._floor is not None else "nothing"

    def say(self) -> None:
        """Say to a person whose journal it is, where that is no node's."""
        if self._states is None:
            return
        from veredus.kernel.words import counted
        from veredus.topics.facts import names_in

        clients = {client for client, _ in map(names_in, self._states)}
        who, what = counted(len(clients), "client of topics", "clients of topics"), counted(len(self._states), "topic")
        note(f"the journal holds the state of {who}, for {what}")

    def told(self, report: Report) -> Iterator[Note]:
        """What the tables say of damage: of what is kept, what no table knows, since the facts that made it are gone,
        and what is missing that nobody trimmed.
        """
        from veredus.journal.exchange import StagesPublished, StagesUnwanted, StreamDropped, StreamTrimmed
        from veredus.kernel.effects import Note

        if self._floor is None:
            return
        orders = self._floor.finish_recovery(is_clean=True)
        known = {order.stream_id for order in orders if isinstance(order, StreamDropped)}
        known |= self._floor.tables.streams_by_id.keys()
        for stream_id, extent in report.extents.items():
            if stream_id not in known:
                fields: dict[str, object] = {"stream_id": stream_id, "publications": extent.count}
                fields |= {"first_sequence": extent.first_sequence, "last_sequence": extent.last_sequence}
                yield Note("error", "stream-orphaned", {**fields, "size": extent.size})
        yield from (order for order in orders if isinstance(order, Note) and order.event == "source-orphaned")
        for order in orders:
            if isinstance(order, StagesPublished | StagesUnwanted | StreamDropped | StreamTrimmed):
                report.catalogue.hear(order)
        if report.missing:
            yield Note("warning", "journal-sequences-missing", {"stream_first_last": report.missing})


def _empty_floor() -> StreamsEngine:
    from veredus.streams.engine import StreamsEngine
    from veredus.streams.exchange import Durability
    from veredus.streams.tables import StreamsLimits

    return StreamsEngine(StreamsLimits(), Durability.GROUP, bytes, lambda *_: False, lambda _: 0)


@contextmanager
def looked_at(path: Path) -> Iterator[Directory]:
    """The directory, held against whoever would use it meanwhile.

    Raises `Refused`: `no-journal`, and `journal-locked` while a process uses it.
    """
    from veredus.kernel.errors import Refused
    from veredus.runtime.directory import LOCK_NAME, Directory, user_of

    if not _has_journal(path):
        below = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and _has_journal(entry))
        which = f"one of those below it: {', '.join(below)}" if below else _WHICH
        raise Refused("no-journal", f"there is no journal in {path}: name {which}", path=str(path))
    lock_file = path / LOCK_NAME
    lock = os.open(lock_file, os.O_RDONLY) if lock_file.is_file() else None
    directory = Directory(path, os.open(path, os.O_RDONLY), lock)
    if directory.is_in_use():
        directory.close()
        pid, user = user_of(path)
        said = f"{user} uses the journal in {path}: stop that process first"
        raise Refused("journal-locked", said, path=str(path), pid=pid)
    try:
        yield directory
    finally:
        directory.close()


def _has_journal(path: Path) -> bool:
    """Whether a journal was begun in the directory."""
    from veredus.journal.beginning import is_own

    return any(is_own(entry.name) for entry in path.iterdir())


def note_down(found: Any) -> None:
    """Say on standard error what is noteworthy."""
    note(f"{found.level}: {found.event} {_fields(found.fields)}")


def _fields(fields: dict[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _segments_of(report: Report) -> list[dict[str, object]]:
    return [
        {
            "segment": segment.number,
            "state": "open" if segment.is_open else "sealed",
            "size": segment.size,
            "end": segment.end,
            "groups": segment.group_count,
            "batches": segment.record_counts.get("batch", 0),
            "staged": segment.record_counts.get("staged", 0),
            "facts": segment.record_counts.get("fact", 0),
            "rows": segment.row_count,
            "streams": len(segment.stream_ids),
            "damage": segment.damage or None,
        }
        for segment in report.segments
    ]


def _described(report: Report) -> dict[str, object]:
    return {
        "format_version": report.format_version,
        "journal_id": report.journal_id.hex(),
        "is_sound": report.is_sound,
        "is_clean": report.is_clean,
        "free_segments": report.free,
        "notes": [{"level": found.level, "event": found.event, **found.fields} for found in report.notes],
    }


def _fact_of(found: DumpedRecord) -> dict[str, object] | None:
    if found.kind != "fact":
        return None
    import msgspec

    from veredus.kernel.errors import Refused
    from veredus.topics import facts

    try:
        if facts.is_fact(found.payload):
            return _in_words(facts.decode_fact(found.payload))
        decoded = msgspec.msgpack.decode(found.payload, type=dict[str, object])
    except (msgspec.DecodeError, Refused):
        return {"type": "unreadable", "payload": found.payload.hex()}
    return {name: _in_hex(value) for name, value in decoded.items()}


def _in_words(fact: Fact) -> dict[str, object]:
    """What a client of topics remembers from this fact on."""
    from veredus.topics.facts import names_in

    client, topic = names_in(fact.key)
    whose = {"client": client, "topic": topic}
    if isinstance(fact.change, int):
        return {"type": "handed-over", **whose, "done_count": fact.change}
    return {"type": "remembered", **whose, **{name: _in_hex(value) for name, value in asdict(fact.change).items()}}


def _in_hex(value: object) -> object:
    """The value, bytes anywhere in it as text."""
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {name: _in_hex(part) for name, part in value.items()}
        case msgspec.Struct():
            return {name: _in_hex(part) for name, part in asdict(value).items()}
        case list() | tuple():
            return [_in_hex(part) for part in value]
        case _:
            return value


def _names_in_checkpoint(directory: Directory) -> tuple[dict[int, str], set[str]]:
    """The names of a node's streams, by their ids, and the topics of clients."""
    from veredus.journal.belonging import sort_out
    from veredus.kernel.errors import Refused
    from veredus.runtime.disk import drive_steps
    from veredus.topics.facts import decode_snapshot, is_snapshot, names_in

    try:
        checkpoint = drive_steps(directory, sort_out(directory.listing()), note_down).checkpoint
    except Refused as refused:
        if refused.code != "journal-damaged":
            raise
        # Whose names they are is not known: what there is, is listed without.
        note(refused.message)
        checkpoint = None
    if checkpoint is None or not checkpoint.state:
        return {}, set()
    if is_snapshot(checkpoint.state):
        return {}, {topic for _, topic in map(names_in, decode_snapshot(checkpoint.state))}
    floor = _empty_floor()
    floor.load(checkpoint.state)
    return {stream.stream_id: stream.name for stream in floor.tables.streams.values()}, set()
