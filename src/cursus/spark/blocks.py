"""One block of a stream, read by one task: Arrow columns as they came over the wire."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

import cursus
from cursus.delivery.publication import Columns
from cursus.kernel.errors import InvariantBroken, Unavailable

from .connections import patiently, view_of
from .offsets import Block, StreamOffset, check_range
from .options import ReadOptions
from .places import lost
from .schema import Taken

WINDOW_SIZE = 16 << 20
"""Bytes on their way from the node ahead of Spark."""


def read_block(options: ReadOptions, block: Block, incarnation: str) -> Iterator[Taken]:
    """The batches of a block, in order, cut at its edges and filtered by the node.

    Raises `Refused`: `stream-replaced`, or `data-loss` when a part of it cannot be had and the reader minds;
    `Unavailable` when the node stays away for `timeoutSeconds`.
    """
    missing: list[cursus.Gap] = []
    row_count = 0
    with patiently(options.node, lambda node: _subscribed(node, options, block, incarnation, missing)) as subscription:
        for batch in _batches(subscription, options):
            taken = taken_of(batch, block.until)
            row_count += len(taken.sequences)
            yield taken
            _check_gaps(options, missing)
    _check_gaps(options, missing)
    missing_count = sum(min(gap.next_sequence, block.until) - gap.first_sequence for gap in missing)
    is_whole = options.filter.where is None and not options.filter.keys
    if is_whole and row_count + missing_count != block.until - block.first:
        raise InvariantBroken(f"{block} gave {row_count} rows and {missing_count} are said to be missing")


def taken_of(batch: cursus.Batch, until: int) -> Taken:
    """A batch's rows before `until`, without those that lie before the subscription's start."""
    columns, sequences = batch.columns, batch.sequences
    start = len(columns.keys) - len(sequences)
    if sequences[-1] >= until:
        sequences = sequences[: int(np.searchsorted(sequences, until))]
    if len(sequences) < len(columns.keys):
        columns = _cut(columns, start, len(sequences))
    header, number_offset = batch.header, batch.number_of(0)
    times_us = batch.append_time_us, header.event_time_min_us
    return Taken(columns, sequences, number_offset, batch.source, *times_us, header.payload_size)


def _cut(columns: Columns, start: int, count: int) -> Columns:
    times = columns.event_times_us
    return Columns(
        columns.keys.slice(start, count),
        columns.bodies.slice(start, count),
        None if times is None else times.slice(start, count),
        {name: array.slice(start, count) for name, array in columns.attributes.items()},
    )


def _subscribed(
    node: cursus.Node, options: ReadOptions, block: Block, incarnation: str, missing: list[cursus.Gap]
) -> cursus.Subscription:
    """A subscription to the block; to this incarnation, since it is still there after the subscription was granted."""
    stream = options.node.stream
    view = view_of(node, stream)
    if view.floor > block.first:
        missing.append(cursus.Gap(block.first, min(view.floor, block.until), "trimmed"))
        _check_gaps(options, missing)
    subscription = node.subscribe(
        stream,
        start=cursus.at(max(block.first, view.floor)),
        until=block.until,
        keys=options.filter.keys or None,
        where=options.filter.where,
        window_size=WINDOW_SIZE,
        on_gap=missing.append,
    )
    view = view_of(node, stream)
    first, until = (StreamOffset(stream, incarnation, place) for place in (block.first, block.until))
    check_range(first, until, stream, view.incarnation, view.head)
    return subscription


def _batches(subscription: cursus.Subscription, options: ReadOptions) -> Iterator[cursus.Batch]:
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
            raise Unavailable("no-answer", f"nothing came from the node for {seconds:.0f} s, at sequence {position}")


def _check_gaps(options: ReadOptions, missing: list[cursus.Gap]) -> None:
    if missing and options.fails_on_data_loss:
        raise lost(options, *missing[0])
