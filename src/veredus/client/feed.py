"""The subscriber's side of a subscription: batches out of its queue, and credit and settlements back to the loop.

Invariants
    (1) It hands out ascending sequences, each once, however often the node pushes them, and by whatever call: what is
        left of a batch that was begun comes first.
    (2) What it hands out of a subscription that counts attempts, the node hears of: soon what is new, and before it is
        handed out what an application may have tried before. So a publication that kills its application is counted,
        but for its first attempt perhaps, and what no application was handed is not.
    (3) After it was fenced or closed it hands out nothing, also within a batch that was begun.
    (4) A gap is settled once the application knows of it: if that ends before, the next one is told.
    (5) Credit is given back as deliveries are taken, so at most the window is pushed and not yet taken.
    (6) What a signal's handler raises tears no step in two: something counts as taken by assignments with no call
        between them, which CPython carries out together, and what was only begun is begun anew.
    (7) What comes again and what is new take turns, one publication each, also within a batch that is handed out one by
        one: what is left of it is put back, and counts as not taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from veredus.kernel.errors import PeerFault, Unavailable, VeredusError
from veredus.kernel.words import are, spanned
from veredus.matching.wanted import Filter
from veredus.protocols.zeps import messages as m
from veredus.streams.exchange import StartKind

from .arrivals import Arrival, Delivery, Lost
from .outcomes import Outcomes
from .publication import RUN_COUNT, Batch, Publication, Run, batches_in
from .publishing import Waiter
from .returns import is_gone
from .subscribing import SubscriptionChannel
from .wanting import Gap


class Feed(Outcomes):
    """Owns the subscriber's place in the queue; used from the subscriber's thread alone."""

    def __init__(self, channel: SubscriptionChannel, run: Callable[[Callable[[], None]], object]) -> None:
        """A feed of `channel`; `run` lets something be called in the loop."""
        super().__init__(channel, run)
        self.is_ended = False
        self._is_end_seen = False
        self._item: Arrival | None = None
        """What was taken out of the queue, and not seen to yet."""
        self._delivery: Delivery | None = None
        self._batches: Iterator[Batch] | None = None
        """What is left of the delivery; where it is None, all of the delivery that is not before `channel.position`."""
        self._anew_count = 0
        """How often the channel was asked to have its link's deliveries pushed again."""
        self._run: Run | None = None
        """What is handed out one by one, of the batch that was taken last; None where that was handed out at once."""
        self.taken_back: Batch | None = None
        """What was taken, and could not be handed out: it comes next."""
        self._rest: Batch | None = None
        """What was put back of a batch that is handed out one by one, since something that comes again goes first."""
        self._position_before = channel.position
        """The channel's position before that batch was taken: what is handed out again lies before it."""
        self._is_agains_turn = True
        """Whether what comes again is next, where new publications wait as well: neither keeps the other waiting."""
        self._again: dict[int, Publication] = {}
        """What was taken to be handed out again, and is not yet; where attempts are counted."""
        self.counts_attempts = channel.wanted.attempts_max > 0
        channel.tell_over = self.end
        if not self.counts_attempts:
            channel.tell_again = self._interrupt_run
        start, is_durable = channel.wanted.start, channel.wanted.is_durable
        self._from_us = start.value if start.kind is StartKind.TIME and not is_durable else 0
        """What was appended before comes only where an ephemeral one is begun again, at the sequence where it was: the
        node has forgotten the time that it was to start from."""
        self._owed_size = 0
        self._owed_link = 0
        self._owed_size_max = max(1, channel.wanted.window_size // 4)

    @property
    def may_end(self) -> bool:
        """Whether the end has come, and nothing waits to be tried again."""
        return self._is_end_seen and self.channel.retry_count == self.channel.returns.retries_over

    def end(self, failure: VeredusError) -> None:
        """It was fenced or closed, from any thread: the subscriber finds its next step barred, wherever it is."""
        self._is_short = False
        run = self._run
        if run is not None:
            run.end()
        self._interest.end(failure)

    @property
    def position(self) -> int:
        """The sequence behind the last publication that was handed out, or that was found not to be wanted."""
        run = self._run
        if self.taken_back is not None:
            return self._position_before
        return self.channel.position if run is None else max(run.position, self._position_before)

    def hand_out(self, sequence: int, batch: Batch) -> Callable[[Waiter], None] | None:
        """The subscriber is about to be handed all up to `sequence`; what to call in the loop to be told once the
        node has heard of it, None where that need not be.
        """
        channel = self.channel
        again = self._again.get(sequence)
        if again is not None:
            return partial(channel.returns.take_again, again)
        settling = batch.settling
        settling.handed_to = max(settling.handed_to, sequence)
        is_awaited = sequence <= min(batch.redelivered_to, settling.last) and channel.handed.known_to < sequence
        return partial(channel.add_handed_waiter, sequence) if is_awaited else None

    def check_handed(self, sequence: int) -> None:
        """The node has heard that all up to `sequence` is about to be handed out, or this is over: raise why it is."""
        self._again.pop(sequence, None)
        self.channel.check_open()

    def take(self) -> Batch | None:
        """The next batch, or None when there is none now, or for ever (`is_ended`). Raises what ended it, and gaps."""
        self._interest.check()
        if self.taken_back is not None:
            self._run, self.taken_back = self.taken_back.run_at(0), None
        run = self._run
        if run is not None:
            left = run.batch.behind(run.position)
            count = len(left)
            run.end()
            self._run = None
            if count:
                return left
        found = self._find()
        if found is None:
            return None
        batch, behind, batches, rest, is_again = found
        if is_again:
            del self.channel.again[0]
        self._batches, self._rest, self._position_before = batches, rest, self.channel.position
        self.channel.position = behind
        return batch

    def take_run(self) -> Run | None:
        """The next publications, to be handed out one by one; as `take`."""
        self._interest.check()
        if self.taken_back is not None:
            self._run, self.taken_back = self.taken_back.run_at(0), None
        while True:
            run = self._run
            if run is not None:
                is_agains_turn = self._is_agains_turn and bool(self.channel.again)
                if not is_agains_turn and not run.is_over:
                    return run
                self._go_on_behind(run, is_agains_turn)
            else:
                found = self._find()
                if found is None:
                    return None
                batch, behind, batches, rest, is_again = found
                run = batch.run_at(0, self._count_max)
                if is_again:
                    del self.channel.again[0]
                self._batches, self._rest, self._position_before = batches, rest, self.channel.position
                self._run, self.channel.position = run, behind

    def _go_on_behind(self, run: Run, is_agains_turn: bool) -> None:
        """Go on with the run's batch; where the turn is at what comes again, put back what is left of the batch."""
        if not is_agains_turn:
            self._run = run.batch.run_at(run.next_index, self._count_max)
            return
        run.end()
        rest, position = run.batch.behind(run.position), run.position
        if len(rest):
            self._run, self._rest, self.channel.position = None, rest, position
        else:
            self._run = None

    @property
    def _count_max(self) -> int:
        """How many new publications are handed out before it is looked whether something comes again."""
        return 1 if self.channel.again else RUN_COUNT

    def _interrupt_run(self) -> None:
        """Something comes again, in the loop: the subscriber finds it before it goes on with what it has begun."""
        run = self._run
        if run is not None:
            run.end()

    def _find(self) -> tuple[Batch, int, Iterator[Batch] | None, Batch | None, bool] | None:
        """The batch that comes next, the position behind it, those that follow it, what was put back, and whether it
        comes again; it counts as taken once these are assigned, and what comes again was deleted. None as `take`.
        """
        channel = self.channel
        self._position_before = channel.position
        while not self.is_ended and self._anew_count <= channel.anew_count:
            delivery = self._delivery
            if channel.again and (self._is_agains_turn or delivery is None):
                publication = channel.again[0]
                if is_gone(publication):
                    # The node lost it since, and the subscriber is told so.
                    del channel.again[0]
                    continue
                self._is_agains_turn = False
                channel.returns.note_handed(publication)
                if self.counts_attempts:
                    self._again[publication.sequence] = publication
                again = publication.batch.only(publication.sequence)
                return again, channel.position, self._batches, self._rest, True
            if delivery is not None:
                self._is_agains_turn, batch, batches = True, self._rest, self._batches
                if batch is None:
                    # Whoever is torn out of this has no iterator that goes on, and begins the delivery anew.
                    batches, self._batches = batches or self._batches_of(delivery), None
                    batch = self._next_batch(batches)
                if batch is None:
                    self._owe(delivery)
                elif self._comes_again(delivery, batch):
                    self._batches = self._rest = self._delivery = None
                else:
                    return batch, batch.last_sequence + 1, batches, None, False
            elif self.may_end:
                self.is_ended = not channel.again
            elif self._item is None and not self._next_item():
                channel.check_open()
                return None
            else:
                self._open()
        return None

    def _comes_again(self, delivery: Delivery, batch: Batch) -> bool:
        """Whether a batch of a link that is gone, and all behind it, is to be taken as a later link pushes it."""
        link_count, position = self.channel.pushed_anew
        return delivery.link_count < link_count and max(batch.first_sequence, self.channel.position) >= position

    def _next_item(self) -> bool:
        """Take the next item out of the queue; whether there was one."""
        try:
            # Behind a call a signal would be noticed before what the call gave is assigned; here it is not.
            for item in map(deque.popleft, (self.channel.queue,)):
                self._item = item
                return True
        except IndexError:
            pass
        return False

    def _batches_of(self, delivery: Delivery) -> Iterator[Batch]:
        return batches_in(
            self.channel.wanted.stream,
            delivery.records,
            delivery.redelivered_to,
            self.channel.sources,
            self.settle_batch,
            self._interest,
            self._settling,
        )

    def _next_batch(self, batches: Iterator[Batch]) -> Batch | None:
        position = self.channel.position
        try:
            for batch in batches:
                if batch.append_time_us < self._from_us:
                    continue
                if batch.first_sequence < position:
                    batch.skip_to(position)
                    if not len(batch):
                        continue
                return batch
        except PeerFault as fault:
            message = f"what the node pushed was damaged on its way: {fault.message}; it is asked for again"
            self._ask_anew(self._delivery)
            raise Unavailable("damaged", message) from None
        return None

    def _ask_anew(self, damaged: Delivery | None) -> None:
        """Have the damaged delivery pushed again; what lies behind it in the queue goes with its link."""
        link_count = 0 if damaged is None else damaged.link_count
        self._call(lambda: self.channel.ask_anew(link_count))
        self._anew_count, self._delivery, self._item = self._anew_count + 1, None, None

    def _open(self) -> None:
        """See to the item that was taken out of the queue."""
        channel, item = self.channel, self._item
        match item:
            case Delivery():
                self._delivery, self._item = item, None
            case m.Progress(position):
                channel.position, self._item = max(channel.position, position), None
            case m.Gap() | Lost():
                self._tell_gap(item)
            case m.End():
                self._is_end_seen, self._item = True, None

    def _tell_gap(self, told: m.Gap | Lost) -> None:
        channel = self.channel
        first, following = told.first_sequence, told.next_sequence
        code, known = ("lost", told.known) if isinstance(told, Lost) else (told.code, channel.known)
        missing = None
        if isinstance(told, m.Gap):
            # What was handed out meanwhile, of a batch that was begun before, is not missing; nor what it is told of.
            first = max(first, channel.position)
            if first >= following:
                self._item = None
                return
            missing = channel.position, following - 1
        position = first if isinstance(told, Lost) else max(channel.position, following)
        gap, on_gap = Gap(first, following, code), channel.wanted.on_gap
        gone = f"{spanned('sequence', first, following - 1)} {are(following - first)} no longer available ({code})"
        message = f"{gone}; the subscription continues with the next sequence"
        error = Unavailable("gap", message, first_sequence=first, next_sequence=following, cause=code)
        # The position first: with a later term it would stand for what lies there now.
        settling = told.settling if isinstance(told, Lost) else self._settling
        channel.position, channel.known, self._settling, self._item = position, known, settling, None
        if on_gap == "raise":
            self._settle_missing(missing)
            raise error
        on_gap(gap)
        self._settle_missing(missing)

    def _owe(self, delivery: Delivery) -> None:
        """Give credit back, a quarter of the window at a time. Whoever is torn out of this gives too much at most."""
        if delivery.link_count != self._owed_link:
            self._owed_link, self._owed_size = delivery.link_count, 0
        self._owed_size, self._delivery = self._owed_size + delivery.size, None
        if self._owed_size >= self._owed_size_max:
            size, link = self._owed_size, self._owed_link
            self._call(lambda: self.channel.grant_credit(size, link))
            self._owed_size = 0

    async def change_filter(self, filter_: Filter) -> int:
        """Ask for another filter, in the loop, while the subscriber waits; the sequence from which on it counts.

        What is left of a link that is gone was selected by the filter before, also where the other one counts already.
        """
        self.channel.take_anew()
        return await self.channel.change_filter(filter_)
