"""Many messages at once through the topic service: put, then got, by one client; and at the same time, by two."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.contender import Effort
from benchmarks.contenders import serving
from benchmarks.contenders.topics_one import body_of
from benchmarks.contenders.topics_service import BODY_SIZE, Service, tried

if TYPE_CHECKING:
    from veredus.topics import Client

AT_ONCE_COUNT: Final = 9_000
"""So many messages of this size, with their lengths, are a little less than a MiB."""
_PER_SECOND_COUNT: Final = 180_000
"""So many messages for each second of effort."""
_ANSWER_S: Final = 2.0
_PROCESSES: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class TopicsBulk:
    """`put_many` and `get_many` through one proxy and one server."""

    name: str = "topics-bulk"
    mode: str = (
        f"one proxy, one server (`sync group`); messages of {BODY_SIZE} bytes, {AT_ONCE_COUNT:,} at once, by "
        "`veredus.topics.Client`, which keeps on its own disk what it puts (synced) and got (synced): one client puts "
        "all and then gets all; then two at the same time, one puts and one gets, each in a process of its own"
    )
    rounds_max: int = 3
    timeout_s: float = 180.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the service and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Messages a second, put, got, and both."""
        count = max(1, round(effort.seconds * _PER_SECOND_COUNT / AT_ONCE_COUNT)) * AT_ONCE_COUNT
        service = Service.of(workdir, 1, 1, {})
        try:
            service.start()
            put_s, got_s = _one_after_the_other(service.proxies[0], workdir, count)
            both_s = _at_the_same_time(service.proxies[0], workdir, count)
        finally:
            service.stop()
        return {"put_hz": count / put_s, "get_hz": count / got_s, "both_hz": count / both_s, "count": float(count)}


def _one_after_the_other(proxy: str, workdir: Path, count: int) -> tuple[float, float]:
    with client("one", proxy, workdir) as one:
        tried(lambda: one.subscribe("after"))
        start_s = time.perf_counter()
        put_all(one, "after", count)
        put_s = time.perf_counter()
        get_all(one, "after", count)
        return put_s - start_s, time.perf_counter() - put_s


def _at_the_same_time(proxy: str, workdir: Path, count: int) -> float:
    with client("getter", proxy, workdir) as getter:
        tried(lambda: getter.subscribe("same"))
        ours, theirs = _PROCESSES.Pipe()
        process = _PROCESSES.Process(target=_put, args=(theirs, proxy, workdir, count), daemon=True)
        process.start()
        try:
            ours.recv()
            start_s = time.perf_counter()
            ours.send("go")
            get_all(getter, "same", count)
            return time.perf_counter() - start_s
        finally:
            process.join()


def _put(channel: Connection, proxy: str, workdir: Path, count: int) -> None:
    with client("putter", proxy, workdir) as putter:
        channel.send("ready")
        channel.recv()
        put_all(putter, "same", count)


def client(client_id: str, proxy: str, workdir: Path) -> Client:
    """A client of the library, to be entered."""
    from veredus.topics import Client

    return Client(client_id, proxies=[proxy], directory=workdir / "clients", answer_s=_ANSWER_S)


def put_all(putter: Client, topic: str, count: int) -> None:
    """Put so many messages, each of which says which it is."""
    for first in range(0, count, AT_ONCE_COUNT):
        bodies = [body_of(number) for number in range(first, min(first + AT_ONCE_COUNT, count))]
        tried(lambda bodies=bodies: putter.put_many(topic, bodies))  # type: ignore[misc]


def get_all(getter: Client, topic: str, count: int) -> None:
    """Get them; raises RuntimeError where something else is got than was put."""
    got_count = 0
    while got_count < count:
        bodies = [message.body for message in tried(lambda: getter.get_many(topic))]
        if bodies != [body_of(number) for number in range(got_count, got_count + len(bodies))]:
            raise RuntimeError(f"behind {got_count} messages something else was got than was put")
        got_count += len(bodies)
