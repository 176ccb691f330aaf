"""Servers that have one topic, as if the others were not there: then they hear of one another, and merge it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from veredus.protocols.topics.many import pack, unpack
from veredus.protocols.topics.messages import Status, StatusWord

from .town import MS, PERIOD_NS, SECOND, Node, Person, ProxyHost, Source, Town

TOPIC = "news"


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
        servers: int = 2,
        roaming: float = 0.0,
        bulk: float = 0.0,
    ) -> None:
        names = range(1, servers + 1)
        proxies = tuple(f"p{n}:1" for n in names)
        self.leavers = leavers
        self.roaming = roaming
        self.bulk = bulk
        """How often somebody puts or gets many at once."""
        self.town = Town(seed, loss, delay_ms)
        self.die = random.Random(seed * 7919 + 1)
        self.kills = kills
        self.told = Told()
        self.counts: dict[str, int] = {}
        for proxy in proxies:
            self.town.proxies[proxy] = ProxyHost(self.town, proxy)
        for server in (f"s{n}:1" for n in names):
            offset = self.die.randint(-skew_ns, skew_ns)
            self.town.servers[server] = Node(self.town, server, proxies, offset, part_count_max=part_count)
        self.people = []
        for index in range(people):
            first = -1 - index % servers
            self.people.append(Person(self.town, f"c{index}", (*proxies[first:], *proxies[:first])))
        self.sources = [Source(self.town, node, TOPIC) for node in self.town.servers.values()] if natives else []
        self.is_calm = False
        self.town.cuts = {(f"s{n}:1", f"p{m}:1") for n in names for m in names if n != m}
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
        while town.cuts:
            self._heal()
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

    def _heal(self) -> None:
        """Two servers, which are drawn, hear of one another; then all do."""
        chosen = {name[1:] for name in self.die.sample(list(self.town.servers), 2)}
        left = {(server, proxy) for server, proxy in self.town.cuts if not {server[1:], proxy[1:]} <= chosen}
        self.town.cuts = left if len(left) < len(self.town.cuts) else set()
        self.town.say("town", f"is cut at {sorted(self.town.cuts)} still")

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
        if self.roaming and self.die.random() < self.roaming:
            person.proxies = (*person.proxies[1:], person.proxies[0])
        draw = self.die.random()
        waiting = person.state(TOPIC).putting
        if waiting is not None and not waiting.is_taken:
            self._put(person, waiting.body, waiting.is_many)
        elif draw < (0.05 if person.name in self.told.subscribed else 0.3) and self._may_subscribe(person):
            # One that was not answered may have come to be all the same.
            began = self.told.asked.setdefault(person.name, self.town.time_ns)
            person.do(person.subscribe(TOPIC), lambda status: self._subscribed(person, began, status))
        elif self.leavers and person.name in self.told.subscribed and draw < 0.02:
            self.told.leaving.add(person.name)
            person.do(person.unsubscribe(TOPIC), lambda status: self._left(person, status))
        elif draw < 0.6:
            self._put_some(person)
        else:
            person.do(person.get(TOPIC, self._at_once()))
        self._act_later(person)

    def _may_subscribe(self, person: Person) -> bool:
        """Who roams subscribes at several servers."""
        is_new = person.name not in self.told.subscribed
        return is_new or (self.roaming > 0 and person.name not in self.told.leaving)

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
            self.told.subscribed.setdefault(person.name, (began, self.town.time_ns))
            self.town.say(person.name, f"subscribed {status.status}")

    def _at_once(self) -> int:
        """How many are put or got at once; 0 for a single one, as the page has it."""
        return self.die.randint(1, 6) if self.bulk and self.die.random() < self.bulk else 0

    def _put_some(self, person: Person) -> None:
        at_once, first = self._at_once(), self.counts.get(person.name, 0) + 1
        last = self.counts[person.name] = first + max(1, at_once) - 1
        bodies = [f"{person.name}-{number}".encode() for number in range(first, last + 1)]
        self._put(person, pack(bodies) if at_once else bodies[0], at_once > 0)

    def _put(self, person: Person, body: bytes, is_many: bool) -> None:
        bodies = unpack(body) if is_many else [body]
        began, _, _ = self.told.puts.get(bodies[0], (self.town.time_ns, 0, False))

        def note(is_taken: bool) -> None:
            self.told.puts |= dict.fromkeys(bodies, (began, self.town.time_ns, is_taken))

        def ended(status: Status | None) -> None:
            note(status is not None and status.status == StatusWord.OK)
            self.town.say(person.name, f"put {bodies} {status and (status.sender, status.status, status.body)}")

        note(is_taken=False)
        person.do(person.put(TOPIC, body, is_many), ended)

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
                self._put(person, waiting.body, waiting.is_many)
        town.run(town.time_ns + 5 * SECOND)
        for person in self.people:
            if person.name in self.told.subscribed and person.name not in self.told.leaving:
                last: list[Status | None] = []
                for _ in range(5000):
                    person.do(person.get(TOPIC, self._at_once()), last.append)
                    town.run(town.time_ns + 5 * SECOND, lambda p=person: not p.is_busy)  # type: ignore[misc]
                    status = last[-1] if last else None
                    if status is not None and status.status == StatusWord.NO_MESSAGES:
                        break
                    assert status is None or status.status == StatusWord.OK, status
                else:
                    raise AssertionError("the messages have no end")

    # ── what must hold ───────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        assert self._is_merged(), "several servers have the topic still"
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
        if len(self.town.servers) == 2 and not self.roaming:
            self._check_order()

    def _check_order(self) -> None:
        """What a source of one node published comes in its order: to who subscribed once. What was put before somebody
        subscribed at one server, and after they had at another, comes behind what they got of it already.
        """
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


@pytest.mark.parametrize("seed", [8, 16, 40, 56, 88])
def test_a_topic_that_three_servers_had_is_merged_without_loss_or_double(seed: int) -> None:
    story = Story(seed, kills=False, loss=0.0, servers=3, roaming=0.1, skew_ns=30 * SECOND)
    story.run(2 * SECOND, 2 * SECOND)
    story.check()
    assert story.town.notes["topic-given"] >= 2


@pytest.mark.parametrize("seed", [7, 95])
def test_three_servers_lose_and_double_nothing_though_they_are_killed_and_their_clocks_are_hours_apart(
    seed: int,
) -> None:
    story = Story(seed, 3600 * SECOND, 0.05, people=6, part_count=5, natives=True, leavers=True, servers=3, roaming=0.1)
    story.run(2 * SECOND, 2 * SECOND)
    story.check()


@pytest.mark.parametrize(("seed", "servers"), [(1, 2), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_what_was_put_and_got_at_once_is_merged_without_loss_or_double(seed: int, servers: int) -> None:
    story = Story(seed, SECOND, 0.05, part_count=3, servers=servers, roaming=0.1 * (servers - 2), bulk=0.5)
    story.run()
    story.check()
    assert story.town.notes["topic-given"] >= 1
