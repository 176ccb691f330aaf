"""Rows into a stream, each batch of them once: staged by the tasks, shown by one commit of the driver.

    task:    join the run ──► open a stage ──► rows, durable and invisible ──► message (sink, epoch, stage)
    driver:  first commit of a query: claim its place ──► commit (sink, batch id, stages) ──► visible

Invariants
    (1) A batch's rows become visible by one commit or not at all, whatever task or driver dies when.
    (2) A stage belongs to one attempt of one task: what a failed attempt wrote is in no commit.
    (3) A batch that is committed is not written again, and `abort` does nothing to it. If it comes again with other
        rows, or for another stream, it is refused.
    (4) A query's batch is committed behind the batch before it, or the loss of those in between is told.
Source: docs/internals/DESIGN.md, "Spark" and "Sinks"; docs/decisions/0009-spark-sink.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from uuid import UUID, uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

import veredus
from veredus.kernel.errors import InvariantBroken, Refused, VeredusError
from veredus.kernel.names import INCARNATION_SIZE

from .checkpoints import place_of, this_machine
from .connections import patiently
from .options import WriteOptions
from .plainly import plainly
from .staging import (
    StagedRows,
    check_consecutive,
    claim_place,
    commit_stages,
    digested,
    give_up,
    query_of,
    sink_of,
    stage_rows,
    staged_of,
)

NO_STREAM = "+"
"""Stands in a sink's name for streams that the rows name."""
STREAM_SIZE_MAX = 200
"""Characters of a stream's name that stand in a sink's."""
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
_DEFAULT_FS = "spark.hadoop.fs.defaultFS"


@dataclass(frozen=True)
class MicroBatch:
    """Whose rows a task writes: the query (kept in the checkpoint), its batch, and this start of the query."""

    query_id: UUID
    batch_id: int
    run_id: UUID
    checkpoints: str
    """Where the session keeps its queries' checkpoints; "" where it does not say."""
    default_fs: str
    """The session's file system for paths that name none; "" where it does not say."""

    @property
    def sink(self) -> str:
        """The query's sink at the node."""
        return sink_of(self.query_id)


def micro_batch_of(context: TaskContext | None) -> MicroBatch:
    """What Spark tells a task of a streaming query about itself."""
    values = [context.getLocalProperty(name) if context else None for name in (_QUERY_ID, _BATCH_ID, _RUN_ID)]
    query_id, batch_id, run_id = values
    if not (context and query_id and batch_id and run_id):
        raise InvariantBroken(f"Spark gave a streaming task no {_QUERY_ID}, {_BATCH_ID} or {_RUN_ID}: {values}")
    checkpoints, default_fs = (context.getLocalProperty(name) or "" for name in (_CHECKPOINTS, _DEFAULT_FS))
    return MicroBatch(UUID(query_id), int(batch_id), UUID(run_id), checkpoints, default_fs)


class StageStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query, each once."""

    def __init__(self, options: WriteOptions) -> None:
        """A writer for a stream and a query that Spark names later."""
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """On an executor: stage the rows of one task attempt. Raises `Fenced` when another start has taken over."""
        batch = micro_batch_of(TaskContext.get())
        node = self._options.node
        # The first task of this start opens the run; all others, told apart by nothing, are given the same one.
        with patiently(node, lambda node: node.sink(batch.sink).open_run(batch.run_id.bytes)) as run:
            if run.commit_id >= batch.batch_id:
                staged = digested(self._options, batch.sink, run, iterator)
            else:
                staged = stage_rows(self._options, batch.sink, run, batch.batch_id, iterator)
            return replace(staged, checkpoint=batch.checkpoints, default_fs=batch.default_fs)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """On the driver: show what the tasks staged. Asked again, it does nothing.

        Raises `Fenced` when another start of the query has taken over, and `Refused` when the query's checkpoint was
        deleted (`checkpoint-deleted`) or put back to an earlier state (`commit-id-behind`; also where another driver
        of the query has committed meanwhile), when the batch was committed with other rows (`commit-other-rows`) or
        for another stream (`commit-other-streams`), and when batches before it are gone from the node (`data-loss`).
        """
        rows = staged_of(messages)
        if rows:
            # The least: the node may have been put back between two tasks.
            last = min(message.commit_id for message in rows)
            check_consecutive(self._options, rows[0].sink, last, batchId)
            if last == -1:
                claim_place(self._options, query_of(rows[0].sink), self._place(rows[0]))
            commit_stages(self._options, rows, batchId, is_consecutive=True)

    def _place(self, staged: StagedRows) -> str:
        """What stands for the query's checkpoint: option `sink`, or where it lies; "" where that cannot be told."""
        options = self._options
        return options.sink or place_of(
            options.checkpoint, staged.checkpoint, options.query_name, staged.default_fs, this_machine()
        )

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """On the driver: drop what was staged and not committed, also by tasks that still run."""
        rows = staged_of(messages)
        # Where no task could tell of the query, the next start of it does that, or the lease.
        if rows:
            give_up(self._options, rows[0].sink, rows[0].epoch, rows, batchId)


class StageWriter(DataSourceArrowWriter):
    """Writes one DataFrame by one commit: once per (sink, commit id) where the user gives them, else once per call."""

    def __init__(self, options: WriteOptions, sink: str, incarnation: bytes, epoch: int, is_committed: bool) -> None:
        """A writer into the run `epoch` of `sink`, which `incarnation` began; `opened` makes one."""
        self._options = options
        self._sink = sink
        self._incarnation = incarnation
        self._epoch = epoch
        self._is_committed = is_committed

    @classmethod
    def opened(cls, options: WriteOptions) -> StageWriter:
        """On the driver, while the write is planned: open the run that its tasks will join.

        Raises `Refused("commit-id-behind")` when the sink has committed a greater id.
        """
        sink = f"spark-batch/{options.sink or f'{options.node.stream[:STREAM_SIZE_MAX] or NO_STREAM}/{uuid4()}'}"
        incarnation = os.urandom(INCARNATION_SIZE)
        commit_id = options.commit_id or 0
        with patiently(options.node, lambda node: node.sink(sink).open_run(incarnation, not options.sink)) as run:
            if run.commit_id > commit_id:
                raise Refused(
                    "commit-id-behind",
                    f"sink {sink!r} has committed {run.commit_id}, and {commit_id} is smaller: commit ids must grow",
                    commit_id=run.commit_id,
                )
            return cls(options, sink, incarnation, run.epoch, run.commit_id == commit_id)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """On an executor: stage the rows of one task attempt. Raises `Fenced` when a newer write has begun."""
        # Spark begins attempts that it has given up already: they get no rows, and must not open again what the driver
        # has removed.
        first = next(iterator, None)
        rows = iterator if first is None else chain((first,), iterator)
        with patiently(self._options.node, self._joined) as run:
            if self._is_committed:
                return digested(self._options, self._sink, run, rows)
            is_named = self._options.commit_id is not None
            return stage_rows(self._options, self._sink, run, self._commit_id, rows, is_digested=is_named)

    def _joined(self, node: veredus.Node) -> veredus.Run:
        """The run of this write. A nameless sink may have gone since: other stages of the job can take hours, in which
        nobody is there for it, and no other write has its name.
        """
        sink = node.sink(self._sink)
        return sink.join_run(self._epoch) if self._options.sink else sink.open_run(self._incarnation, True)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: show what the tasks staged; where the sink has done this commit, look that it is the same.

        Raises `Fenced` when a newer write of this sink has begun, `Refused` for other rows or streams.
        """
        rows = staged_of(messages)
        if rows:
            commit_stages(self._options, rows, self._commit_id)
        self._be_done()

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: drop what was staged and not committed, also by tasks that told nothing or still run."""
        give_up(self._options, self._sink, self._epoch, messages, self._commit_id)
        self._be_done()

    @property
    def _commit_id(self) -> int:
        return self._options.commit_id or 0

    def _be_done(self) -> None:
        """Nobody will ask for this write again: a nameless sink is removed, with what its tasks left open."""
        if not self._options.sink:
            # Where it fails, it goes with its lease.
            with suppress(VeredusError):
                patiently(self._options.node, lambda node: node.sink(self._sink).remove())
