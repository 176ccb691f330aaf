"""One block of a stream, read by one task: Arrow columns as they came over the wire."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np

import veredus
from veredus.delivery.joining import joined_columns
from veredus.delivery.publication import Columns
from veredus.kernel.errors import InvariantBroken, PeerFault, Refused, Unavailable

from .connections import StreamView, patiently, view_of
from .offsets import Block, StreamOffset, check_range
from .options import ReadOptions
from .places import check_gone, check_replaced, lost, replaced
from .schema import ROWS_COUNT_MIN, ROWS_SIZE_MIN, Origin, Taken

_GONE = ("unknown-stream", "stream-deleted")
WINDOW_SIZE = 16 << 20
"""Bytes on their way from the node ahead of Spark."""


def read_block(
    options: ReadOptions, block: Block, incarnation: str, is_fitting: Callable[[Columns], bool]
) -> Iterator[Taken]:
    """The batches of a block, in order, cut at its edges and filtered by the node; small ones together.

    Those that together are not fitting come each alone.

    Raises `Refused`: `stream-replaced`, or `data-loss` when a part of it cannot be had and the reader minds;
    `Unavailable` when the node stays away for `timeoutSeconds`.
    """
    try:
        yield from _read(options, block, incarnation, is_fitting)
    except Refused as refused:
        if refused.code in _GONE:
            check_gone(options)
        elif refused.code == "stream-replaced":
            check_replaced(options)
        else:
            raise


def _read(
    options: ReadOptions, block: Block, incarnation: str, is_fitting: Callable[[Columns], bool]
) -> Iterator[Taken]:
    missing: list[veredus.Gap] = []
    row_count = 0
    with patiently(options.node, lambda node: _subscribed(node, options, block, incarnation, missing)) as subscription:
        for run in runs_of(_batches(subscription, options), block.until):
            for taken in _taken_together(run, block.until, is_fitting):
                row_count += len(taken.sequences)
                yield taken
            _check_gaps(options, missing)
    _check_gaps(options, missing)
    missing_count = sum(min(gap.next_sequence, block.until) - gap.first_sequence for gap in missing)
    is_whole = options.filter.where is None and not options.filter.keys
    if is_whole and row_count + missing_count != block.until - block.first:
        raise InvariantBroken(f"{block} gave {row_count} rows and {missing_count} are said to be missing")


def taken_of(batch: veredus.Batch, until: int) -> Taken:
    """A batch's rows before `until`, without those that lie before the subscription's start."""
    columns, sequences = batch.columns, batch.sequences
    start = len(columns.keys) - len(sequences)
    if sequences[-1] >= until:
        sequences = sequences[: int(np.searchsorted(sequences, until))]
    if len(sequences) < len(columns.keys):
        columns = _cut(columns, start, len(sequences))
    header = batch.header
    origin = _origin_of(batch)._replace(row_count=len(sequences))
    return Taken(columns, sequences, (origin,), header.event_time_min_us, header.payload_size)


def _origin_of(batch: veredus.Batch) -> Origin:
    return Origin(len(batch), batch.source, batch.number_of(0), batch.append_time_us)


def runs_of(batches: Iterable[veredus.Batch], until: int) -> Iterator[list[veredus.Batch]]:
    """All batches in order; small ones that are taken whole follow one another in one run."""
    run: list[veredus.Batch] = []
    row_count = size = 0
    for batch in batches:
        header = batch.header
        if header.count < ROWS_COUNT_MIN and len(batch) == header.count and batch.last_sequence < until:
            run.append(batch)
            row_count, size = row_count + header.count, size + header.payload_size
            if row_count < ROWS_COUNT_MIN and size < ROWS_SIZE_MIN:
                continue
        else:
            if run:
                yield run
            run = [batch]
        yield run
        run, row_count, size = [], 0, 0
    if run:
        yield run


def _taken_together(run: Sequence[veredus.Batch], until: int, is_fitting: Callable[[Columns], bool]) -> Iterable[Taken]:
    if len(run) > 1:
        # One attribute may have several types in them, and a type that does not fit concerns its own batch alone.
        with suppress(PeerFault):
            columns = joined_columns([batch.signed for batch in run])
            if is_fitting(columns):
                sequences = np.concatenate([batch.sequences for batch in run])
                size = sum(batch.header.payload_size for batch in run)
                return [Taken(columns, sequences, [_origin_of(batch) for batch in run], 0, size)]
    return (taken_of(batch, until) for batch in run)


def _cut(columns: Columns, start: int, count: int) -> Columns:
    times = columns.event_times_us
    return Columns(
        columns.keys.slice(start, count),
        columns.bodies.slice(start, count),
        None if times is None else times.slice(start, count),
        {name: array.slice(start, count) for name, array in columns.attributes.items()},
    )


def _subscribed(
    node: veredus.Node, options: ReadOptions, block: Block, incarnation: str, missing: list[veredus.Gap]
) -> veredus.Subscription:
    """A subscription to the block; to this incarnation, since it is still there after the subscription was granted."""
    missing.clear()
    view = _view_of(node, options, incarnation)
    if view.floor > block.first:
        missing.append(veredus.Gap(block.first, min(view.floor, block.until), "trimmed"))
        _check_gaps(options, missing)
    subscription = node.subscribe(
        options.node.stream,
        start=veredus.at(max(block.first, view.floor)),
        until=block.until,
        keys=options.filter.keys or None,
        where=options.filter.where,
        window_size=WINDOW_SIZE,
        on_gap=missing.append,
    )
    try:
        view = _view_of(node, options, incarnation)
        first, until = (
            StreamOffset(options.node.stream, incarnation, place, block.first) for place in (block.first, block.until)
        )
        check_range(first, until, view.head)
    except BaseException:
        subscription.close()
        raise
    return subscription


def _view_of(node: veredus.Node, options: ReadOptions, incarnation: str) -> StreamView:
    """The stream as it is now. Raises `Refused("stream-replaced")` where it is another one."""
    view = view_of(node, options.node.stream)
    if view.incarnation != incarnation:
        raise replaced(options)
    return view


def _batches(subscription: veredus.Subscription, options: ReadOptions) -> Iterator[veredus.Batch]:
    """The subscription's batches to its end. Raises `Unavailable` when it gets no further for `timeoutSeconds`."""
    while True:
        position, began = subscription.position, time.monotonic()
        batch = subscription.next_batch(options.node.timeout_seconds)
        if batch is not None:
            yield batch
        elif subscription.is_ended:
            return
        elif subscription.position == position:
            seconds = time.monotonic() - began
            raise Unavailable("no-answer", f"no data from the node for {seconds:.0f} s, at sequence {position}")


def _check_gaps(options: ReadOptions, missing: list[veredus.Gap]) -> None:
    if missing and options.fails_on_data_loss:
        raise lost(options, *missing[0])
