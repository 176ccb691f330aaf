"""A scraper gets the figures and the health of the node, and nobody gets more."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from veredus.kernel.errors import Unavailable
from veredus.node.figures import FIGURES, Kind, Reading
from veredus.runtime.binding import bind_tcp
from veredus.runtime.telemetry import CONNECTIONS_MAX, HEAD_SIZE_MAX, RENDERED_NS, TURN_NS, TelemetryServer, text_of

READINGS = [
    Reading("veredus_publications", 336_776),
    Reading("veredus_stream_head", 7, ("trades.eu",)),
    Reading("veredus_stream_head", 9, ('odd"name\n',)),
]


class Health:
    def __init__(self) -> None:
        self.why_not = ""

    def __call__(self) -> str:
        return self.why_not


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()


async def get(port: int, target: str) -> tuple[int, str, bytes]:
    response = await ask(port, f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = response.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body


def with_server(
    story: Callable[[TelemetryServer, Health], Awaitable[None]],
    readings: Callable[[], Iterable[Reading]] = lambda: READINGS,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> None:
    async def run() -> None:
        ready = Health()
        server = TelemetryServer(
            bind_tcp("127.0.0.1:0", "listen.metrics"), readings, ready, Health(), clock_ns=clock_ns
        )
        server.start()
        try:
            await story(server, ready)
        finally:
            server.stop()

    asyncio.run(run())


def test_the_figures_are_served_in_prometheus_text_format() -> None:
    async def story(server: TelemetryServer, _: Health) -> None:
        status, head, body = await get(server.port, "/metrics")
        assert status == 200
        assert "text/plain; version=0.0.4" in head
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
        assert samples["veredus_publications_total",] == 336_776
        assert samples["veredus_stream_head", "trades.eu"] == 7
        assert samples["veredus_stream_head", 'odd"name\n'] == 9
        assert samples["process_resident_memory_bytes",] > 0

    with_server(story)


def test_the_text_is_what_the_library_of_prometheus_writes_of_the_same_figures() -> None:
    def collect() -> Iterator[Metric]:
        counter = CounterMetricFamily("veredus_publications", meaning_of("veredus_publications"), labels=())
        counter.add_metric((), 336_776)
        yield counter
        gauge = GaugeMetricFamily("veredus_stream_head", meaning_of("veredus_stream_head"), labels=("stream",))
        gauge.add_metric(("trades.eu",), 7)
        gauge.add_metric(('odd"na\\me\n',), 0.5)
        yield gauge

    registry = cast("CollectorRegistry", SimpleNamespace(collect=collect))
    odd = Reading("veredus_stream_head", 0.5, ('odd"na\\me\n',))
    assert text_of([READINGS[1], READINGS[0], odd]) == generate_latest(registry)


def meaning_of(name: str) -> str:
    (meaning,) = [figure.meaning for figure in FIGURES if figure.name == name]
    return meaning


def test_the_loop_has_its_turn_while_figures_are_read() -> None:
    turn = now_ns = 0
    turns: list[int] = []

    def read() -> Iterator[Reading]:
        nonlocal now_ns
        for number in range(30):
            turns.append(turn)
            now_ns += TURN_NS // 10
            yield Reading("veredus_stream_head", number, (f"stream-{number}",))

    async def story(server: TelemetryServer, _: Health) -> None:
        nonlocal turn
        asked = asyncio.ensure_future(get(server.port, "/metrics"))
        while not asked.done():
            turn += 1
            await asyncio.sleep(0)
        assert asked.result()[0] == 200

    with_server(story, read, lambda: now_ns)
    assert [turns.count(turn) for turn in sorted(set(turns))] == [10, 10, 10]


def test_a_node_is_ready_or_says_why_it_is_not() -> None:
    async def story(server: TelemetryServer, ready: Health) -> None:
        assert (await get(server.port, "/readyz"))[::2] == (200, b"ok\n")
        ready.why_not = "the disk is full"
        assert (await get(server.port, "/readyz"))[::2] == (503, b"the disk is full\n")
        assert (await get(server.port, "/livez"))[::2] == (200, b"ok\n")

    with_server(story)


@pytest.mark.parametrize("scheme", ["http://", "HTTP://"])
@pytest.mark.parametrize("authority", ["localhost", "127.0.0.1:7073", "[::1]:7073", "user@host"])
def test_a_target_may_be_absolute(scheme: str, authority: str) -> None:
    """A server MUST accept the absolute-form in requests (RFC 9112, section 3.2.2)."""

    async def story(server: TelemetryServer, _: Health) -> None:
        assert (await get(server.port, f"{scheme}{authority}/livez"))[::2] == (200, b"ok\n")
        assert (await get(server.port, f"{scheme}{authority}/livez?now"))[0] == 200
        assert (await get(server.port, f"{scheme}{authority}/metrics"))[0] == 200
        for path in ("", "?/livez", "/http://x/livez"):
            assert (await get(server.port, f"{scheme}{authority}{path}"))[0] == 404

    with_server(story)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /secrets HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\r\n\r\n", b"400"),
        (b"\xaa\xa5\x01", b"400"),
        (b"\x16\x03\x01", b"400"),
        (b"\xff", b"400"),
        (b"SSH-2.0-x\r\n", b"400"),
        (b"GET /" + b"x" * HEAD_SIZE_MAX, b"431"),
    ],
)
def test_anything_else_is_refused_by_its_status(request_bytes: bytes, status: bytes) -> None:
    async def story(server: TelemetryServer, _: Health) -> None:
        assert (await ask(server.port, request_bytes)).split()[1] == status

    with_server(story)


def test_a_head_request_gets_no_body() -> None:
    async def story(server: TelemetryServer, _: Health) -> None:
        response = await ask(server.port, b"HEAD /livez HTTP/1.1\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 200")
        assert response.endswith(b"\r\n\r\n")

    with_server(story)


def test_a_request_may_come_byte_by_byte() -> None:
    async def story(server: TelemetryServer, _: Health) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for byte in b"GET /livez HTTP/1.1\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()

    with_server(story)


@pytest.mark.parametrize("target", ["/metrics", "/livez"])
def test_who_writes_no_more_once_it_has_asked_is_answered(target: str) -> None:
    async def story(server: TelemetryServer, _: Health) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode())
        writer.write_eof()
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        writer.close()

    with_server(story)


def test_who_writes_no_more_in_the_middle_of_a_request_is_let_go() -> None:
    async def story(server: TelemetryServer, _: Health) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /livez HTTP/1.1\r\n")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()

    with_server(story)


def test_however_often_the_figures_are_asked_for_they_are_read_once_a_second() -> None:
    read_count = now_ns = 0

    def read() -> list[Reading]:
        nonlocal read_count
        read_count += 1
        return [Reading("veredus_publications", read_count)]

    async def story(server: TelemetryServer, ready: Health) -> None:
        nonlocal now_ns
        first = await get(server.port, "/metrics")
        now_ns = RENDERED_NS - 1
        assert await get(server.port, "/metrics") == first
        head = await ask(server.port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert head.decode() == f"{first[1]}\r\n\r\n"
        assert read_count == 1
        ready.why_not = "the disk is full"
        assert (await get(server.port, "/readyz"))[0] == 503
        now_ns = RENDERED_NS
        assert b"veredus_publications_total 2.0" in (await get(server.port, "/metrics"))[2]

    with_server(story, read, lambda: now_ns)
    assert read_count == 2


def test_figures_that_take_long_to_read_are_read_less_often() -> None:
    read_count = now_ns = 0

    def read() -> list[Reading]:
        nonlocal read_count, now_ns
        read_count += 1
        now_ns += RENDERED_NS // 5
        return []

    async def story(server: TelemetryServer, _: Health) -> None:
        nonlocal now_ns
        await get(server.port, "/metrics")
        now_ns = 4 * RENDERED_NS - 1
        await get(server.port, "/metrics")
        assert read_count == 1
        now_ns = 4 * RENDERED_NS
        await get(server.port, "/metrics")
        assert read_count == 2

    with_server(story, read, lambda: now_ns)


def test_held_connections_keep_no_health_check_out() -> None:
    async def story(server: TelemetryServer, _: Health) -> None:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(CONNECTIONS_MAX)]
        for _, writer in held[1::2]:
            writer.write(b"GET /metrics HTTP/1.1\r\n")
        for _ in range(20):
            assert (await get(server.port, "/livez"))[::2] == (200, b"ok\n")
        reader, writer = held[0]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        for _, writer in held:
            writer.close()

    with_server(story)


def test_connections_that_asked_for_figures_and_read_nothing_keep_no_health_check_out() -> None:
    many = [Reading("veredus_stream_head", number, (f"stream-{number}",)) for number in range(20_000)]

    async def story(server: TelemetryServer, __: Health) -> None:
        held = []
        for _ in range(CONNECTIONS_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            held.append((reader, writer))
        for _ in range(20):
            assert (await get(server.port, "/livez"))[::2] == (200, b"ok\n")
        for _, writer in held:
            writer.close()

    with_server(story, lambda: many)


def test_the_loop_goes_on_while_figures_are_written_and_all_who_ask_meanwhile_get_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_write, read_count = threading.Event(), 0

    def read() -> list[Reading]:
        nonlocal read_count
        read_count += 1
        return READINGS

    def written(registry: CollectorRegistry) -> bytes:
        assert may_write.wait(20)
        return generate_latest(registry)

    monkeypatch.setattr("veredus.runtime.telemetry.generate_latest", written)

    async def story(server: TelemetryServer, _: Health) -> None:
        asking = [asyncio.ensure_future(get(server.port, "/metrics")) for _ in range(3)]
        assert (await get(server.port, "/livez"))[0] == 200
        assert not any(asked.done() for asked in asking)
        may_write.set()
        answers = await asyncio.gather(*asking)
        assert answers[0][0] == 200
        assert answers == [answers[0]] * 3

    with_server(story, read)
    assert read_count == 1


def test_a_server_that_is_stopped_while_figures_are_written_leaves_nothing_behind() -> None:
    async def story(server: TelemetryServer, __: Health) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await get(server.port, "/livez"))[0] == 200
        server.stop()
        writer.close()

    with capture_logs() as lines:
        with_server(story)
    assert lines == []


def test_a_figure_that_cannot_be_read_costs_a_scrape_and_nothing_else() -> None:
    async def story(server: TelemetryServer, _: Health) -> None:
        assert (await get(server.port, "/metrics"))[0] == 500
        assert (await get(server.port, "/livez"))[0] == 200

    with capture_logs() as lines:
        with_server(story, lambda: [Reading("veredus_unheard_of", 1)])
    assert [line["event"] for line in lines] == ["metrics-failed"]


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    async def story(server: TelemetryServer, _: Health) -> None:
        with pytest.raises(Unavailable, match=r"listen\.metrics") as caught:
            bind_tcp(f"127.0.0.1:{server.port}", "listen.metrics")
        assert caught.value.code == "port-in-use"

    with_server(story)


def test_every_figure_says_what_it_means_and_has_a_name_of_its_own() -> None:
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    assert all(figure.meaning and figure.name.startswith("veredus_") for figure in FIGURES)
    assert not [f.name for f in FIGURES if f.kind is Kind.COUNTER and f.name.endswith("_total")]
