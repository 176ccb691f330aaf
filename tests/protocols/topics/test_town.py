"""Two servers that have one topic, as if the other were not there: then they hear of one another, and merge it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from cursus.protocols.topics import giving
from cursus.protocols.topics.messages import Status, StatusWord

from .town import MS, PERIOD_NS, SECOND, Node, Person, ProxyHost, Source, Town

TOPIC = "news"
PROXIES = ("p1:1", "p2:1")
SERVERS = ("s1:1", "s2:1")


@dataclass
class Told:
    """What the town's people did: when each put began and ended, and what became of it."""

    puts: dict[bytes, tuple[int, int, bool]] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    left: dict[str, int] = field(default_factory=dict)
    """How much those had got who left."""
    left_ids: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """When each first asked to be subscribed."""
    subscribed: dict[str, tuple[int, int]] = field(default_factory=dict)


class Story:
    """Diverge, heal and calm down; see the module."""

    def __init__(
        self,
        seed: int,
        skew_ns: int = 0,
        loss: float = 0.02,
        kills: bool = True,
        people: int = 4,
        delay_ms: float = 3.0,
        part_count: int = 4096,
        natives: bool = False,
        leavers: bool = False,
    ) -> None:
        giving.PART_COUNT_MAX = part_count
        self.leavers = leavers
        self.town = Town(seed, loss, delay_ms)
        self.die = random.Random(seed * 7919 + 1)
        self.kills = kills
        self.told = Told()
        self.counts: dict[str, int] = {}
        for proxy in PROXIES:
            self.town.proxies[proxy] = ProxyHost(self.town, proxy)
        for server in SERVERS:
            offset = self.die.randint(-skew_ns, skew_ns)
            self.town.servers[server] = Node(self.town, server, PROXIES, offset)
        self.people = []
        for index in range(people):
            order = PROXIES if index % 2 else PROXIES[::-1]
            self.people.append(Person(self.town, f"c{index}", order))
        self.sources = [Source(self.town, node, TOPIC) for node in self.town.servers.values()] if natives else []
        self.is_calm = False
        self.town.cuts = {("s1:1", "p2:1"), ("s2:1", "p1:1")}
        for host in (*self.town.servers.values(), *self.town.proxies.values()):
            host.start()

    def run(self, diverge_ns: int = 3 * SECOND, heal_ns: int = 3 * SECOND) -> None:
        town = self.town
        for person in self.people:
            self._act_later(person)
        for source in self.sources:
            self._publish_later(source)
        if self.kills:
            town.later(self.die.uniform(200, 900) * MS, self._strike)
        town.run(town.time_ns + diverge_ns)
        town.say("town", "heals")
        town.cuts = set()
        town.run(town.time_ns + heal_ns)
        town.say("town", "calms down")
        self.is_calm = True
        town.loss = 0.0
        town.run(town.time_ns + 10 * SECOND)
        for host in (*town.servers.values(), *town.proxies.values()):
            if not host.is_up:
                host.start()
        town.run(town.time_ns + 40 * PERIOD_NS, self._is_merged)
        town.run(town.time_ns + 4 * PERIOD_NS)
        self._drain()

    def _is_merged(self) -> bool:
        return sum(TOPIC in node.topics() for node in self.town.servers.values()) <= 1

    # ── what people do ───────────────────────────────────────────────────────────────────────────────────────────────

    def _act_later(self, person: Person) -> None:
        self.town.later(self.die.uniform(1, 60) * MS, lambda: self._act(person))

    def _act(self, person: Person) -> None:
        if person.is_busy:
            if self.kills and not self.is_calm and self.die.random() < 0.02:
                person.kill()
            self._act_later(person)
            return
        if self.is_calm:
            return
        draw = self.die.random()
        waiting = person.state(TOPIC).putting
        if waiting is not None and not waiting.is_taken:
            self._put(person, waiting.body)
        elif person.name not in self.told.subscribed and draw < 0.3:
            # One that was not answered may have come to be all the same.
            began = self.told.asked.setdefault(person.name, self.town.time_ns)
            person.do(person.subscribe(TOPIC), lambda status: self._subscribed(person, began, status))
        elif self.leavers and person.name in self.told.subscribed and draw < 0.02:
            self.told.leaving.add(person.name)
            person.do(person.unsubscribe(TOPIC), lambda status: self._left(person, status))
        elif draw < 0.6:
            number = self.counts[person.name] = self.counts.get(person.name, 0) + 1
            self._put(person, f"{person.name}-{number}".encode())
        else:
            person.do(person.get(TOPIC))
        self._act_later(person)

    def _publish_later(self, source: Source) -> None:
        def publish() -> None:
            if not self.is_calm:
                source.publish()
                self._publish_later(source)

        self.town.later(self.die.uniform(1, 30) * MS, publish)

    def _left(self, person: Person, status: Status | None) -> None:
        if status is not None and status.status == StatusWord.OK:
            self.told.left.setdefault(person.name, len(person.handed.get(TOPIC, [])))
            self.told.left_ids[person.name] = self.town.time_ns
            self.town.say(person.name, "left")

    def _subscribed(self, person: Person, began: int, status: Status | None) -> None:
        if status is not None and status.status in (StatusWord.OK, StatusWord.ALREADY_SUBSCRIBED):
            self.told.subscribed[person.name] = (began, self.town.time_ns)
            self.town.say(person.name, f"subscribed {status.status}")

    def _put(self, person: Person, body: bytes) -> None:
        began, _, _ = self.told.puts.get(body, (self.town.time_ns, 0, False))
        self.told.puts[body] = (began, self.town.time_ns, False)

        def ended(status: Status | None) -> None:
            is_taken = status is not None and status.status == StatusWord.OK
            self.told.puts[body] = (began, self.town.time_ns, is_taken)
            self.town.say(person.name, f"put {body.decode()} {status and (status.sender, status.status, status.body)}")

        person.do(person.put(TOPIC, body), ended)

    def _strike(self) -> None:
        if self.is_calm:
            return
        host = self.die.choice((*self.town.servers.values(), *self.town.proxies.values()))
        if host.is_up:
            host.kill()
            self.town.later(self.die.uniform(5, 400) * MS, host.start)
        self.town.later(self.die.uniform(100, 900) * MS, self._strike)

    def _drain(self) -> None:
        """Puts in doubt are finished, and everybody gets what there is."""
        town = self.town
        for person in self.people:
            waiting = person.state(TOPIC).putting
            if waiting is not None and not waiting.is_taken:
                self._put(person, waiting.body)
        town.run(town.time_ns + 5 * SECOND)
        for person in self.people:
            if person.name in self.told.subscribed and person.name not in self.told.leaving:
                last: list[Status | None] = []
                for _ in range(5000):
                    person.do(person.get(TOPIC), last.append)
                    town.run(town.time_ns + 5 * SECOND, lambda p=person: not p.is_busy)  # type: ignore[misc]
                    status = last[-1] if last else None
                    if status is not None and status.status == StatusWord.NO_MESSAGES:
                        break
                    assert status is None or status.status == StatusWord.OK, status
                else:
                    raise AssertionError("the messages have no end")

    # ── what must hold ───────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        assert self._is_merged(), "both servers have the topic still"
        for body, (_, _, is_taken) in self.told.puts.items():
            assert is_taken, f"{body!r} is in doubt"
        puts = dict(self.told.puts)
        for source in self.sources:
            puts |= {body: (first, taken, bool(taken)) for body, (first, taken) in source.taken.items()}
        for person in self.people:
            got = person.handed.get(TOPIC, [])
            doubled = sorted({body for body in got if got.count(body) > 1})
            assert not doubled, f"{person.name} got twice: {doubled}"
            assert set(got) <= set(puts), f"{person.name} got what nobody put"
            if person.name in self.told.left:
                after = got[self.told.left[person.name] :]
                assert not after, f"{person.name} had left and got {after}"
            if person.name in self.told.subscribed and person.name not in self.told.leaving:
                began, ended = self.told.subscribed[person.name]
                wanted = {body for body, (first, _, is_taken) in puts.items() if first > ended and is_taken}
                missing = sorted(wanted - set(got))
                assert not missing, f"{person.name} misses {missing}"
                early = [body for body in got if puts[body][1] and puts[body][1] < began - SECOND]
                assert not early, f"{person.name} got what was put before it subscribed: {early}"
        self._check_order()

    def _check_order(self) -> None:
        """What a source of one node published comes in its order."""
        for person in self.people:
            for source in self.sources:
                prefix = source.name.encode() + b"-"
                numbers = [int(b[len(prefix) :]) for b in person.handed.get(TOPIC, []) if b.startswith(prefix)]
                assert numbers == sorted(numbers), f"{person.name} got {source.name} out of order: {numbers}"


@pytest.mark.parametrize("seed", range(20))
def test_a_topic_that_two_servers_had_is_merged_without_loss_or_double(seed: int) -> None:
    story = Story(seed, kills=False, loss=0.0)
    story.run()
    story.check()
    assert story.town.notes["topic-given"] >= 1
