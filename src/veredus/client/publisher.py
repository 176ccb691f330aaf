"""Publishing with asyncio: an intake and its channel in one loop, which is also the caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

import pyarrow as pa

from veredus.delivery.outbox import OutboxSettings
from veredus.kernel.errors import Misuse, Unavailable, VeredusError
from veredus.kernel.octets import Octets

from .connection import Connection
from .given import Attributes, EventTime
from .intake import Intake, Policy
from .publishing import Receipt, SourceAttaching, SourceChannel, StageAttaching, new_incarnation
from .tables import tables_of

CLOSE_TIMEOUT_S = 30.0
ABORT_TIMEOUT_S = 2.0
OUTBOX_SIZE_MAX = 32 << 20
BATCH_SIZE = 512 << 10


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
        if self.resume == "token" and not self.source:
            raise Misuse("no-source", "a resume token belongs to a source: give the publisher a source name")


class AsyncPublisher(Intake):
    """Publishes to one stream as one source, in the order of the calls. To be used in its connection's loop.

    `publish` gives a publication's number at once; `wait` gives its receipt. What was published and not yet taken is
    offered again after every reconnection, until the stream has it, once.
    """

    __slots__ = ("_channel", "_must_yield", "settings")

    def __init__(
        self,
        connection: Connection,
        settings: PublisherSettings,
        attaching: SourceAttaching | StageAttaching | None = None,
    ) -> None:
        """A publisher that is not attached yet; `AsyncNode.publisher` makes one that is."""
        settings.check()
        super().__init__(settings.batch_size, settings.outbox_size_max, settings.on_full, settings.on_gone)
        self.settings = settings
        self.keeps_last = settings.resume == "token"
        self._must_yield = False
        self._channel = SourceChannel(connection, attaching or settings.attaching, self, settings.outbox)
        self.wake = self._wake

    async def attach(self) -> None:
        """Wait until the node has attached the source. Raises what it refused with, or `Unavailable`."""
        await self._channel.attach()

    def _wake(self) -> None:
        self.is_idle = False
        self._must_yield = True
        asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._must_yield = False
        self._channel.pump()

    # ── what the node knows ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def last_number(self) -> int:
        """The last number of this source that the stream had when the publisher attached; 0 for none."""
        return self._channel.last_number

    @property
    def resume_token(self) -> bytes:
        """The token that closed this source's last batch with one, when the publisher attached; b"" for none."""
        return self._channel.resume_token

    @property
    def resume_number(self) -> int:
        """The number of the publication that the resume token closed."""
        return self._channel.resume_number

    @property
    def taken_number(self) -> int:
        """Everything up to this number is in the stream."""
        return self._channel.taken_number

    # ── publish ──────────────────────────────────────────────────────────────────────────────────────────────────────

    publish_nowait = Intake.put

    async def publish(
        self,
        key: bytes | str,
        body: Octets | str,
        attributes: Attributes | None = None,
        event_time: EventTime | None = None,
    ) -> int:
        """As `publish_nowait`, but waits where the outbox is full and the policy is to wait."""
        while True:
            if self._must_yield:
                self._must_yield = False
                await asyncio.sleep(0)
            try:
                return self.put(key, body, attributes, event_time)
            except Unavailable as error:
                await self._wait_room(error)

    async def publish_many(
        self,
        keys: Sequence[bytes | str],
        bodies: Sequence[Octets | str],
        attributes: Sequence[Attributes | None] | None = None,
        event_times: Iterable[EventTime | None] | None = None,
    ) -> int:
        """Publish lists of one length; returns the number of the last."""
        while True:
            try:
                return self.put_many(keys, bodies, attributes, event_times)
            except Unavailable as error:
                await self._wait_room(error)

    async def publish_table(
        self,
        table: pa.Table | pa.RecordBatch,
        key: str,
        body: str,
        event_time: str | None = None,
        attributes: Sequence[str] | Mapping[str, str] | None = None,
    ) -> int:
        """Publish the rows of an Arrow table, by the names of its columns; returns the number of the last."""
        number = self.number
        for tabled, size in tables_of(table, key, body, event_time, attributes, self.limits):
            while True:
                try:
                    number = self.put_columns(tabled, size)
                    break
                except Unavailable as error:
                    await self._wait_room(error)
        return number

    async def _wait_room(self, error: Unavailable) -> None:
        if error.code != "outbox-full" or self.settings.on_full != "wait":
            raise error
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._channel.add_room_waiter(teller_of(room))
        await room

    # ── wait ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def wait(self, number: int, timeout_s: float | None = None) -> Receipt:
        """The receipt of a publication, once the stream has it.

        Raises what stopped the source (`Fenced`, `Refused`, `Misuse`); `Unavailable("in-doubt")` after `timeout_s`: it
        may be taken yet, and is offered until it is.
        """
        self.release(number)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._channel.add_waiter(number, teller_of(done))
        if timeout_s is None:
            await done
        else:
            try:
                async with asyncio.timeout(timeout_s):
                    await done
            except TimeoutError:
                raise self._channel.not_taken(number) from None
        return self._channel.receipt(number)

    async def flush(
        self, resume_token: bytes = b"", wait: bool = True, timeout_s: float | None = None
    ) -> Receipt | None:
        """Send everything, and wait until the stream has it; the last publication's receipt, None where there is none.

        `resume_token` is stored together with the last publication, and comes back when the source attaches again. It
        needs `resume="token"`, and something published since the last one.
        """
        self.close_run(resume_token)
        return await self.wait(self.number, timeout_s) if wait and self.number > self.first_number else None

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush, and detach. Raises where something stays in doubt, and detaches all the same."""
        try:
            if self.failure is None:
                await self.flush(timeout_s=timeout_s)
        finally:
            self.failure = self.failure or Misuse("closed", "this publisher was closed")
            self.bar()
            self._channel.detach()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        try:
            await self.close(ABORT_TIMEOUT_S)
        except VeredusError:
            return


def teller_of(done: asyncio.Future[None]) -> Callable[[], None]:
    """What sets the future's result, unless it was given up."""

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    return tell
