"""Servers, proxies and clients of one topic service in virtual time, over a network that loses and delays.

Engines are the real ones: whole nodes over disks of dictionaries, proxies, conversations and what clients remember. A
number draws all that happens; the same number draws the same again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

from tests.journal.rig import MemoryDisk, recover_from
from veredus.delivery.batch import BatchHeader, Layout, signed_record
from veredus.delivery.publication import Rows
from veredus.delivery.rows import encode_rows
from veredus.journal import exchange as journal
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkOpened, Received
from veredus.node.engine import FloorOrdered, NodeEngine
from veredus.protocols.topics import client_state as cs
from veredus.protocols.topics.conversation import AskProxy, Conversation, GiveUp, ProxyAnswered, Tell
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked, LateAnswer, Meet
from veredus.protocols.topics.messages import Status, StatusWord, Subscribe, Unsubscribe, encode_message
from veredus.protocols.topics.proxy import Proxy, ProxySettings
from veredus.protocols.topics.server import Server, ServerSettings
from veredus.sim.ports import PlainDoor, batch_offered
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine
from veredus.streams.tables import StreamsLimits

MS = 1_000_000
SECOND = 1000 * MS
LINK = 1
WALL_NS = 1_700_000_000 * SECOND
PERIOD_NS = 500 * MS
LOG = LogSettings(segment_size=1 << 20, checkpoint_interval_size=1 << 30)


@dataclass
class Town:
    """Time, the network, and who lives there."""

    seed: int
    loss: float = 0.0
    delay_ms: float = 3.0
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.die = random.Random(self.seed)
        self.time_ns = SECOND
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._tie = 0
        self.servers: dict[str, Node] = {}
        self.proxies: dict[str, ProxyHost] = {}
        self.notes: Counter[str] = Counter()
        self.cuts: set[tuple[str, str]] = set()
        """Who is not heard by whom."""

    def later(self, delay_ns: float, then: Callable[[], None]) -> None:
        self._tie += 1
        heappush(self._queue, (self.time_ns + int(delay_ns), self._tie, then))

    def run(self, until_ns: int, is_over: Callable[[], bool] = lambda: False) -> None:
        while self._queue and self._queue[0][0] <= until_ns and not is_over():
            at, _, then = heappop(self._queue)
            self.time_ns = max(self.time_ns, at)
            then()
        if not is_over():
            self.time_ns = max(self.time_ns, until_ns)

    def say(self, who: str, what: str) -> None:
        self.trace.append(f"{self.time_ns / SECOND:9.3f} {who}: {what}")

    def carry(self, then: Callable[[], None]) -> None:
        """A message is on its way, or lost."""
        if self.die.random() >= self.loss:
            self.later(self.die.uniform(0.1, self.delay_ms) * MS, then)

    def ask(self, who: str, address: str, data: bytes, answered: Callable[[bytes], None]) -> None:
        """Somebody asks a server or a proxy; `answered` is told what comes back, if it does."""

        def arrive() -> None:
            host = self.servers.get(address) or self.proxies.get(address)
            if host is not None and (who, address) not in self.cuts:
                host.asked(data, lambda said: self.carry(lambda: answered(said)))

        self.carry(arrive)


class Host:
    """A process with one engine, that may be killed and started again."""

    def __init__(self, town: Town, address: str, offset_ns: int = 0) -> None:
        self.town = town
        self.address = address
        self.offset_ns = offset_ns
        self.boot = 0
        self.is_up = False
        self._wakes_at: int | None = None

    @property
    def now(self) -> Now:
        return Now(self.town.time_ns, WALL_NS + self.town.time_ns + self.offset_ns)

    def start(self) -> None:
        self.boot += 1
        self.is_up = True
        self._peers: dict[int, Callable[[bytes], None]] = {}
        self._last_peer = 0
        self.begin()

    def kill(self) -> None:
        self.town.say(self.address, "killed")
        self.is_up = False
        self.boot += 1

    def begin(self) -> None:
        raise NotImplementedError

    def handle(self, event: object) -> None:
        raise NotImplementedError

    def deadline(self) -> int | None:
        raise NotImplementedError

    def asked(self, data: bytes, answer: Callable[[bytes], None]) -> None:
        if self.is_up:
            self._last_peer += 1
            self._peers[self._last_peer] = answer
            self.handle(Asked(self._last_peer, data, LINK))

    def at_boot(self, then: Callable[[], None]) -> Callable[[], None]:
        boot = self.boot
        return lambda: then() if boot == self.boot else None

    def do(self, effect: object) -> None:
        match effect:
            case Answer() | LateAnswer():
                self._peers.pop(effect.peer)(effect.data)
            case Ask(address, token, data):
                boot = self.boot

                def answered(said: bytes) -> None:
                    if boot == self.boot:
                        self.handle(Answered(token, said, LINK))

                self.town.ask(self.address, address, data, answered)
            case Note(_, event, fields):
                self.town.notes[event] += 1
                self.town.say(self.address, f"{event} {fields}")
            case Meet():
                pass
            case _:
                raise AssertionError(effect)

    def set_timer(self) -> None:
        at = self.deadline()
        if at is None or (self._wakes_at is not None and self.town.time_ns <= self._wakes_at <= at):
            return
        due = self._wakes_at = max(at, self.town.time_ns)

        def wake() -> None:
            if self._wakes_at == due:
                self._wakes_at = None
                self.handle(DeadlineReached())

        self.town.later(max(0, at - self.town.time_ns), self.at_boot(wake))


class ProxyHost(Host):
    """A proxy."""

    def begin(self) -> None:
        self._wakes_at = None
        self.engine = Proxy(ProxySettings(self.address, learning_ns=PERIOD_NS * 6 // 5))

    def handle(self, event: Any) -> None:
        for effect in self.engine.handle(event, self.now):
            self.do(effect)
        self.engine.check()
        self.set_timer()

    def deadline(self) -> int | None:
        return self.engine.deadline()


class Node(Host):
    """A node with a server of topics, over a disk that outlives it."""

    def __init__(self, town: Town, address: str, proxies: tuple[str, ...], offset_ns: int = 0, **settings: Any) -> None:
        super().__init__(town, address, offset_ns)
        self.disk = MemoryDisk()
        self._settings = ServerSettings(address, proxies, period_ns=PERIOD_NS, **settings)
        self._ids = 0

    def _new_id(self) -> bytes:
        self._ids += 1
        return f"{self.address[:4]}{self._ids:012}".encode()

    def begin(self) -> None:
        self._wakes_at = None
        self._disk_free_ns = 0
        self._handled_count = 0
        found = recover_from(self.disk, LOG)
        limits = StreamsLimits()
        self.floor = StreamsEngine(limits, x.Durability.GROUP, self._new_id, lambda *_: True, lambda _: 0)
        for state in found.states:
            self.floor.load(state)
        for view in found.views:
            self.floor.replay(view)
        log = Log(LOG, found.recovered)
        self.heard: dict[int, Callable[[Any], None]] = {}
        self.engine = NodeEngine(log, self.floor, self._open_link, 1 << 30, 10)
        self.handle(FloorOrdered(self.floor.finish_recovery(found.recovered.is_clean)))
        self.handle(LinkOpened(LINK, "topics", self.address))

    def _open_link(self, event: LinkOpened) -> Server | PlainDoor:
        if event.door != "topics":
            return PlainDoor(event)
        self.server = Server(LINK, self._settings, self._new_id)
        return self.server

    def connect(self, heard: Callable[[Any], None]) -> int:
        """A native peer opens a link; `heard` is told what the node says to it."""
        link = LINK + 1 + len(self.heard)
        self.heard[link] = heard
        self.handle(LinkOpened(link, "memory", "peer", "local"))
        return link

    def handle(self, event: Any) -> None:
        for effect in self.engine.handle(event, self.now):
            if isinstance(
                effect,
                journal.WriteGroup | journal.CreateSegment | journal.WriteFile | journal.HoldBack | journal.ReadBytes,
            ):
                # One thread carries out what is ordered, in its order.
                self._disk_free_ns = max(self._disk_free_ns, self.town.time_ns) + int(
                    self.town.die.uniform(0.05, 2.0) * MS
                )
                delay = self._disk_free_ns - self.town.time_ns
                self.town.later(delay, self.at_boot(lambda order=effect: self._carry_out(order)))  # type: ignore[misc]
            elif isinstance(effect, journal.RemoveSegment):
                self.disk.carry_out(effect)
            elif isinstance(effect, Send):
                for (said,) in effect.buffers:
                    self.town.later(0, self.at_boot(lambda link=effect.link, said=said: self.heard[link](said)))  # type: ignore[misc]
            elif isinstance(effect, journal.CheckpointDone):
                pass
            else:
                self.do(effect)
        self._handled_count += 1
        if self._handled_count % 50 == 0:
            self.server.check()
        self.set_timer()

    def _carry_out(self, order: Any) -> None:
        event = self.disk.carry_out(order)
        if event is not None:
            self.handle(event)

    def deadline(self) -> int | None:
        return self.engine.deadline()

    def topics(self) -> list[str]:
        return sorted(self.floor.tables.streams)


class Source:
    """Somebody who publishes to a node's stream by another door, and goes on where it was after each start of it."""

    def __init__(self, town: Town, node: Node, topic: str) -> None:
        self.town = town
        self.node = node
        self.topic = topic
        self.name = f"sensor-{node.address[:2]}"
        self.number = 0
        self.taken: dict[bytes, tuple[int, int]] = {}
        """When each was offered, and when it was taken; 0 for not yet."""
        self._bases: dict[bytes, int] = {}
        """What lies before the first number of each stream that the topic had at the node."""
        self._boot = -1
        self._link = 0
        self.is_over = False

    def publish(self) -> None:
        """One more, if the stream is there and the one before was taken."""
        if self.is_over or not self.node.is_up or self.topic not in self.node.topics():
            return
        if self._boot != self.node.boot:
            self._boot = self.node.boot
            self._link = self.node.connect(self._hear)
            who = f"{self.name}{self._boot:>16}"[-16:].encode()
            self._say(x.SourceAttachRequested(1, "local", self.topic, self.name, who))
        elif self._grant is not None and self.number == self._grant.last_number:
            self._offer()

    def body(self, number: int) -> bytes:
        assert self._grant is not None
        base = self._bases.setdefault(self._grant.stream_incarnation, len(self.taken))
        return f"{self.name}-{base + number}".encode()

    def _say(self, fact: Any) -> None:
        if fact is not None and isinstance(fact, x.SourceAttachRequested):
            self._grant: x.GrantSource | None = None
        self.node.handle(Received(self._link, (fact,)))

    def _offer(self) -> None:
        assert self._grant is not None
        grant, self.number = self._grant, self._grant.last_number + 1
        body = self.body(self.number)
        self.taken.setdefault(body, (self.town.time_ns, 0))
        payload = [encode_rows(Rows([b"k"], [body]))]
        header = BatchHeader(
            int(Layout.ROWS), 0, 0, 0, 1, grant.stream_id, grant.source_id, grant.epoch, 1, self.number, 0, 0
        )
        self._say(batch_offered(1, signed_record(header, payload)))

    def _hear(self, said: Any) -> None:
        match said:
            case x.GrantSource():
                self._grant, self.number = said, said.last_number
                for number in range(1, said.last_number + 1):
                    self._note(number)
            case x.ConfirmTaken(last_number=last) if self._grant is not None:
                self._grant = replace(self._grant, last_number=last)
                self._note(last)
            case x.Refuse():
                self.is_over = True

    def _note(self, number: int) -> None:
        first, taken = self.taken.get(self.body(number), (self.town.time_ns, 0))
        self.taken[self.body(number)] = (first, taken or self.town.time_ns)


Step = Generator[Any, Any, Any]


class Person:
    """A client: its directory outlives its processes, and whoever follows goes on with what the last one began."""

    def __init__(self, town: Town, name: str, proxies: tuple[str, ...]) -> None:
        self.town = town
        self.name = name
        self.proxies = proxies
        self.states: dict[str, cs.ClientState] = {}
        self.life = 0
        self.is_busy = False
        self.handed: dict[str, list[bytes]] = {}
        self.handed_ids: dict[str, list[str]] = {}
        self.asked_count = 0

    def state(self, topic: str) -> cs.ClientState:
        return self.states.get(topic, cs.ClientState())

    def kill(self) -> None:
        self.life += 1
        self.is_busy = False

    def do(self, step: Step, then: Callable[[Any], None] = lambda _: None) -> None:
        """Run one operation to its end, unless the process is killed before."""
        self.is_busy = True
        life = self.life

        def go_on(value: Any) -> None:
            if life != self.life:
                return
            try:
                question = step.send(value)
            except StopIteration as stop:
                self.is_busy = False
                then(stop.value)
                return
            self._converse(question, go_on)

        go_on(None)

    def _converse(self, data: bytes, then: Callable[[Status | None], None]) -> None:
        talk = Conversation(data, self.proxies)
        life = self.life
        self.asked_count += 1

        def follow(effects: Any) -> None:
            for effect in effects:
                match effect:
                    case AskProxy(address, said):
                        asked = state["asked"] = state["asked"] + 1
                        self.town.ask(self.name, address, said, lambda answer, n=asked: hear(answer, n))  # type: ignore[misc]
                    case Tell(status):
                        state["over"] = True
                        then(status)
                    case GiveUp():
                        state["over"] = True
                        then(None)
            wake()

        def hear(answer: bytes, asked: int) -> None:
            if life == self.life and not state["over"] and asked == state["asked"]:
                follow(talk.handle(ProxyAnswered(answer), self._now))

        def wake() -> None:
            at = talk.deadline()
            if at is not None and not state["over"]:
                self.town.later(max(0, at - self.town.time_ns), due)

        def due() -> None:
            at = talk.deadline()
            if life == self.life and not state["over"] and at is not None and at <= self.town.time_ns:
                follow(talk.handle(DeadlineReached(), self._now))

        state: dict[str, Any] = {"asked": 0, "over": False}
        follow(talk.begin(self._now))

    @property
    def _now(self) -> Now:
        return Now(self.town.time_ns, WALL_NS + self.town.time_ns)

    # ── operations, as the client's library does them ────────────────────────────────────────────────────────────────

    def subscribe(self, topic: str) -> Step:
        status = yield encode_message(Subscribe(self.name, topic))
        return status

    def unsubscribe(self, topic: str) -> Step:
        status = yield encode_message(Unsubscribe(self.name, topic))
        if status is not None and status.status == StatusWord.OK:
            self.states[topic] = cs.end_unsubscribe(self.state(topic))
        return status

    def put(self, topic: str, body: bytes, is_many: bool = False) -> Step:
        assert cs.unfinished_put(self.state(topic), body, is_many) is None, "the town finishes puts first"
        self.states[topic] = cs.begin_put(self.state(topic), body, is_many)
        status = yield encode_message(cs.asked_put(self.state(topic), self.name, topic))
        self.states[topic] = cs.end_put(self.state(topic), status)
        if status is not None and status.status == StatusWord.OK:
            self.states[topic] = cs.end_report(self.state(topic))
        return status

    def get(self, topic: str, count_max: int = 0) -> Step:
        state = self.state(topic)
        status: Status | None = None
        if state.got is None:
            status = yield encode_message(cs.asked_get(state, self.name, topic, count_max))
            if status is None or status.status != StatusWord.OK:
                missed_id = "" if status is None else cs.missed_id(status)
                self.states[topic] = cs.end_missed(state, missed_id) if missed_id else state
                return status
            self.states[topic] = state = cs.end_get(state, status, count_max > 0)
        assert state.got is not None
        ids, bodies = cs.messages_in(state.got)
        self.handed.setdefault(topic, []).extend(bodies)
        self.handed_ids.setdefault(topic, []).extend(ids)
        self.states[topic] = cs.end_hand_over(state, len(ids))
        return status
