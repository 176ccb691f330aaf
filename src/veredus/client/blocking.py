"""The library without asyncio: the same names, and calls that wait. One thread of the process keeps all links."""

from __future__ import annotations

import builtins
import ssl
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from veredus.delivery.content import Content
from veredus.kernel.errors import VeredusError
from veredus.streams.exchange import Start

from .arguments import check_name, check_seconds, check_start, check_text, filter_of
from .causes import tell_with
from .closing import Closing
from .ends import Opened, Publisher, Subscription, opened
from .given import Policy
from .links import REFUSED_S
from .loops import LoopThread, refuse_pickling, shared_loop
from .node import AsyncNode, check_token, open_node
from .opening import Opening
from .other_library import Blocking
from .publisher import BATCH_SIZE, OUTBOX_SIZE_MAX, PublisherSettings
from .reception import SILENCE_S, Reception
from .sinks import AsyncRun, AsyncSink, Committed, attaching_of, settings_of
from .subscriber import check_gap_policy, wanted_of
from .wanting import WINDOW_SIZE, GapPolicy


class Node(Blocking):
    """A connection to a node, that finds it again by itself; `connect` makes one. Threads may share it."""

    __reduce__ = refuse_pickling

    def __init__(self, thread: LoopThread, node: AsyncNode) -> None:
        """What `node` is in the loop of `thread`."""
        self.streams = Streams(thread, node)
        self.subscriptions = Subscriptions(thread, node)
        self.sinks = Sinks(thread, node)
        self._thread = thread
        self._node = node
        self._closing = Closing(thread)

    @property
    def name(self) -> str:
        """The name of the node (`node.name`)."""
        return self._node.name

    @property
    def principal(self) -> str:
        """The principal as which this client is authenticated."""
        return self._node.principal

    def publisher(
        self,
        stream: str,
        *,
        source: str = "",
        resume: Literal["number", "token"] = "number",
        on_full: Policy = "wait",
        on_gone: Policy = "wait",
        outbox_size_max: int = OUTBOX_SIZE_MAX,
        batch_size: int = BATCH_SIZE,
        linger_ms: float = 1.0,
        compression: Literal["zstd", "lz4"] | None = None,
    ) -> Publisher:
        """Publish to `stream` as `source`. Without a source, the node recognises no duplicates.

        `resume`: with "number", the numbers continue after the last one in the stream. With "token", they continue
        after the resume token: the source publishes again from there, and the node recognises duplicates. Batches are
        then sent when they are full or flushed. `on_full`, `on_gone`: what to do if the outbox is full, or if no node
        answers. To be closed, or entered. Raises the refusal of the node.
        """
        settings = PublisherSettings(
            stream, source, resume, on_full, on_gone, outbox_size_max, batch_size, linger_ms, compression
        )
        return Publisher._attached(self._thread, self._node.connection, settings)

    def subscribe(
        self,
        stream: str,
        *,
        subscriber: str = "",
        name: str = "",
        keys: str | Iterable[str] | None = None,
        where: str | None = None,
        start: Start | None = None,
        until: int = 0,
        mode: Literal["in-order", "individual"] = "in-order",
        window_size: int = WINDOW_SIZE,
        on_gap: GapPolicy = "raise",
        attempts_max: int = 0,
        parked_to: str = "",
    ) -> Subscription:
        """Subscribe to `stream`, from its history to new publications, with key patterns and a condition.

        With a `subscriber` (and a `name`, "main" by default) it is durable: the node keeps its cursor, `start` has an
        effect only the first time, and settled publications never come again. Without, it is ephemeral. `until`: end
        before this sequence. `window_size`: how many bytes the node pushes ahead. `on_gap`: "raise", or a function.
        `attempts_max`: what the application was handed so often and never settled is parked, in the stream `parked_to`.
        To be closed, or entered. Raises the refusal of the node.
        """
        wanted = wanted_of(
            stream, subscriber, name, keys, where, start, until, mode, window_size, on_gap, attempts_max, parked_to
        )
        return opened(self._thread, self._node.connection, wanted)

    def receive(
        self,
        stream: str,
        group: str,
        *,
        interface: str = "127.0.0.1",
        keys: str | Iterable[str] | None = None,
        start: Start | None = None,
        on_gap: GapPolicy = "raise",
        silence_s: float = SILENCE_S,
    ) -> Reception:
        """Receive `stream`: new publications by multicast from `group`, the rest from this node's journal.

        `group`: `host:port`, as the node's `multicast.group`. `interface`: the IPv4 address of the one that joins it.
        `silence_s`: ask the node what there is after so long without a datagram. To be closed, or entered.
        """
        check_name("stream", stream)
        check_text("group", group)
        check_text("interface", interface)
        check_start(start)
        check_seconds("silence_s", silence_s, may_be_none=False)
        check_gap_policy(on_gap)
        return Reception(
            lambda wanted: Opened(self._thread, self._node.connection, wanted),
            stream,
            group,
            interface,
            filter_of(keys, None),
            start or Start(),
            on_gap,
            silence_s,
        )

    def sink(self, name: str) -> Sink:
        """The sink `name`."""
        return Sink(self._thread, self._node, name)

    def redrive(self, letters: str) -> dict[str, int]:
        """Move the dead letters in the stream `letters` back, each exactly once; returns the count by stream.

        Raises `Refused("letters-damaged")` where the node cannot read one, behind which none was moved, and
        `Refused("letters-lost")` where it cannot be known any more what was moved.
        """
        from .redriving import redrive

        return redrive(self, letters)

    def close(self) -> None:
        """Send what is pending, at most for 5 s, and leave the node; as `AsyncNode.close`."""
        failure = self._node.connection.failure
        if failure is None or failure.code != "forked":
            self._leave()
            self._node._tell_lost()

    def _leave(self) -> None:
        self._closing.wait(self._node._leave)

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


class Streams:
    """The node's streams."""

    def __init__(self, thread: LoopThread, node: AsyncNode) -> None:
        """The streams of `node`."""
        self._thread = thread
        self._streams = node.streams

    def create(self, name: str, **config: Any) -> dict[str, Any]:
        """Create a stream, and return its description. If it exists with the same configuration, nothing changes.

        `config`: `retention_age` (a timedelta, or text: "7d") or `retention_age_s`; `retention_size` and `lag_size_max`
        (bytes, or text: "10 GiB"); `retention_count`; `sources_max`. Raises `Misuse("bad-config")`, and `Refused` when
        the stream is there and configured otherwise.
        """
        return self._thread.run(partial(self._streams.create, name, **config))

    def list(self) -> list[dict[str, Any]]:
        """The descriptions of all streams, by name."""
        return self._thread.run(self._streams.list)

    def show(self, name: str) -> dict[str, Any]:
        """One stream's description, with its sources and subscriptions."""
        return self._thread.run(partial(self._streams.show, name))

    def trim(self, name: str, floor: int) -> dict[str, Any]:
        """Delete all publications below the sequence `floor`; returns the new description of the stream.

        A `floor` after the newest publication deletes everything; it does not delete later publications.
        """
        return self._thread.run(partial(self._streams.trim, name, floor))

    def alter(self, name: str, **config: Any) -> dict[str, Any]:
        """Change the given settings of the stream, as in `create`; returns its new description."""
        return self._thread.run(partial(self._streams.alter, name, **config))

    def delete(self, name: str) -> None:
        """Delete the stream with its publications, sources and subscriptions."""
        self._thread.run(partial(self._streams.delete, name))


class Sinks:
    """The node's sinks."""

    def __init__(self, thread: LoopThread, node: AsyncNode) -> None:
        """The sinks of `node`."""
        self._thread = thread
        self._sinks = node.sinks

    def list(self) -> list[dict[str, Any]]:
        """The run and the last commit of each, by name; where `is_whole` is false, it has more streams than these."""
        return self._thread.run(self._sinks.list)

    def stages(self) -> builtins.list[dict[str, Any]]:
        """The open stages of all sinks, by number: rows that are not committed yet."""
        return self._thread.run(self._sinks.stages)

    def drop_stages(self, sink: str) -> builtins.list[int]:
        """Drop all open stages of a sink, even if a program still writes them; returns their numbers."""
        return self._thread.run(partial(self._sinks.drop_stages, sink))


class Subscriptions:
    """The node's durable subscriptions."""

    def __init__(self, thread: LoopThread, node: AsyncNode) -> None:
        """The subscriptions of `node`."""
        self._thread = thread
        self._subscriptions = node.subscriptions

    def list(self, stream: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
        """The position of each; of one stream or of all, with this name or any."""
        return self._thread.run(partial(self._subscriptions.list, stream, name))

    def show(self, stream: str, subscriber: str, name: str = "main") -> dict[str, Any]:
        """Its position, its flow, its credit, and what it waits for."""
        return self._thread.run(partial(self._subscriptions.show, stream, subscriber, name))

    def advance(self, stream: str, subscriber: str, name: str, floor: int) -> int:
        """Settle everything up to the sequence `floor`, which the program has read in another way; the new floor.

        Raises `Refused("subscription-in-use")` while it has an owner.
        """
        return self._thread.run(partial(self._subscriptions.advance, stream, subscriber, name, floor))

    def remove(self, stream: str, subscriber: str, name: str = "main") -> None:
        """Remove the subscription with its cursor; the node informs its subscriber."""
        self._thread.run(partial(self._subscriptions.remove, stream, subscriber, name))


class Stage(Publisher):
    """Rows for one stream, durable and invisible until the stage is committed. It publishes as a publisher does."""

    __slots__ = ()

    @property
    def stage(self) -> int:
        """The number of the stage, for the commit; another process may use it.

        Raises `Refused("lost")` where the node was put back to a copy without rows that it had acknowledged.
        """
        return self._channel.kept_stage


class Run(Blocking):
    """One run of a sink: the newest fences all older ones, and drops what they left open."""

    def __init__(self, thread: LoopThread, node: AsyncNode, run: AsyncRun) -> None:
        """What `run` is in the loop of `thread`."""
        self._thread = thread
        self._node = node
        self._run = run

    @property
    def epoch(self) -> int:
        """The epoch of the run; another process joins the run with it."""
        return self._run.epoch

    @property
    def commit_id(self) -> int:
        """The last commit of the sink: this run's, or the one before it was granted; -1 for none."""
        return self._run.commit_id

    @property
    def streams(self) -> tuple[tuple[str, int, int], ...]:
        """What that commit wrote: stream, first sequence, count."""
        return self._run.streams

    def stage(self, stream: str, key: bytes | None = None, commit_id: int | None = None, **options: Any) -> Stage:
        """A new stage for `stream`. `key`: 16 bytes that name the attempt. `options`: as a publisher's.

        `commit_id` as in `AsyncRun.stage`.
        """
        self._run.channel.check_open()
        settings = settings_of(stream, key, options)
        attaching = attaching_of(self._run.channel, stream, key, commit_id)
        return Stage._attached(self._thread, self._node.connection, settings, attaching)

    def commit(self, commit_id: int, stages: Sequence[int | Stage], contents: Sequence[Content] = ()) -> Committed:
        """Make these stages visible together, in this order. Commit ids grow; a repeated id changes nothing.

        `contents` as in `AsyncRun.commit`. Raises `Refused`: `commit-other-streams`, `commit-other-rows`, `lost`.
        """
        return self._thread.run(partial(self._run.channel.commit, commit_id, stages, contents))

    def drop(self, stages: Sequence[int | Stage], commit_id: int | None = None) -> None:
        """Drop these stages, and what is for a commit that is given up, as `AsyncRun.drop`; committed ones stay."""
        self._thread.run(partial(self._run.channel.drop, stages, commit_id))

    def close(self) -> None:
        """Close the run; its stages stay."""
        self._thread.run(self._run.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Sink:
    """A name under which stages are committed."""

    def __init__(self, thread: LoopThread, node: AsyncNode, name: str) -> None:
        """The sink `name` of a node."""
        self.name = name
        self._thread = thread
        self._node = node
        self._sink = AsyncSink(node.connection, name)

    def open_run(self, incarnation: bytes | None = None, is_ephemeral: bool = False) -> Run:
        """A new run, which fences all older ones; the same one again for the same 16 bytes of `incarnation`.

        `is_ephemeral`: where the sink is new, the node may forget it once nobody is there for it.
        """
        return self._opened(self._sink.open_run(incarnation, is_ephemeral))

    def join_run(self, epoch: int) -> Run:
        """The run of that epoch, opened elsewhere. Raises `Fenced` when there is a newer one."""
        return self._opened(self._sink.join_run(epoch))

    def _opened(self, opening: Opening[AsyncRun]) -> Run:
        async def opened() -> Run:
            return Run(self._thread, self._node, await opening)

        return self._thread.run(opened, lambda run: run._run.close())

    def remove(self) -> None:
        """Forget the sink, with the id of its last commit; what it committed stays.

        Raises `Refused`: `unknown-sink`, or `sink-in-use` while stages are open.
        """
        self._thread.run(self._sink.remove)


def connect(
    *addresses: str,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    client: str = "",
    timeout_s: float | None = None,
    refused_s: float = REFUSED_S,
) -> Node:
    """A connection to a node at any of several addresses, to be closed, or entered; as `connect_async`.

    Without an address it is the environment variable VEREDUS_ADDRESS, or veredus://127.0.0.1:7071.

    Raises `Unavailable("unreachable")` when no node answers in time, or what the node refuses with.
    """
    check_token(token)
    thread = shared_loop()

    async def opened() -> Node:
        return Node(thread, await open_node(addresses, token, tls, client, timeout_s, refused_s))

    return thread.run(opened, lambda node: node._node.close())
