"""Publishing and subscribing without asyncio: what the caller's thread holds, while a loop's thread keeps the link.

A publisher may be shared by threads; a subscription belongs to one thread at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from veredus.kernel.errors import Misuse, Unavailable, VeredusError
from veredus.kernel.last import is_over
from veredus.kernel.lazily import import_numpy
from veredus.kernel.octets import Octets
from veredus.matching.wanted import Filter

from .arguments import check_seconds, filter_of
from .attaching import SourceAttaching, StageAttaching
from .causes import tell_with
from .closing import Leaving
from .connection import Connection
from .feed import Feed
from .given import Attributes, EventTime
from .handed import HandedWait
from .late import finish, watch
from .loops import Begun, LoopThread, Signal, forked, refuse_pickling
from .other_library import Blocking
from .pending import in_time, limited
from .publication import Batch, Publication
from .publisher import ABORT_TIMEOUT_S, CLOSE_TIMEOUT_S, PublisherSettings, PublishingEnd
from .publishing import Receipt, SourceChannel
from .subscribing import Settleable, SubscriptionChannel
from .times import end_of, left_until
from .turns import TurnTakenError
from .wanting import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Publisher(PublishingEnd, Blocking):
    """Publishes to one stream as one source, in the order of the calls; threads may share it.

    `publish` gives a publication's number at once; `wait` gives its receipt. What was published and not yet taken is
    offered again after every reconnection, until the stream has it, once.
    """

    __slots__ = ("_is_left", "_leaving", "_thread")

    def __init__(self, thread: LoopThread, settings: PublisherSettings) -> None:
        """A publisher that is not attached yet; `_attached` makes one that is."""
        super().__init__(settings)
        self._is_left = False
        self._leaving = Leaving()
        self._thread = thread
        self._intake.wait_room, self._intake.confirm = self._wait_room, self._confirm

    @classmethod
    def _attached(
        cls,
        thread: LoopThread,
        connection: Connection,
        settings: PublisherSettings,
        attaching: SourceAttaching | StageAttaching | None = None,
    ) -> Self:
        """A publisher that is attached. Raises what the node refused it with."""
        publisher = cls(thread, settings)
        publisher._attach(connection, attaching or settings.attaching)
        return publisher

    def _attach(self, connection: Connection, attaching: SourceAttaching | StageAttaching) -> None:
        async def attached() -> SourceChannel:
            channel = SourceChannel(connection, attaching, self._intake, self._settings.outbox)
            await channel.attach()
            return channel

        # What a stage publishes is confirmed when it is committed. Nothing is called once it is attached: what the
        # handler of a signal raises there would leave it so.
        if isinstance(attaching, SourceAttaching):
            watch(self._intake, self._thread)
        self._channel = self._thread.run(attached, _left)
        self._intake.wake = self._wake

    def _confirm(self, number: int) -> None:
        with suppress(Misuse):  # it has its number: the thread that ends the program sends it
            finish(self._thread, self._channel)
        if number > self._channel.taken_number:
            raise self._channel.not_taken(number)

    def _wake(self) -> None:
        call, pump = self._thread.loop.call_soon_threadsafe, self._channel.pump
        if self._thread.is_parked:
            try:
                self._thread.call(pump)
            except Misuse:
                if not is_over():
                    raise
                # What was published has its number: the thread that ends the program sends it.
        elif self._intake.is_idle:
            self._intake.is_idle = False
            call(pump)
        else:
            call(pump)
            # Let the loop have the interpreter for a moment: it would wait for the end of a time slice otherwise.
            time.sleep(0)

    def _wait_room(self) -> None:
        signal = Signal()
        self._thread.call(lambda: self._channel.add_room_waiter(signal.tell))
        taken = self._channel.taken_number
        with in_time(self._settings.room_timeout_s) as timeout_s:
            while not self._thread.wait(signal, timeout_s):
                if self._channel.taken_number == taken:
                    raise self._channel.not_taken(self.number)
                taken = self._channel.taken_number

    # ── publish ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(
        self,
        key: bytes | str,
        body: Octets | str,
        attributes: Attributes | None = None,
        event_time: EventTime | None = None,
    ) -> int:
        """Publish; returns the publication's number at once, or 0 when it was dropped by policy.

        `key`: at most 255 bytes. `body`: bytes, or text to be written as UTF-8; it must not change any more.
        `event_time`: now, where it is left out. Raises `Misuse`, `Fenced`, `Refused`, and by policy
        `Unavailable("outbox-full")` or `Unavailable("link-lost")`.
        """
        return self._intake.put(key, body, attributes, event_time)

    def publish_many(
        self,
        keys: Sequence[bytes | str],
        bodies: Sequence[Octets | str],
        attributes: Sequence[Attributes | None] | None = None,
        event_times: Iterable[EventTime | None] | None = None,
    ) -> int:
        """Publish lists of one length; returns the number of the last."""
        return self._intake.put_many(keys, bodies, attributes, event_times)

    def publish_table(
        self,
        table: pa.Table | pa.RecordBatch,
        key: str,
        body: str,
        event_time: str | None = None,
        attributes: Sequence[str] | Mapping[str, str] | None = None,
    ) -> int:
        """Publish the rows of an Arrow table, by the names of its columns; returns the number of the last."""
        import_numpy()
        from .tables import tables_of  # a lot to import for who publishes no table

        number = self.number
        for tabled, size in tables_of(table, key, body, event_time, attributes, self._intake.limits):
            number = self._intake.put_columns(tabled, size)
        return number

    # ── wait ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def wait(self, number: int, timeout_s: float | None = None) -> Receipt:
        """The receipt of a publication, once the stream has it.

        Raises what stopped the source (`Fenced`, `Refused`, `Misuse`); `Unavailable("in-doubt")` after `timeout_s`: it
        may be taken yet, and is offered until it is.
        """
        check_seconds("timeout_s", timeout_s)
        with in_time(timeout_s) as limit_s:
            end_s = end_of(limit_s)
            try:
                self._intake.release(number, end_s)
            except TurnTakenError:
                raise self._channel.not_taken(number) from None
            if number > self._channel.taken_number:
                signal = Signal()
                self._thread.call(lambda: self._channel.add_waiter(number, signal.tell))
                if not self._thread.wait(signal, left_until(end_s)):
                    raise self._channel.not_taken(number)
            return self._channel.receipt(number)

    def flush(self, resume_token: bytes = b"", wait: bool = True, timeout_s: float | None = None) -> Receipt | None:
        """Send everything and wait until it is in the stream; the receipt of the last publication, or None.

        `resume_token` is stored together with the last publication, or by itself where nothing was published since the
        last one, and comes back when the source attaches again. It needs `resume="token"`.
        """
        check_seconds("timeout_s", timeout_s)
        end_s = end_of(limited(timeout_s))
        try:
            last = self._intake.close_run(resume_token, end_s)
        except TurnTakenError:
            raise self._channel.not_taken(self.number) from None
        if resume_token:
            self._thread.call(lambda: self._channel.want_token(last, resume_token))
        if not wait:
            return None
        receipt = self.wait(self.number, left_until(end_s)) if self.number > self._intake.first_number else None
        if self._intake.keeps_last:
            self._wait_token(end_s)
        return receipt

    def _wait_token(self, end_s: float) -> None:
        """Wait until the node has the last resume token. Raises as `wait`."""
        signal = Signal()
        self._thread.call(lambda: self._channel.add_token_waiter(signal.tell))
        with in_time(left_until(end_s)) as timeout_s:
            if not self._thread.wait(signal, timeout_s):
                raise self._channel.token_in_doubt()
        self._channel.check_token()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush and detach. If publications remain in doubt, or cannot be taken any more, it detaches and raises.

        What a signal's handler raises meanwhile, as Ctrl-C does, closes nothing: close it again. Warns where
        publications lie behind the last resume token.
        """
        if self._close(timeout_s):
            self._tell_behind_token()

    def _close(self, timeout_s: float) -> bool:
        """Flush and detach; whether there was something to close."""
        if self._is_left or (self._is_over() and not self._leaving.is_begun):
            return False
        check_seconds("timeout_s", timeout_s)
        self._leaving.leave(partial(self._flush_all, timeout_s), self._leave)
        return True

    def _flush_all(self, timeout_s: float) -> None:
        end_s = end_of(timeout_s)
        with suppress(Unavailable):
            self.flush(timeout_s=timeout_s)
        self._bar()
        self.flush(timeout_s=left_until(end_s))  # what other threads have published meanwhile is told as well

    def _leave(self) -> None:
        self._bar()
        self._thread.call(self._leave_channel)
        self._is_left = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self._close(ABORT_TIMEOUT_S)
        except VeredusError as failure:
            tell_with(error, failure)


async def _left(channel: SourceChannel) -> None:
    channel.leave()


class Opened:
    """A subscription that the node is asked for: it becomes one once the node grants it."""

    def __init__(self, thread: LoopThread, connection: Connection, wanted: Wanted) -> None:
        """To be asked for in the loop of `thread`, as soon as it is waited for."""
        self._thread = thread
        self._is_asked = False
        self._arrived = Signal()
        self._channel: SubscriptionChannel | None = None
        self._granted = Begun(thread.loop, partial(self._attach, connection, wanted))

    async def _attach(self, connection: Connection, wanted: Wanted) -> SubscriptionChannel:
        channel = self._channel = SubscriptionChannel(connection, wanted)
        channel.tell_arrived = self._arrived.tell
        await channel.attach()
        return channel

    def wait(self, timeout_s: float | None = None) -> Subscription | None:
        """The subscription; None when `timeout_s` is over. Raises what the node refused it with, or `Unavailable`."""
        if self._thread.is_forked:
            raise forked()
        if not self._is_asked:
            self._thread.check_caller()
            self._thread.start(self._granted)
            self._is_asked = True
        if not self._granted.wait(timeout_s, by=self._thread):
            return None
        return Subscription(self._thread, self._granted.result(), self._arrived)

    def give_up(self) -> None:
        """Ask for it no more, and let go of what was granted meanwhile."""
        self._granted.cancel()
        channel = self._channel
        if channel is not None and not self._thread.is_forked:
            self._thread.call(channel.leave)


def opened(thread: LoopThread, connection: Connection, wanted: Wanted) -> Subscription:
    """A subscription that is granted. Raises what the node refused it with, or `Unavailable`."""
    opening = Opened(thread, connection, wanted)
    try:
        subscription = opening.wait()
    except BaseException:
        opening.give_up()
        raise
    assert subscription is not None
    return subscription


class Subscription(Blocking):
    """Gives what a stream holds and will hold, in order, each publication once; to be used by one thread at a time.

    Iterate over publications, over `batches()`, or over both by turns: what is left of a batch comes first.
    """

    __reduce__ = refuse_pickling

    def __init__(self, thread: LoopThread, channel: SubscriptionChannel, arrived: Signal) -> None:
        """What `channel` is granted, which tells `arrived`; `Opened` makes one."""
        self._thread = thread
        self._arrived = arrived
        self._leaving = Leaving()
        self._waits = threading.RLock()
        """Held by the thread that waits: a second one would never be woken."""
        self._handed: HandedWait | None = None
        """What is about to be handed out."""
        self.channel = channel
        self._feed = Feed(self.channel, self._call)

    def _call(self, then: Callable[[], None]) -> None:
        """Have it done in the loop; behind the end of the program, with all that was settled."""
        self._thread.call(then)
        if is_over():
            finish(self._thread, self.channel)

    @property
    def position(self) -> int:
        """The sequence after the last publication that the program has received."""
        return self._feed.position

    @property
    def is_ended(self) -> bool:
        """Whether the program has received everything before `until`."""
        return self._feed.is_ended

    # ── take ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_batch(self, timeout_s: float | None = None) -> Batch | None:
        """The next batch; None at the end, or when `timeout_s` is over. Raises gaps, and what ended it.

        What is left of a batch that an iteration has begun comes first. All of it counts as tried then, where attempts
        are counted.
        """
        check_seconds("timeout_s", timeout_s)
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        batch = self._wait_for(self._feed.take, end_s)
        if batch is not None and self._feed.counts_attempts:
            is_handed_out = False
            try:
                is_handed_out = self._hand_out(batch.last_sequence, batch, end_s)
            finally:
                if not is_handed_out:
                    self._feed.taken_back = batch
            return batch if is_handed_out else None
        return batch

    def _wait_for(self, take: Callable[[], T | None], end_s: float | None = None) -> T | None:
        feed, channel = self._feed, self.channel
        while True:
            taken = take()
            if taken is not None or feed.is_ended:
                return taken
            channel.is_waiting = True
            if channel.queue or channel.again or channel.failure is not None or feed.may_end:
                continue
            if not self._wait_arrived(end_s):
                return None

    def _wait_arrived(self, end_s: float | None) -> bool:
        if not self._waits.acquire(blocking=False):
            message = (
                "another thread waits for the next publication of this subscription: give each thread a subscription of"
                " its own, or hand publications on from one thread"
            )
            raise Misuse("other-thread", message)
        try:
            return self._thread.wait(self._arrived, None if end_s is None else end_s - time.monotonic())
        finally:
            self._waits.release()

    def batches(self) -> Iterator[Batch]:
        """Batches, until the end."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def __iter__(self) -> Iterator[Publication]:
        return chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterable[Publication]]:
        while (run := self._wait_for(self._feed.take_run)) is not None:
            if self._feed.counts_attempts:
                self._hand_out(run.next_sequence, run.batch)
                yield islice(run.publications, 1)
            else:
                yield run.publications

    def _hand_out(self, sequence: int, batch: Batch, end_s: float | None = None) -> bool:
        """See that the node hears of it before; whether it has, in time. What was said is not said again."""
        handed = self._handed
        if handed is None or handed.sequence != sequence:
            add_waiter = self._feed.hand_out(sequence, batch)
            if add_waiter is None:
                return True
            handed = self._handed = HandedWait(sequence, add_waiter)
        self._thread.call(handed.say)
        if not handed.wait(self._thread, None if end_s is None else end_s - time.monotonic()):
            return False
        self._feed.check_handed(sequence)
        self._handed = None
        return True

    # ── give back ────────────────────────────────────────────────────────────────────────────────────────────────────

    def retry(self, publication: Publication, delay_s: float = 0.0) -> None:
        """Return a publication: this subscription gets it again after `delay_s` seconds.

        The attempt counts. The publication stays unsettled. If this process ends, the next one gets it at once, without
        the delay.
        """
        self._feed.retry(publication, delay_s)

    def reject(self, publication: Publication, reason: str) -> None:
        """Give a publication up: it becomes a dead letter in `parked_to`, with this reason."""
        self._feed.reject(publication, reason)

    # ── settle ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, what: Settleable) -> None:
        """Settle a publication, a batch or a sequence; in order, everything before it too. Returns at once."""
        self._feed.settle(what)

    def wait_settled(self, what: Settleable | None = None, timeout_s: float | None = None) -> None:
        """Wait until the journal has the settlement of `what`; without it, of all that was settled.

        Raises `Unavailable("in-doubt")`, and `Misuse("not-settled")` where nothing of `what` was settled or rejected.
        """
        self._wait_settled(what, timeout_s)

    def _wait_settled(self, what: Settleable | None, timeout_s: float | None, is_leaving: bool = False) -> None:
        check_seconds("timeout_s", timeout_s)
        wait, signal = self._feed.wait_of(what), Signal()
        wait.tell = signal.tell
        self._thread.call(lambda: self.channel.add_settle_waiter(wait))
        with in_time(timeout_s) as limit_s:
            if not self._thread.wait(signal, limit_s):
                raise self.channel.unconfirmed.in_doubt(is_leaving)
        wait.check()

    def change_filter(self, keys: str | Iterable[str] | None = None, where: str | None = None) -> int:
        """Change the filter; returns the sequence from which the new filter applies."""
        return self._thread.run(partial(self._feed.change_filter, filter_of(keys, where) or Filter()))

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait for the settlements, then close; the cursor of a durable subscription stays.

        What a signal's handler raises meanwhile, as Ctrl-C does, closes nothing: close it again.
        """
        if self.channel.is_left:
            return
        check_seconds("timeout_s", timeout_s)
        self._leaving.leave(partial(self._wait_for_all, timeout_s), self._end)

    def _wait_for_all(self, timeout_s: float) -> None:
        if self.channel.wanted.is_durable:
            self._wait_settled(None, timeout_s, is_leaving=True)

    def _end(self) -> None:
        self._feed.end(Misuse("closed", "this subscription was closed"))
        self._thread.call(self.channel.leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except VeredusError as failure:
            if error is None:
                raise
            tell_with(error, failure)
