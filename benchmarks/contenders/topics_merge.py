"""A merge: a topic that two servers had, far apart, becomes one while a client goes on putting and getting."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import zmq

from benchmarks.contender import Effort
from benchmarks.contenders import serving
from benchmarks.contenders.topics_service import ANSWER_S, BODY_SIZE, PageClient, Service, ask_all, question

MESSAGES_COUNT: Final = 100_000
KEPT_COUNT: Final = 1_000
SUBSCRIBERS_COUNT: Final = 10
SOURCES_COUNT: Final = 10
_TOPIC: Final = "bench"
_PROBE_S: Final = 0.02
_AFTER_S: Final = 1.0
_SECONDS_WHOLE: Final = 4.0
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class TopicsMerge:
    """Two servers, each alone with a proxy at first; then both proxies are told of both."""

    name: str = "topics-merge"
    mode: str = (
        f"{MESSAGES_COUNT:,} messages of 100 bytes (fewer where the effort is) from {SOURCES_COUNT} clients at the "
        f"server that gives, {KEPT_COUNT:,} at the one that keeps, {SUBSCRIBERS_COUNT} subscribers of each; from the "
        "first MERGE until the giver's topic is gone; a client puts and gets through a proxy each "
        f"{1000 * _PROBE_S:.0f} ms from before until after"
    )
    rounds_max: int = 3
    timeout_s: float = 240.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the service and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Seconds of the merge, and how long the client waited for an answer meanwhile."""
        count = round(MESSAGES_COUNT * min(effort.seconds / _SECONDS_WHOLE, 1.0))
        service = Service.of(workdir, 2, 2, {})
        keeper, giver = service.servers
        try:
            _diverge(service, count)
            for proxy in service.proxies:
                service.start_proxy(proxy)
            # The one that gives says first what it has, so that the client begins there.
            service.start_server(giver)
            with _Probe(service.proxies[0]) as probe:
                probe.wait_for(1)
                service.start_server(keeper)
                begun_s = _logged(service, service.proxies, "topic-conflict")
                given_s = _logged(service, [giver], "topic-given")
                time.sleep(_AFTER_S)
            waits_s = probe.waits_s(begun_s, given_s)
            _verify(service, keeper, giver, count + KEPT_COUNT + probe.put_count)
        finally:
            service.stop()
        return {
            "messages_count": float(count),
            "merge_s": given_s - begun_s,
            "longest_wait_s": max(waits_s),
            "waits_count": float(len(waits_s)),
            "refused_count": float(probe.refused_count),
        }


def _diverge(service: Service, count: int) -> None:
    """Each server has the topic, and knows a proxy of its own only."""
    keeper, giver = service.servers
    for server, proxy, puts_count in ((keeper, service.proxies[0], KEPT_COUNT), (giver, service.proxies[1], count)):
        service.start_server(server, [proxy])
        service.start_proxy(proxy, [server])
        service.wait_until_known(proxy)
        with PageClient("probe", proxy) as client:
            client.subscribe(_TOPIC)
        ask_all(proxy, [question(f"SUBSCRIBE {puts_count}-{index} {_TOPIC}") for index in range(SUBSCRIBERS_COUNT)])
        sources = [f"source-{puts_count}-{index}" for index in range(SOURCES_COUNT)]
        puts = (
            question(f"PUT {sources[index % SOURCES_COUNT]} {_TOPIC} {index // SOURCES_COUNT + 1}", bytes(BODY_SIZE))
            for index in range(puts_count)
        )
        ask_all(server, puts)
        service.stop()


@dataclass(slots=True)
class _Probe:
    """A client that puts and gets all the while, in a thread of its own."""

    proxy: str
    put_count: int = 0
    refused_count: int = 0
    """How often it was told to try again."""
    failure: BaseException | None = None
    spans_s: list[tuple[float, float]] = field(default_factory=list)
    """From when to when it waited for what it asked to be done, in seconds since 1970."""
    is_over: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def __enter__(self) -> _Probe:
        self.thread = threading.Thread(target=self._live)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        assert self.thread is not None
        self.thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until so much was done."""
        deadline_s = time.monotonic() + ANSWER_S
        while len(self.spans_s) < count:
            if self.failure is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the client has {len(self.spans_s)} answers of {count}: {self.failure}")
            time.sleep(_PROBE_S)

    def waits_s(self, start_s: float, end_s: float) -> list[float]:
        """How long it waited, as far as that touched this time; raises RuntimeError if it failed."""
        if self.failure is not None:
            raise RuntimeError(f"the client failed: {self.failure}")
        return [to_s - from_s for from_s, to_s in self.spans_s if to_s >= start_s and from_s <= end_s]

    def _live(self) -> None:
        try:
            with PageClient("probe", self.proxy) as client:
                while not self.is_over.wait(_PROBE_S):
                    begun_s = time.time()
                    client.put(_TOPIC, bytes(BODY_SIZE))
                    self.put_count += 1
                    between_s = time.time()
                    client.get(_TOPIC)
                    self.spans_s += [(begun_s, between_s), (between_s, time.time())]
                    self.refused_count = client.refused_count
        except (RuntimeError, zmq.ZMQError) as failure:
            self.failure = failure


def _logged(service: Service, addresses: list[str] | tuple[str, ...], event: str) -> float:
    """When one of these has written this to its log first; waits for it."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        found = [at_s for address in addresses if (at_s := service.logged(address, event)) is not None]
        if found:
            return min(found)
        time.sleep(_PROBE_S)
    raise RuntimeError(f"nobody has logged {event} in {_TIMEOUT_S:.0f} s")


def _verify(service: Service, keeper: str, giver: str, count: int) -> None:
    """The keeper has all there was and came, once, and the giver nothing."""
    import veredus

    found = {}
    for server in (keeper, giver):
        with veredus.connect(serving.url(service.running[server].address)) as node:
            found[server] = {stream["name"]: stream for stream in node.streams.list()}
    if _TOPIC in found[giver]:
        raise RuntimeError(f"the giver {giver} still has {found[giver][_TOPIC]}")
    head = found[keeper][_TOPIC]["head"]
    if head != count:
        raise RuntimeError(f"{count} messages were put, the keeper has {head}")
