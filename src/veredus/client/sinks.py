"""Sinks: rows that many tasks write become visible at once, with one commit, however often it is asked for.

run opened ──► stages (rows durable, invisible) ──► commit (all visible, contiguous) or drop
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from veredus.delivery.content import Content
from veredus.kernel.errors import Misuse, Unavailable, VeredusError
from veredus.kernel.names import INCARNATION_SIZE
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client_exchange import MessageRequested, TellClosed, TellMessage, TellOpened

from .arguments import check_choice, check_incarnation, check_list, check_name, check_switch, check_whole
from .attaching import StageAttaching, new_incarnation
from .attachment import Told
from .causes import TRANSIENT, error_of
from .connection import Connection
from .granting import refuse, wait_granted
from .opening import Opening
from .publisher import AsyncPublisher, PublisherSettings
from .publishing import RETRY_S


class Committed(NamedTuple):
    """A commit is durable: in each stream that it touched, `count` rows from `first_sequence` on.

    `is_duplicate` says that it was committed before, and this is what was answered then.
    """

    commit_id: int
    is_duplicate: bool
    streams: tuple[tuple[str, int, int], ...]


class RunChannel:
    """Owns a run's place on the connection, and the commits that wait for their answer; it asks them again."""

    def __init__(
        self, connection: Connection, sink: str, epoch: int, incarnation: bytes, is_ephemeral: bool = False
    ) -> None:
        """A run of `sink`: a new one where `epoch` is 0, else the one with that epoch."""
        self._is_ephemeral = is_ephemeral
        self.sink = sink
        self.epoch = epoch
        self.commit_id = -1
        self.streams: tuple[tuple[str, int, int], ...] = ()
        self.failure: VeredusError | None = None
        self._connection = connection
        self._incarnation = incarnation
        self._channel = 0
        self._is_granted = False
        """Whether the node granted the run on this channel: until then nothing may be said on it."""
        self._request = 0
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked: dict[int, tuple[m.Commit | m.DropStages, asyncio.Future[Any]]] = {}

    async def open(self) -> None:
        """Wait until the run is granted. Raises `Fenced` when it is not the newest any more, or what refused it."""
        self._connection.check_loop()
        self._connection.attach(self)
        await wait_granted(self._opened, self._connection, self.detach, "granted the run")

    def begin(self) -> None:
        """A link is open: open the run, or join it again."""
        self._is_granted = False
        if self.failure is None:
            opening = m.OpenRun(self.sink, self._incarnation, self.epoch, self._is_ephemeral)
            self._channel = self._connection.open_channel(self, opening)

    def take(self, told: Told) -> None:
        """Answers, and the end."""
        match told:
            case TellOpened(_, m.RunOpened(epoch, commit_id, detail)):
                self.epoch, self._is_granted = epoch, True
                if not self._opened.done():
                    self.commit_id = commit_id
                    self.streams = (
                        msgspec.msgpack.decode(detail, type=tuple[tuple[str, int, int], ...]) if detail else ()
                    )
                    self._opened.set_result(None)
                for message, _ in self._asked.values():
                    self._connection.handle(MessageRequested(self._channel, message))
            case TellMessage(_, m.Committed() as committed):
                answer = Committed(committed.commit_id, committed.duplicate, committed.streams)
                self._answer(committed.request, answer)
            case TellMessage(_, m.Reply(request, result)):
                self._answer(request, result)
            case TellMessage(_, m.Refusal() as refusal):
                self._answer(refusal.request, error_of(refusal))
            case TellClosed(_, m.Refusal() | m.Fencing() as cause):
                self._channel = 0
                self._be_refused(error_of(cause))
            case TellClosed():
                self._channel = 0

    def _be_refused(self, error: VeredusError) -> None:
        if error.code in TRANSIENT:
            self._connection.call_later(RETRY_S, self._begin_again)
        else:
            self.fail(error)

    def _begin_again(self) -> None:
        if not self._channel:
            self._connection.begin(self)

    def _answer(self, request: int, result: object) -> None:
        _, answer = self._asked.get(request, (None, None))
        if answer is None or answer.done():
            return
        if isinstance(result, VeredusError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def lose(self) -> None:
        """The link is gone; what waits for an answer is asked again, since a commit is idempotent."""
        self._channel = 0

    def fail(self, error: VeredusError) -> None:
        """The run is over."""
        self.failure = self.failure or error
        self.detach()
        refuse(self._opened, error)
        for _, answer in self._asked.values():
            if not answer.done():
                answer.set_exception(error.again())

    def bar(self, error: VeredusError) -> None:
        """Nothing: whoever asks something of a run waits for the answer."""

    def forbid(self, error: VeredusError) -> None:
        """Refuse every further use with this, and touch nothing: the loop belongs to another process."""
        self.failure = error

    def finish(self) -> str:
        """Nothing: whoever asks something of a run waits for the answer."""
        return ""

    unnamed = finish
    hindrance = ""

    def detach(self) -> None:
        """Hang on the connection no more."""
        channel, self._channel = self._channel, 0
        self._connection.detach(self, channel)

    async def commit(self, commit_id: int, stages: Sequence[Any], contents: Sequence[Content] = ()) -> Committed:
        """Make the stages visible at once; the answer, that of the first time where it was committed before."""
        check_whole("commit_id", commit_id)
        numbers = numbers_of(stages)
        # A number alone, of a stage that another process has written, says nothing of its rows.
        counts = tuple(0 if isinstance(stage, int) else stage.taken_number for stage in stages)
        known = counts if any(counts) else ()
        said = tuple(contents)
        message = m.Commit(self._next(), self.sink, self.epoch, commit_id, numbers, said, known, self.commit_id)
        answer = await self._ask(message)
        assert isinstance(answer, Committed)
        self.commit_id, self.streams = answer.commit_id, answer.streams
        return answer

    async def drop(self, stages: Sequence[Any], commit_id: int | None) -> None:
        """Forget stages that will not be committed, and all that is staged for a commit that is given up."""
        numbers = numbers_of(stages)
        await self._ask(m.DropStages(self._next(), self.sink, self.epoch, numbers, checked_commit(commit_id)))

    def _next(self) -> int:
        self._request += 1
        return self._request

    def check_open(self) -> None:
        """Raise why this run is over."""
        if self.failure is not None:
            raise self.failure.again()

    async def _ask(self, message: m.Commit | m.DropStages) -> object:
        self._connection.check_loop()
        self.check_open()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[message.request] = message, answer
        if self._channel and self._is_granted and self._connection.is_open:
            self._connection.handle(MessageRequested(self._channel, message))
        try:
            async with asyncio.timeout(self._connection.settings.timeout_s):
                return await answer
        except TimeoutError:
            waited_s = self._connection.settings.timeout_s
            again = "retry the commit" if isinstance(message, m.Commit) else "drop the stages again"
            raise Unavailable(
                "in-doubt", f"the node did not answer in {waited_s:g} s: {again}, it is idempotent"
            ) from None
        finally:
            self._asked.pop(message.request, None)


def settings_of(stream: str, key: bytes | None, options: dict[str, Any]) -> PublisherSettings:
    """How a stage's publisher behaves. Raises `Misuse` for an attempt's key or an option that cannot be meant."""
    check_incarnation("key", key)
    for option in options:
        check_choice("an option of a stage", option, PublisherSettings.__slots__[1:])
    return replace(PublisherSettings(stream), **options)


class AsyncStage(AsyncPublisher):
    """Rows for one stream, durable and invisible until the stage is committed. It publishes as a publisher does."""

    __slots__ = ()

    @property
    def stage(self) -> int:
        """The number of the stage, for the commit; another process may use it.

        Raises `Refused("lost")` where the node was put back to a copy without rows that it had acknowledged.
        """
        return self._channel.kept_stage


class AsyncRun:
    """One run of a sink: the newest fences all older ones, and drops what they left open."""

    def __init__(
        self, connection: Connection, sink: str, epoch: int, incarnation: bytes, is_ephemeral: bool = False
    ) -> None:
        """A run that is not granted yet; `AsyncSink` makes one that is."""
        self.channel = RunChannel(connection, sink, epoch, incarnation, is_ephemeral)
        self._connection = connection

    @property
    def epoch(self) -> int:
        """The epoch of the run; another process joins the run with it."""
        return self.channel.epoch

    @property
    def commit_id(self) -> int:
        """The last commit of the sink: this run's, or the one before it was granted; -1 for none."""
        return self.channel.commit_id

    @property
    def streams(self) -> tuple[tuple[str, int, int], ...]:
        """What that commit wrote: stream, first sequence, count."""
        return self.channel.streams

    def stage(
        self, stream: str, key: bytes | None = None, commit_id: int | None = None, **options: Any
    ) -> Opening[AsyncStage]:
        """A new stage for `stream`. `key`: 16 bytes that name the attempt. `options`: as a publisher's.

        `commit_id`: the commit that it is for. Once that is done or given up, the stage is dropped if it is not part of
        it, and refused if it is opened then (`stage-closed`).
        """
        self.channel.check_open()
        settings = settings_of(stream, key, options)
        attaching = attaching_of(self.channel, stream, key, commit_id)

        async def opened() -> AsyncStage:
            stage = AsyncStage(self._connection, settings, attaching)
            await stage._attach()
            return stage

        return Opening(opened)

    async def commit(
        self, commit_id: int, stages: Sequence[int | AsyncStage], contents: Sequence[Content] = ()
    ) -> Committed:
        """Make these stages visible together, in this order. Commit ids grow; a repeated id changes nothing.

        `contents` says what they hold, by stream, and is kept: the same `commit_id` with another is `Refused`, as is
        one whose stages hold other streams or counts (`commit-other-streams`, `commit-other-rows`). Where the node was
        put back to a copy without this run's last commit, or without rows of an `AsyncStage` that it had acknowledged,
        the commit is `Refused("lost")`.
        """
        return await self.channel.commit(commit_id, stages, contents)

    async def drop(self, stages: Sequence[int | AsyncStage], commit_id: int | None = None) -> None:
        """Drop these stages, and with a `commit_id` all that are for this commit or one before it, also those that are
        opened later; committed ones stay.
        """
        await self.channel.drop(stages, commit_id)

    async def close(self) -> None:
        """Close the run; its stages stay."""
        self.channel.fail(Misuse("closed", "this run was closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncSink:
    """A name under which stages are committed."""

    def __init__(self, connection: Connection, name: str) -> None:
        """The sink `name` of a node. Raises `Misuse("bad-name")`."""
        check_name("sink", name)
        self.name = name
        self._connection = connection

    def open_run(self, incarnation: bytes | None = None, is_ephemeral: bool = False) -> Opening[AsyncRun]:
        """A new run, which fences all older ones; the same one again for the same 16 bytes of `incarnation`.

        `is_ephemeral`: where the sink is new, the node may forget it once nobody is there for it.
        """
        check_incarnation("incarnation", incarnation)
        check_switch("is_ephemeral", is_ephemeral)
        return self._opening(0, incarnation or new_incarnation(), is_ephemeral)

    def join_run(self, epoch: int) -> Opening[AsyncRun]:
        """The run of that epoch, opened elsewhere. Raises `Fenced` when there is a newer one."""
        check_whole("epoch", epoch, 1)
        return self._opening(epoch, new_incarnation())

    async def remove(self) -> None:
        """Forget the sink, with the id of its last commit; what it committed stays.

        Raises `Refused`: `unknown-sink`, or `sink-in-use` while stages are open.
        """
        await self._connection.ask("sink.remove", sink=self.name)

    def _opening(self, epoch: int, incarnation: bytes, is_ephemeral: bool = False) -> Opening[AsyncRun]:
        async def opened() -> AsyncRun:
            run = AsyncRun(self._connection, self.name, epoch, incarnation, is_ephemeral)
            await run.channel.open()
            return run

        return Opening(opened)


def checked_commit(commit_id: int | None) -> int:
    """The id of a commit, -1 for none. Raises `Misuse`."""
    if commit_id is None:
        return -1
    check_whole("commit_id", commit_id)
    return commit_id


def attaching_of(run: RunChannel, stream: str, key: bytes | None, commit_id: int | None) -> StageAttaching:
    """What a new stage of a run asks for. Raises `Misuse`."""
    attempt = key or secrets.token_bytes(INCARNATION_SIZE)
    return StageAttaching(run.sink, run.epoch, stream, attempt, checked_commit(commit_id))


def numbers_of(stages: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of stages that are given as such or by number. Raises `Misuse`."""
    check_list("stages", stages)
    numbers = tuple(getattr(stage, "stage", stage) for stage in stages)
    for number in numbers:
        check_whole("a stage", number)
    return numbers
