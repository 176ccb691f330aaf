"""Streams as rows of Spark: blocks of fixed sequences, each read by one task, Arrow from the wire to the JVM.

Invariants
    (1) The blocks of a range are a function of its two offsets, so a replayed batch has the same partitions and rows.
    (2) A block gives every row of its range that the filter wants, in order, once, or the task fails and says why.
    (3) `latestOffset` returns its start itself when there is nothing new: Spark compares offsets as text.
    (4) Where a query began is in every offset: what is trimmed or appended before its first batch is committed does
        not move it.
    (5) A stream that several were read with stays in the offsets when it is gone, with the mark that it was passed
        over: so another one of its name is a new one, and if it comes back itself, it is read on where it was left.
Source: docs/internals/DESIGN.md, "Spark".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

import veredus
from veredus.kernel.errors import Refused

from .blocks import read_block
from .connections import StreamView, freeze_imports, patiently, view_of, views_matching, views_of
from .offsets import (
    Block,
    Offsets,
    Stored,
    StreamOffset,
    blocks_of,
    check_range,
    limited_end,
    offsets_of,
    other_stream,
    shares_of,
    started_as,
    stored_of,
)
from .options import ReadOptions
from .places import Pin, begun_us, check_kept, end_of, same_stream, start_of, started_late, still_there
from .plainly import plainly, plainly_each
from .schema import Projection

IDLE_SECONDS = 0.2
POLL_SECONDS = 0.02
LOOK_SECONDS = 5.0
"""How often is looked for new streams that match a pattern."""
LISTED_PER_SHOWN = 20
"""About as many streams are in a list for the work of showing one."""


class BlockPartition(InputPartition):
    """One task's part of a read: a block of one incarnation of a stream."""

    def __init__(self, stream: str, block: Block, incarnation: str) -> None:
        super().__init__((stream, block, incarnation))
        self.stream = stream
        self.block = block
        self.incarnation = incarnation


class BlockReader(DataSourceReader):
    """Reads streams once: from where the options say to where they end when the read is planned."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """The blocks between start and end, as they are now; fixed for this DataFrame."""
        return patiently(self._options.node, self._planned)

    @plainly_each
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one block; none for the empty partition that Spark makes up when there is no block."""
        return _rows(self._options, self._projection, partition)

    def _planned(self, node: veredus.Node) -> list[InputPartition]:
        planned: list[InputPartition] = []
        views = _views_to_begin(node, self._options)
        for name in self._options.streams:
            if name not in views and not set(name) & set("*>"):
                view_of(node, name)
        for name, view in views.items():
            options = self._options.of_stream(name)
            first = start_of(node, options, view)
            until = max(first, end_of(node, options, view))
            planned += _partitions(name, first, until, options, view.incarnation)
        return planned


class BlockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams micro-batch by micro-batch; its offsets are sequences of their incarnations."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._pins: dict[str, Pin] = {}
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._names: list[str] = []
        self._new: Offsets = {}
        self._looked_s = self._planned_s = time.monotonic()

    @plainly
    def initialOffset(self) -> Stored:  # noqa: N802 - Spark's name, as those below
        """Where a query without a checkpoint begins. Asked more than once, and after a crash.

        With a `subscriber` the node remembers it; without, the end of the first batch does (`started_as`).
        """
        if self._initial is None:
            views = patiently(self._options.node, lambda node: _views_to_begin(node, self._options))
            since_us = patiently(self._options.node, lambda node: begun_us(node, self._options, views))
            self._initial = self._begun(views, since_us)
        return stored_of(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """At most `maxRowsPerTrigger` sequences a micro-batch."""
        return ReadMaxRows(self._options.rows_per_trigger_max)

    @plainly
    def latestOffset(self, start: Stored, limit: ReadLimit) -> Stored:  # noqa: N802
        """How far the next micro-batch goes; `start` itself when nothing new came within `IDLE_SECONDS`, or less than
        is waited for.

        Raises `Refused`: `stream-replaced`, `bad-offset`, and `data-loss` when what comes next is no longer kept.
        """
        begin = offsets_of(start)
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            views = self._viewed()
            passed, begun = self._checked(begin, views)
            ends = {name: self._until(name, views[name]) for name in begun}
            backlogs = {name: ends[name] - at.sequence for name, at in begun.items() if ends[name] > at.sequence}
            # What was accepted has to be in the checkpoint, also if there is nothing to read.
            if any(at != begin[name] for name, at in passed.items()) or self._is_enough(sum(backlogs.values()), limit):
                break
            if self._target is not None or time.monotonic() > deadline:
                return start
            time.sleep(POLL_SECONDS)
        for name in backlogs:
            check_kept(self._options.of_stream(name), begun[name].sequence, views[name])
        self._planned_s = time.monotonic()
        taken = self._limited(begun, ends, backlogs, views, limit)
        until = {name: replace(begun[name], sequence=end, terms=views[name].terms) for name, end in taken.items()}
        return stored_of(passed | until)

    @plainly
    def reportLatestOffset(self) -> Stored:  # noqa: N802
        """Behind the newest rows: for Spark's progress, which shows it beside what was read (`lag_of`)."""
        return stored_of(self._ends())

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let what is there now be all there is."""
        self._target = self._ends()

    @plainly
    def partitions(self, start: Stored, end: Stored) -> Sequence[InputPartition]:
        """The blocks of a range of offsets, and nothing but these decide them. Raises as `latestOffset`."""
        begin, until = offsets_of(start), offsets_of(end)
        for name in begin.keys() - until.keys():
            # One that is new since the first batch was planned, which is planned again, is of the next batch.
            if not begin[name].is_initial:
                raise Refused("bad-offset", f"the end of the range to read lacks stream {name!r}, which its start has")
        planned: list[InputPartition] = []
        for name, last in until.items():
            first = started_as(begin.get(name), last)
            if name in begin and (first.sequence, first.terms) == (last.sequence, last.terms):
                continue
            options = self._options.of_stream(self._known(name))
            now = patiently(options.node, lambda node, name=name: views_of(node, [name]))  # type: ignore[misc]
            view = same_stream(options, last, now.get(name))
            if view is None:
                continue
            first, last = still_there(options, first, view), still_there(options, last, view)
            check_range(first, last, view.head)
            check_kept(options, first.sequence, view)
            planned += _partitions(name, first.sequence, last.sequence, options, view.incarnation)
        return planned

    @plainly_each
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one block."""
        return _rows(self._options, self._projection, partition)

    @plainly
    def commit(self, end: Stored) -> None:
        """What lies before `end` will not be asked for again: the subscriber, if there is one, lets go of it."""
        for name, at in offsets_of(end).items():
            self._pin(name).settle(at)

    def stop(self) -> None:
        """The query is over; what its subscriber has not read stays."""

    # ── how the streams stand ────────────────────────────────────────────────────────────────────────────────────────

    def _viewed(self) -> dict[str, StreamView]:
        """Each stream that is read and still there, as it is now."""

        def viewed(node: veredus.Node) -> dict[str, StreamView]:
            if not self._options.streams:
                return views_of(node, [self._options.node.stream])
            if self._names and time.monotonic() < self._looked_s + LOOK_SECONDS:
                return views_of(node, self._names)
            views, count = views_matching(node, self._options.streams)
            # Many are listed each time: one by one, they would keep the node busy while the query is idle.
            self._names = list(views) if len(views) * LISTED_PER_SHOWN < count else []
            self._looked_s = time.monotonic()
            return views

        return patiently(self._options.node, viewed)

    def _ends(self) -> Offsets:
        """Behind the newest rows, beginning at the oldest that are kept."""
        views = self._viewed()
        return {name: StreamOffset(name, one.incarnation, one.head + 1, one.floor) for name, one in views.items()}

    def _until(self, name: str, view: StreamView) -> int:
        if self._target is None:
            return view.head + 1
        target = self._target.get(name)
        return min(view.head + 1, target.sequence) if target is not None else 0

    def _begun(self, views: Mapping[str, StreamView], since_us: int | None) -> Offsets:
        """Where reading begins in these streams; those created after `since_us`, when the query began, are new."""

        def begun(node: veredus.Node) -> Offsets:
            firsts = {
                name: self._pin(name).position(node, view, since_us is not None and view.created_us > since_us)
                for name, view in views.items()
            }
            return {name: StreamOffset(name, views[name].incarnation, first, first) for name, first in firsts.items()}

        return patiently(self._options.node, begun)

    def _begun_anew(self, views: Mapping[str, StreamView]) -> Offsets:
        """Where reading begins in streams that no batch has had yet: looked up once, however long they stay empty."""
        known = {
            name: at for name, at in self._new.items() if name in views and views[name].incarnation == at.incarnation
        }
        unknown = {name: view for name, view in views.items() if name not in known}
        self._new = known | (self._begun(unknown, 0) if unknown else {})
        return self._new

    def _checked(self, begin: Offsets, views: Mapping[str, StreamView]) -> tuple[Offsets, Offsets]:
        """The streams that are passed over, where they were left; and where those stand that are there, new ones where
        they begin.
        """
        passed: Offsets = {}
        begun: Offsets = {}
        for name, at in begin.items():
            options = self._options.of_stream(self._known(name))
            view = same_stream(options, at, views.get(name))
            if view is None:
                passed[name] = replace(at, is_passed=at.is_passed or bool(options.streams))
            else:
                begun[name] = replace(still_there(options, at, view), is_passed=False)
        begun |= self._begun_anew({name: view for name, view in views.items() if name not in begun})
        for name, at in begun.items():
            check_range(at, at, views[name].head)
        return passed, patiently(self._options.node, lambda node: started_late(node, self._options, begun, views))

    def _known(self, name: str) -> str:
        """The stream, if it may be one that this query reads. Raises `Refused("stream-replaced")`."""
        if not self._options.streams and name != self._options.node.stream:
            raise other_stream(name, self._options.node.stream)
        return name

    def _pin(self, name: str) -> Pin:
        if name not in self._pins:
            self._pins[name] = Pin(self._options.of_stream(self._known(name)))
        return self._pins[name]

    # ── how much of them ─────────────────────────────────────────────────────────────────────────────────────────────

    def _is_enough(self, waiting: int, limit: ReadLimit) -> bool:
        """Whether a batch is worth it: there is something, and what is waited for, or that has lasted too long, or
        nobody will ask again: all that there is now is wanted.
        """
        is_last = self._target is not None or isinstance(limit, ReadAllAvailable)
        if not waiting or is_last or waiting >= self._options.rows_per_trigger_min:
            return bool(waiting)
        return time.monotonic() - self._planned_s > self._options.trigger_delay_seconds_max

    def _limited(
        self,
        begun: Offsets,
        ends: Mapping[str, int],
        backlogs: Mapping[str, int],
        views: Mapping[str, StreamView],
        limit: ReadLimit,
    ) -> dict[str, int]:
        """Where the batch ends in each stream that has something: what a stream may give goes by what it has waiting.

        A stream that is new, or of which nothing is taken yet, is there with its beginning.
        """
        options = self._options
        shares = dict(backlogs)
        if isinstance(limit, ReadMaxRows):
            shares = shares_of(shares, limit.max_rows)
        if options.bytes_per_trigger_max and not isinstance(limit, ReadAllAvailable):
            sizes = {name: count * views[name].row_size for name, count in shares.items()}
            allowed = shares_of(sizes, options.bytes_per_trigger_max)
            shares = {name: max(1, allowed[name] // views[name].row_size) for name in shares}
        taken = {name: at.sequence for name, at in begun.items()}
        for name, count in shares.items():
            taken[name] = limited_end(begun[name].sequence, ends[name], count, options.rows_per_partition)
        return taken


def _views_to_begin(node: veredus.Node, options: ReadOptions) -> dict[str, StreamView]:
    """The streams that are there to be read. Raises `Refused("unknown-stream")` where the only one is not."""
    if not options.streams:
        return {options.node.stream: view_of(node, options.node.stream)}
    return views_matching(node, options.streams)[0]


def _partitions(name: str, first: int, until: int, options: ReadOptions, incarnation: str) -> list[InputPartition]:
    return [BlockPartition(name, block, incarnation) for block in blocks_of(first, until, options.rows_per_partition)]


def _rows(options: ReadOptions, projection: Projection, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, BlockPartition):
        block, incarnation = partition.block, partition.incarnation
        blocks = read_block(options.of_stream(partition.stream), block, incarnation, projection.is_fitting)
        yield from projection.record_batches(blocks, partition.stream)
        freeze_imports()
