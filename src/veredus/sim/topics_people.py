"""Clients of topics in a world, each with a directory.

    begin ──save──► ask ──► conversation: a new line for each question ──► end ──save──► told

A client's directory is locked, so its processes live one after the other; each goes on with what the one before left
there. A save takes a while, and whoever is killed meanwhile has the old state or the new one.
Source: seed 000, sections 2, 3 and 4; veredus.topics.operations does the same with files and sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from veredus.kernel.errors import Refused
from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics import client_state as cs
from veredus.protocols.topics.conversation import AskProxy, Conversation, Effect, GiveUp, ProxyAnswered, Tell
from veredus.protocols.topics.many import pack, unpack
from veredus.protocols.topics.messages import Status, StatusWord, encode_message

from .dice import Die
from .network import Network
from .peers import Peer
from .topics_hosts import Solo
from .topics_lines import Lines
from .topics_seats import PutTold, Seat
from .topics_told import ASKED, LEAVING, Told
from .world import MICROSECOND, MILLISECOND, SECOND, Violation, World

STEP_MIN_NS, STEP_MAX_NS = 20 * MICROSECOND, 5 * MILLISECOND
"""How long half a save takes."""
AT_ONCE_MAX = 8
"""How many messages are put or got at once at most."""
FORGETS = 0.1
"""How often whoever is told that nobody knows the message which it had last forgets that, where a topic was removed."""
INTERRUPTED_MAX_NS, AWAY_MAX_NS = 50 * MILLISECOND, 3 * SECOND
"""How soon whoever is interrupted is killed, and for how long it stays away, at most."""


class Save(NamedTuple):
    """The state of a topic is to be durable before anything else happens."""

    topic: str
    state: cs.ClientState


Step: TypeAlias = Generator[bytes | Save, Status | None, Status | None]


@dataclass(slots=True)
class ClientTemper:
    """How a client is: times in nanoseconds, the rest probabilities."""

    pause_max_ns: int = 100 * MILLISECOND
    puts: float = 0.5
    leaves: float = 0.0
    returns: float = 0.1
    """How often it subscribes again, having left."""
    repeats: float = 0.01
    """How often it subscribes though it is subscribed."""
    wanders: float = 0.0
    """How often it asks the proxies in another order than in theirs."""
    moves_on: float = 0.3
    """How often it puts something else though it does not know what became of the last put."""
    many: float = 0.0
    """How often it puts or gets several at once."""
    interrupts: float = 0.0
    """How often it is killed soon after it begins to put, and stays away for long."""


def drawn_temper(die: Die) -> ClientTemper:
    """A client's temper, for one world."""
    return ClientTemper(
        pause_max_ns=die.spread(5 * MILLISECOND, 300 * MILLISECOND),
        puts=die.uniform(0.1, 0.9),
        leaves=die.uniform(0.01, 0.1) if die.chance(0.3) else 0.0,
        moves_on=die.uniform(0.0, 0.6),
    )


class ClientProcess(Peer):
    """One process of a client; it does one thing after the other."""

    def __init__(self, client: Client, name: str) -> None:
        """A process that is not started."""
        super().__init__(client.world, client.network, name, "")
        self.client = client
        self.is_busy = False
        self.is_drained = False
        self._asked_count = 0
        self._proxies_asked: dict[str, None] = {}
        self._lines: Lines | None = None
        self._address = ""

    def start(self) -> None:
        """Begin to live."""
        self.is_alive = True
        self.world.tell(self.name, "starts")
        self._act_later()

    def kill(self, why: str) -> None:
        """End at once."""
        if self._lines is not None:
            self._lines.close()
        super().kill(why)

    # ── what it does ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _act_later(self) -> None:
        self.is_busy = False
        most_ns = self.client.temper.pause_max_ns if not self.client.is_resting else 20 * MILLISECOND
        self.later(self.die.spread(MILLISECOND // 2, most_ns), self._act)

    def _act(self) -> None:
        work = self._work()
        if work is None:
            self.later(50 * MILLISECOND, self._act)
        else:
            self.is_busy = True
            self._go_on(work, None)

    def _work(self) -> Step | None:
        client, die = self.client, self.die
        if client.is_resting:
            return self._unfinished()
        topic = client.topics[die.between(0, len(client.topics) - 1)]
        state, seat = client.state(topic), client.told.seat(client.name, topic)
        putting = state.putting
        if putting is not None and not putting.is_taken and not die.chance(client.temper.moves_on):
            return self._put(topic, putting.body, putting.is_many)
        draw = die.random()
        if seat.told_ns is None and draw < (0.4 if not seat.has_left else client.temper.returns):
            return self._leave(seat) if seat.wish == LEAVING and not seat.has_left and draw < 0.2 else self._join(seat)
        if seat.told_ns is not None and die.chance(client.temper.leaves):
            return self._leave(seat)
        if seat.told_ns is not None and die.chance(client.temper.repeats):
            return self._join(seat)
        if client.may_put and die.chance(client.temper.puts):
            count = self._at_once()
            return self._put(topic, client.next_bodies(topic, count), count > 0)
        return self._get(seat)

    def _unfinished(self) -> Step | None:
        """When all is over: what is in doubt is put until it is not, and what is there is got."""
        for topic in self.client.topics:
            putting = self.client.state(topic).putting
            if putting is not None and not putting.is_taken:
                return self._put(topic, putting.body, putting.is_many)
        return self._drain() if self.client.is_draining and not self.is_drained else None

    def _drain(self) -> Step:
        for topic in self.client.topics:
            seat = self.client.told.seat(self.client.name, topic)
            status: Status | None = None
            while status is None or status.status != StatusWord.NO_MESSAGES:
                status = yield from self._get(seat)
                is_subscribed = seat.told_ns is not None
                if status is not None and status.status != StatusWord.OK and not is_subscribed:
                    # Nothing more is demanded of an answer than that there is one.
                    break
        self.is_drained = True
        return None

    # ── operations ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _join(self, seat: Seat) -> Step:
        told = self.client.told
        begun_ns, question = self.world.now_ns, (yield from self._wish(seat, is_leaving=False))
        told.wishes(seat, ASKED)
        status = yield question
        if status is not None:
            told.answers(seat, "SUBSCRIBE", status.status, status.body)
            if status.status in (StatusWord.OK, StatusWord.ALREADY_SUBSCRIBED):
                told.subscribed(seat, begun_ns)
        return status

    def _leave(self, seat: Seat) -> Step:
        told, begun_ns = self.client.told, self.world.now_ns
        question = yield from self._wish(seat, is_leaving=True)
        told.wishes(seat, LEAVING)
        told.leaves(seat)
        status = yield question
        if status is not None and status.status in (StatusWord.OK, StatusWord.NOT_SUBSCRIBED):
            proxy = next(iter(self._proxies_asked)) if len(self._proxies_asked) == 1 else ""
            told.left(seat, status.sender, status.status == StatusWord.OK, begun_ns, proxy)
            yield Save(seat.topic, cs.end_unsubscribe(self.client.state(seat.topic)))
        return status

    def _wish(self, seat: Seat, is_leaving: bool) -> Generator[bytes | Save, Status | None, bytes]:
        """What it asks, under the number of the next wish."""
        state = cs.begin_wish(self.client.state(seat.topic), is_leaving, self.now.wall_us)
        yield Save(seat.topic, state)
        return encode_message(cs.asked_wish(state, self.client.name, seat.topic, is_leaving))

    def _at_once(self) -> int:
        """How many it puts or gets at once; 0 for a single one, as the page has it."""
        many = self.client.temper.many
        return self.die.between(1, AT_ONCE_MAX) if many and self.die.chance(many) else 0

    def _put(self, topic: str, body: bytes, is_many: bool) -> Step:
        state = self.client.state(topic)
        if cs.unfinished_put(state, body, is_many) is not None:
            status = yield from self._ask_put(topic, state)
            if status is None or status.status != StatusWord.OK:
                return status
            state = cs.end_report(cs.end_put(state, status))
        begun = cs.begin_put(state, body, is_many)
        if begun != self.client.state(topic):
            yield Save(topic, begun)
        status = yield from self._ask_put(topic, begun)
        ended = cs.end_put(begun, status)
        yield Save(topic, cs.end_report(ended) if ended.putting is not None and ended.putting.is_taken else ended)
        return status

    def _ask_put(self, topic: str, state: cs.ClientState) -> Step:
        putting, told = state.putting, self.client.told
        assert putting is not None
        bodies = enumerate(unpack(putting.body) if putting.is_many else [putting.body], putting.counter)
        puts = [told.begins_put(topic, self.client.name, counter, body) for counter, body in bodies]
        for put in puts:
            put.talk_count += 1
        if not self.client.is_resting and self.die.chance(self.client.temper.interrupts):
            self.later(self.die.spread(MILLISECOND // 2, INTERRUPTED_MAX_NS), self.client.interrupt)
        status = yield encode_message(cs.asked_put(state, self.client.name, topic))
        if status is not None:
            told.answers(told.seat(self.client.name, topic), "PUT", status.status, status.body)
            if status.status == StatusWord.OK:
                for put in puts:
                    told.taken(put, self._only_proxy(put), status.sender)
        return status

    def _only_proxy(self, put: PutTold) -> str:
        return next(iter(self._proxies_asked)) if put.talk_count == len(self._proxies_asked) == 1 else ""

    def _get(self, seat: Seat) -> Step:
        told, state, begun_ns = self.client.told, self.client.state(seat.topic), self.world.now_ns
        if state.got is not None:
            state = cs.end_hand_over(state, AT_ONCE_MAX)
        count_max = self._at_once()
        told.gets(seat)
        status = yield encode_message(cs.asked_get(state, self.client.name, seat.topic, count_max))
        if status is None:
            return None
        told.answers(seat, "GET", status.status, status.body, status.message_id)
        if status.status == StatusWord.NOT_SUBSCRIBED:
            told.not_subscribed(seat, status.sender, begun_ns)
        elif status.status == StatusWord.OK:
            try:
                state = cs.end_get(state, status, count_max > 0)
            except Refused as error:
                raise Violation("get", f"{self.client.name}: {error.message}") from error
            yield Save(seat.topic, state)
        elif status.status == StatusWord.SERVER_UNAVAILABLE and status.message_id:
            if self.client.die.chance(FORGETS) and told.forgets(seat):
                yield Save(seat.topic, cs.forget_last(state))
        elif missed_id := cs.missed_id(status):
            yield Save(seat.topic, cs.end_missed(state, missed_id))
        return status

    # ── how it does it ───────────────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self, work: Step, status: Status | None) -> None:
        try:
            wish = work.send(status)
        except StopIteration:
            self._act_later()
            return
        if isinstance(wish, Save):
            self._save(wish, work)
        else:
            self._converse(wish, lambda answer: self._go_on(work, answer))

    def _save(self, wish: Save, work: Step) -> None:
        def write() -> None:
            self.client.save(wish.topic, wish.state)
            self.later(self.die.spread(STEP_MIN_NS, STEP_MAX_NS), lambda: self._go_on(work, None))

        self.later(self.die.spread(STEP_MIN_NS, STEP_MAX_NS), write)

    def _converse(self, data: bytes, then: Callable[[Status | None], None]) -> None:
        talk = Conversation(data, self._order_of_proxies())
        self._proxies_asked = {}

        def follow(effects: Sequence[Effect]) -> None:
            for effect in effects:
                match effect:
                    case AskProxy(address, said):
                        self._ask(address, said, lambda answer: follow(talk.handle(ProxyAnswered(answer), self.now)))
                    case Tell(status):
                        self._leave_lines()
                        then(status)
                    case GiveUp():
                        self._leave_lines()
                        then(None)
            wait()

        def wait() -> None:
            at = talk.deadline()
            if at is not None:
                self.later(max(0, self.clock.true_ns(at) - self.world.now_ns), lambda: due(at))

        def due(at: int) -> None:
            if talk.deadline() == at:
                follow(talk.handle(DeadlineReached(), self.now))

        follow(talk.begin(self.now))

    def _order_of_proxies(self) -> Sequence[str]:
        wanders = self.client.temper.wanders
        return self.client.proxies[::-1] if wanders and self.die.chance(wanders) else self.client.proxies

    def _ask(self, address: str, data: bytes, on_answer: Callable[[bytes], None]) -> None:
        """Ask once more on the line where it was asked, or on a new one, and forget what was asked before."""
        if self._lines is None or self._address != address:
            self._leave_lines()
            self._asked_count += 1
            number = self._asked_count

            def answered(token: int, said: bytes, _: str) -> None:
                if self.is_alive and token == number == self._asked_count:
                    on_answer(said)

            self._lines = Lines(self.world, self.network, self.name, self.gate, answered)
        self._address = address
        self._proxies_asked[address] = None
        self._lines.ask(address, self._asked_count, data, insists=True)

    def _leave_lines(self) -> None:
        if self._lines is not None:
            self._lines.leave()
            self._lines.close()
            self._lines = None


class Client(Solo[ClientProcess]):
    """A client: its directory, and its processes one after the other."""

    def __init__(
        self, world: World, network: Network, name: str, topics: Sequence[str], proxies: Sequence[str], told: Told,
        temper: ClientTemper, puts_max: int,
    ) -> None:  # fmt: skip
        """It asks `proxies` in this order, and puts at most so many messages."""
        super().__init__(world, network, name, "")
        self.topics = topics
        self.proxies = tuple(proxies)
        self.told = told
        self.temper = temper
        self.is_resting = self.is_draining = False
        self._puts_max = puts_max
        self._put_count = 0
        self._states: dict[str, cs.ClientState] = {}

    def process_of(self, name: str) -> ClientProcess:
        """A process that is not started."""
        return ClientProcess(self, name)

    def interrupt(self) -> None:
        """Its process is killed in the middle of what it does, and followed by another one late."""
        if self.process is not None and self.process.is_alive:
            self.process.kill("in a hurry")
            self.world.after(self.die.spread(100 * MILLISECOND, AWAY_MAX_NS), self._follow)

    def state(self, topic: str) -> cs.ClientState:
        """What its directory says of a topic."""
        return self._states.get(topic, cs.ClientState())

    def save(self, topic: str, state: cs.ClientState) -> None:
        """What its directory says from now on; a message that is in it was received."""
        before = self.state(topic)
        self._states[topic] = state
        if state.got is not None and state.got != before.got:
            for message_id, body in zip(*cs.messages_in(state.got), strict=True):
                self.told.got(self.told.seat(self.name, topic), message_id, body)

    @property
    def may_put(self) -> bool:
        """Whether it has anything left to put."""
        return self._put_count < self._puts_max

    def next_bodies(self, topic: str, count: int) -> bytes:
        """Of the next put, of so many at once, or 0 for a single one; none is like another."""
        first, self._put_count = self._put_count + 1, self._put_count + max(1, count)
        bodies = [f"{self.name}|{number}|{topic}".encode() for number in range(first, self._put_count + 1)]
        return pack(bodies) if count else bodies[0]

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in doubt, and nothing under way."""
        process = self.process
        states = [self.state(topic).putting for topic in self.topics]
        is_done = all(putting is None or putting.is_taken for putting in states)
        return is_done and process is not None and process.is_alive and not process.is_busy

    @property
    def is_drained(self) -> bool:
        """Whether it got all there was."""
        return self.process is not None and self.process.is_drained
