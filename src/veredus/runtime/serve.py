"""A node as a process, or in one: it recovers, listens, serves, drains and closes its journal.

    start: directory locked ─► addresses bound ─► recovered ─► engines ─► disk threads ─► listeners open ─► ready
    stop:  listeners closed ─► peers told ─► what is on its way arrives ─► final checkpoint ─► directory free

A failed write or sync, or a broken invariant, ends the node at once: it believes nothing it did not read again, and the
next start recovers. Source: docs/internals/DESIGN.md, "Hosts" and "Faults".
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from veredus.journal import exchange as journal
from veredus.journal.log import Log
from veredus.journal.phases import Phase
from veredus.journal.settings import Recovered
from veredus.journal.steps import CheckpointLoaded, Found, Replayed
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused, Unavailable, words_of
from veredus.kernel.events import LinkOpened
from veredus.node.dialects import LinkEngine
from veredus.node.engine import DrainRequested, FloorOrdered, NodeEngine
from veredus.node.exchange import RecordAwaited, RecordWritten
from veredus.node.exposure import check_settings
from veredus.node.figures import Reading
from veredus.node.receiving import ReceiveLimits
from veredus.node.sending import SendLimits
from veredus.node.settings import NodeSettings, TopicsSection
from veredus.node.view import admission_readings, readings
from veredus.protocols.topics.exchange import Answer, Ask, LateAnswer, Meet
from veredus.protocols.topics.messages import message_size_max
from veredus.protocols.topics.server import Server
from veredus.protocols.zeps.attachment import FRAMED_DOOR, NodeLink
from veredus.protocols.zeps.multicast import Multicaster
from veredus.protocols.zeps.orders import AskPrincipal, PrincipalKnown
from veredus.protocols.zeps.undelivered import Undelivered
from veredus.streams.engine import StreamsEngine
from veredus.streams.exchange import Durability

from .askers import Askers, Known
from .audit import AuditedLogger, audit_log_of
from .binding import BoundListeners
from .clocks import read_clocks
from .directory import Directory, open_directory
from .disk import Disk, DiskOrder, drive_recovery
from .files import check_files
from .host import Host
from .limits import (
    admission_limits_of,
    config_of,
    durability_of,
    link_limits_of,
    log_settings_of,
    metrics_places,
    server_settings_of,
    streams_limits_of,
)
from .listeners import Arrivals, Listener, note_refused
from .logs import log_loop_failures, lost_line_count
from .multicast import DOOR as MULTICAST_DOOR
from .multicast import FeedLink, GroupSocket
from .reloads import Reloads, write_outcome
from .renewal import Renewal, Reread
from .security import server_context
from .service_manager import ServiceManager
from .sockets import StreamDoors
from .space import say_of_space
from .stopping import stop_asked
from .telemetry import TelemetryServer
from .threads import in_thread
from .topics_gate import TopicsGate
from .topics_limits import topics_limits_of
from .topics_sockets import TopicsSockets
from .zmtp_sockets import ZeroMqDoor

TOPICS_DOOR = "topics"
JOURNAL_TIMEOUT_S = 60.0
"""How long a node that stops waits for its journal."""
DIRECTORY_LOOK_S = 1.0
_random_ids = partial(os.urandom, 16)


class Node:
    """Owns everything of one node in one process; `start` and `stop` are called on the same loop."""

    def __init__(
        self, settings: NodeSettings, reread: Reread | None = None, manager: ServiceManager | None = None
    ) -> None:
        """A node as `settings` say; nothing is opened before `start`. `reread` gives the settings of a reload.

        `manager` is told how the node is, by a process that is nothing but a node.
        """
        self.settings = settings
        self.addresses: dict[str, str] = {}
        """The address of each open listener, by its name in the [listen] section, with the port that was taken."""
        self._manager = manager or ServiceManager()
        self._audit = audit_log_of(settings)
        self._log = AuditedLogger(self._audit)
        check_files(settings)
        check_settings(settings)
        self._renewal = Renewal(settings, reread, self._log)
        self._link_limits = link_limits_of(settings)
        self._undelivered = Undelivered(settings.limits.send_size_max)
        self._listeners: list[Listener] = []
        self._arrivals: Arrivals | None = None
        self._doors: StreamDoors | None = None
        self._bound = BoundListeners()
        self._zeromq: ZeroMqDoor | None = None
        self._topics: TopicsSockets | None = None
        self._group: GroupSocket | None = None
        self._telemetry: TelemetryServer | None = None
        self._is_draining = False
        self._drain_until_s = 0.0
        self._checkpointed: asyncio.Future[None] | None = None
        self._failed: asyncio.Future[BaseException] | None = None
        self._asked = asyncio.Event()

    # ── start ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, takes_signals: bool = False) -> None:
        """Bind, recover, then open the listeners. Raises `Refused` or `Unavailable`, with nothing left open.

        `takes_signals`: once the listeners open, a signal ends nothing, and asks `run` to stop.
        """
        loop = asyncio.get_running_loop()
        self._loop = loop
        log_loop_failures(loop, self._fail)
        self._failed = loop.create_future()
        self._askers = Askers(loop, lambda: self._renewal.tokens)
        settings = self.settings
        self._admission_limits = admission_limits_of(settings)
        self._directory = open_directory(Path(settings.node.directory))
        self._watching = loop.create_task(self._watch_directory(self._directory))
        try:
            began = time.perf_counter()
            self._bound.bind(settings)
            if settings.multicast.group:
                self._group = GroupSocket(settings.multicast)
            floor, recovered = self._recover(self._directory)
            was_clean = recovered.is_clean
            log = Log(log_settings_of(settings), recovered)
            limits = settings.limits
            # Half of all places at most, so that no principal keeps the others out where files are few.
            per_principal_max = min(limits.connections_per_principal_max, max(1, self._admission_limits.count_max // 2))
            rates_max = limits.received_per_principal_max, limits.sent_per_principal_max
            receive_limits = ReceiveLimits(limits.receive_size_max, limits.frame_timeout_ns)
            self.engine = NodeEngine(
                log, floor, self._open_link, limits.unsynced_size_max, per_principal_max, receive_limits, rates_max
            )
            self.host = Host(self.engine, loop, self._carry_out)
            self._disk = Disk(self._directory.path, self.host.post_from_thread, self._fail_from_thread)
            self.host.on_failure = self._fail
            self.host.log = self._log
            self.engine.administering.why_not = self._why_not_audited
            self.engine.administering.is_recorded = self._audit is not None
            self._enter(floor.finish_recovery(was_clean))
            is_restored = self._directory.is_restored
            is_weak = not was_clean and durability_of(settings) is not Durability.GROUP
            if recovered.is_damaged or is_weak or is_restored:
                self._enter(floor.raise_terms(read_clocks()))
            if is_restored:
                self._log.warning("journal-restored", directory=settings.node.directory)
                # With it the new terms are there for good, and the mark has done its work.
                self._enter((journal.CheckpointRequested(floor.snapshot()),))
            self._configure_streams()
            self.host.start()
            if takes_signals:
                self._asked = stop_asked(loop, self._hurry)
            self._open_doors()
            took_ms = round((time.perf_counter() - began) * 1000)
            found = {"directory": str(Path(settings.node.directory).absolute()), "streams": len(floor.tables.streams)}
            self._log.info("node-ready", **self.addresses, **found, was_clean=was_clean, took_ms=took_ms)
        except BaseException as error:
            self._renewal.stop()
            self._close_doors()
            if isinstance(error, Refused | Unavailable) and hasattr(self, "host"):
                await self._close_unused()
            self._watching.cancel()
            self._directory.abandon()
            raise

    async def _close_unused(self) -> None:
        """What was recovered or begun is closed as at a stop: nobody was served, and the next start is a clean one."""
        with suppress(Unavailable):
            await self._settle_journal()
        self.host.stop()
        await in_thread(self._disk.close)

    def _recover(self, directory: Directory) -> tuple[StreamsEngine, Recovered]:
        settings = self.settings
        floor = StreamsEngine(
            streams_limits_of(settings), durability_of(settings), _random_ids, self._renewal.may, self._stream_size
        )

        def take(found: Found) -> None:
            match found:
                case CheckpointLoaded(state):
                    floor.load(state)
                case Replayed(view):
                    floor.replay(view)
                case Note(level, event, fields):
                    self._log.say(level, event, fields)

        reading = self._manager.reading
        return floor, drive_recovery(directory, log_settings_of(settings), os.urandom(16), take, reading)

    def _stream_size(self, stream_id: int) -> int:
        return self.engine.log.extent(stream_id).size

    def _enter(self, effects: Sequence[object]) -> None:
        """Hand the engine what its own parts ordered outside of an event."""
        self.host.post(FloorOrdered(effects))

    def _configure_streams(self) -> None:
        for name, section in self.settings.stream.items():
            self._enter(self.engine.floor.configure(name, config_of(section), read_clocks()))

    def _open_doors(self) -> None:
        settings, engine, bound = self.settings, self.engine, self._bound
        listen, limits, unproven = settings.listen, settings.limits, self._renewal.access.unproven
        self._arrivals = Arrivals(self._loop, self._admission_limits)
        send = SendLimits(limits.send_size_max, limits.send_buffer_size_max, limits.silence_max_ns)
        is_unheard = engine.pacing.is_unheard
        self._doors = doors = StreamDoors(self.host, self._arrivals, send, engine.read_size_of, is_unheard)
        self._renewal.start(self.host, self._use_context)
        doors.principal_from = self._renewal.principal_from
        if listen.tcp:
            self._take_listener(doors.listen("tcp", bound["listen.tcp"], unproven))
        if listen.tls:
            self._take_listener(doors.listen("tls", bound["listen.tls"], unproven, server_context(settings.tls)))
        if listen.unix:
            self._take_listener(doors.listen("unix", bound["listen.unix"], unproven))
        if listen.zeromq:
            zeromq = ZeroMqDoor(doors, settings)
            self._take_listener(zeromq.listen(bound["listen.zeromq"], unproven))
            self._zeromq = zeromq
            self.addresses["zeromq"] = zeromq.endpoint
        if settings.topics.listen:
            self._open_topics(settings.topics)
        if self._group is not None:
            for name in settings.multicast.names:
                FeedLink(self.host, self._group, name)
        if listen.metrics:
            self._telemetry = TelemetryServer(
                bound["listen.metrics"], self._readings, self._why_not_ready, self._why_not_alive, metrics_places()
            )
            self._telemetry.start()
            self.addresses["metrics"] = self._telemetry.address

    def _take_listener(self, listener: Listener) -> None:
        listener.on_refused = partial(note_refused, self._log)
        self._listeners.append(listener)
        self.addresses[listener.name] = listener.address

    def _open_topics(self, topics: TopicsSection) -> None:
        def closed() -> None:
            self.host.close_link(sockets.number, "closed")

        limits = topics_limits_of(self.settings, self._admission_limits)
        size_max = message_size_max(topics.body_size_max)
        gate = TopicsGate(
            self.settings, self._askers, lambda: self._renewal.tokens, lambda: self._renewal.access.unproven
        )
        assert self._doors is not None
        accounts = limits.accounts(self.engine.connections, self.engine.quotas)
        sockets = TopicsSockets(
            self._bound["topics.listen"], size_max, self.host.post, closed, limits, self._arrivals, gate, accounts,
            self._doors.unwritten, self._log, self.host.peers,
        )  # fmt: skip
        self._topics = sockets
        self.addresses["topics"] = sockets.address
        sockets.number = self.host.open_link(sockets, TOPICS_DOOR, topics.id or sockets.address)

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain and stop; a second one later waits for no peer any more. The node
        was started to take signals.

        Raises what ended the node otherwise.
        """
        Reloads(self._loop, self.reload).begin()
        self._manager.serving(self.addresses)
        assert self._failed is not None
        waiting = asyncio.ensure_future(self._asked.wait())
        await asyncio.wait((waiting, self._failed), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._failed.done():
            raise self._failed.result()
        await self.stop()

    def _hurry(self) -> None:
        self._drain_until_s = 0.0

    def reload(self) -> None:
        """Take up what can be without a restart: see `veredus.runtime.renewal`.

        What became of it is in the log, and in the directory for the command that asked.
        """
        if self._is_draining:
            return
        self._manager.reloading()
        outcome = self._renewal.reload()
        try:
            write_outcome(self._directory.path, outcome)
        except OSError as error:
            self._log.error("reload-not-reported", reason=str(error))
        self._manager.serving(self.addresses, outcome.message)

    def _use_context(self, context: ssl.SSLContext) -> None:
        for listener in self._listeners:
            listener.use_context(context)

    def _open_link(self, event: LinkOpened) -> LinkEngine:
        if event.door == TOPICS_DOOR:
            return Server(event.link, server_settings_of(self.settings, event.peer), _random_ids)
        if event.door == MULTICAST_DOOR:
            group = self.settings.multicast
            return Multicaster(event.link, event.peer, group.datagram_size_max, group.announce_interval_ns)
        link = NodeLink(event.link, self._link_limits, self._undelivered)
        if event.door == FRAMED_DOOR:
            assert self._zeromq is not None
            return self._zeromq.link_of(link, self._link_limits)
        return link

    def _carry_out(self, order: object) -> None:
        match order:
            case _ if isinstance(order, DiskOrder):
                self._disk.carry_out(order)
            case Answer() | LateAnswer() | Ask() | Meet():
                assert self._topics is not None
                self._topics.carry_out(order)
            case AskPrincipal():
                self._ask_principal(order)
            case RecordAwaited(token):
                assert self._audit is not None
                self._audit.await_written(partial(self._record_written, token), self._loop)
            case journal.CheckpointDone(is_final):
                if reason := self._directory.forget_restored():
                    self._log.error("restored-not-removed", reason=reason, directory=self.settings.node.directory)
                if is_final and self._checkpointed is not None and not self._checkpointed.done():
                    self._checkpointed.set_result(None)
            case journal.CheckpointFailed(reason, is_final):
                # One that was on its way when the final one was asked for may fail: that follows all the same.
                if is_final and self._checkpointed is not None and not self._checkpointed.done():
                    self._checkpointed.set_exception(self._not_closed(reason))
                self._log.error("checkpoint-failed", reason=reason, directory=self.settings.node.directory)
            case journal.SegmentLacking() | journal.SpaceMissing() | journal.SpaceReturned():
                say_of_space(self._log, order, self.settings.node.directory)
            case journal.LogFailed(reason):
                raise Unavailable(
                    "journal-failed", f"the journal failed ({reason}): the node stops, and recovers when started"
                )
            case _:
                raise AssertionError(f"nobody carries out {order!r}")

    def _record_written(self, token: int) -> None:
        self.host.post(RecordWritten(token, self._why_not_audited()))

    def _ask_principal(self, order: AskPrincipal) -> None:
        take = partial(self._take_principal, order)
        if order.key:
            take(self._askers.holder_of(order.key))
        else:
            address = self.host.peers.address_of(order.link)
            self._askers.ask(order.token or "", address, take, lambda: order.link in self.host.links)

    def _take_principal(self, asked: AskPrincipal, known: Known) -> None:
        self.host.post(PrincipalKnown(asked.link, *known))
        if known.principal is not None:
            self._renewal.prove(asked.link, asked.token or "", asked.key)

    def _fail_from_thread(self, reason: str) -> None:
        self.host.post_from_thread((FloorOrdered((journal.LogFailed(reason),)),))

    async def _watch_directory(self, directory: Directory) -> None:
        """What is written to a directory that was removed is gone, though no write to an open file fails."""
        while not (displaced := directory.displaced()):
            await asyncio.sleep(DIRECTORY_LOOK_S)
        said = f"{displaced} under the node, which stops: start it again, and leave what is in its directory"
        self._fail(Unavailable("journal-failed", said))

    def _fail(self, error: BaseException) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(error)
        self._log.error("node-failed", reason=words_of(error))

    # ── stop ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def stop(self) -> None:
        """Close the listeners, tell the peers, finish the work in progress, and close the journal.

        Raises what has ended the node, before or meanwhile: then nothing more is written, and the next start recovers.
        """
        self._is_draining = True
        self._manager.stopping(self.settings.node.drain_timeout_ns / 1e9 + JOURNAL_TIMEOUT_S)
        self._renewal.stop()
        for listener in self._listeners:
            listener.close()
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
            self._close_doors()
            await in_thread(self._disk.close)
            self._askers.close()
            self._watching.cancel()
            self._directory.close()
        self._log.info("node-stopped")

    async def _end_well(self) -> None:
        self.host.post(DrainRequested())
        self._drain_until_s = self._loop.time() + self.settings.node.drain_timeout_ns / 1e9
        while (self.engine.links or not self.engine.log.is_answered) and self._loop.time() < self._drain_until_s:
            await asyncio.sleep(0.01)
        self._close_links()
        await self._settle_journal()

    def _close_links(self) -> None:
        for link in list(self.host.links.values()):
            link.close()

    async def _settle_journal(self) -> None:
        try:
            async with asyncio.timeout(JOURNAL_TIMEOUT_S):
                await asyncio.sleep(0.02)
                while not self.engine.log.is_answered and self.engine.log.phase is Phase.RUNNING:
                    await asyncio.sleep(0.005)
                self._checkpointed = self._loop.create_future()
                for effect in self.engine.close_journal(read_clocks()):
                    self._carry_out(effect)
                await self._checkpointed
        except TimeoutError:
            raise self._not_closed(f"the disk took more than {JOURNAL_TIMEOUT_S:g} s") from None

    def _not_closed(self, reason: str) -> Unavailable:
        directory = self.settings.node.directory
        return Unavailable(
            "checkpoint-failed",
            f"the journal in {directory!r} could not be closed ({reason}): put that right; the next start"
            " recovers the acknowledged publications from the segments that are still there",
        )

    def _close_doors(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for door in (self._doors, self._arrivals, self._topics, self._group):
            if door is not None:
                door.close()
        self._topics = self._group = None
        if self._telemetry is not None:
            self._telemetry.stop()
            self._telemetry = None
        self._bound.close()

    # ── health ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _readings(self) -> Iterator[Reading]:
        yield from readings(self.engine)
        yield Reading("veredus_journal_free_bytes", self._directory.free_size())
        yield Reading("veredus_log_lines_lost", lost_line_count())
        yield Reading("veredus_audit_records_lost", 0 if self._audit is None else self._audit.writer.lost_count)
        if self._arrivals is not None:
            yield from admission_readings(self._arrivals.admission)
        if self._doors is not None:
            yield Reading("veredus_unwritten_bytes", self._doors.unwritten.budget.size)
            yield Reading("veredus_unwritten_abandoned", self._doors.unwritten.budget.abandoned_count)
        group = self._group
        yield Reading("veredus_datagrams_sent", 0 if group is None else group.sent_count)
        yield Reading("veredus_datagrams_dropped", 0 if group is None else group.dropped_count)

    def _why_not_audited(self) -> str:
        is_required = self._audit is not None and self.settings.audit.required
        return self._audit.why_not_written if self._audit is not None and is_required else ""

    def _why_not_ready(self) -> str:
        if self._is_draining:
            return "the node is stopping"
        if not self.engine.log.has_space:
            return f"publications are refused: {self.engine.log.why_full or 'the journal has failed'}"
        return ""

    def _why_not_alive(self) -> str:
        return "" if self.host.failure is None else words_of(self.host.failure)
