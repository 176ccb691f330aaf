"""Where a read begins and ends, resolved at the node, and the subscription that keeps the rows until they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import veredus
from veredus.kernel.errors import Refused
from veredus.kernel.terms import parted_at

from .connections import StreamView, patiently, selects, view_of
from .offsets import Offsets, StreamOffset
from .options import ReadOptions, StartAtHead, StartAtSequence, StartAtTime

SUBSCRIPTION_NAME = "spark"
LOOK_SIZE = 1
"""The window of a subscription that is asked where it stands, and not read."""


def start_of(node: veredus.Node, options: ReadOptions, view: StreamView) -> int:
    """The sequence that a read begins with, by its options. Raises `Refused`: `bad-option` or `data-loss`."""
    match options.start:
        case StartAtSequence(0):
            return view.floor
        case StartAtSequence(sequence):
            if sequence > view.head + 1:
                raise Refused(
                    "bad-option",
                    f"the option `startingSequence` is {sequence}, and the newest row of"
                    f" {options.node.stream!r} is {view.head}",
                    head=view.head,
                )
            check_kept(options, sequence, view)
            return max(sequence, view.floor)
        case StartAtTime(time_us):
            return sequence_at(node, options.node.stream, time_us)
        case StartAtHead():
            return view.head + 1


def end_of(node: veredus.Node, options: ReadOptions, view: StreamView) -> int:
    """The sequence that a batch read ends before, by its options and at most behind the newest row."""
    ends = [view.head + 1]
    if options.end_sequence is not None:
        ends.append(options.end_sequence)
    if options.end_time_us is not None:
        ends.append(sequence_at(node, options.node.stream, options.end_time_us))
    return min(ends)


def sequence_at(node: veredus.Node, stream: str, time_us: int) -> int:
    """The sequence of the first row appended at or after `time_us`; behind the newest when there is none."""
    with node.subscribe(stream, start=veredus.since(time_us), window_size=LOOK_SIZE) as subscription:
        return subscription.position


def started_late(node: veredus.Node, options: ReadOptions, begun: Offsets, views: Mapping[str, StreamView]) -> Offsets:
    """The offsets, where nothing has been read yet moved on to the first row that was appended at or after the time to
    start from. A start in the future was not to be resolved before.
    """
    if not isinstance(options.start, StartAtTime):
        return begun
    moved = dict(begun)
    for name, at in begun.items():
        if at.is_initial and views[name].head >= at.sequence:
            first = max(at.sequence, sequence_at(node, name, options.start.time_us))
            moved[name] = replace(at, sequence=first, began=first)
    return moved


def begun_us(node: veredus.Node, options: ReadOptions, views: Mapping[str, StreamView]) -> int | None:
    """When a query that begins behind the newest rows of several streams began: its subscriber knows. None if it begins
    now, or elsewhere. A stream that was created later is new, and read from its beginning.
    """
    if not options.streams or not isinstance(options.start, StartAtHead):
        return None
    standing = node.subscriptions.list(name=SUBSCRIPTION_NAME)
    return min(
        (one["opened_us"] for one in standing if one["subscriber"] == options.subscriber and one["stream"] in views),
        default=None,
    )


def same_stream(options: ReadOptions, at: StreamOffset, view: StreamView | None) -> StreamView | None:
    """The stream of an offset as it is now; None where it is gone, or another one has its name, and the reader goes on
    without it. `view`: what has the name now, None for nothing.

    Raises `Refused` if the reader minds: `data-loss`, or `stream-replaced`, which the reader of one stream always does.
    """
    if view is not None and view.incarnation == at.incarnation:
        return view
    if not at.is_passed and view is None:
        check_gone(options)
    elif not at.is_passed:
        check_replaced(options)
    return None


def check_gone(options: ReadOptions) -> None:
    """Raise `Refused("data-loss")` for a stream that was read and does not exist any more, or that the options do not
    select any more, if the reader minds.
    """
    if not options.fails_on_data_loss:
        return
    stream = options.node.stream
    what = f"stream {stream!r}, which this query has read, no longer exists, or a rule does not allow to describe it"
    if options.streams and not selects(options.streams, stream):
        what = f"the option `streams` does not select {stream!r}, which this query has read"
    raise Refused("data-loss", f"{what}: to go on without it, set the option `failOnDataLoss` to false", stream=stream)


def check_replaced(options: ReadOptions) -> None:
    """Raise `Refused("stream-replaced")` for a stream that was read and deleted, and whose name another one has, if the
    reader minds. The reader of one stream has nothing to go on with.
    """
    if options.fails_on_data_loss or not options.streams:
        raise replaced(options)


def replaced(options: ReadOptions) -> Refused:
    """What is said when another stream has the name of one that was read."""
    stream = options.node.stream
    cure = (
        "to go on without what was not read of the former one, and to read the new one from its beginning, start the"
        " query once with the option `failOnDataLoss` set to false"
        if options.streams
        else "use another checkpointLocation to read them"
    )
    return Refused(
        "stream-replaced",
        f"stream {stream!r} was deleted and created again since the checkpoint was written: it has other rows now;"
        f" {cure}",
        stream=stream,
    )


def check_kept(options: ReadOptions, first: int, view: StreamView) -> None:
    """Raise `Refused("data-loss")` when `first` is no longer kept and the reader minds."""
    if first < view.floor and options.fails_on_data_loss:
        raise lost(options, first, view.floor, "trimmed")


def still_there(options: ReadOptions, at: StreamOffset, view: StreamView) -> StreamOffset:
    """The offset, moved back to before what was lost and took the place of what this query had planned to read or read.

    Raises `Refused("data-loss")` if there is such and the reader minds.
    """
    lost_from = parted_at(at.terms, view.terms)
    if not 0 < lost_from < at.sequence:
        return at
    if options.fails_on_data_loss:
        stream = options.node.stream
        raise Refused(
            "data-loss",
            f"stream {stream!r} lost sequences {lost_from} to {at.sequence - 1}, which this query has read or planned"
            " to read: its node was restored from an older copy, or its journal was damaged; other rows take their"
            " places. To go on with what is there now from the first of them on, set the option `failOnDataLoss` to"
            " false",
            first=lost_from,
            kept=at.sequence,
            cause="restored",
        )
    return replace(at, sequence=lost_from)


def lost(options: ReadOptions, first: int, kept: int, cause: str) -> Refused:
    """What is said when rows from `first` to before `kept` cannot be had."""
    return Refused(
        "data-loss",
        f"stream {options.node.stream!r} no longer holds sequences {first} to {kept - 1} ({cause}): pin unread rows"
        " with the option `subscriber`, or set the option `failOnDataLoss` to false to go on without them",
        first=first,
        kept=kept,
        cause=cause,
    )


class Pin:
    """Keeps the rows that the reader's `subscriber` has not read, if it has one: by a durable subscription."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def position(self, node: veredus.Node, view: StreamView, is_new: bool = False) -> int:
        """Where a new query begins: where the options say, and with a subscriber that was there already not before
        its cursor. `is_new`: the stream is newer than the query, which therefore begins behind none of its rows.

        Raises `Refused("bad-option")` when the options name a start that lies before the cursor: what the subscriber
        has settled is not given again.
        """
        options = self._options
        is_at_head = isinstance(options.start, StartAtHead)
        first = view.floor if is_new and is_at_head else start_of(node, options, view)
        if not options.subscriber:
            return first
        position = self._opened(node, first)
        if is_at_head:
            return position
        if options.is_start_given and first < position:
            raise Refused(
                "bad-option",
                f"subscriber {options.subscriber!r} of stream {options.node.stream!r} is already at {position}, after"
                f" the start {first} in the options: leave out the start to continue there, or name another subscriber"
                " to read from the start",
                position=position,
                start=first,
            )
        return max(first, position)

    def settle(self, end: StreamOffset) -> None:
        """Let go of what lies before `end`; a subscription that is not there begins there. A stream that is not there
        holds nothing, and of another one that has its name nothing was read.
        """
        if self._options.subscriber and end.sequence > 1:
            patiently(self._options.node, lambda node: self._advance(node, end.incarnation, end.sequence))

    def _advance(self, node: veredus.Node, incarnation: str, position: int) -> None:
        options = self._options
        try:
            if view_of(node, options.node.stream).incarnation != incarnation:
                return
            node.subscriptions.advance(options.node.stream, options.subscriber, SUBSCRIPTION_NAME, position - 1)
        except Refused as refused:
            if refused.code == "unknown-subscription":
                self._opened(node, position)
            elif refused.code != "unknown-stream":
                raise

    def _opened(self, node: veredus.Node, first: int) -> int:
        """Where the subscription stands, made at `first` if it is not there. Nobody stays attached to it."""
        with node.subscribe(
            self._options.node.stream,
            subscriber=self._options.subscriber,
            name=SUBSCRIPTION_NAME,
            start=veredus.at(first),
            window_size=LOOK_SIZE,
        ) as subscription:
            return subscription.position
