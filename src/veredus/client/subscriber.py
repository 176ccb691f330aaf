"""Subscribing with asyncio: a feed and its channel in one loop, which is also the caller's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

from veredus.kernel.errors import Misuse, VeredusError
from veredus.matching.wanted import Filter
from veredus.streams.exchange import SettleMode, Start

from .arguments import check_choice, check_name, check_seconds, check_start, check_whole, filter_of, shown
from .causes import tell_with
from .connection import Connection
from .feed import Feed
from .loops import refuse_pickling
from .pending import in_time
from .publication import Batch, Publication
from .publisher import teller_of
from .subscribing import Settleable, SubscriptionChannel
from .wanting import GapPolicy, Wanted

CLOSE_TIMEOUT_S = 10.0
T = TypeVar("T")
MODES = {"in-order": SettleMode.IN_ORDER, "individual": SettleMode.INDIVIDUAL}


def wanted_of(
    stream: str,
    subscriber: str,
    name: str,
    keys: str | Iterable[str] | None,
    where: str | None,
    start: Start | None,
    until: int,
    mode: str,
    window_size: int,
    on_gap: GapPolicy,
    attempts_max: int = 0,
    parked_to: str = "",
) -> Wanted:
    """What a subscription asks for, in the words of the native protocol.

    Raises `Misuse`, and `Refused` for a filter that does not parse.
    """
    check_name("stream", stream)
    check_name("subscriber", subscriber, may_be_empty=True)
    check_name("subscription", name, may_be_empty=True)
    check_start(start)
    check_whole("until", until)
    check_choice("mode", mode, MODES, code="bad-mode")
    check_whole("window_size", window_size, 1, code="bad-window")
    check_whole("attempts_max", attempts_max)
    check_name("stream for dead letters", parked_to, may_be_empty=True)
    check_gap_policy(on_gap)
    if bool(subscriber) != bool(name):
        name = name or "main"
    if not subscriber and name:
        raise Misuse("no-subscriber", "a durable subscription needs a subscriber: give its name too")
    if mode == "individual" and not subscriber:
        raise Misuse(
            "no-subscriber", 'mode="individual" settles, which needs a durable subscription: give a subscriber'
        )
    if attempts_max and not parked_to:
        raise Misuse("bad-parking", "attempts_max needs parked_to, the stream for dead letters")
    if parked_to and not subscriber:
        raise Misuse("bad-parking", "dead letters need a durable subscription: give it a subscriber")
    filter_ = filter_of(keys, where)
    return Wanted(
        stream, subscriber, name, filter_, start or Start(), until, MODES[mode], window_size, on_gap, attempts_max,
        parked_to,
    )  # fmt: skip


def check_gap_policy(on_gap: object) -> None:
    """Raises `Misuse` for what is neither "raise" nor a function."""
    if on_gap != "raise" and not callable(on_gap):
        raise Misuse("bad-argument", f'on_gap is "raise" or a function, not {shown(on_gap)}', argument="on_gap")


class AsyncSubscription:
    """Gives what a stream holds and will hold, in order, each publication once. To be used in its connection's loop.

    Iterate over publications, over `batches()`, or over both by turns: what is left of a batch comes first.
    """

    __reduce__ = refuse_pickling

    def __init__(self, connection: Connection, wanted: Wanted) -> None:
        """A subscription that is not granted yet; `AsyncNode.subscribe` makes one that is."""
        connection.check_loop()
        self._check_loop = connection.check_loop
        self.channel = SubscriptionChannel(connection, wanted)
        self._feed = Feed(self.channel, self._call)
        self._arrived = asyncio.Event()
        self._handed: tuple[int, asyncio.Event] | None = None
        """What is about to be handed out, and what tells that the node has heard so."""
        self.channel.tell_arrived = self._arrived.set

    async def _attach(self) -> None:
        """Wait until the node has granted the subscription. Raises what it refused with, or `Unavailable`."""
        await self.channel.attach()

    def _call(self, then: Callable[[], None]) -> None:
        self._check_loop()
        then()

    @property
    def position(self) -> int:
        """The sequence after the last publication that the program has received."""
        return self._feed.position

    @property
    def is_ended(self) -> bool:
        """Whether the program has received everything before `until`."""
        return self._feed.is_ended

    # ── take ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def next_batch(self, timeout_s: float | None = None) -> Batch | None:
        """The next batch; None at the end, or when `timeout_s` is over. Raises gaps, and what ended it.

        What is left of a batch that an iteration has begun comes first. All of it counts as tried then, where attempts
        are counted.
        """
        check_seconds("timeout_s", timeout_s)
        self._check_loop()
        end_s = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        batch = await self._wait_for(self._feed.take, end_s)
        if batch is not None and self._feed.counts_attempts:
            is_handed_out = False
            try:
                is_handed_out = await self._hand_out(batch.last_sequence, batch, end_s)
            finally:
                if not is_handed_out:
                    self._feed.taken_back = batch
            return batch if is_handed_out else None
        return batch

    async def _wait_for(self, take: Callable[[], T | None], end_s: float | None = None) -> T | None:
        self._check_loop()
        while True:
            taken = take()
            if taken is not None or self._feed.is_ended:
                return taken
            self._arrived.clear()
            self.channel.is_waiting = True
            try:
                async with asyncio.timeout_at(end_s):
                    await self._arrived.wait()
            except TimeoutError:
                return None

    async def batches(self) -> AsyncIterator[Batch]:
        """Batches, until the end."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def __aiter__(self) -> AsyncIterator[Publication]:
        while (run := await self._wait_for(self._feed.take_run)) is not None:
            if self._feed.counts_attempts:
                await self._hand_out(run.next_sequence, run.batch)
            for publication in islice(run.publications, 1 if self._feed.counts_attempts else None):
                yield publication

    async def _hand_out(self, sequence: int, batch: Batch, end_s: float | None = None) -> bool:
        """See that the node hears of it before; whether it has, in time. What was said is not said again."""
        handed = self._handed
        if handed is None or handed[0] != sequence:
            add_waiter = self._feed.hand_out(sequence, batch)
            if add_waiter is None:
                return True
            handed = self._handed = sequence, asyncio.Event()
            add_waiter(handed[1].set)
        try:
            async with asyncio.timeout_at(end_s):
                await handed[1].wait()
        except TimeoutError:
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

    async def wait_settled(self, what: Settleable | None = None, timeout_s: float | None = None) -> None:
        """Wait until the journal has the settlement of `what`; without it, of all that was settled.

        Raises `Unavailable("in-doubt")`, and `Misuse("not-settled")` where nothing of `what` was settled or rejected.
        """
        await self._wait_settled(what, timeout_s)

    async def _wait_settled(self, what: Settleable | None, timeout_s: float | None, is_leaving: bool = False) -> None:
        check_seconds("timeout_s", timeout_s)
        self._check_loop()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wait = self._feed.wait_of(what)
        wait.tell = teller_of(done)
        self.channel.add_settle_waiter(wait)
        with in_time(timeout_s) as limit_s:
            await asyncio.wait((done,), timeout=limit_s)
            if not done.done():
                raise self.channel.unconfirmed.in_doubt(is_leaving)
        wait.check()

    async def change_filter(self, keys: str | Iterable[str] | None = None, where: str | None = None) -> int:
        """Change the filter; returns the sequence from which the new filter applies."""
        self._check_loop()
        return await self._feed.change_filter(filter_of(keys, where) or Filter())

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait for the settlements, then close; the cursor of a durable subscription stays.

        Where this is cancelled, it closes nothing: close it again.
        """
        check_seconds("timeout_s", timeout_s)
        self._check_loop()
        try:
            if self.channel.wanted.is_durable and not self.channel.is_left:
                await self._wait_settled(None, timeout_s, is_leaving=True)
        except VeredusError:
            self.channel.leave()
            raise
        self.channel.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except VeredusError as failure:
            if error is None:
                raise
            tell_with(error, failure)
        except asyncio.CancelledError:
            self._close_alone()
            raise

    def _close_alone(self) -> None:
        """Close as soon as all is settled: nobody waits for it, and nobody closes this once more."""
        wait = self._feed.wait_of(None)
        wait.tell = self._leave_soon
        self.channel.add_settle_waiter(wait)

    def _leave_soon(self) -> None:
        if self.channel.failure is None:  # else what is lost is named
            asyncio.get_running_loop().call_soon(self.channel.leave)
