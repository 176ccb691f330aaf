"""The node's figures for Prometheus, and its health, over HTTP on the node's own loop.

    GET /metrics   the figures, in Prometheus's text format
    GET /livez     200 while the process works
    GET /readyz    200 while the node takes publications, 503 and the reason while it does not

Only what a scraper needs is spoken: one GET or HEAD for each connection, within a bounded size and time. Connections
are counted apart from those of the other listeners, and for one more than there may be the oldest silent one goes:
whoever holds connections cannot keep a health check out. The figures are read on the loop in turns and written as text
beside it, at most once in `RENDERED_NS`, and less often where that takes long: whoever asks often cannot keep the loop
busy. All who ask meanwhile get the same octets, which are in memory once: whoever reads nothing holds no text of his
own.
Source: RFC 9112; the Prometheus text format 0.0.4.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import NamedTuple, cast

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from veredus.node.admission import AdmissionLimits
from veredus.node.figures import FIGURES, Kind, Reading

from .binding import Bound
from .listeners import Arrivals, Listener, Place, tcp_peer_of
from .logs import Logger
from .threads import in_thread

CONNECTIONS_MAX = 256
"""Many more than are accepted in one turn: what comes with its connection is answered before it makes room."""
HEAD_SIZE_MAX = 8192
REQUEST_TIMEOUT_NS = 5_000_000_000
RENDERED_NS = 1_000_000_000
"""How long a text of the figures answers."""
_RENDERED_SHARE = 20
"""So many times as long as it took to make a text, it answers at least."""
TURN_NS = 1_000_000
"""Figures are read for so long in one turn of the loop: a subscription with many ranges takes longer than others."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PLAIN_TYPE = "text/plain; charset=utf-8"
_ORIGIN = re.compile(rb"\Ahttp://[^/?]*", re.IGNORECASE)
"""May stand before the path that is asked for (RFC 9112, section 3.2.2); whichever it names, this node answers."""

Readings = Callable[[], Iterable[Reading]]
Health = Callable[[], str]
"""Why not: the reason, or "" when all is well."""


class Response(NamedTuple):
    """What one request is told; `body` may be the same object for many."""

    head: bytes
    body: bytes


Then = Callable[[Response], None]


def text_of(readings: Iterable[Reading]) -> bytes:
    """The readings in Prometheus's text format, in the order of the table of figures.

    `generate_latest` takes many times as long for as much. Raises `KeyError` for a reading that is not in the table.
    """
    taken: dict[str, list[Reading]] = {figure.name: [] for figure in FIGURES}
    for reading in readings:
        taken[reading.name].append(reading)
    written: dict[tuple[tuple[str, ...], ...], str] = {}
    """What labels with these names and values are in the text: several figures have the same."""
    lines: list[str] = []
    for figure in FIGURES:
        name = f"{figure.name}_total" if figure.kind is Kind.COUNTER else figure.name
        if taken[figure.name]:
            lines.append(f"# HELP {name} {figure.meaning}\n# TYPE {name} {figure.kind.value}\n")
        for reading in taken[figure.name]:
            key = figure.labels, reading.labels
            labels = written.get(key)
            if labels is None:
                labels = written[key] = _labels(*key)
            lines.append(f"{name}{labels} {float(reading.value)!r}\n")
    return "".join(lines).encode()


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    said = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{said}}}" if said else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class TelemetryServer:
    """Listens on one address and answers what the module lists."""

    def __init__(
        self,
        bound: Bound,
        read: Readings,
        why_not_ready: Health,
        why_not_alive: Health,
        connections_max: int = CONNECTIONS_MAX,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Listen on what is `bound`; the callables are called on the loop: `read` at most once in `RENDERED_NS` of the
        monotonic `clock_ns`, the others at each request.
        """
        self._limits = AdmissionLimits(
            connections_max, connections_max, connections_max, connections_max, REQUEST_TIMEOUT_NS
        )
        self._bound = bound
        self._read = read
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        self._health = {"/livez": why_not_alive, "/readyz": why_not_ready}
        self._clock_ns = clock_ns
        self._rendered = b""
        self._rendered_until_ns = 0
        self._waiting: list[Callable[[bytes], None]] = []
        """Who waits for the text that is being written."""
        self._rendering: asyncio.Task[None] | None = None
        self._arrivals: Arrivals | None = None
        self._listener: Listener | None = None

    def start(self) -> None:
        """Listen; on the running loop. Raises `Unavailable("port-in-use")`."""
        sockets = self._bound.listen()
        self._arrivals = Arrivals(asyncio.get_running_loop(), self._limits)
        self._listener = Listener(
            "metrics", sockets, self._arrivals, tcp_peer_of("metrics", ""), lambda _, place: _Request(self, place)
        )

    @property
    def address(self) -> str:
        """Where it listens, `host:port`; "" before the start."""
        return self._listener.address if self._listener is not None else ""

    @property
    def port(self) -> int:
        """The port that is listened on, 0 before the start."""
        return int(self.address.rpartition(":")[2] or 0)

    def stop(self) -> None:
        """Listen no more, and end the requests under way."""
        if self._listener is not None and self._arrivals is not None:
            self._listener.close()
            self._arrivals.close()
            self._listener = self._arrivals = None

    def answer(self, head: bytes, then: Then) -> None:
        """Give `then` the response to a request's head: at once, or when the figures are written."""
        method, _, rest = head.partition(b" ")
        target = _ORIGIN.sub(b"", rest.partition(b" ")[0]).partition(b"?")[0].decode("latin-1")
        has_body = method == b"GET"
        if method not in (b"GET", b"HEAD"):
            then(_response(HTTPStatus.METHOD_NOT_ALLOWED, b"GET and HEAD only\n", extra="Allow: GET, HEAD\r\n"))
        elif target == "/metrics":
            self._show_figures(partial(_respond_with, then, has_body))
        else:
            then(_response(*self._health_of(target), has_body=has_body))

    def _health_of(self, target: str) -> tuple[HTTPStatus, bytes]:
        why_not = self._health.get(target)
        if why_not is None:
            return HTTPStatus.NOT_FOUND, b"the paths are /metrics, /livez and /readyz\n"
        reason = why_not()
        return HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK, f"{reason or 'ok'}\n".encode()

    def _show_figures(self, then: Callable[[bytes], None]) -> None:
        """The figures as text, from at most `RENDERED_NS` ago, or `_RENDERED_SHARE` times as long as it took; b"" where
        they cannot be read.
        """
        if self._rendered and self._clock_ns() < self._rendered_until_ns:
            then(self._rendered)
            return
        self._waiting.append(then)
        if self._rendering is None:
            self._rendering = asyncio.ensure_future(self._render())

    async def _render(self) -> None:
        began_ns = self._clock_ns()
        try:
            readings = await self._read_in_turns()
            self._rendered = await in_thread(lambda: text_of(readings) + generate_latest(self._process))
        except Exception as error:  # noqa: BLE001 - a figure that cannot be read must not end the loop
            Logger().error("metrics-failed", exc_info=error)
            self._rendered = b""
        self._rendering = None
        took_ns = self._clock_ns() - began_ns
        self._rendered_until_ns = began_ns + max(RENDERED_NS, _RENDERED_SHARE * took_ns)
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(self._rendered)

    async def _read_in_turns(self) -> list[Reading]:
        """All figures, each as it is when its turn comes: nobody waits for all of them."""
        taken: list[Reading] = []
        until_ns = self._clock_ns() + TURN_NS
        for reading in self._read():
            taken.append(reading)
            if self._clock_ns() >= until_ns:
                await asyncio.sleep(0)
                until_ns = self._clock_ns() + TURN_NS
        return taken


class _Request(asyncio.Protocol):
    """One connection: one head in, one response out, closed."""

    def __init__(self, server: TelemetryServer, place: Place) -> None:
        self._server = server
        self._place = place
        self._head = b""
        self._is_asked = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._place.key:
            self._transport.abort()
            return
        self._place.abandon = self._transport.abort

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._is_asked:
            return
        self._head += data
        if not self._head.partition(b" ")[0].isalpha():
            # No method begins like this, and who speaks another protocol would wait for an answer.
            self._respond(_response(HTTPStatus.BAD_REQUEST, b"this listener speaks HTTP: GET /metrics HTTP/1.1\n"))
        elif b"\r\n\r\n" in self._head:
            self._is_asked = True
            self._server.answer(self._head, self._respond)
        elif len(self._head) > HEAD_SIZE_MAX:
            self._respond(_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"the request is too long\n"))

    def eof_received(self) -> bool:
        """The peer writes no more: who has asked may read on, and is answered (RFC 9112, section 9.6)."""
        return self._is_asked

    def connection_lost(self, exc: Exception | None) -> None:
        self._place.leave()

    def _respond(self, response: Response) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(response.head)
            self._transport.write(response.body)
            self._transport.close()


def _respond_with(then: Then, has_body: bool, figures: bytes) -> None:
    if figures:
        then(_response(HTTPStatus.OK, figures, METRICS_TYPE, has_body=has_body))
    else:
        then(_response(HTTPStatus.INTERNAL_SERVER_ERROR, b"the metrics cannot be read: see the log\n"))


def _response(
    status: HTTPStatus, body: bytes, kind: str = PLAIN_TYPE, *, has_body: bool = True, extra: str = ""
) -> Response:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\n{extra}Connection: close\r\n\r\n"
    )
    return Response(head.encode("ascii"), body if has_body else b"")
