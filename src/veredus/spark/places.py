"""Where a read begins and ends, resolved at the node, and the subscription that keeps the rows until they are read."""

from __future__ import annotations

import veredus
from veredus.kernel.errors import Refused

from .connections import StreamView, patiently
from .offsets import StreamOffset
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
                    f"option startingSequence is {sequence}, the newest row of {options.node.stream!r} is {view.head}",
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


def check_kept(options: ReadOptions, first: int, view: StreamView) -> None:
    """Raise `Refused("data-loss")` when `first` is no longer kept and the reader minds."""
    if first < view.floor and options.fails_on_data_loss:
        raise lost(options, first, view.floor, "trimmed")


def lost(options: ReadOptions, first: int, kept: int, cause: str) -> Refused:
    """What is said when rows from `first` to before `kept` cannot be had."""
    return Refused(
        "data-loss",
        f"stream {options.node.stream!r} no longer holds sequences {first} to {kept - 1} ({cause}): pin unread rows"
        " with option subscriber, or go on without them with failOnDataLoss = false",
        first=first,
        kept=kept,
        cause=cause,
    )


class Pin:
    """Owns the durable subscription under the reader's `subscriber`, if it has one: opened when it is first needed."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._subscription: veredus.Subscription | None = None

    def position(self, node: veredus.Node, view: StreamView) -> int:
        """Where a new query begins: at the subscription's cursor, or where the options say if it is new."""
        first = start_of(node, self._options, view)
        return self._opened(node, first).position if self._options.subscriber else first

    def settle(self, end: StreamOffset) -> None:
        """Let go of what lies before `end`."""
        if self._options.subscriber and end.sequence > 1:
            patiently(self._options.node, lambda node: self._opened(node, end.sequence).settle(end.sequence - 1))

    def close(self) -> None:
        """Leave the subscription; its cursor stays."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _opened(self, node: veredus.Node, first: int) -> veredus.Subscription:
        if self._subscription is None:
            self._subscription = node.subscribe(
                self._options.node.stream,
                subscriber=self._options.subscriber,
                name=SUBSCRIPTION_NAME,
                start=veredus.at(first),
                window_size=LOOK_SIZE,
            )
        return self._subscription
