"""One client of the topic service: what it puts, it gets, through a proxy; one after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.contender import Effort
from benchmarks.contenders import serving
from benchmarks.contenders.topics_service import BODY_SIZE, PageClient, Service, tried, tried_async

TOPIC: Final = "bench"
_WARM_UP_SHARE: Final = 0.1
_SERVICE: Final = "one proxy, one server (`sync group`); a PUT of 100 bytes and then a GET of it, each answered"


class Trips:
    """Round trips, each of a put and a get, timed and verified."""

    def __init__(self) -> None:
        """None was made yet."""
        self._times_ns: list[tuple[int, int, int]] = []

    def time(self, put: Callable[[bytes], object], get: Callable[[], bytes | None], count: int) -> None:
        """Make `count` of them; raises RuntimeError where something else is got than was put."""
        for number in range(count):
            body = body_of(number)
            start_ns = time.perf_counter_ns()
            put(body)
            put_ns = time.perf_counter_ns()
            self._take(body, get(), (start_ns, put_ns, time.perf_counter_ns()))

    async def time_async(
        self, put: Callable[[bytes], Awaitable[object]], get: Callable[[], Awaitable[bytes | None]], count: int
    ) -> None:
        """The same on a loop."""
        for number in range(count):
            body = body_of(number)
            start_ns = time.perf_counter_ns()
            await put(body)
            put_ns = time.perf_counter_ns()
            self._take(body, await get(), (start_ns, put_ns, time.perf_counter_ns()))

    def _take(self, body: bytes, got: bytes | None, times_ns: tuple[int, int, int]) -> None:
        if got != body:
            raise RuntimeError(f"{body[:8].hex()} was put, {got and got[:8].hex()} was got")
        self._times_ns.append(times_ns)

    def metrics(self) -> dict[str, float]:
        """Percentiles of whole round trips, and the median of each half, without the first tenth."""
        counted = np.array(self._times_ns[int(len(self._times_ns) * _WARM_UP_SHARE) :])
        start_ns, put_ns, got_ns = counted.T
        p50, p99 = np.percentile(got_ns - start_ns, (50, 99))
        halves = {"put_p50_ns": np.median(put_ns - start_ns), "get_p50_ns": np.median(got_ns - put_ns)}
        return {"p50_ns": float(p50), "p99_ns": float(p99)} | {name: float(value) for name, value in halves.items()}


def trips_count_of(effort: Effort) -> int:
    """How many round trips a run makes: each is two operations."""
    return effort.latency_count // 2


def body_of(number: int) -> bytes:
    """A body that says which it is."""
    return number.to_bytes(8, "little") + bytes(BODY_SIZE - 8)


@dataclass(frozen=True, slots=True)
class OneClient:
    """A client in one of three ways, beside `rabbitmq-one-client`."""

    name: str
    mode: str
    run: Callable[[str, Path, int], Mapping[str, float]]
    rounds_max: int = 3
    timeout_s: float = 120.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the service and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Nanoseconds of a put and a get, and of each."""
        service = Service.of(workdir, 1, 1, {})
        try:
            service.start()
            cpu_s = service.cpu_s(service.proxies), service.cpu_s(service.servers)
            trips_count = trips_count_of(effort)
            metrics = self.run(service.proxies[0], workdir / "client", trips_count)
            proxy_cpu_s, server_cpu_s = service.cpu_s(service.proxies), service.cpu_s(service.servers)
        finally:
            service.stop()
        used = {"proxy_cpu_s": proxy_cpu_s - cpu_s[0], "server_cpu_s": server_cpu_s - cpu_s[1]}
        return {**metrics, **{f"{name}_per_trip": value / trips_count for name, value in used.items()}}


def _run_blocking(proxy: str, directory: Path, count: int) -> Mapping[str, float]:
    from veredus.topics import Client

    trips = Trips()
    with Client("bench", proxies=[proxy], directory=directory) as client:

        def get() -> bytes | None:
            message = tried(partial(client.get, TOPIC))
            return None if message is None else message.body

        tried(partial(client.subscribe, TOPIC))
        trips.time(lambda body: tried(partial(client.put, TOPIC, body)), get, count)
    return trips.metrics()


def _run_async(proxy: str, directory: Path, count: int) -> Mapping[str, float]:
    import uvloop

    from veredus.topics import AsyncClient

    async def run() -> Mapping[str, float]:
        trips = Trips()
        async with AsyncClient("bench", proxies=[proxy], directory=directory) as client:

            async def get() -> bytes | None:
                message, _ = await tried_async(partial(client.get, TOPIC))
                return None if message is None else message.body

            await tried_async(partial(client.subscribe, TOPIC))
            await trips.time_async(lambda body: tried_async(partial(client.put, TOPIC, body)), get, count)
        return trips.metrics()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def _run_page(proxy: str, _directory: Path, count: int) -> Mapping[str, float]:
    trips = Trips()
    with PageClient("bench", proxy) as client:
        client.subscribe(TOPIC)
        trips.time(lambda body: client.put(TOPIC, body), lambda: client.get(TOPIC), count)
    return trips.metrics()


def blocking() -> OneClient:
    """The library without asyncio."""
    return OneClient(
        "topics-one-client",
        f"{_SERVICE}; `veredus.topics.Client`, which keeps on its own disk what it puts (synced) and got (synced)",
        _run_blocking,
    )


def asynchronous() -> OneClient:
    """The library for asyncio."""
    return OneClient(
        "topics-one-async-client",
        f"{_SERVICE}; `veredus.topics.AsyncClient`, which keeps on its own disk what it puts (synced) and got (synced)",
        _run_async,
    )


def page() -> OneClient:
    """A REQ socket."""
    return OneClient(
        "topics-one-page-client",
        f"{_SERVICE}; a ZeroMQ REQ socket that speaks the page's words and keeps nothing: the like of RabbitMQ's "
        "client, which would lose or double if it were killed",
        _run_page,
    )
