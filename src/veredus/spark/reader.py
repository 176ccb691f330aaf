"""A stream as rows of Spark: blocks of fixed sequences, each read by one task, Arrow from the wire to the JVM.

Invariants
    (1) The blocks of a range are a function of its two offsets, so a replayed batch has the same partitions and rows.
    (2) A block gives every row of its range that the filter wants, in order, once, or the task fails and says why.
    (3) `latestOffset` returns its start itself when there is nothing new: Spark compares offsets as text.
Source: the design, section 6.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

import veredus

from .blocks import read_block
from .connections import StreamView, freeze_imports, patiently, view_of
from .offsets import Block, StreamOffset, blocks_of, check_range, limited_end, offset_of
from .options import ReadOptions
from .places import Pin, check_kept, end_of, start_of
from .schema import Projection

IDLE_SECONDS = 0.2
POLL_SECONDS = 0.02


class BlockPartition(InputPartition):
    """One task's part of a read: a block of one incarnation of the stream."""

    def __init__(self, block: Block, incarnation: str) -> None:
        super().__init__((block, incarnation))
        self.block = block
        self.incarnation = incarnation


class BlockReader(DataSourceReader):
    """Reads a stream once: from where the options say to where it ends when the read is planned."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection

    def partitions(self) -> Sequence[InputPartition]:
        """The blocks between start and end, as they are now; fixed for this DataFrame."""
        return patiently(self._options.node, self._planned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one block; none for the empty partition that Spark makes up when there is no block."""
        return _rows(self._options, self._projection, partition)

    def _planned(self, node: veredus.Node) -> list[InputPartition]:
        options = self._options
        view = view_of(node, options.node.stream)
        first = start_of(node, options, view)
        until = max(first, end_of(node, options, view))
        return _partitions(first, until, options, view.incarnation)


class BlockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream micro-batch by micro-batch; its offsets are sequences of one incarnation of the stream."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._pin = Pin(options)
        self._initial: StreamOffset | None = None
        self._target: StreamOffset | None = None

    def initialOffset(self) -> dict[str, str | int]:  # noqa: N802 - Spark's name, as those below
        """Where a query without a checkpoint begins. Asked more than once, and after a crash: always the same answer.

        With a `subscriber` the node remembers it; without, it follows from the options.
        """
        if self._initial is None:
            view, first = patiently(self._options.node, self._started)
            self._initial = self._at(view, first)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """At most `maxRowsPerTrigger` sequences a micro-batch."""
        return ReadMaxRows(self._options.rows_per_trigger_max)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """How far the next micro-batch goes; `start` itself when nothing new came within `IDLE_SECONDS`.

        Raises `Refused`: `stream-replaced`, `bad-offset`, and `data-loss` when what comes next is no longer kept.
        """
        begin = offset_of(start)
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            view = self._viewed()
            until = min(view.head + 1, self._target.sequence) if self._target else view.head + 1
            check_range(begin, begin, self._options.node.stream, view.incarnation, view.head)
            if until > begin.sequence:
                check_kept(self._options, begin.sequence, view)
                break
            if self._target is not None or time.monotonic() > deadline:
                return start
            time.sleep(POLL_SECONDS)
        if isinstance(limit, ReadMaxRows):
            until = limited_end(begin.sequence, until, limit.max_rows, self._options.rows_per_partition)
        return dict(self._at(view, until).to_json())

    def reportLatestOffset(self) -> dict[str, str | int]:  # noqa: N802
        """Behind the newest row: for Spark's metrics."""
        view = self._viewed()
        return self._at(view, view.head + 1).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let what is there now be all there is."""
        view = self._viewed()
        self._target = self._at(view, view.head + 1)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """The blocks of a range of offsets, and nothing but these decide them. Raises as `latestOffset`."""
        first, until = offset_of(start), offset_of(end)
        view = self._viewed()
        check_range(first, until, self._options.node.stream, view.incarnation, view.head)
        return _partitions(first.sequence, until.sequence, self._options, view.incarnation)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one block."""
        return _rows(self._options, self._projection, partition)

    def commit(self, end: dict[str, object]) -> None:
        """What lies before `end` will not be asked for again: the subscriber, if there is one, lets go of it."""
        self._pin.settle(offset_of(end))

    def stop(self) -> None:
        """The query is over."""
        self._pin.close()

    def _started(self, node: veredus.Node) -> tuple[StreamView, int]:
        view = view_of(node, self._options.node.stream)
        return view, self._pin.position(node, view)

    def _viewed(self) -> StreamView:
        return patiently(self._options.node, lambda node: view_of(node, self._options.node.stream))

    def _at(self, view: StreamView, sequence: int) -> StreamOffset:
        return StreamOffset(self._options.node.stream, view.incarnation, sequence)


def _partitions(first: int, until: int, options: ReadOptions, incarnation: str) -> list[InputPartition]:
    return [BlockPartition(block, incarnation) for block in blocks_of(first, until, options.rows_per_partition)]


def _rows(options: ReadOptions, projection: Projection, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, BlockPartition):
        block, incarnation = partition.block, partition.incarnation
        yield from projection.record_batches(read_block(options, block, incarnation, projection.is_fitting))
        freeze_imports()
