"""The loads of the topic service, kept small, against real servers and proxies; and what they are measured beside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import registry
from benchmarks.__main__ import main
from benchmarks.contender import Effort
from benchmarks.contenders import topics_many
from benchmarks.contenders.topics_at_rest import TopicsAtRest
from benchmarks.contenders.topics_many import Place, _drain
from benchmarks.contenders.topics_merge import TopicsMerge
from benchmarks.contenders.topics_one import Trips, body_of
from benchmarks.contenders.topics_service import Answer, PageClient, Service, answer_of, ask_all, question
from benchmarks.figures import FIGURES
from benchmarks.harness import Harness
from benchmarks.peers import rabbitmq

TINY = Effort(rounds_count=1, seconds=0.05, latency_count=20)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    one = Service.of(tmp_path, 1, 1, {"topics.period": "100ms"})
    try:
        yield one
    finally:
        one.stop()


def test_a_status_is_taken_apart_with_and_without_an_id() -> None:
    assert answer_of(b"STATUS s:1 OK 7-1 \r\n\r\na\r\n\r\nb") == Answer("OK", "7-1", b"a\r\n\r\nb")
    assert answer_of(b"STATUS s:1 NO_MESSAGES\r\n\r\n") == Answer("NO_MESSAGES", "", b"")


def test_a_service_is_ready_when_its_proxies_know_the_topics_that_its_servers_were_given(
    service: Service, tmp_path: Path
) -> None:
    service.start(["prices"])
    with PageClient("bob", service.proxies[0]) as client:
        client.subscribe("prices")
        client.put("prices", b"one")
        assert [client.get("prices"), client.get("prices")] == [b"one", None]
    assert '"topic":"prices"' not in "".join(log.read_text() for log in tmp_path.glob("*/broker.log"))
    assert service.cpu_s(service.servers) > 0


def test_many_questions_at_once_fail_where_one_is_not_answered_ok(service: Service) -> None:
    service.start()
    puts = [question(f"PUT bob prices {counter}", b"x") for counter in range(1, 1001)]
    ask_all(service.servers[0], puts)
    with pytest.raises(RuntimeError, match="REFUSED"):
        ask_all(service.servers[0], [*puts, question("PUT bob prices 7", b"other")])


def test_a_trip_that_brings_something_else_fails() -> None:
    trips = Trips()
    trips.time(lambda _: None, iter([body_of(0), body_of(1)]).__next__, 2)
    assert trips.metrics()["p50_ns"] > 0
    with pytest.raises(RuntimeError, match="was put"):
        trips.time(lambda _: None, lambda: body_of(1), 1)


class Left:
    """A member for whom these bodies are left."""

    def __init__(self, *numbers: int) -> None:
        self._bodies = iter([body_of(number) for number in numbers])
        self.refused_count = 0

    async def open(self) -> None: ...

    async def put(self, body: bytes) -> None: ...

    async def get(self) -> bytes | None:
        return next(self._bodies, None)

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("left", "wrong"),
    [((3, 3), "as its message"), ((4,), "as its message"), ((3, 4, 5), "5 were put"), ((3,), "got 4")],
)
def test_what_is_doubled_lost_or_out_of_order_in_the_ring_fails(
    left: tuple[int, ...], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_many, "_DRAIN_LIMIT_S", 0.01)
    asyncio.run(_drain(Left(3, 4), 7, 3, 5))
    with pytest.raises(RuntimeError, match=wrong):
        asyncio.run(_drain(Left(*left), 7, 3, 5))


def test_the_ring_of_clients_closes_and_each_reads_its_neighbour() -> None:
    places = [topics_many.place_of(index) for index in range(topics_many.CLIENTS_COUNT)]
    assert places[0] == Place(0, "topic-000", "topic-001")
    assert sorted(place.own for place in places) == sorted(place.other for place in places)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["blocking", "asynchronous", "page"])
def test_one_client_is_timed(name: str, tmp_path: Path) -> None:
    results = Harness(tmp_path, TINY, 60, 70).run([], [f"benchmarks.contenders.topics_one:{name}"], [])
    (sample,) = results.samples
    assert sample.failure is None
    assert 0 < sample.metrics["put_p50_ns"] < sample.metrics["p50_ns"] <= sample.metrics["p99_ns"]


@pytest.mark.slow
def test_a_merge_is_timed_while_a_client_asks(tmp_path: Path) -> None:
    metrics = TopicsMerge().measure(tmp_path, TINY)
    assert metrics["messages_count"] == 1250
    assert metrics["longest_wait_s"] > 0
    assert metrics["merge_s"] > 0


@pytest.mark.slow
def test_topics_at_rest_are_started_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.contenders.topics_at_rest.PERIOD_S", 1)
    metrics = TopicsAtRest().measure(tmp_path, TINY)
    assert metrics["topics_count"] == 1250
    assert metrics["clean_start_s"] > 0
    assert metrics["resident_size"] > 1 << 20


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.skipif(rabbitmq.missing() is not None, reason=str(rabbitmq.missing()))
def test_rabbitmq_is_started_measured_and_leaves_nothing(tmp_path: Path) -> None:
    results = Harness(tmp_path, TINY, 90, 100).run([], ["benchmarks.peers.rabbitmq:OneClient"], [])
    (sample,) = results.samples
    assert sample.failure is None
    assert sample.metrics["p50_ns"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_pattern_names_several_and_one_that_names_none_is_refused() -> None:
    assert main(["--only", "no-such-*"]) == 2


def test_every_figure_is_of_something_that_is_registered() -> None:
    names = {registry.contender(entry).name for entry in registry.CONTENDERS}
    names |= {registry.trial(entry).name for entry in registry.TRIALS}
    assert {place[0] for figure in FIGURES for place in (figure.place, *figure.beside)} <= names
