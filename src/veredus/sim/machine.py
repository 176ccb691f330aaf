"""A machine: a disk that stays, and a node's process that boots through real recovery, works by turns, and dies at
any step.

    DOWN ──start──► BOOTING ──recovered──► UP ──(killed, power cut, journal failed)──► DOWN
                       └──────(killed)──► DOWN

DOWN      Nothing runs; the disk is as the last process left it.
BOOTING   Recovery reads the disk, a step at a time.
UP        Links are accepted. What arrives waits in the inbox for the next turn, as in the real host.

Invariants
    (1) What belongs to a process that is gone changes nothing any more: neither answers of the disk nor links.
    (2) Orders are carried out one by one, and a kill may come between any two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from veredus.journal.exchange import (
    CheckpointDone,
    CheckpointFailed,
    DiskEvent,
    LogFailed,
    SyncMode,
    WriteGroup,
)
from veredus.journal.recovery import recover
from veredus.journal.settings import LogSettings, Recovered
from veredus.journal.steps import (
    CheckpointLoaded,
    ClearFile,
    MoveAside,
    ReadFile,
    RecoveryOrder,
    RemoveFile,
    Replayed,
    SetAside,
    SyncFile,
)
from veredus.kernel.effects import Admit, CloseLink, Note, PauseReading, ResumeReading, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import (
    DeadlineReached,
    LinkClosed,
    LinkCongested,
    LinkDrained,
    LinkOpened,
    Received,
)
from veredus.node.dialects import LinkEngine
from veredus.node.engine import FloorOrdered, NodeEngine
from veredus.protocols.links import SESSION_BITS
from veredus.streams.engine import StreamsEngine
from veredus.streams.exchange import Durability
from veredus.streams.rights import LOCAL
from veredus.streams.tables import StreamsLimits

from .disk import DiskOrder, SimDisk, seams_of
from .network import End, Network, octets_of
from .witnesses import CountedLog, WatchedFloor, Witness
from .world import MICROSECOND, MILLISECOND, SECOND, Clock, Violation, World

UNSYNCED_SIZE_MAX = 256 << 10
CONNECTIONS_MAX = 10_000
SPARE_COUNT_MAX = 3
"""Segments that are being made, written by the cleaner, or removed."""
Door = Callable[[LinkOpened], LinkEngine]


@dataclass(slots=True)
class MachineSettings:
    """How the node on a machine is set."""

    log: LogSettings = field(default_factory=LogSettings)
    limits: StreamsLimits = field(default_factory=StreamsLimits)
    turn_max_ns: int = 200 * MICROSECOND
    """How long what arrives may wait for the node's next turn."""

    @property
    def durable_after_ns(self) -> int:
        """After how long what was said to be taken survives a power cut."""
        late_ns = {SyncMode.GROUP: 0, SyncMode.INTERVAL: self.log.interval_ns * 6 // 5 + SECOND}
        return late_ns.get(self.log.sync, sys.maxsize)


class Machine:
    """Owns a disk, and the process that runs on it while it is up."""

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        disk: SimDisk,
        clock: Clock,
        settings: MachineSettings,
        door: Door,
        witness: Witness,
    ) -> None:
        """A machine that is down; `door` makes the engine of each link."""
        self.world = world
        self.name = name
        self.disk = disk
        self.clock = clock
        self.engine: NodeEngine | None = None
        self.boot_count = 0
        self.steps_to_live: int | None = None
        """After how many orders the process is killed, None for not at all."""
        self.startled_by: type | None = None
        """When it has said something of this kind, it is killed a few orders later."""
        self.is_severed = False
        """Whether its power goes in the middle of the next append of several records."""
        self.on_down: Callable[[], None] = _ignore
        self.on_up: Callable[[], None] = _ignore
        """Called once, when the next process is up."""
        self._durable_ns: int | None = None
        """What was written before then is there though the power was cut since; None while it was not."""
        self._is_shaken = False
        self._network = network
        self._settings = settings
        self._door = door
        self._witness = witness
        self.gate = disk.gate
        """What the process does not do while it is stopped; its threads stop with it."""
        self._die = world.dice.die(f"machine/{name}")
        self._severing = world.dice.die(f"severing/{name}")
        self._life = 0
        self._turns = 0
        self._is_running = False
        self._is_closing = False
        self._inbox: list[object] = []
        self._is_turn_planned = False
        self._wake_ns: int | None = None
        self._ends: dict[int, End] = {}
        self._link_count = 0
        network.listen(name, self._accept)

    @property
    def is_running(self) -> bool:
        """Whether a process is there, booting or up."""
        return self._is_running

    # ── boot ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start a process, unless one runs."""
        if self._is_running:
            return
        self._is_running = True
        self._life += 1
        self.boot_count += 1
        self.world.tell(self.name, f"starts, for the {self.boot_count}. time")
        self._witness.boot()
        life = self._life
        steps = self._recover()
        self.world.after(self._die.spread(MICROSECOND, MILLISECOND), lambda: self._boot_on(steps, life))

    def _boot_on(self, steps: Iterable[int], life: int) -> None:
        if life != self._life:
            return
        delay_ns = next(iter(steps), None)
        if delay_ns is not None:
            self.world.after(delay_ns, lambda: self.gate.through(lambda: self._boot_on(steps, life)))

    def _recover(self) -> Iterable[int]:
        """Recovery, a step of the disk at a time; each gives the time it took."""
        log: CountedLog | None = None

        def size_of(stream_id: int) -> int:
            return 0 if log is None else log.extent(stream_id).size

        ids = self.world.dice.die(f"ids/{self.name}")
        limits, durability = self._settings.limits, Durability(self._settings.log.sync)
        floor = WatchedFloor(self.world, limits, durability, lambda: ids.octets(16), size_of, self._witness, self._said)
        steps = recover(self.disk.listing(), self._settings.log, ids.octets(16))
        answer: bytearray | None = None
        recovered: Recovered | None = None
        while recovered is None:
            try:
                order: RecoveryOrder = steps.send(answer)
            except StopIteration as end:
                recovered = end.value
            except Exception as error:
                raise Violation("recovery", f"{self.name} does not start: {error!r}") from error
            else:
                answer = self._answer(order, floor)
                if not isinstance(order, CheckpointLoaded | Replayed | Note):
                    yield self._die.between(MICROSECOND, 20 * MICROSECOND)
        weak = self._settings.log.sync is not SyncMode.GROUP and self._durable_ns is not None
        self._witness.recovered(floor, weak, self._is_shaken, self._durable_ns or 0)
        self._durable_ns, self._is_shaken = None, False
        log = CountedLog(self.world, self._settings.log, recovered)
        engine = NodeEngine(log, floor, self._door, UNSYNCED_SIZE_MAX, CONNECTIONS_MAX)
        orders = list(floor.finish_recovery(recovered.is_clean))
        if recovered.is_damaged or (not recovered.is_clean and self._settings.log.sync is not SyncMode.GROUP):
            orders.extend(floor.raise_terms(self.clock.now()))
        self.engine = engine
        self.world.tell(self.name, f"is up; the journal was {'closed' if recovered.is_clean else 'not closed'}")
        self.post(FloorOrdered(orders))
        self.begin_serving()
        on_up, self.on_up = self.on_up, _ignore
        on_up()

    def begin_serving(self) -> None:
        """The process is up: what it has beside its listeners begins."""

    def _answer(self, order: RecoveryOrder, floor: StreamsEngine) -> bytearray | None:
        disk = self.disk
        match order:
            case ReadFile(name, offset, size):
                return bytearray(disk.read(name, offset, size)) if name in disk.files else None
            case SyncFile(name):
                disk.sync(name)
            case SetAside(name, offset, size):
                self.world.tell(self.name, f"sets aside {size} bytes of {name} at {offset}")
                disk.set_aside(name, disk.read(name, offset, size))
            case MoveAside(name):
                disk.set_aside(name, disk.files[name].data)
                disk.remove(name)
            case ClearFile(name, offset, size):
                disk.write(name, offset, bytes(size))
                disk.sync(name)
            case RemoveFile(name):
                disk.remove(name)
            case CheckpointLoaded(state):
                floor.load(state)
            case Replayed(view):
                floor.replay(view)
            case Note(level, event, fields):
                self._note(level, event, fields)
                if event in ("journal-damaged", "journal-segment-missing"):
                    self._is_shaken = self.world.is_forgetful = True
        return None

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def post(self, event: object) -> None:
        """Put an event into the inbox."""
        self._inbox.append(event)
        self._plan_turn()

    def _plan_turn(self) -> None:
        if not self._is_turn_planned:
            self._is_turn_planned = True
            life = self._life
            delay_ns = self._die.between(0, self._settings.turn_max_ns)
            self.world.after(delay_ns, lambda: self.gate.through(lambda: self._turn(life)))

    def _turn(self, life: int) -> None:
        if life != self._life or self.engine is None:
            return
        self._is_turn_planned = False
        events, self._inbox = self._inbox, []
        now = self.clock.now()
        for event in events:
            if not self._handle(event, now):
                return
        at = self.engine.deadline()
        if at is not None and at <= now.monotonic_ns and not self._handle(DeadlineReached(), now):
            return
        at = self.engine.deadline()
        if at is not None:
            self._wake_at(self.clock.true_ns(at), life)

    def _wake_at(self, at_ns: int, life: int) -> None:
        if self._wake_ns is None or at_ns < self._wake_ns or self._wake_ns <= self.world.now_ns:
            self._wake_ns = max(at_ns, self.world.now_ns)
            self.world.at(at_ns, lambda: self._wake(life))

    def _wake(self, life: int) -> None:
        if life == self._life:
            self._plan_turn()

    def _handle(self, event: object, now: Now) -> bool:
        """One event, and its orders; False when the process died of it."""
        engine = self.engine
        assert engine is not None
        life = self._life
        self._turns += 1
        try:
            effects = engine.handle(event, now)
        except Violation:
            raise
        except Exception as error:
            raise Violation("no engine breaks", f"{type(event).__name__} raised {error!r}") from error
        for effect in effects:
            if self.steps_to_live is not None:
                self.steps_to_live -= 1
                if self.steps_to_live <= 0:
                    self.kill("at a step")
            if life != self._life:
                return False
            self._carry_out(effect)
        if self._turns % 64 == 0:
            self._check(engine)
        return life == self._life

    def _said(self, effect: object) -> None:
        if type(effect) is self.startled_by:
            self.startled_by = None
            self.steps_to_live = self.world.dice.die(f"startled/{self.name}").between(1, 4)

    def _check(self, engine: NodeEngine) -> None:
        try:
            engine.log.check()
            for stream in engine.floor.tables.streams.values():
                stream.check()
                for subscription in stream.subscriptions.values():
                    subscription.ledger.check()
            for stage in engine.floor.tables.stages.values():
                run = engine.floor.tables.runs[stage.sink]
                assert stage.is_committing or stage.run_epoch == run.epoch, "an older run's stage is open"
                assert run.is_committing or not stage.is_committing, "a stage is committed by no commit"
                assert (stage.stage in run.written) == (stage.session > 0), "somebody writes a stage, or nobody"
            engine.floor.tables.runs.check()
            budget = engine.floor.tables.budget
            assert budget.size <= budget.size_max, "the tails hold too much"
        except AssertionError as error:
            raise Violation("invariants hold", f"{self.name}: {error}") from error

    @property
    def is_idle(self) -> bool:
        """Whether it has done all that it was told."""
        is_up = self.engine is not None and not self._inbox and self.engine.log.is_answered
        return is_up and self.disk.is_idle

    def check_leases(self) -> None:
        """All leases are over: nothing is left of sinks without a name."""
        assert self.engine is not None
        tables = self.engine.floor.tables
        left = [run.sink for run in tables.runs.values() if run.is_ephemeral]
        if left := left + [stage.sink for stage in tables.stages.values() if stage.sink not in tables.runs]:
            raise Violation("committed", f"the lease of {left[0]} is over, and {self.name} keeps it")

    def check_at_rest(self) -> None:
        """Nothing is on its way to the journal, nobody waits for nothing, and nobody is fed who is gone.

        The disk holds no more segments than the journal knows, keeps for later, and is about to remove or to use.
        """
        assert self.engine is not None
        tables, flows = self.engine.floor.tables, self.engine.floor.flows
        on_their_way = [f"stage {stage.stage}" for stage in tables.stages.values() if stage.is_committing]
        on_their_way += [f"commit of {run.sink}" for run in tables.runs.values() if run.is_committing]
        for stream in tables.streams.values():
            on_their_way += [stream.name] if stream.head_assigned != stream.head_durable else []
            on_their_way += [s.name for s in stream.sources.values() if s.last_assigned != s.last_durable]
            on_their_way += [f"{stream.name}/{s.name}" for s in stream.subscriptions.values() if s.is_changing]
        if on_their_way:
            raise Violation("invariants hold", f"{self.name} has settled down, and these have not: {on_their_way}")
        if asleep := [n for n, f in flows.items() if f.is_for_publications != f.is_waiting or not f.waits_for]:
            raise Violation("invariants hold", f"{self.name} has settled down, and sessions {asleep} are not fed")
        sessions = [*flows, *(stage.session for stage in tables.stages.values() if stage.session)]
        for stream in tables.streams.values():
            sessions += [source.session for source in stream.sources.values() if source.session]
            sessions += [known.session for known in stream.subscriptions.values() if known.session]
        if gone := [session for session in sessions if session >> SESSION_BITS not in self._ends]:
            raise Violation("bounds", f"{self.name} keeps sessions {gone}, whose links are gone")
        count = sum(name.endswith(".segment") for name in self.disk.files)
        count_max = self.engine.log.segment_count + self._settings.log.free_count_max + SPARE_COUNT_MAX
        if count > count_max:
            raise Violation("bounds", f"{self.name} keeps {count} segments, and should need {count_max} at most")

    def _carry_out(self, effect: object) -> None:
        match effect:
            case WriteGroup(_, segment, offset, buffers) if self.is_severed and (seams := seams_of(offset, buffers)):
                self.is_severed = False
                seam = seams[self._severing.between(0, len(seams) - 1)]
                self.disk.on_written = lambda: self._sever(segment, seam)
                self._order_disk(effect)
            case _ if isinstance(effect, DiskOrder):
                self._order_disk(effect)
            case Send(link, buffers):
                if link in self._ends:
                    plain = self._network.is_plain
                    self._ends[link].send([item for (item,) in buffers] if plain else (octets_of(buffers),))
            case CloseLink(link, reason):
                self._close(link, reason)
            case Admit():
                pass
            case PauseReading(link):
                if link in self._ends:
                    self._ends[link].pause()
            case ResumeReading(link):
                if link in self._ends:
                    self._ends[link].resume()
            case Note(level, event, fields):
                self._note(level, event, fields)
            case CheckpointDone() if self._is_closing:
                self._end("stopped", self.disk.kill)
            case CheckpointFailed() if self._is_closing:
                self.kill("since its journal could not be closed")
            case LogFailed(reason):
                self.kill(f"since the journal failed: {reason}")
            case _:
                self.world.tell(self.name, str(effect))

    def _order_disk(self, order: DiskOrder) -> None:
        life = self._life
        self.disk.carry_out(order, lambda answer: self._answered(answer, life))

    def _note(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.world.tell(self.name, f"notes {level} {event} {fields}")
        self._witness.note(event, fields)

    def _answered(self, answer: DiskEvent, life: int) -> None:
        if life == self._life:
            self.post(answer)

    # ── links ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, end: End) -> bool:
        if self.engine is None or self._is_closing:
            return False
        self._link_count += 1
        link, life, room = self._link_count, self._life, self._network.temper.congested_size
        self._ends[link] = end

        def received(item: object) -> None:
            if life == self._life:
                # The memory is the engine's from now on, and may be written to.
                data = bytearray(item) if isinstance(item, bytes) else (item,)
                self.post(Received(link, data))  # type: ignore[arg-type]

        def closed(reason: str) -> None:
            if life == self._life and self._ends.pop(link, None) is not None:
                self.post(LinkClosed(link, reason))

        def flow(is_congested: bool) -> None:
            if life == self._life:
                self.post(LinkCongested(link, room) if is_congested else LinkDrained(link))

        end.on_received, end.on_closed, end.on_flow = received, closed, flow
        self.post(LinkOpened(link, "memory", end.peer, self.world.principals.get(end.peer, LOCAL)))
        return True

    def _close(self, link: int, reason: str) -> None:
        end = self._ends.pop(link, None)
        if end is not None:
            end.close(reason)
            self.post(LinkClosed(link, reason))

    # ── a good end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """End the process as a stop on purpose does: links go, what is on its way arrives, the journal is closed."""
        if self.engine is None or self._is_closing:
            return
        self.world.tell(self.name, "is asked to stop")
        self._is_closing = True
        for link in list(self._ends):
            self._close(link, "draining")
        self._close_when_idle(self._life)

    def _close_when_idle(self, life: int) -> None:
        if life != self._life or self.engine is None:
            return
        if self._inbox or not self.engine.log.is_answered:
            self.world.after(MILLISECOND, lambda: self.gate.through(lambda: self._close_when_idle(life)))
            return
        for effect in self.engine.close_journal(self.clock.now()):
            self._carry_out(effect)

    # ── bad days ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def kill(self, why: str, with_power: bool = False) -> None:
        """End the process at once; with the power goes what was not synced."""
        if not self._is_running:
            return
        self.world.counts["fault.power-cut" if with_power else "fault.kill"] += 1
        if with_power and self._durable_ns is None:
            self._durable_ns = self.gate.at_work_since(self._settings.durable_after_ns)
        what = f"is {'without power' if with_power else 'killed'}, {why}"
        self._end(what, self.disk.cut_power if with_power else self.disk.kill)

    def _sever(self, segment: int, seam: int) -> None:
        self.disk.tear_at = (segment, seam)
        self.kill("in the middle of an append", with_power=True)

    def _end(self, what: str, end_disk: Callable[[], None]) -> None:
        self.world.tell(self.name, what)
        self._life += 1
        self._is_running = self._is_turn_planned = self._is_closing = False
        self.engine = None
        self.steps_to_live = None
        self._wake_ns = None
        self._inbox.clear()
        self._ends.clear()
        self._network.drop(self.name, "reset by peer")
        self.gate.clear()
        end_disk()
        self.on_down()


def _ignore() -> None:
    return None
