"""Stages and commits at the node: what the writer's tasks and its driver do there.

Source: docs/decisions/0009-spark-sink.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

import veredus
from veredus.kernel.errors import Refused, VeredusError

from .connections import freeze_imports, patiently, view_of
from .options import NodeOptions, WriteOptions
from .schema import published

_FIXED = ("key", "body", "event_time")


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """What one task attempt tells the driver: under which stage of which run its rows lie. Stage 0: it had none."""

    sink: str
    epoch: int
    commit_id: int
    """The sink's last commit when the attempt began; -1 for none."""
    stage: int


def sink_of(query_id: UUID) -> str:
    """The sink of a streaming query."""
    return f"spark/{query_id}"


def query_of(sink: str) -> UUID:
    """The streaming query of a sink."""
    return UUID(sink.removeprefix("spark/"))


def nothing_staged(sink: str, run: veredus.Run, rows: Iterable[pa.RecordBatch]) -> StagedRows:
    """Take rows that are committed already, and do nothing with them: Spark wants them taken."""
    for _ in rows:
        pass
    return StagedRows(sink, run.epoch, run.commit_id, 0)


def stage_rows(options: WriteOptions, sink: str, run: veredus.Run, rows: Iterable[pa.RecordBatch]) -> StagedRows:
    """Write the rows under a new stage of `run`, durable and invisible. A stage that is not finished is dropped."""
    stage: veredus.Stage | None = None
    try:
        for batch in rows:
            if batch.num_rows:
                if stage is None:
                    stage = run.stage(options.node.stream)
                _publish(stage, published(batch))
        if stage is not None:
            stage.flush(timeout_s=options.node.timeout_seconds)
    except BaseException:
        if stage is not None:
            _drop(run, [stage.stage])
        raise
    if stage is not None:
        stage.close()
        freeze_imports()
    return StagedRows(sink, run.epoch, run.commit_id, stage.stage if stage else 0)


def _publish(stage: veredus.Stage, rows: pa.RecordBatch) -> None:
    names = rows.schema.names
    attributes = [name for name in names if name not in _FIXED]
    event_time = "event_time" if "event_time" in names else None
    stage.publish_table(rows, key="key", body="body", event_time=event_time, attributes=attributes)


def staged_of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    """The messages that came, in order of partitions; a failed task's is None."""
    return [message for message in messages if isinstance(message, StagedRows)]


def commit_stages(options: WriteOptions, rows: list[StagedRows], commit_id: int) -> None:
    """Make what the tasks staged visible, once: asked again, whoever asks, it does nothing."""
    stages = [message.stage for message in rows if message.stage]

    def commit(node: veredus.Node) -> None:
        with node.sink(rows[0].sink).join_run(rows[0].epoch) as run:
            run.commit(commit_id, stages)

    patiently(options.node, commit)


def drop_stages(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Let go of what was staged and not committed; what the node says to it changes nothing."""
    rows = staged_of(messages)
    stages = [message.stage for message in rows if message.stage]
    if not stages:
        return

    def drop(node: veredus.Node) -> None:
        with node.sink(rows[0].sink).join_run(rows[0].epoch) as run:
            _drop(run, stages)

    try:
        patiently(options.node, drop)
    except VeredusError:
        # A newer run has dropped them, or will.
        return


def _drop(run: veredus.Run, stages: list[int]) -> None:
    try:
        run.drop(stages)
    except VeredusError:
        # The next run of the sink does it.
        return


def claim_place(options: WriteOptions, query_id: UUID) -> None:
    """Let the query have its checkpoint's place, if no other query had it before.

    Raises `Refused("checkpoint-deleted")` when one had: then the checkpoint was deleted, and everything would be
    written once more. Where Spark does not say which place it is, nothing can be told.
    """
    place = options.sink or options.place
    if place:
        patiently(options.node, lambda node: _claim(node, options.node, place, query_id))


def _claim(node: veredus.Node, options: NodeOptions, place: str, query_id: UUID) -> None:
    """One commit, whose id stands for the query, under a sink that stands for the place: the first one stays."""
    incarnation = view_of(node, options.stream).incarnation
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
        f"another query has written to stream {options.stream!r} from {place!r}: was its checkpoint deleted? Then all"
        " of its rows would be written again. If that is what you want, set option sink to a new name",
        place=place,
    )
