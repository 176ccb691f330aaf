"""A node as a process, or in one: it recovers, listens, serves, drains and closes its journal.

    start: directory locked ─► recovered ─► engines ─► disk threads ─► doors open ─► ready
    stop:  doors closed ─► peers told ─► what is on its way arrives ─► final checkpoint ─► directory free

A failed write or sync, or a broken invariant, ends the node at once: it believes nothing it did not read again, and the
next start recovers. Source: the design, sections 3 and 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import ssl
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from veredus.journal import exchange as journal
from veredus.journal.appending import Phase
from veredus.journal.log import Log
from veredus.journal.recovery import CheckpointLoaded, Found, Replayed
from veredus.journal.settings import Recovered
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.errors import Unavailable, VeredusError
from veredus.kernel.events import LinkOpened
from veredus.node.engine import DrainRequested, FloorOrdered, LinkEngine, NodeEngine
from veredus.node.exposure import access_of, check_settings
from veredus.node.figures import Reading
from veredus.node.rules import LOCAL
from veredus.node.settings import NodeSettings, TopicsSection
from veredus.node.view import readings
from veredus.protocols.topics.exchange import Answer, Ask, Meet
from veredus.protocols.topics.messages import message_size_max
from veredus.protocols.topics.server import Server, ServerSettings
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.orders import AskPrincipal, LinkLimits, PrincipalKnown
from veredus.streams.engine import StreamsEngine
from veredus.streams.exchange import Durability

from .directory import Directory, open_directory
from .disk import Disk, drive_recovery
from .host import Host
from .security import TokenFile, server_context
from .sockets import DoorBounds, certified_principal, listen_tcp, listen_unix
from .stopping import stop_asked
from .telemetry import TelemetryServer
from .topics_sockets import TopicsSockets
from .zeromq import Router

TOPICS_DOOR = "topics"
DESCRIPTORS_RESERVED = 40
"""File descriptors that the journal, the listeners and the process itself may need at once."""
ASKING_COUNT_MAX = 64
"""Peers whose tokens are being looked up at once."""


class Node:
    """Owns everything of one node in one process; `start` and `stop` are called on the same loop."""

    def __init__(self, settings: NodeSettings) -> None:
        """A node as `settings` say; nothing is opened before `start`."""
        self.settings = settings
        self.addresses: dict[str, str] = {}
        """Where each open door listens, by its name in the [listen] section, with the port that was taken."""
        self._log = structlog.get_logger("veredus")
        check_settings(settings)
        self._access = access_of(settings)
        self._link_limits = _link_limits_of(settings)
        self._tokens = TokenFile(Path(settings.security.tokens)) if settings.security.tokens else None
        self._askers = ThreadPoolExecutor(2, "veredus-token")
        self._asking_count = 0
        self._servers: list[asyncio.Server] = []
        self._router: Router | None = None
        self._topics: TopicsSockets | None = None
        self._telemetry: TelemetryServer | None = None
        self._is_draining = False
        self._drain_until_s = 0.0
        self._checkpointed: asyncio.Future[None] | None = None
        self._failed: asyncio.Future[BaseException] | None = None

    # ── start ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Recover, then open the doors. Raises `Refused` or `Unavailable`, with nothing left open."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._failed = loop.create_future()
        settings = self.settings
        self._directory = open_directory(Path(settings.node.directory))
        try:
            began = time.perf_counter()
            floor, recovered = self._recover(self._directory)
            was_clean = recovered.is_clean
            log = Log(settings.log_settings, recovered)
            limits = settings.limits
            self.engine = NodeEngine(
                log, floor, self._open_link, limits.unsynced_size_max, limits.connections_per_principal_max
            )
            self._disk = Disk(self._directory.path, self._post_from_thread)
            self.host = Host(self.engine, loop, self._carry_out)
            self.host.on_failure = self._fail
            self._enter(floor.finish_recovery(was_clean))
            if recovered.is_damaged or (not was_clean and settings.durability is not Durability.GROUP):
                self._enter(floor.raise_terms(_now()))
            self._configure_streams()
            self.host.start()
            await self._open_doors()
            took_ms = round((time.perf_counter() - began) * 1000)
            streams = len(floor.tables.streams)
            self._log.info("node-ready", **self.addresses, streams=streams, was_clean=was_clean, took_ms=took_ms)
        except BaseException:
            await self._close_doors()
            self._directory.close()
            raise

    def _recover(self, directory: Directory) -> tuple[StreamsEngine, Recovered]:
        settings = self.settings
        floor = StreamsEngine(
            settings.streams_limits, settings.durability, _random_ids, self._access.may, self._stream_size
        )

        def take(found: Found) -> None:
            match found:
                case CheckpointLoaded(state):
                    floor.load(state)
                case Replayed(view):
                    floor.replay(view)
                case Note(level, event, fields):
                    getattr(self._log, level)(event, **fields)

        return floor, drive_recovery(directory, settings.log_settings, os.urandom(16), take)

    def _stream_size(self, stream_id: int) -> int:
        return self.engine.log.extent(stream_id).size

    def _enter(self, effects: Sequence[object]) -> None:
        """Hand the engine what its own parts ordered outside of an event."""
        self.host.post(FloorOrdered(effects))

    def _configure_streams(self) -> None:
        for name, section in self.settings.stream.items():
            self._enter(self.engine.floor.configure(name, section.config, _now()))

    async def _open_doors(self) -> None:
        settings, listen = self.settings, self.settings.listen
        count_max = min(settings.limits.connections_max, descriptors_free())
        bounds = DoorBounds(count_max, settings.limits.send_buffer_size_max)
        unproven = self._access.unproven
        if listen.tcp:
            server = await listen_tcp(self.host, listen.tcp, None, lambda _: unproven, bounds)
            self._servers.append(server)
            self.addresses["tcp"] = _address_of(server)
        if listen.tls:
            context: ssl.SSLContext = server_context(settings.tls)
            server = await listen_tcp(
                self.host, listen.tls, context, lambda link: certified_principal(link) or unproven, bounds
            )
            self._servers.append(server)
            self.addresses["tls"] = _address_of(server)
        if listen.unix:
            path = Path(listen.unix)
            path.unlink(missing_ok=True)
            self._servers.append(await listen_unix(self.host, listen.unix, LOCAL, bounds))
            path.chmod(0o600)
            self.addresses["unix"] = listen.unix
        if listen.zeromq:
            self._router = Router(self.host, listen.zeromq, settings.limits.frame_size_max, count_max, unproven)
            self.addresses["zeromq"] = self._router.address
        if settings.topics.listen:
            self._open_topics(settings.topics)
        if listen.metrics:
            self._telemetry = TelemetryServer(listen.metrics, self._readings, self._why_not_ready, self._why_not_alive)
            await self._telemetry.start()
            host, _, _ = listen.metrics.rpartition(":")
            self.addresses["metrics"] = f"{host}:{self._telemetry.port}"

    def _open_topics(self, topics: TopicsSection) -> None:
        def closed() -> None:
            self.host.close_link(sockets.number, "closed")

        sockets = TopicsSockets(topics.listen, message_size_max(topics.body_size_max), self.host.post, closed)
        self._topics = sockets
        self.addresses["topics"] = sockets.address
        sockets.number = self.host.open_link(sockets, TOPICS_DOOR, topics.id or sockets.address)

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain and stop; a second one later waits for no peer any more.

        Raises what ended the node otherwise.
        """

        def hurry() -> None:
            self._drain_until_s = 0.0

        asked = stop_asked(self._loop, hurry)
        assert self._failed is not None
        waiting = asyncio.ensure_future(asked.wait())
        await asyncio.wait((waiting, self._failed), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._failed.done():
            raise self._failed.result()
        await self.stop()

    def _open_link(self, event: LinkOpened) -> LinkEngine:
        if event.door == TOPICS_DOOR:
            return Server(event.link, server_settings_of(self.settings, event.peer), _random_ids)
        return NodeLink(event.link, self._link_limits)

    def _carry_out(self, order: object) -> None:
        match order:
            case (
                journal.WriteGroup()
                | journal.CreateSegment()
                | journal.WriteFile()
                | journal.RemoveSegment()
                | journal.ReadBytes()
            ):
                self._disk.carry_out(order)
            case Answer() | Ask() | Meet():
                assert self._topics is not None
                self._topics.carry_out(order)
            case AskPrincipal(link, token):
                self._ask_principal(link, token)
            case journal.CheckpointDone(is_final):
                if is_final and self._checkpointed is not None and not self._checkpointed.done():
                    self._checkpointed.set_result(None)
            case journal.CheckpointFailed(reason):
                self._log.error("checkpoint-failed", reason=reason)
                if self._checkpointed is not None and not self._checkpointed.done():
                    self._checkpointed.set_result(None)
            case journal.SpaceMissing(reason):
                self._log.error("disk-full", reason=reason, directory=self.settings.node.directory)
            case journal.SpaceReturned():
                self._log.warning("disk-has-space-again", directory=self.settings.node.directory)
            case journal.LogFailed(reason):
                raise Unavailable(
                    "journal-failed", f"the journal failed ({reason}): the node stops, and recovers when started"
                )
            case _:
                raise AssertionError(f"nobody carries out {order!r}")

    def _ask_principal(self, link: int, token: str | None) -> None:
        known = None
        try:
            known = self._tokens.remembered(token) if self._tokens is not None and token else None
        except VeredusError:
            # The file cannot be used now; whoever asks it again below is told why.
            known = None
        if known is not None:
            self.host.post(PrincipalKnown(link, known))
        elif self._asking_count >= ASKING_COUNT_MAX:
            self.host.post(
                PrincipalKnown(link, None, "too many peers are being looked up: try again later", "too-busy")
            )
        else:
            self._asking_count += 1
            self._askers.submit(self._answer_principal, link, token)

    def _answer_principal(self, link: int, token: str | None) -> None:
        principal, reason = None, "this token is not known here" if token else "say who you are: connect with a token"
        try:
            if self._tokens is not None and token:
                principal = self._tokens.principal_of(token)
        except VeredusError as error:
            reason = error.message
        self._loop.call_soon_threadsafe(self._take_principal, PrincipalKnown(link, principal, reason))

    def _take_principal(self, event: PrincipalKnown) -> None:
        self._asking_count -= 1
        self.host.post(event)

    def _post_from_thread(self, events: Sequence[object]) -> None:
        try:
            self._loop.call_soon_threadsafe(self.host.post_all, events)
        except RuntimeError:
            # The loop is closed: the node has failed, and nobody waits for the disk any more.
            return

    def _fail(self, error: BaseException) -> None:
        self._log.error("node-failed", reason=str(error))
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(error)

    # ── stop ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def stop(self) -> None:
        """Close the doors, tell the peers, let what is on its way arrive, and close the journal.

        Raises what has ended the node, before or meanwhile: then nothing more is written, and the next start recovers.
        """
        self._is_draining = True
        for server in self._servers:
            server.close()
        assert self._failed is not None
        ending = asyncio.ensure_future(self._end_well())
        try:
            await asyncio.wait((ending, self._failed), return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                raise self._failed.result()
            ending.result()
        finally:
            ending.cancel()
            self.host.stop()
            self._close_links()
            await self._close_doors()
            await asyncio.to_thread(self._disk.close)
            self._askers.shutdown(wait=False)
            self._directory.close()
        self._log.info("node-stopped")

    async def _end_well(self) -> None:
        self.host.post(DrainRequested())
        self._drain_until_s = self._loop.time() + self.settings.node.drain_timeout_ns / 1e9
        while (self.engine.links or self.engine.log.unsynced_size) and self._loop.time() < self._drain_until_s:
            await asyncio.sleep(0.01)
        self._close_links()
        await self._settle_journal()

    def _close_links(self) -> None:
        for link in list(self.host.links.values()):
            link.close()

    async def _settle_journal(self) -> None:
        await asyncio.sleep(0.02)
        while self.engine.log.unsynced_size and self.engine.log.phase is Phase.RUNNING:
            await asyncio.sleep(0.005)
        self._checkpointed = self._loop.create_future()
        for effect in self.engine.close_journal(_now()):
            self._carry_out(effect)
        await asyncio.wait_for(self._checkpointed, 60)

    async def _close_doors(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._router is not None:
            self._router.close()
            self._router = None
        if self._topics is not None:
            self._topics.close()
            self._topics = None
        if self._telemetry is not None:
            await self._telemetry.stop()
            self._telemetry = None
        if self.settings.listen.unix:
            Path(self.settings.listen.unix).unlink(missing_ok=True)

    # ── health ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _readings(self) -> Iterator[Reading]:
        return readings(self.engine)

    def _why_not_ready(self) -> str:
        if self._is_draining:
            return "the node is stopping"
        if not self.engine.log.has_space:
            return "the journal has no space: publications are refused"
        return ""

    def _why_not_alive(self) -> str:
        return "" if self.host.failure is None else str(self.host.failure)


def descriptors_free() -> int:
    """How many connections the process may have: its descriptors, as many as it may have, less what it needs itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return max(1, soft - DESCRIPTORS_RESERVED) if soft != resource.RLIM_INFINITY else 1 << 20


def _link_limits_of(settings: NodeSettings) -> LinkLimits:
    limits = settings.limits
    return LinkLimits(
        settings.node.name,
        settings.batch_limits,
        limits.frame_size_max,
        limits.channels_max,
        limits.greeting_timeout_ns,
        limits.greeting_size_max,
        limits.heartbeat_interval_ns,
        limits.silence_max_ns,
    )


def server_settings_of(settings: NodeSettings, address: str) -> ServerSettings:
    """How the server of topics of a node is that others reach at `address`."""
    topics = settings.topics
    return ServerSettings(
        address,
        topics.proxies,
        topics.servers,
        topics.answer_ns,
        topics.retries_max,
        topics.period_ns,
        topics.body_size_max,
        topics.sessions_max,
        topics.requests_max,
    )


def _random_ids() -> bytes:
    return os.urandom(16)


def _now() -> Now:
    return Now(time.monotonic_ns(), time.time_ns())


def _address_of(server: asyncio.Server) -> str:
    host, port = server.sockets[0].getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
