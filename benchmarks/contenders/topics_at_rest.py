"""A hundred thousand topics on one server: what a start costs, and what it costs to tell a proxy of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.contender import Effort
from benchmarks.contenders import serving
from benchmarks.contenders.topics_service import BODY_SIZE, PageClient, Service, ask_all, question

TOPICS_COUNT: Final = 100_000
PERIOD_S: Final = 5
_SECONDS_WHOLE: Final = 4.0
_PERIODS_COUNT: Final = 2
_PROBE_S: Final = 0.02
_ROOM_COUNT: Final = 2 * TOPICS_COUNT
"""Limits that a hundred thousand topics do not come near."""


@dataclass(frozen=True, slots=True)
class TopicsAtRest:
    """Puts once to each topic, and starts the server on them after a clean stop and after SIGKILL."""

    name: str = "topics-at-rest"
    mode: str = (
        f"{TOPICS_COUNT:,} topics on one server (fewer where the effort is), one message in each, one client "
        "subscribed to each; a start is from the start of the process until it is ready; PERIODIC to one proxy each "
        f"{PERIOD_S} s, at first while nobody asks, then while a client puts"
    )
    rounds_max: int = 1
    timeout_s: float = 300.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the service and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Seconds of starts, bytes resident, CPU seconds of a PERIODIC, and the longest wait of a client."""
        count = round(TOPICS_COUNT * min(effort.seconds / _SECONDS_WHOLE, 1.0))
        settings = {
            f"limits.{name}_max": str(_ROOM_COUNT)
            for name in ("streams", "streams_per_principal", "sources_per_principal")
        }
        service = Service.of(workdir, 1, 1, {**settings, "topics.period": f"{PERIOD_S}s"})
        server, proxy = service.servers[0], service.proxies[0]
        try:
            node = service.start_server(server)
            start_s = time.perf_counter()
            topics = [f"topic-{index:06}" for index in range(count)]
            ask_all(server, (question(f"SUBSCRIBE resting {topic}") for topic in topics))
            ask_all(server, (question(f"PUT bench {topic} 1", bytes(BODY_SIZE)) for topic in topics))
            made_s = time.perf_counter() - start_s
            os.kill(node.pid, signal.SIGKILL)
            service.stop([server])
            killed_start_s = _start(service, server)
            service.stop([server])
            clean_start_s = _start(service, server)
            node = service.running[server]
            resident_size = serving.memory(node.pid, "VmRSS")
            service.start_proxy(proxy)
            service.wait_until_known(proxy)
            told = _told(service, server, proxy)
            longest_wait_s = _longest_wait_s(proxy)
            talking_size = serving.memory(node.pid, "VmHWM")
            proxy_size = serving.memory(service.running[proxy].pid, "VmRSS")
        finally:
            service.stop()
        return {
            "topics_count": float(count),
            "made_hz": 2 * count / made_s,
            "killed_start_s": killed_start_s,
            "clean_start_s": clean_start_s,
            "resident_size": float(resident_size),
            "talking_size": float(talking_size),
            "proxy_resident_size": float(proxy_size),
            **told,
            "longest_wait_s": longest_wait_s,
        }


def _start(service: Service, server: str) -> float:
    start_s = time.perf_counter()
    service.start_server(server)
    return time.perf_counter() - start_s


def _told(service: Service, server: str, proxy: str) -> dict[str, float]:
    """CPU seconds of the two for one PERIODIC, while nobody asks anything."""
    before = [service.cpu_s([address]) for address in (server, proxy)]
    time.sleep(_PERIODS_COUNT * PERIOD_S)
    used = [service.cpu_s([address]) - cpu_s for address, cpu_s in zip((server, proxy), before, strict=True)]
    return {"periodic_server_cpu_s": used[0] / _PERIODS_COUNT, "periodic_proxy_cpu_s": used[1] / _PERIODS_COUNT}


def _longest_wait_s(proxy: str) -> float:
    """The longest that a client waits for an answer, while the proxy is told."""
    waits_s = []
    with PageClient("probe", proxy) as client:
        client.subscribe("probe")
        end_s = time.perf_counter() + _PERIODS_COUNT * PERIOD_S
        while (start_s := time.perf_counter()) < end_s:
            client.put("probe", bytes(BODY_SIZE))
            waits_s.append(time.perf_counter() - start_s)
            time.sleep(_PROBE_S)
    return max(waits_s)
