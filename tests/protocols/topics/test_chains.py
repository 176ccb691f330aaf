"""Topics that three servers had, merged in any order: each step as the streams floor does it, without its journal.

Servers put, subscribe and hand out by the rules of `getting`, somebody trims what they have; merges place by `placing`.
In the end everybody has what was put since they first subscribed anywhere, once, or was told that it is gone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from veredus.protocols.topics.ids import MessageId, shown_of
from veredus.protocols.topics.losing import named_in
from veredus.protocols.topics.merged import Merged
from veredus.protocols.topics.placing import Side, moves
from veredus.protocols.topics.transfer import APPENDED_US, Attributes, Standing
from veredus.streams.departures import both_had, had_by
from veredus.streams.exchange import CursorMove
from veredus.streams.facts import NOTHING_HAD, CursorMoved, Gone, SubscriptionTold
from veredus.streams.lives import Lives
from veredus.streams.moving import place_of_cursor
from veredus.streams.ranges import cursor_of
from veredus.streams.stream import NEVER_LEFT, Left
from veredus.streams.subscription import Subscription

SERVERS = 3
STEP_US = 1000
MERGED: Attributes = {APPENDED_US: 0}


class Put(NamedTuple):
    server: int
    is_again: bool = False
    """Whether it is the last one, whose answer was lost."""


class Subscribe(NamedTuple):
    who: str
    server: int
    wish: int = 0


class Leave(NamedTuple):
    """By an UNSUBSCRIBE that comes to one server alone."""

    who: str
    server: int
    wish: int


class Get(NamedTuple):
    who: str
    server: int
    is_lost: bool


class Merge(NamedTuple):
    keeper: int
    giver: int


class Trim(NamedTuple):
    server: int
    share: float
    """So much of what the server has had goes, from the first on."""


Event = Put | Subscribe | Leave | Get | Merge | Trim


class Row(NamedTuple):
    put: int
    time_us: int
    """When it was put, by the clock of the server that has it."""
    is_own: bool = True
    """Whether it was put at this server."""


@dataclass
class Shop:
    """One server's stream."""

    incarnation: bytes
    offset_us: int
    rows: list[Row] = field(default_factory=list)
    trimmed: int = 0
    """So many of them are gone."""
    appended_us: int = 0
    gone: tuple[Gone, ...] = ()
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    left: dict[str, Left] = field(default_factory=dict)
    merged: tuple[bytes, ...] = ()
    weave: tuple[tuple[int, int], ...] = ()
    terms: tuple[tuple[int, int], ...] = ()

    @property
    def head_durable(self) -> int:
        return len(self.rows)

    def note_left(self, who: str, left: Left) -> None:
        before = self.left.get(who, NEVER_LEFT)
        removed_us, wish = max(left.removed_us, before.removed_us), max(left.wish, before.wish)
        self.left[who] = Left(removed_us, wish, both_had(left.had, before.had))

    def side(self) -> Side:
        return Side(self.standings(), {who: {"": left} for who, left in self.left.items()})

    def undone(self, one: Subscription) -> list[int]:
        done = ((0, one.floor), *one.settled_ranges())
        return [p for p in range(1, len(self.rows) + 1) if not any(a <= p <= b for a, b in done)]

    def settle(self, one: Subscription, place: int) -> None:
        floor, settled = cursor_of(one.floor, (*one.settled_ranges(), (place, place)))
        self.place(one, floor, settled)

    def place(self, one: Subscription, floor: int, settled: tuple[tuple[int, int], ...]) -> None:
        moved = CursorMoved(
            1, one.subscriber, one.name, one.opened_us, one.start, floor, len(self.rows) + 2, settled, one.origins,
            False, one.unwanted, wish=one.wish, lost=one.lost,
        )  # fmt: skip
        one.move(moved, 65_536)

    def standings(self) -> dict[str, Standing]:
        return {
            who: Standing(
                one.opened_us, one.start, one.floor, one.settled_ranges(),
                one.origins, one.unwanted, wish=one.wish, lost=one.lost,
            )
            for who, one in self.subscriptions.items()
        }  # fmt: skip


@dataclass
class Client:
    last: tuple[bytes, int] | None = None
    got: list[int] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    """What it was told to be gone."""
    since: int | None = None
    """The first put that it is to get."""
    since_us: int = 0


class World:
    """Three servers and their clients; `slack_us` is what is not known of the clocks."""

    def __init__(self, offsets_us: tuple[int, ...], slack_us: int = 0) -> None:
        self.time_us = 1_000_000
        self.slack_us = slack_us
        self.shops = [Shop(bytes([65 + n]) * 16, offset_us) for n, offset_us in enumerate(offsets_us)]
        self.homes = list(range(SERVERS))
        self.put_count = 0
        self.tried_us: dict[int, int] = {}
        """When each was tried last."""
        self.again: set[int] = set()
        """What was tried more than once."""
        self.trimmed: set[int] = set()
        self.clients: dict[str, Client] = {}

    def shop(self, server: int) -> Shop:
        while self.homes[server] != server:
            server = self.homes[server]
        return self.shops[server]

    def do(self, what: Event) -> None:
        self.time_us += STEP_US
        match what:
            case Put(server, is_again):
                shop = self.shop(server)
                self.put_count += not (is_again and self.put_count)
                if self.put_count in self.tried_us:
                    self.again.add(self.put_count)
                self.tried_us[self.put_count] = self.time_us
                if self.put_count not in {row.put for row in shop.rows}:
                    shop.appended_us = self.time_us + shop.offset_us
                    shop.rows.append(Row(self.put_count, shop.appended_us))
            case Subscribe(who, server, wish):
                shop = self.shop(server)
                if who not in shop.subscriptions:
                    head = len(shop.rows)
                    opened_us = self.time_us + shop.offset_us
                    fact = CursorMoved(1, who, "topics", opened_us, head + 1, head, head + 1, (), wish=wish)
                    shop.subscriptions[who] = Subscription.moved_in(fact, 65_536)
                client = self.clients.setdefault(who, Client())
                client.since, client.since_us = client.since or self.put_count + 1, client.since_us or self.time_us
            case Leave(who, server, wish):
                shop = self.shop(server)
                one = shop.subscriptions.get(who)
                if one is None or one.wish < wish:
                    had = had_by(shop, shop.subscriptions.pop(who)) if one else NOTHING_HAD  # type: ignore[arg-type]
                    shop.note_left(who, Left(self.time_us + shop.offset_us, wish, had))
            case Get(who, server, is_lost):
                self._get(who, self.shop(server), is_lost)
            case Merge():
                self._merge(what)
            case Trim(server, share):
                shop = self.shop(server)
                shop.trimmed = max(shop.trimmed, int(len(shop.rows) * share))
                self.trimmed |= {row.put for row in shop.rows[: shop.trimmed]}

    def _get(self, who: str, shop: Shop, is_lost: bool) -> bool:
        """Whether there was something to be had."""
        one, client = shop.subscriptions.get(who), self.clients.get(who)
        if one is None or client is None:
            return False
        if client.last is not None and not self._name(one, client.last, shop):
            return False
        if not is_lost:
            self._tell(one, client, shop)
        undone = shop.undone(one)
        if undone and not is_lost:
            client.last = shop.incarnation, undone[0]
            client.got.append(shop.rows[undone[0] - 1].put)
        return bool(undone)

    def _name(self, one: Subscription, last: tuple[bytes, int], shop: Shop) -> bool:
        """Settle what was got last; whether it was given, as far as this server can know."""
        incarnation, sequence = last
        is_own = incarnation == shop.incarnation
        named = MessageId(shown_of(incarnation), sequence, sequence)
        origins = [origin for origin in one.origins if origin.incarnation == incarnation]
        while told := named_in(one.lost, named, origins):
            one.tell(SubscriptionTold(1, one.subscriber, one.name, told.incarnation, told.first, told.last))
        undone = shop.undone(one)
        places = {origin.next_sequence: origin.sequence for origin in origins}
        if is_own and sequence in undone[:1]:
            shop.settle(one, sequence)
        elif is_own and sequence < min(undone, default=len(shop.rows) + 1):
            pass
        elif places.get(sequence):
            shop.settle(one, places[sequence])
        elif not origins and incarnation in shop.merged:
            pass
        elif not any(origin.is_done(sequence) for origin in origins):
            assert not is_own
            return False
        return True

    def _tell(self, one: Subscription, client: Client, shop: Shop) -> None:
        """What is gone, before a merge or here."""
        for lost in one.lost:
            rows = next(other.rows for other in self.shops if other.incarnation == lost.incarnation)
            client.told |= {row.put for row in rows[lost.first - 1 : lost.last]}
            one.tell(SubscriptionTold(1, one.subscriber, one.name, lost.incarnation, lost.first, lost.last))
        for place in shop.undone(one):
            if place <= shop.trimmed:
                client.told.add(shop.rows[place - 1].put)
                shop.settle(one, place)

    def _merge(self, what: Merge) -> None:
        keeper, giver = self.shop(what.keeper), self.shop(what.giver)
        if keeper is giver:
            return
        if self.shops.index(keeper) > self.shops.index(giver):
            keeper, giver = giver, keeper
        before_us = keeper.offset_us - giver.offset_us
        bounds = before_us - self.slack_us, before_us + self.slack_us
        merged = Merged(
            Lives.of(keeper.incarnation), Lives.of(giver.incarnation), len(keeper.rows), len(giver.rows), bounds,
            keeper_gone=keeper.gone, giver_gone=giver.gone, keeper_merged=keeper.merged, giver_merged=giver.merged,
        )  # fmt: skip
        places = {}
        for place, row in list(enumerate(keeper.rows, 1))[keeper.trimmed :]:
            places[row.put] = place
            merged.note_own(place, row.time_us, None if row.is_own else MERGED)
        staged: list[Row] = []
        for sequence, row in list(enumerate(giver.rows, 1))[giver.trimmed :]:
            merged.note_arrivals([sequence], [row.time_us], [None if row.is_own else MERGED])
            if row.put in places:
                merged.twins[sequence] = places[row.put]
            else:
                merged.row_times.note(len(staged), row.time_us)
                merged.sequences.append(sequence)
                staged.append(Row(row.put, row.time_us + bounds[1], False))
        merged.end_arrivals(keeper.appended_us, giver.appended_us)
        for move in filter(None, moves(1, "topics", keeper.side(), giver.side(), merged)):
            moved = placed(move, len(keeper.rows) + 1)
            known = keeper.subscriptions.get(move.subscriber)
            for one in moved.left:
                keeper.note_left(move.subscriber, Left(one.removed_us, one.wish, one.had))
            if move.is_removed:
                keeper.subscriptions.pop(move.subscriber, None)
            elif known is None:
                keeper.subscriptions[move.subscriber] = Subscription.moved_in(moved, 65_536)
            else:
                known.move(moved, 65_536)
        keeper.rows += staged
        keeper.merged = merged.lives
        now_us = self.time_us + keeper.offset_us
        keeper.gone, keeper.appended_us = merged.gone(now_us), now_us
        self.homes[self.shops.index(giver)] = self.shops.index(keeper)

    def finish(self, die: random.Random) -> None:
        """Everything comes together in any order, and everybody gets what there is."""
        for keeper, giver in die.sample([(0, 1), (0, 2), (1, 2)], 3):
            self.do(Merge(keeper, giver))
        for who in self.clients:
            while self._get(who, self.shops[0], False):
                pass


def placed(move: CursorMove, first: int) -> CursorMoved:
    """Where a commit puts a cursor whose stage begins at `first`."""
    return place_of_cursor(move, 1, first)


def drawn(seed: int) -> list[Event]:
    """A story: few merges, so that much comes between."""
    die = random.Random(seed)
    people = ("ada", "bob")[: die.randint(1, 2)]

    def one() -> Event:
        server, draw = die.randrange(SERVERS), die.random()
        if draw < 0.4:
            return Put(server, die.random() < 0.3)
        if draw < 0.55:
            return Subscribe(die.choice(people), server)
        return Get(die.choice(people), server, die.random() < 0.2) if draw < 0.92 else Merge(server, (server + 1) % 3)

    return [one() for _ in range(die.randint(5, 40))]


def drawn_with_trims(seed: int) -> list[Event]:
    """A story in which much is trimmed before the merges, most of which come at the end."""
    die = random.Random(seed)
    events = [what for what in drawn(seed) if not isinstance(what, Merge) or die.random() < 0.3]
    places = sorted(die.randint(0, len(events)) for _ in range(die.randint(1, 4)))
    for place in reversed(places):
        events.insert(place, Trim(die.randrange(SERVERS), die.random() ** 0.3))
    return events


ALONE = Put(0), Put(1), Put(2)
TOLD: dict[str, list[Event]] = {
    "wanted-by-who-had-subscribed-before": [
        Subscribe("ada", 0), ALONE[2], Subscribe("ada", 1), ALONE[1], Merge(1, 2),
    ],
    "put-before-and-merged-since": [ALONE[2], Subscribe("ada", 0), ALONE[1], Merge(1, 2)],
    "put-in-turn": [ALONE[2], ALONE[1], Subscribe("ada", 0), ALONE[2], ALONE[1], Merge(1, 2)],
    "got-though-put-before": [
        Subscribe("ada", 0),
        Put(1),
        Subscribe("ada", 2),
        Put(2, True),
        Get("ada", 2, False),
        Get("ada", 2, False),
        Subscribe("ada", 1),
        Merge(1, 2),
    ],
    "got-and-put-before": [
        Subscribe("ada", 0), ALONE[2], Subscribe("ada", 1), ALONE[1], Get("ada", 1, False), Merge(1, 2),
    ],
}  # fmt: skip


def check(story: list[Event], offsets_us: tuple[int, ...], slack_us: int = 0) -> None:
    world = World(offsets_us, slack_us)
    for what in story:
        world.do(what)
    world.finish(random.Random(world.put_count))
    for client in world.clients.values():
        assert client.since is not None
        twice = {put for put in client.got if client.got.count(put) > 1}
        assert twice <= world.again & world.trimmed, "each once; of two copies, both of which were there"
        early = {put for put in client.got if put < client.since and world.tried_us[put] < client.since_us}
        assert client.told <= world.trimmed
        assert client.told & set(client.got) <= world.again, "what is told to be gone was not got"
        known = {*client.got, *client.told}
        assert known >= set(range(client.since, world.put_count + 1)), "none is lost in silence"
        assert len(early) <= 2 * (SERVERS - 1) * slack_us // STEP_US, "none comes that was put before"


@pytest.mark.parametrize("name", TOLD)
def test_what_was_put_between_two_subscriptions_comes_and_what_was_put_before_both_does_not(name: str) -> None:
    check(TOLD[name], (0, 500, -500))


@pytest.mark.parametrize("slack_us", [0, STEP_US // 2, 3 * STEP_US])
def test_everybody_gets_once_what_was_put_to_any_of_three_since_they_subscribed_at_any(slack_us: int) -> None:
    for seed in range(400):
        die = random.Random(-seed)
        check(drawn(seed), tuple(die.randint(-10_000, 10_000) for _ in range(SERVERS)), slack_us)


@pytest.mark.parametrize("slack_us", [0, STEP_US // 2, 3 * STEP_US])
def test_of_whatever_was_trimmed_at_any_of_three_everybody_who_is_owed_it_is_told(slack_us: int) -> None:
    for seed in range(400):
        die = random.Random(-seed)
        check(drawn_with_trims(seed), tuple(die.randint(-10_000, 10_000) for _ in range(SERVERS)), slack_us)


STALE, LATE, ANEW = 1, 2, 3
"""The wishes of who subscribes at several servers, leaves, and subscribes again at one."""


def drawn_with_late_leaves(seed: int) -> list[Event]:
    """Ada is subscribed anywhere, leaves and subscribes again at one server, and others hear of the former late."""
    die = random.Random(seed)
    where = die.randrange(SERVERS)
    others = [server for server in range(SERVERS) if server != where]

    def some(count: int) -> list[Event]:
        servers = [die.randrange(SERVERS) for _ in range(count)]
        return [Put(server) if die.random() < 0.5 else Get("ada", server, die.random() < 0.1) for server in servers]

    events: list[Event] = [Subscribe("ada", server, STALE) for server in die.sample(range(SERVERS), die.randint(1, 3))]
    events += [*some(die.randint(0, 6)), Leave("ada", where, LATE), Subscribe("ada", where, ANEW)]
    events += some(die.randint(2, 20))
    late: list[Event] = [Leave("ada", server, LATE) for server in others]
    late += [Merge(server, (server + 1) % SERVERS) for server in die.sample(range(SERVERS), die.randint(0, 1))]
    for event in late:
        events.insert(die.randint(events.index(Subscribe("ada", where, ANEW)) + 1, len(events)), event)
    return [*events, *some(die.randint(0, 6))]


@pytest.mark.parametrize("slack_us", [0, STEP_US // 2, 3 * STEP_US])
def test_who_left_where_it_was_given_what_came_since_it_had_subscribed_elsewhere_gets_nothing_twice(
    slack_us: int,
) -> None:
    for seed in range(400):
        die = random.Random(-seed)
        world = World(tuple(die.randint(-10_000, 10_000) for _ in range(SERVERS)), slack_us)
        for what in drawn_with_late_leaves(seed):
            if isinstance(what, Subscribe) and what.wish == ANEW:
                anew = world.put_count + 1
            world.do(what)
        world.finish(random.Random(seed))
        (client,) = world.clients.values()
        assert len(client.got) == len(set(client.got)), seed
        assert {*client.got} >= {*range(anew, world.put_count + 1)}, seed
