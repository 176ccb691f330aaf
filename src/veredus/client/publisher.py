"""Publishing with asyncio: an intake and its channel in one loop, which is also the caller's."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from veredus.delivery.outbox import OutboxSettings
from veredus.kernel.errors import Misuse, Unavailable, VeredusError
from veredus.kernel.lazily import import_numpy
from veredus.kernel.octets import Octets
from veredus.kernel.words import counted

from .arguments import check_choice, check_name, check_seconds, check_whole, warn_caller
from .attaching import SourceAttaching, StageAttaching, new_incarnation
from .causes import tell_with
from .connection import Connection
from .given import POLICIES, Attributes, EventTime, Policy
from .intake import Intake
from .loops import refuse_pickling
from .pending import in_time
from .publishing import Receipt, SourceChannel
from .times import end_of, left_until

if TYPE_CHECKING:
    import pyarrow as pa

CLOSE_TIMEOUT_S = 30.0
ABORT_TIMEOUT_S = 2.0
OUTBOX_SIZE_MAX = 32 << 20
BATCH_SIZE = 512 << 10
UNYIELDING_S = 0.0005
"""For how long publications may follow one another before the loop gets to send the first of them."""


@dataclass(frozen=True, slots=True)
class PublisherSettings:
    """How a publisher behaves; sizes in bytes."""

    stream: str
    source: str = ""
    resume: Literal["number", "token"] = "number"
    on_full: Policy = "wait"
    on_gone: Policy = "wait"
    outbox_size_max: int = OUTBOX_SIZE_MAX
    batch_size: int = BATCH_SIZE
    linger_ms: float = 1.0
    compression: Literal["zstd", "lz4"] | None = None
    is_sparse: bool = False
    room_timeout_s: float | None = None
    """How long to wait for room while the node takes nothing; None for ever. What was published by then is in doubt."""

    @property
    def outbox(self) -> OutboxSettings:
        """How its outbox cuts batches."""
        return OutboxSettings(linger_ns=int(self.linger_ms * 1_000_000), codec=self.compression)

    @property
    def attaching(self) -> SourceAttaching:
        """What it asks the node for, under an incarnation of its own."""
        return SourceAttaching(self.stream, self.source, new_incarnation(), self.is_sparse)

    def check(self) -> None:
        """Raise `Misuse` for what cannot be meant."""
        check_name("stream", self.stream)
        check_name("source", self.source, may_be_empty=True)
        check_choice("resume", self.resume, ("number", "token"))
        check_choice("on_full", self.on_full, POLICIES)
        check_choice("on_gone", self.on_gone, POLICIES)
        check_whole("outbox_size_max", self.outbox_size_max, 1)
        check_whole("batch_size", self.batch_size, 1)
        check_seconds("linger_ms", self.linger_ms, may_be_none=False, may_be_endless=False)
        check_choice("compression", self.compression, (None, "zstd", "lz4"))
        if self.resume == "token" and not self.source:
            raise Misuse("no-source", "a resume token needs a source: give the publisher a source name")


class PublishingEnd:
    """What every publisher has: an intake that the caller's thread fills, and a channel in the loop that empties it."""

    __slots__ = ("__weakref__", "_channel", "_intake", "_settings")
    _channel: SourceChannel

    __reduce__ = refuse_pickling

    def __init__(self, settings: PublisherSettings) -> None:
        """One that has no channel yet. Raises `Misuse` for settings that cannot be meant."""
        settings.check()
        self._settings = settings
        self._intake = Intake(settings.batch_size, settings.outbox_size_max, settings.on_full, settings.on_gone)
        self._intake.keeps_last = settings.resume == "token"

    @property
    def stream(self) -> str:
        """The stream that it publishes to."""
        return self._settings.stream

    @property
    def source(self) -> str:
        """The durable name as which it publishes; "" for an anonymous source."""
        return self._settings.source

    @property
    def number(self) -> int:
        """The last assigned number."""
        return self._intake.number

    @property
    def dropped_count(self) -> int:
        """How many publications were dropped, as `on_full` and `on_gone` say."""
        return self._intake.dropped_count

    @property
    def last_number(self) -> int:
        """The last number of this source in the stream when the publisher attached; 0 for none."""
        return self._channel.last_number

    @property
    def body_size_max(self) -> int:
        """The largest body that the node takes, in bytes."""
        return self._intake.limits.body_size_max

    @property
    def resume_token(self) -> bytes:
        """The last resume token of this source when the publisher attached; b"" for none."""
        return self._channel.resume_token

    @property
    def resume_number(self) -> int:
        """The number of the publication that the resume token closed."""
        return self._channel.resume_number

    @property
    def taken_number(self) -> int:
        """The last acknowledged number: this publication and all before it are in the stream."""
        return self._channel.taken_number

    def _is_over(self) -> bool:
        """Whether there is nothing to close any more."""
        failure = self._intake.failure
        return failure is not None and failure.code in ("closed", "forked")

    def _tell_behind_token(self) -> None:
        """Warn of what lies behind the last resume token: the next life gives its numbers to what that publishes."""
        failure, number = self._intake.failure, self._channel.token_number
        count = self._intake.number - number
        if self._intake.keeps_last and count > 0 and (failure is None or failure.code == "closed"):
            warn_caller(
                f"source {self.source!r} was closed {counted(count, 'publication')} behind its last resume token"
                f" ({f'at number {number}' if number else 'none was given yet'}): its next publisher with"
                ' resume="token" publishes again from there, and the node takes what gets these numbers for a'
                " repetition, whatever it says. Call flush(resume_token=...) behind the last publication, or open the"
                ' publisher with resume="number"'
            )

    def _bar(self) -> None:
        """Take no more publications: this publisher is being closed."""
        self._channel.bar(Misuse("closed", "this publisher was closed"))

    def _leave_channel(self) -> None:
        """Nothing hangs on this any more, in the loop."""
        self._intake.failure = self._intake.failure or self._intake.closed
        self._channel.leave()


class AsyncPublisher(PublishingEnd):
    """Publishes to one stream as one source, in the order of the calls. To be used in its connection's loop.

    `publish` gives a publication's number at once; `wait` gives its receipt. What was published and not yet taken is
    offered again after every reconnection, until the stream has it, once.
    """

    __slots__ = ("_check_loop", "_is_closed", "_line", "_woken_s")

    def __init__(
        self,
        connection: Connection,
        settings: PublisherSettings,
        attaching: SourceAttaching | StageAttaching | None = None,
    ) -> None:
        """A publisher that is not attached yet; `AsyncNode.publisher` makes one that is."""
        super().__init__(settings)
        self._woken_s = inf
        """Since when the loop is asked to send; infinite where it is not."""
        self._line: deque[asyncio.Future[None]] = deque()
        """Those who wait for room, in the order in which they came."""
        self._is_closed = False
        self._check_loop = connection.check_loop
        self._check_loop()
        self._intake.check_caller = self._check_loop
        self._channel = SourceChannel(connection, attaching or settings.attaching, self._intake, settings.outbox)
        self._intake.wake = self._wake

    async def _attach(self) -> None:
        """Wait until the node has attached the source. Raises what it refused with, or `Unavailable`."""
        await self._channel.attach()

    def _wake(self) -> None:
        self._intake.is_idle = False
        self._woken_s = min(self._woken_s, monotonic())
        asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._woken_s = inf
        self._channel.pump()

    # ── publish ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def publish_nowait(
        self,
        key: bytes | str,
        body: Octets | str,
        attributes: Attributes | None = None,
        event_time: EventTime | None = None,
    ) -> int:
        """Publish without waiting for room; returns the publication's number, or 0 when it was dropped by policy.

        `key`: at most 255 bytes. `body`: bytes, or text to be written as UTF-8; it must not change any more.
        `event_time`: now, where it is left out. Raises `Misuse`, `Fenced`, `Refused`, `Unavailable("outbox-full")`, and
        by policy `Unavailable("link-lost")`.
        """
        return self._intake.put(key, body, attributes, event_time)

    def publish(
        self,
        key: bytes | str,
        body: Octets | str,
        attributes: Attributes | None = None,
        event_time: EventTime | None = None,
    ) -> Coroutine[Any, Any, int]:
        """As `publish_nowait`, but waits where the outbox is full and the policy is to wait.

        The number is given by the call itself, so that numbers are in the order of calls; what is awaited is room.
        """
        return self._put(partial(self._intake.put, key, body, attributes, event_time))

    def publish_many(
        self,
        keys: Sequence[bytes | str],
        bodies: Sequence[Octets | str],
        attributes: Sequence[Attributes | None] | None = None,
        event_times: Iterable[EventTime | None] | None = None,
    ) -> Coroutine[Any, Any, int]:
        """Publish lists of one length; the number of the last. As `publish`."""
        return self._put(partial(self._intake.put_many, keys, bodies, attributes, event_times))

    def _put(self, put: Callable[[], int]) -> Coroutine[Any, Any, int]:
        self._check_loop()
        if self._line:
            return self._put_in_line(put)
        try:
            number = put()
        except Unavailable as error:
            if not self._is_waiting_allowed(error):
                raise
            return self._put_in_line(put)
        return self._yielding(number)

    async def _yielding(self, number: int) -> int:
        """Let the loop send, now and then: not behind each publication, for what comes together goes together."""
        if monotonic() - self._woken_s > UNYIELDING_S:
            await asyncio.sleep(0)
        return number

    # Whoever forgets to await is told of it by this name.
    _yielding.__qualname__ = "AsyncPublisher.publish"

    async def _put_in_line(self, put: Callable[[], int]) -> int:
        """Publish behind those who wait for room already."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            if self._line[0] is not turn:
                await turn
            return await self._put_with_room(put)
        finally:
            self._line.remove(turn)
            if self._line and not self._line[0].done():
                self._line[0].set_result(None)

    async def _put_with_room(self, put: Callable[[], int]) -> int:
        """Publish as soon as there is room."""
        while True:
            try:
                return put()
            except Unavailable as error:
                if not self._is_waiting_allowed(error):
                    raise
            # Not while that is handled: whoever is cancelled here would read of it first.
            await self._wait_room()

    async def publish_table(
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

        self._check_loop()
        number = self.number
        for tabled, size in tables_of(table, key, body, event_time, attributes, self._intake.limits):
            number = await self._put_with_room(partial(self._intake.put_columns, tabled, size))
        return number

    def _is_waiting_allowed(self, error: Unavailable) -> bool:
        return error.code == "outbox-full" and self._settings.on_full == "wait"

    async def _wait_room(self) -> None:
        self._check_loop()
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._channel.add_room_waiter(teller_of(room))
        with in_time(self._settings.room_timeout_s) as timeout_s:
            while not room.done():
                taken = self._channel.taken_number
                await asyncio.wait((room,), timeout=timeout_s)
                if not room.done() and self._channel.taken_number == taken:
                    raise self._channel.not_taken(self.number)

    # ── wait ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def wait(self, number: int, timeout_s: float | None = None) -> Receipt:
        """The receipt of a publication, once the stream has it.

        Raises what stopped the source (`Fenced`, `Refused`, `Misuse`); `Unavailable("in-doubt")` after `timeout_s`: it
        may be taken yet, and is offered until it is.
        """
        check_seconds("timeout_s", timeout_s)
        self._check_loop()
        self._intake.release(number)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._channel.add_waiter(number, teller_of(done))
        with in_time(timeout_s) as limit_s:
            await asyncio.wait((done,), timeout=limit_s)
            return self._channel.receipt(number)

    async def flush(
        self, resume_token: bytes = b"", wait: bool = True, timeout_s: float | None = None
    ) -> Receipt | None:
        """Send everything and wait until it is in the stream; the receipt of the last publication, or None.

        `resume_token` is stored together with the last publication, or by itself where nothing was published since the
        last one, and comes back when the source attaches again. It needs `resume="token"`.
        """
        check_seconds("timeout_s", timeout_s)
        self._check_loop()
        last = self._intake.close_run(resume_token)
        if resume_token:
            self._channel.want_token(last, resume_token)
        if not wait:
            return None
        end_s = end_of(timeout_s)
        receipt = await self.wait(self.number, timeout_s) if self.number > self._intake.first_number else None
        if self._intake.keeps_last:
            await self._wait_token(end_s)
        return receipt

    async def _wait_token(self, end_s: float) -> None:
        """Wait until the node has the last resume token. Raises as `wait`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._channel.add_token_waiter(teller_of(done))
        with in_time(left_until(end_s)) as timeout_s:
            await asyncio.wait((done,), timeout=timeout_s)
            if not done.done():
                raise self._channel.token_in_doubt()
        self._channel.check_token()

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush and detach. If publications remain in doubt, or cannot be taken any more, it detaches and raises.

        Where this is cancelled, it closes nothing: close it again. Warns where publications lie behind the last resume
        token.
        """
        if await self._close(timeout_s):
            self._tell_behind_token()

    async def _close(self, timeout_s: float) -> bool:
        """Flush and detach; whether there was something to close."""
        if self._is_closed or self._is_over():
            return False
        check_seconds("timeout_s", timeout_s)
        self._check_loop()
        self._is_closed = True
        end_s = end_of(timeout_s)
        try:
            with suppress(Unavailable):
                await self.flush(timeout_s=timeout_s)
            self._bar()
            await self.flush(timeout_s=left_until(end_s))  # what other tasks have published meanwhile is told as well
        except BaseException as error:
            self._is_closed = isinstance(error, VeredusError)
            raise
        finally:
            if self._is_closed:
                self._bar()
                self._leave_channel()
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await (self.close() if error is None else self._close(ABORT_TIMEOUT_S))
        except VeredusError as failure:
            if error is None:
                raise
            tell_with(error, failure)
        except asyncio.CancelledError:
            self._close_alone()
            raise

    def _close_alone(self) -> None:
        """Detach as soon as all is in the stream: nobody waits for it, and nobody closes this once more."""
        if self._intake.failure is None:
            self._bar()
            self._intake.close_run(b"")
            self._channel.add_waiter(self.number, partial(self._channel.add_token_waiter, self._leave_soon))

    def _leave_soon(self) -> None:
        if self._intake.failure is None:  # else what is lost is named
            asyncio.get_running_loop().call_soon(self._leave_channel)


def teller_of(done: asyncio.Future[None]) -> Callable[[], None]:
    """What sets the future's result, unless it was given up."""

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    return tell
