"""Stages and commits at the node: what the writer's tasks and its driver do there.

Source: docs/decisions/0009-spark-sink.md.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

import veredus
from veredus.client.digest import RowsDigest
from veredus.kernel.errors import Refused, VeredusError
from veredus.kernel.names import checked_name

from .connections import freeze_imports, patiently, view_of
from .options import NodeOptions, WriteOptions
from .schema import WRITTEN, published


@dataclass(frozen=True)
class StagedPart:
    """What one task attempt has for one stream: rows and their digest, b"" where none is wanted.

    Stage 0: they were not staged, since the batch is committed already, or there are none.
    """

    stream: str
    stage: int
    row_count: int
    digest: bytes


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """What one task attempt tells the driver: under which stages of which run its rows lie."""

    sink: str
    epoch: int
    commit_id: int
    """The sink's last commit when the attempt began; -1 for none."""
    parts: tuple[StagedPart, ...]
    checkpoint: str = ""
    """Where the session keeps its queries' checkpoints; "" where it does not say."""
    default_fs: str = ""
    """The session's file system for paths that name none; "" where it does not say."""


def sink_of(query_id: UUID) -> str:
    """The sink of a streaming query."""
    return f"spark/{query_id}"


def query_of(sink: str) -> UUID:
    """The streaming query of a sink."""
    return UUID(sink.removeprefix("spark/"))


def digested(options: WriteOptions, sink: str, run: veredus.Run, rows: Iterable[pa.RecordBatch]) -> StagedRows:
    """Take rows of a batch that is committed already, and tell only which they are: the node compares."""
    digests: dict[str, RowsDigest] = {}
    for batch in rows:
        for stream, part in _by_stream(options.node, batch):
            digests.setdefault(stream, RowsDigest()).take(part)
    parts = tuple(StagedPart(stream, 0, one.count, one.digest) for stream, one in digests.items())
    return StagedRows(sink, run.epoch, run.commit_id, parts)


def stage_rows(
    options: WriteOptions,
    sink: str,
    run: veredus.Run,
    commit_id: int,
    rows: Iterable[pa.RecordBatch],
    is_digested: bool = True,
) -> StagedRows:
    """Write the rows under new stages of `run` for a commit, durable and invisible. Stages that are not finished are
    dropped.

    Raises `Unavailable` where the node takes nothing for `timeoutSeconds`, and `Refused("stage-closed")` where the
    driver has done the commit, or has given it up.
    """
    stages: dict[str, veredus.Stage] = {}
    digests: dict[str, RowsDigest] = {}
    timeout_s = options.node.timeout_seconds
    try:
        for batch in rows:
            for stream, part in _by_stream(options.node, batch):
                if stream not in stages:
                    stages[stream] = _stage_of(run, commit_id, stream, timeout_s, len(stages))
                    digests[stream] = RowsDigest()
                if is_digested:
                    digests[stream].take(part)
                else:
                    digests[stream].add(part.num_rows, bytes(16))
                _publish(stages[stream], part)
        for stage in stages.values():
            stage.flush(timeout_s=timeout_s)
    except BaseException as error:
        _drop(run, [stage.stage for stage in stages.values()])
        for stage in stages.values():
            stage.__exit__(type(error), error, None)
        raise
    for stage in stages.values():
        stage.close()
    if stages:
        freeze_imports()
    parts = (
        StagedPart(stream, stage.stage, digests[stream].count, digests[stream].digest if is_digested else b"")
        for stream, stage in stages.items()
    )
    return StagedRows(sink, run.epoch, run.commit_id, tuple(parts))


def _stage_of(run: veredus.Run, commit_id: int, stream: str, timeout_s: float, count: int) -> veredus.Stage:
    try:
        return run.stage(stream, commit_id=commit_id, room_timeout_s=timeout_s)
    except VeredusError as error:
        if error.code != "too-many-channels":
            raise
        message = (
            f"a task has rows for more than {count} streams: repartition the rows by their stream into more tasks, or"
            " raise limits.channels_max. Nothing was written, but new streams have been created, and stay without rows"
        )
        raise Refused(error.code, message) from None


def _by_stream(options: NodeOptions, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch as they are published, for each stream that they are for, in order."""
    if not batch.num_rows:
        return
    rows = published(batch)
    if "stream" not in rows.schema.names:
        yield options.stream, rows
        return
    names = rows["stream"]
    rows = rows.drop_columns(["stream"])
    for name in pc.unique(names).to_pylist():
        yield checked_name("stream", name), rows.filter(pc.equal(names, name))


def _publish(stage: veredus.Stage, rows: pa.RecordBatch) -> None:
    names = rows.schema.names
    attributes = [name for name in names if name not in WRITTEN]
    event_time = "event_time" if "event_time" in names else None
    stage.publish_table(rows, key="key", body="body", event_time=event_time, attributes=attributes)


def staged_of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    """The messages that came, in order of partitions; a failed task's is None."""
    return [message for message in messages if isinstance(message, StagedRows)]


def contents_of(options: WriteOptions, rows: Sequence[StagedRows]) -> list[veredus.Content]:
    """What a commit holds, by stream; the stream that the options name is among them, also where there is no row."""
    digests = {options.node.stream: RowsDigest()} if options.node.stream else {}
    is_digested = True
    for part in (part for message in rows for part in message.parts):
        digests.setdefault(part.stream, RowsDigest()).add(part.row_count, part.digest)
        is_digested = is_digested and bool(part.digest)
    return [veredus.Content(stream, one.count, one.digest if is_digested else b"") for stream, one in digests.items()]


def check_consecutive(options: WriteOptions, sink: str, last: int, batch_id: int) -> None:
    """Raise `Refused("data-loss")` when the sink does not have the batch before this one, and the writer minds.

    Spark runs every micro-batch with at least one task, also one without rows, so a query commits each of its batches.
    """
    if last >= batch_id - 1:
        return
    first, until = last + 1, batch_id - 1
    missing = f"commit {first}" if first == until else f"commits {first} to {until}"
    why = (
        f"sink {sink!r} lacks {missing}, and the query goes on with batch {batch_id}: its node was put back to an older"
        " copy, or has lost the end of its journal, or the sink was removed, or the query wrote to another place before"
    )
    if options.fails_on_data_loss:
        raise Refused(
            "data-loss",
            f"{why}. Nothing was written. Write the rows of the missing batches again from their source, for example"
            " with a batch read of their range. Then, or to go on without them, set the option `failOnDataLoss` of this"
            " write to false until the next batch is committed",
            sink=sink,
            first=first,
            last=until,
        )
    warnings.warn(f"{why}; failOnDataLoss=false: it goes on without their rows", stacklevel=3)


def commit_stages(options: WriteOptions, rows: list[StagedRows], commit_id: int, is_consecutive: bool = False) -> None:
    """Make what the tasks staged visible, once: asked again, whoever asks, it does nothing.

    Raises `Refused("commit-other-streams")` or `Refused("commit-other-rows")` when it was done before and held other
    rows, the latter unless the options let it pass. `is_consecutive`: they are a query's batches. Looks once more
    whether the sink has the one before, and raises as `check_consecutive`: a node that was put back since the tasks
    ended knows no stage of theirs, but a batch without rows has none.
    """
    seen = min(message.commit_id for message in rows)
    stages = [part.stage for message in rows for part in message.parts if part.stage]
    contents = contents_of(options, rows)

    def commit(node: veredus.Node) -> None:
        with node.sink(rows[0].sink).join_run(rows[0].epoch) as run:
            if is_consecutive and run.commit_id < seen:
                check_consecutive(options, rows[0].sink, run.commit_id, commit_id)
            run.commit(commit_id, stages, contents)

    try:
        patiently(options.node, commit)
    except Refused as refused:
        if refused.code == "commit-other-streams" and is_consecutive:
            raise _other_streams(rows[0].sink, refused) from None
        if not (refused.code == "commit-other-rows" and options.keeps_other_rows):
            raise
        message = (
            f"{refused.message}; onOtherRows=keep: the rows of this run are dropped. If the checkpoint was replaced by"
            " an earlier one, rows that the query has read since are among them, and are lost"
        )
        warnings.warn(message, stacklevel=2)
        give_up(options, rows[0].sink, rows[0].epoch, rows)


def _other_streams(sink: str, refused: Refused) -> Refused:
    """What helps a query: the node says what helps other writers, who choose commit ids and sinks."""
    details: dict[str, Any] = refused.details
    batch_id, done, asked = (details[name] for name in ("commit_id", "committed", "asked"))
    message = (
        f"sink {sink!r} has done batch {batch_id} already, into {_named(done)}, and the query is asked to write it into"
        f" {_named(asked)}: nothing was written. If the option `stream` was changed, start it once with the former"
        " stream, so that Spark hears of this batch, and change it after that. If the stream was deleted and created"
        " again, give the query another `checkpointLocation`: then it is another query, and writes from its start again"
    )
    return Refused(refused.code, message, **details)


def _named(contents: Iterable[Sequence[Any]]) -> str:
    return ", ".join(f"{stream!r} (incarnation {incarnation[:8] or 'none'})" for stream, incarnation, *_ in contents)


def give_up(
    options: WriteOptions,
    sink: str,
    epoch: int,
    messages: Sequence[WriterCommitMessage | None],
    commit_id: int | None = None,
) -> None:
    """Let go of what was staged and not committed; with a `commit_id` of all that is for this commit, also what a task
    stages later. What is committed stays, and what the node says to it changes nothing.
    """
    stages = [part.stage for message in staged_of(messages) for part in message.parts if part.stage]

    def drop(node: veredus.Node) -> None:
        with node.sink(sink).join_run(epoch) as run:
            _drop(run, stages, commit_id)

    # Where it fails, a newer run has dropped them, or will, or they go with their lease.
    with suppress(VeredusError):
        patiently(options.node, drop)


def _drop(run: veredus.Run, stages: list[int], commit_id: int | None = None) -> None:
    # Where it fails, the next run of the sink does it, or they go with their lease.
    with suppress(VeredusError):
        if stages or commit_id is not None:
            run.drop(stages, commit_id)


def claim_place(options: WriteOptions, query_id: UUID, place: str) -> None:
    """Let the query have its checkpoint's place, if no other query had it before.

    Raises `Refused("checkpoint-deleted")` when one had: then the checkpoint was deleted, and everything would be
    written once more. Where Spark does not say which place it is (""), nothing can be told.
    """
    if place:
        patiently(options.node, lambda node: _claim(node, options.node, place, query_id))


def _claim(node: veredus.Node, options: NodeOptions, place: str, query_id: UUID) -> None:
    """One commit, whose id stands for the query, under a sink that stands for the place: the first one stays."""
    incarnation = _incarnation_of(node, options.stream) if options.stream else ""
    digest = hashlib.sha256(f"{options.stream}\n{incarnation}\n{place}".encode()).hexdigest()[:32]
    claim = query_id.int >> 65
    with node.sink(f"spark-place/{digest}").open_run() as run:
        if run.commit_id == claim:
            return
        if run.commit_id == -1:
            run.commit(claim, ())
            return
    raise Refused(
        "checkpoint-deleted",
        f"another query has written to {options.written} from {place!r}: was its checkpoint deleted? Then all of its"
        " rows would be written again. If that is what you want, set the option `sink` to a new name",
        place=place,
    )


def _incarnation_of(node: veredus.Node, stream: str) -> str:
    """The stream's incarnation in hexadecimal; where a first batch without rows has not made it, it is made here."""
    try:
        return view_of(node, stream).incarnation
    except Refused as refused:
        if refused.code != "unknown-stream":
            raise
        incarnation: bytes = node.streams.create(stream)["incarnation"]
        return incarnation.hex()
