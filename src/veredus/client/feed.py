"""The subscriber's side of a subscription: batches out of its queue, and credit and settlements back to the loop.

Invariants
    (1) It hands out ascending sequences, each once, however often the node pushes them.
    (2) Credit is given back as deliveries are taken, so at most the window is pushed and not yet taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from veredus.kernel.errors import Fenced, PeerFault, Refused, Unavailable
from veredus.protocols.zeps import messages as m
from veredus.streams.exchange import SettleMode

from .publication import Batch, Interest, Publication, batches_in
from .subscribing import Delivery, Gap, Range, Settleable, SubscriptionChannel, joined

NEVER = (1 << 63) - 1


class Feed:
    """Owns the subscriber's place in the queue; used from the subscriber's thread alone."""

    def __init__(self, channel: SubscriptionChannel, run: Callable[[Callable[[], None]], None]) -> None:
        """A feed of `channel`; `run` lets something be called in the loop."""
        self.channel = channel
        self.is_ended = False
        self._run = run
        self._batches: Iterator[Batch] | None = None
        self._delivery: Delivery | None = None
        self._interest = Interest()
        self._is_in_order = channel.wanted.is_durable and channel.wanted.mode is SettleMode.IN_ORDER
        self._owed_size = 0
        self._owed_link = 0
        self._owed_size_max = max(1, channel.wanted.window_size // 4)

    def take(self) -> Batch | None:
        """The next batch, or None when there is none now, or for ever (`is_ended`). Raises what ended it, and gaps."""
        channel = self.channel
        if isinstance(channel.failure, Fenced):
            raise Fenced(channel.failure.code, channel.failure.message, **channel.failure.details)
        while not self.is_ended:
            if self._batches is not None:
                batch = self._next_batch(self._batches)
                if batch is not None:
                    return batch
            try:
                item = channel.queue.popleft()
            except IndexError:
                if channel.failure is not None:
                    raise type(channel.failure)(
                        channel.failure.code, channel.failure.message, **channel.failure.details
                    ) from None
                return None
            self._open(item)
        return None

    def _next_batch(self, batches: Iterator[Batch]) -> Batch | None:
        channel = self.channel
        try:
            for batch in batches:
                if batch.first_sequence < channel.position:
                    batch.skip_to(channel.position)
                    if not len(batch):
                        continue
                channel.position = batch.last_sequence + 1
                return batch
        except PeerFault as fault:
            raise Unavailable("damaged", f"what the node pushed is not sound: {fault.message}") from None
        self._batches = None
        if self._delivery is not None:
            self._owe(self._delivery)
        return None

    def _open(self, item: Delivery | m.Progress | m.Gap | m.End) -> None:
        channel = self.channel
        match item:
            case Delivery():
                self._delivery = item
                self._batches = batches_in(
                    channel.wanted.stream,
                    item.records,
                    item.redelivered_to,
                    channel.sources,
                    self.settle_batch,
                    self._interest,
                )
            case m.Progress(position):
                channel.position = max(channel.position, position)
            case m.Gap(first, following, code):
                channel.position = first if code == "lost" else max(channel.position, following)
                gap = Gap(first, following, code)
                if channel.wanted.on_gap != "raise":
                    channel.wanted.on_gap(gap)
                    return
                message = f"sequences {first} to {following - 1} cannot be had any more ({code}); what follows can"
                raise Unavailable("gap", message, first_sequence=first, next_sequence=following, cause=code)
            case m.End():
                self.is_ended = True

    def _owe(self, delivery: Delivery) -> None:
        """Give credit back, a quarter of the window at a time."""
        self._delivery = None
        if delivery.link_count != self._owed_link:
            self._owed_link, self._owed_size = delivery.link_count, 0
        self._owed_size += delivery.size
        if self._owed_size >= self._owed_size_max:
            size, link = self._owed_size, self._owed_link
            self._owed_size = 0
            self._run(lambda: self.channel.grant_credit(size, link))

    # ── settle ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, what: Settleable) -> None:
        """Settle up to a publication, a batch or a sequence; individually, these alone."""
        if not isinstance(what, Publication) or not self._is_in_order:
            self._settle_slowly(what)
            return
        channel = self.channel
        sequence = what.sequence
        if sequence > channel.settle_to:
            channel.settle_to = sequence
            if channel.is_settle_idle:
                channel.is_settle_idle = False
                self._run(channel.pump_settlements)

    def _settle_slowly(self, what: Settleable) -> None:
        if isinstance(what, Batch):
            self.settle_batch(what)
        else:
            self.settle_to(what if isinstance(what, int) else what.sequence)

    def range_of(self, what: Settleable | None) -> Range:
        """The sequences of what is settled, first and last; all of them for None."""
        if what is None:
            return 1, self.channel.settle_to if self.channel.wanted.mode is SettleMode.IN_ORDER else NEVER
        if isinstance(what, Batch):
            return what.first_sequence, what.last_sequence
        sequence = what if isinstance(what, int) else what.sequence
        return sequence, sequence

    def settle_to(self, sequence: int) -> None:
        """Everything up to `sequence` is done with."""
        channel = self.channel
        if not channel.wanted.is_durable:
            raise Refused("not-durable", "only a durable subscription settles: give it a subscriber and a name")
        if channel.wanted.mode is SettleMode.INDIVIDUAL:
            self.settle_range(sequence, sequence)
        elif sequence > channel.settle_to:
            channel.settle_to = sequence
            if channel.is_settle_idle:
                channel.is_settle_idle = False
                self._run(channel.pump_settlements)

    def settle_range(self, first: int, last: int) -> None:
        """These sequences are done with, individually."""
        channel = self.channel
        channel.to_settle.append((first, last))
        if channel.is_settle_idle:
            channel.is_settle_idle = False
            self._run(channel.pump_settlements)

    def settle_batch(self, batch: Batch) -> None:
        """All of a batch is done with; and, in order, all before it."""
        if self.channel.wanted.mode is SettleMode.IN_ORDER or not self.channel.wanted.is_durable:
            self.settle_to(batch.last_sequence)
        elif batch.header.is_excerpt:
            for first, last in joined([(sequence, sequence) for sequence in batch.sequences.tolist()]):
                self.settle_range(first, last)
        else:
            self.settle_range(batch.first_sequence, batch.last_sequence)
