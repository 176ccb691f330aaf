"""Two hundred clients at once, who stand in a ring: each puts for the next one, and gets what the one before has put.

Whoever is measured lends a *member*: the class of a client of its own, by `module:name`, which `run` makes two hundred
of, in a few processes. Everything that was put must be got once, in order; what is left when the clock has run out is
got then.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from benchmarks.contender import Effort
from benchmarks.contenders import serving
from benchmarks.contenders.topics_one import body_of
from benchmarks.contenders.topics_service import AsyncPageClient, Service, tried_async

if TYPE_CHECKING:
    import zmq

    from veredus.topics import AsyncClientGroup, GroupClient

CLIENTS_COUNT: Final = 200
PROCESSES_COUNT: Final = 4
AHEAD_COUNT: Final = 5
"""By so many messages the one before is ahead, so that there is mostly something to get."""
_AT_ONCE_COUNT: Final = 10
_WARM_UP_S: Final = 0.5
_DRAIN_LIMIT_S: Final = 20.0
T = TypeVar("T")
_PROCESSES: Final = multiprocessing.get_context("spawn")
LOAD: Final = (
    f"{CLIENTS_COUNT} clients in {PROCESSES_COUNT} asyncio processes (uvloop), each puts 100 bytes for the next one "
    "and then gets what the one before has put, as fast as it is answered; an operation is a put or a get of a message"
)


class Place(NamedTuple):
    """Where a client stands in the ring."""

    index: int
    own: str
    """The topic from which it gets."""
    other: str
    """The topic to which it puts, and nobody else does."""


class Member(Protocol):
    """One client."""

    async def open(self) -> None:
        """Connect, and be subscribed to its own topic."""

    async def put(self, body: bytes) -> None:
        """Put for the next one, and return when that is durable."""

    async def get(self) -> bytes | None:
        """Get what the one before has put, if there is something."""

    async def close(self) -> None:
        """Disconnect."""

    @property
    def refused_count(self) -> int:
        """How often it was told to try again."""


@dataclass(slots=True)
class _Tally:
    """What one process has done."""

    put_count: int = 0
    got_count: int = 0
    empty_count: int = 0
    refused_count: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    times_ns: list[int] = field(default_factory=list)
    put_by_client: dict[int, int] = field(default_factory=dict)
    got_by_client: dict[int, int] = field(default_factory=dict)


def run(member: str, where: object, seconds: float) -> dict[str, float]:
    """Let all members, made with `where` and their places, work for so long; raises RuntimeError for what was wrong."""
    channels, processes = [], []
    try:
        for indices in np.array_split(np.arange(CLIENTS_COUNT), PROCESSES_COUNT):
            ours, theirs = _PROCESSES.Pipe()
            arguments = (theirs, member, where, [int(index) for index in indices], seconds)
            process = _PROCESSES.Process(target=_work, args=arguments, daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            channels.append(ours)
        _all(channels, "ready")
        for channel in channels:
            channel.send("go")
        put_by_client: dict[int, int] = {}
        for counts in _all(channels, "done"):
            put_by_client |= counts
        for channel in channels:
            channel.send(put_by_client)
        tallies: list[_Tally] = _all(channels, "tally")
    finally:
        for process in processes:
            process.kill()
            process.join()
    return _metrics(tallies)


def _all(channels: list[Connection], kind: str) -> list[Any]:
    said = []
    for channel in channels:
        message = channel.recv()
        if kind not in message:
            raise RuntimeError(message["failure"])
        said.append(message[kind])
    return said


def _metrics(tallies: list[_Tally]) -> dict[str, float]:
    count = sum(tally.put_count + tally.got_count for tally in tallies)
    p50, p99 = np.percentile(np.concatenate([tally.times_ns for tally in tallies]), (50, 99))
    return {
        "rate_hz": sum((tally.put_count + tally.got_count) / tally.seconds for tally in tallies),
        "operation_p50_s": float(p50) / 1e9,
        "operation_p99_s": float(p99) / 1e9,
        "count": float(count),
        "empty_count": float(sum(tally.empty_count for tally in tallies)),
        "refused_count": float(sum(tally.refused_count for tally in tallies)),
        "clients_cpu_us_per_operation": sum(tally.cpu_s for tally in tallies) * 1e6 / count,
    }


# ── a process ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _work(channel: Connection, member: str, where: object, indices: list[int], seconds: float) -> None:
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_live(channel, member, where, indices, seconds))
    except BaseException as error:
        channel.send({"failure": f"{type(error).__name__}: {error}"})
        raise


async def _live(channel: Connection, member: str, where: object, indices: list[int], seconds: float) -> None:
    module, _, name = member.partition(":")
    make = getattr(importlib.import_module(module), name)
    members: dict[int, Member] = {index: make(where, place_of(index)) for index in indices}
    few = asyncio.Semaphore(_AT_ONCE_COUNT)

    async def opened(one: Member) -> None:
        async with few:
            await one.open()

    await asyncio.gather(*map(opened, members.values()))
    channel.send({"ready": None})
    await asyncio.to_thread(channel.recv)
    tally = _Tally()
    start_s, cpu_s = time.perf_counter(), 0.0

    def begin() -> None:
        nonlocal cpu_s
        cpu_s = time.process_time()

    asyncio.get_running_loop().call_later(_WARM_UP_S, begin)
    span_s = (start_s + _WARM_UP_S, start_s + _WARM_UP_S + seconds)
    await asyncio.gather(*[_turn(one, index, span_s, tally) for index, one in members.items()])
    tally.seconds = time.perf_counter() - span_s[0]
    tally.cpu_s = time.process_time() - cpu_s
    channel.send({"done": tally.put_by_client})
    put_by_client = await asyncio.to_thread(channel.recv)
    for index, one in members.items():
        before = (index - 1) % CLIENTS_COUNT
        await _drain(one, index, tally.got_by_client[index], put_by_client[before])
    for one in members.values():
        tally.refused_count += one.refused_count
        await one.close()
    channel.send({"tally": tally})


def place_of(index: int) -> Place:
    """Where a client stands."""
    return Place(index, f"topic-{index:03}", f"topic-{(index + 1) % CLIENTS_COUNT:03}")


async def _turn(one: Member, index: int, span_s: tuple[float, float], tally: _Tally) -> None:
    """Put and get, in turn, until the time is over; what was begun before it begins is not counted."""
    start_s, end_s = span_s
    put_count, got_count = AHEAD_COUNT, 0
    for number in range(AHEAD_COUNT):
        await one.put(body_of(number))
    while (begun_s := time.perf_counter()) < end_s:
        await one.put(body_of(put_count))
        put_count += 1
        between_s = time.perf_counter()
        body = await one.get()
        if body is not None:
            _check(index, body, got_count)
            got_count += 1
        if begun_s < start_s:
            continue
        tally.put_count += 1
        tally.times_ns.append(round((between_s - begun_s) * 1e9))
        if body is None:
            tally.empty_count += 1
        else:
            tally.got_count += 1
            tally.times_ns.append(round((time.perf_counter() - between_s) * 1e9))
    tally.put_by_client[index], tally.got_by_client[index] = put_count, got_count


async def _drain(one: Member, index: int, got_count: int, put_count: int) -> None:
    """Get what is left; raises RuntimeError where that is not what was put."""
    deadline_s = time.monotonic() + _DRAIN_LIMIT_S
    while (body := await one.get()) is not None or got_count < put_count:
        if time.monotonic() > deadline_s or (body is not None and got_count == put_count):
            raise RuntimeError(f"client {index} got {got_count} messages or more, and {put_count} were put for it")
        if body is not None:
            _check(index, body, got_count)
            got_count += 1


def _check(index: int, body: bytes, got_count: int) -> None:
    if body != body_of(got_count):
        raise RuntimeError(f"client {index} got {body[:8].hex()} as its message {got_count}")


# ── the topic service ────────────────────────────────────────────────────────────────────────────────────────────────


class GroupMember:
    """A client of a `veredus.topics.AsyncClientGroup`, one of which each process has for each proxy."""

    _groups: ClassVar[dict[int, asyncio.Task[AsyncClientGroup]]] = {}
    _client: GroupClient

    def __init__(self, where: tuple[list[str], str], place: Place) -> None:
        """Ask these proxies, every other client in the other order, and keep what must be below this directory."""
        self._proxies, self._directory = where
        self._place = place
        self.refused_count = 0

    async def open(self) -> None:
        """Take the directory, and be subscribed."""
        self._client = await self._taken()
        await self._tried(partial(self._client.subscribe, self._place.own))

    async def _taken(self) -> GroupClient:
        from veredus.topics import AsyncClientGroup

        first = self._place.index % len(self._proxies)
        group = GroupMember._groups.get(first)
        if group is None:
            listed = self._proxies[first:] + self._proxies[:first]
            directory = f"{self._directory}/{os.getpid()}-{first}"
            entered = AsyncClientGroup(proxies=listed, directory=directory).__aenter__()
            group = GroupMember._groups[first] = asyncio.create_task(entered)
        return (await group).client(self._client_id)

    @property
    def _client_id(self) -> str:
        return f"client-{self._place.index:03}"

    async def put(self, body: bytes) -> None:
        """Put."""
        # The same body again is the same put.
        await self._tried(partial(self._client.put, self._place.other, body))

    async def get(self) -> bytes | None:
        """Get."""
        message = await self._tried(partial(self._client.get, self._place.own))
        return None if message is None else message.body

    async def close(self) -> None:
        """Let go of the directory, unless another member did."""
        groups, GroupMember._groups = GroupMember._groups, {}
        for group in groups.values():
            await (await group).__aexit__(None, None, None)

    async def _tried(self, ask: Callable[[], Awaitable[T]]) -> T:
        answer, refused_count = await tried_async(ask)
        self.refused_count += refused_count
        return answer


class LibraryMember(GroupMember):
    """`veredus.topics.AsyncClient`, with a directory of its own."""

    async def _taken(self) -> GroupClient:
        from veredus.topics import AsyncClient

        first = self._place.index % len(self._proxies)
        listed = self._proxies[first:] + self._proxies[:first]
        self._alone = AsyncClient(self._client_id, proxies=listed, directory=self._directory)
        await self._alone.open()
        return self._alone

    async def close(self) -> None:
        """Let go of the directory."""
        await self._alone.close()


class PageMember:
    """A ZeroMQ socket, and nothing kept."""

    _context: zmq.Context[zmq.Socket[bytes]] | None = None

    def __init__(self, where: tuple[list[str], str], place: Place) -> None:
        """Ask one of these proxies."""
        self._proxy = where[0][place.index % len(where[0])]
        self._place = place

    async def open(self) -> None:
        """Connect, and be subscribed."""
        import zmq

        if PageMember._context is None:
            PageMember._context = zmq.Context()
        self._client = AsyncPageClient(PageMember._context, f"client-{self._place.index:03}", self._proxy)
        await self._client.subscribe(self._place.own)

    async def put(self, body: bytes) -> None:
        """Put."""
        await self._client.put(self._place.other, body)

    async def get(self) -> bytes | None:
        """Get."""
        return await self._client.get(self._place.own)

    async def close(self) -> None:
        """Disconnect."""
        self._client.close()

    @property
    def refused_count(self) -> int:
        """How often it was told to try again."""
        return self._client.refused_count


@dataclass(frozen=True, slots=True)
class ManyClients:
    """The ring through two proxies and two servers."""

    name: str
    mode: str
    member: str
    rounds_max: int = 3
    timeout_s: float = 120.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the service and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Operations a second, how long one took, and what it cost whom."""
        service = Service.of(workdir, 2, 2, {})
        try:
            service.start([place_of(index).own for index in range(CLIENTS_COUNT)])
            used = partial(service.cpu_s, service.proxies), partial(service.cpu_s, service.servers)
            before_s = [cpu_s() for cpu_s in used]
            where = (list(service.proxies), str(workdir / "clients"))
            metrics = run(f"benchmarks.contenders.topics_many:{self.member}", where, effort.seconds)
            costs_s = [cpu_s() - before for cpu_s, before in zip(used, before_s, strict=True)]
        finally:
            service.stop()
        per_operation = 1e6 * (effort.seconds / (effort.seconds + _WARM_UP_S)) / metrics["count"]
        proxies, servers = (cost_s * per_operation for cost_s in costs_s)
        return metrics | {"proxies_cpu_us_per_operation": proxies, "servers_cpu_us_per_operation": servers}


_SERVICE: Final = "through two proxies, half of the clients each, to two servers (`sync group`)"


def library() -> ManyClients:
    """Clients that keep what they must."""
    return ManyClients(
        "topics-many-clients",
        f"{LOAD}; {_SERVICE}; `veredus.topics.AsyncClient`, each with a directory of its own, to which each put and "
        "each get is synced as well",
        "LibraryMember",
    )


def group() -> ManyClients:
    """Clients that keep what they must, together."""
    return ManyClients(
        "topics-many-group-clients",
        f"{LOAD}; {_SERVICE}; clients of a `veredus.topics.AsyncClientGroup` in each process for each proxy, with a "
        "directory for all of them, to which each put and each get is synced as well",
        "GroupMember",
    )


def page() -> ManyClients:
    """Clients that keep nothing."""
    return ManyClients(
        "topics-many-page-clients",
        f"{LOAD}; {_SERVICE}; each a ZeroMQ REQ socket that speaks the page's words and keeps nothing: the like of "
        "RabbitMQ's client, which would lose or double if it were killed",
        "PageMember",
    )
