"""What everybody in a world of topics was told, and what may not be by then; what is judged at the end reads it.

    answered     whoever asks a proxy or a server is answered exactly once by the process that was asked        (Front)
    put          OK: it is there for good, once; in doubt: at most once; nobody's counter is ever too low       (2.4)
    get          each message once for a client, never an error's, none that nobody put                         (2.3)
    subscribe    nothing that was put before; all that was put after it was said to be done is got, or was trimmed and
                 is in a gap that was told                                                                      (2.1)
    order        once one server has a topic, each client's by their counters, but for what came before        (4)
    left         nothing any more once it was said that one is not subscribed any longer, also not later        (2.2)
    clocks       what a giver says of the difference between two clocks holds

Whoever leaves while two servers have the topic, or is told by a server that has it not that it is not subscribed, may
be subscribed at another (docs/decisions/0012). Such a *seat* is in doubt from then on, and may get too much, and what
it was answered last once more; but once it is told that it is subscribed again, it gets all that is put from then on.

A client from the page numbers neither SUBSCRIBE nor UNSUBSCRIBE, so a copy which waited in a proxy that stood still
undoes what was acknowledged since (docs/reference/guarantees.md). Told knows each copy that comes to a server late: who
may have come back by one may get too much from then on, and who may have left by one is owed nothing, until it is told
to be subscribed by what it asked for later.

Each merge through which a message went may make it later by what is not known of two clocks: so much earlier than a
subscription it may have been put, and come all the same.
Source: seed 000, section 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from itertools import pairwise

from veredus.protocols.topics.getter import GAP_TOLD_MAX
from veredus.protocols.topics.many import unpack
from veredus.protocols.topics.messages import Status, StatusWord, Transfer, decode_message
from veredus.protocols.topics.transfer import End, RowsPart, decode_part
from veredus.protocols.topics.words import NO_MESSAGE_ID

from .topics_missed import Missed
from .topics_removed import Removals
from .topics_seats import ANSWERED_MAX_NS, PutTold, Route, Seat
from .world import MILLISECOND, Clock, Violation, World

DRIFT_MAX = 1e-5
"""How much faster or slower than true time the clocks of servers run here at most."""
ASKED, LEAVING = b"SUBSCRIBE", b"UNSUBSCRIBE"


class Told:
    """Owns what was said in one world of topics."""

    def __init__(self, world: World, topics: Sequence[str]) -> None:
        """Nothing was said."""
        self.world = world
        self.topics = topics
        self.puts: dict[bytes, PutTold] = {}
        """By body: no two are the same."""
        self.seats: dict[tuple[str, str], Seat] = {}
        self.servers: dict[str, Clock] = {}
        self.places: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        """Which servers have a topic, as far as anybody can know, and since when."""
        self.may_step = False
        """Whether clocks are stepped here: then a merge may give too much, or lose one."""
        self.may_forget = True
        """Whether proxies do not know all servers, and so cannot find out that nobody knows an id."""
        self.may_hear_late = False
        """Whether a proxy may hear of a server what is older than what it has heard."""
        self.merge_count = 0
        """How often a giver asked its keeper to take all over; whether it did, it may not have lived to note."""
        self.of_page: set[str] = set()
        """Proxies written from the page: they go to the lowest server that claims a topic, at once."""
        self.clients_of_page: set[str] = set()
        self.missed = Missed()
        self.removals = Removals()
        self.is_order_lost = False
        """Whether a merge could not weave all that it should have."""
        self._conflicts: dict[str, list[tuple[int, int]]] = {topic: [] for topic in topics}
        """When several had it, and until when; the last one may go on."""
        self._uncertainty_ns = 0
        """What givers did not know of the clocks, at most."""
        self._open: dict[tuple[str, int], tuple[Seat, bytes]] = {}
        """What servers have in hand that makes or ends a subscription and has no number, by server and peer."""
        self._claims: dict[str, dict[str, dict[str, int]]] = {}
        """The topics of which each proxy was told by servers, in its present life, and when."""
        self._tellings: Counter[tuple[str, str]] = Counter()
        """How often servers have told a client that messages are gone, by the id."""
        self._lives: dict[str, int] = {}
        """When the present life of each proxy began: what was asked of the one before may have gone elsewhere."""

    def count(self, what: str) -> None:
        """Count it in the report."""
        self.world.counts[f"topics.{what}"] += 1

    def seat(self, client: str, topic: str) -> Seat:
        """A client on a topic."""
        return self.seats.setdefault((client, topic), Seat(client, topic))

    # ── proxies and servers ──────────────────────────────────────────────────────────────────────────────────────────

    def begins(self, proxy: str) -> None:
        """Another process of a proxy, which knows nothing."""
        self._lives[proxy] = self.world.now_ns
        self._claims[proxy] = {}

    def asked(self, owner: str, peer: int, data: bytes) -> None:
        """A proxy or a server was asked something."""
        if owner not in self.servers:
            if data.startswith(b"PERIODIC "):
                head, _, body = data.partition(b"\r\n\r\n")
                claimed = dict.fromkeys(body.decode().split(), self.world.now_ns)
                self._claims[owner][head.split()[1].decode()] = claimed
            return
        if data.startswith((b"PUT ", b"PUT_MANY ")):
            body = data.partition(b"\r\n\r\n")[2]
            for one in [body] if data.startswith(b"PUT ") else unpack(body):
                put = self.puts.get(one)
                if put is not None:
                    put.asked_ns = self.world.now_ns
                    put.servers[owner] = None
        elif data.startswith((ASKED, LEAVING)):
            header, _, number = data.partition(b"\r\n\r\n")
            wish, client, topic = header.split()
            if not number:
                seat = self.seat(client.decode(), topic.decode())
                self._open[owner, peer] = (seat, wish)
                self._undo(seat, wish)

    def answered(self, owner: str, peer: int, asked: bytes, answer: bytes) -> None:
        """A proxy or a server answered."""
        late = self._open.pop((owner, peer), None)
        if late is not None:
            self._undo(*late)
        status = decode_message(answer)
        if not isinstance(status, Status):
            raise Violation("answered", f"{owner} answers {asked[:60]!r} with {answer[:60]!r}, which is no STATUS")
        if owner in self.servers and status.status == StatusWord.INTERNAL_ERROR and status.message_id:
            _, client, topic = asked.partition(b"\r\n\r\n")[0].decode().split()[:3]
            self._tellings[client, status.message_id] += 1
            # Who has a page alone, and does not name it, is told no more, however many of the answers are lost.
            if client in self.clients_of_page and self._tellings[client, status.message_id] >= GAP_TOLD_MAX:
                self.missed.tell(client, topic, status.message_id)

    def gone(self, owner: str) -> None:
        """A process is gone, with what it had in hand."""
        for key in [key for key in self._open if key[0] == owner]:
            self._undo(*self._open.pop(key))

    def _undo(self, seat: Seat, wish: bytes) -> None:
        """A server has in hand what may have been asked for before the newest wish, and has no number."""
        if wish == seat.wish:
            return
        self.count("late-wishes")
        if wish == ASKED:
            self._doubt(seat, "has left, and is subscribed by what comes late")
        else:
            self.world.tell(seat.client, f"on {seat.topic} may have left by what comes late: it is owed nothing")
            seat.told_ns, seat.undone_ns = None, self.world.now_ns

    def has(self, server: str, streams: Container[str]) -> None:
        """A server has these topics now."""
        for topic, places in self.places.items():
            if (topic in streams) is not (server in places):
                self._move(topic, server, topic in streams)

    def _move(self, topic: str, server: str, is_there: bool) -> None:
        places, spans, now_ns = self.places[topic], self._conflicts[topic], self.world.now_ns
        self.world.tell(server, f"has {topic}{'' if is_there else ' no longer'}")
        if is_there:
            places[server] = now_ns
            if len(places) == 2:
                self.count("conflicts")
                spans.append((now_ns, 1 << 62))
        else:
            del places[server]
            if len(places) == 1:
                spans[-1] = (spans[-1][0], now_ns)
            if self.removals.may_be(server, topic):
                self._remove(topic, server)

    def _remove(self, topic: str, server: str) -> None:
        """What a server had of a topic may be gone, with its subscriptions and all that it knew of who had left."""
        now_ns = self.world.now_ns
        self.count("removed")
        self.removals.topics[topic] = None
        for put in self.puts.values():
            if put.topic == topic and (server in put.servers or put.stream or (server, topic) in self.removals.kept):
                put.removed_ns = put.removed_ns or now_ns
        for seat in [seat for seat in self.seats.values() if seat.topic == topic]:
            seat.told_ns, seat.undone_ns, seat.was_sure = None, now_ns, False
            if seat.has_left or seat.wish == LEAVING:
                self._doubt(seat, "has left a topic that is removed, which nobody remembers")

    def has_conflict(self, topic: str, since_ns: int) -> bool:
        """Whether several servers had a topic at any time since then."""
        return any(end_ns >= since_ns for _, end_ns in self._conflicts[topic])

    def had_conflict(self, topic: str, since_ns: int, until_ns: int) -> bool:
        """Whether several servers had a topic at any time from then to then."""
        return any(begun_ns <= until_ns and end_ns >= since_ns for begun_ns, end_ns in self._conflicts[topic])

    def noted(self, owner: str, event: str, fields: dict[str, object]) -> None:
        """A proxy or a server noted something."""
        self.is_order_lost |= event == "topic-order-not-kept"
        if event in ("topic-merged", "topic-given", "topic-not-given", "topic-not-merged", "topic-refused"):
            self.count(event)

    def asks(self, giver: str, keeper: str, data: bytes, clock: Clock) -> None:
        """A server asks another one: what it says of their clocks must hold."""
        if not data.startswith(b"TRANSFER ") or b"offset_us" not in data or keeper not in self.servers:
            return
        message = decode_message(data)
        assert isinstance(message, Transfer)
        part = decode_part(message)
        self.merge_count += isinstance(part, End)
        self.removals.kept[keeper, message.topic] = None
        if isinstance(part, End | RowsPart):
            # A row was put when its own part says it was at the latest.
            low_us, high_us = part.offset_us
            true_us = self.servers[keeper].now().wall_us - clock.now().wall_us
            slack_us = self.drift_ns // 1000
            if not self.may_step and not low_us - slack_us <= true_us <= high_us + slack_us:
                raise Violation("clocks", f"{giver} says of {keeper} {part.offset_us}, and it is {true_us} µs before")
            self._uncertainty_ns = max(self._uncertainty_ns, (high_us - low_us) * 1000)

    @property
    def is_excused(self) -> bool:
        """Whether a merge compared clocks that may have been set since its servers came to have one topic."""
        return self.may_step and self.merge_count > 0

    @property
    def drift_ns(self) -> int:
        """By how much two clocks may have drifted apart by now, and what is rounded."""
        return MILLISECOND + int(4 * DRIFT_MAX * self.world.now_ns)

    def gets(self, seat: Seat) -> None:
        """A client asks for what comes next."""
        seat.gets_ns = self.world.now_ns

    # ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def wishes(self, seat: Seat, wish: bytes) -> None:
        """A client is about to ask for a subscription, or for its end."""
        if wish == ASKED and seat.asked_ns is None:
            seat.asked_ns = self.world.now_ns
        if wish == ASKED:
            seat.has_left = False
        seat.wish = wish

    def subscribed(self, seat: Seat, begun_ns: int) -> None:
        """A client was told that it is subscribed, by what it asked for then."""
        self.count("subscribed")
        if seat.told_ns is None and begun_ns > seat.undone_ns:
            seat.told_ns = self.world.now_ns

    def leaves(self, seat: Seat) -> None:
        """A client may be subscribed no longer from now on."""
        seat.was_sure = seat.told_ns is not None
        seat.told_ns = None

    def _could_know(self, proxy: str, topic: str, begun_ns: int) -> bool:
        """Whether a proxy has heard of every server that has a topic, in a life that began before."""
        if proxy in self.of_page:
            return False
        heard = self._claims.get(proxy, {})
        places = self.places[topic]
        return bool(places) and self._lives.get(proxy, begun_ns + 1) <= begun_ns and all(one in heard for one in places)

    def left(self, seat: Seat, server: str, is_done: bool, begun_ns: int, proxy: str = "") -> None:
        """A client was told by a server that it is subscribed no longer, or that it has not been; by which proxy, if
        one alone was asked.
        """
        self.count("unsubscribed")
        places = self.places[seat.topic]
        is_wrong = not is_done and seat.was_sure and not (seat.is_in_doubt or self.is_excused)
        if is_wrong and not self.has_conflict(seat.topic, begun_ns) and self._could_know(proxy, seat.topic, begun_ns):
            said = f"{seat.client} was subscribed to {seat.topic}, which {[*places]} has"
            raise Violation("left", f"{said}, and told by {proxy} that it is not")
        if not is_done and places and server not in places:
            self._doubt(seat, f"is told that it is not subscribed by {server}, which has not the topic")
        if not is_done and seat.topic in self.removals.topics:
            self._doubt(seat, "is told that it is not subscribed to what was removed, which nobody remembers")
        if self.has_conflict(seat.topic, begun_ns):
            self._doubt(seat, "leaves while several have the topic")
        seat.asked_ns, seat.has_left = None, True

    def _doubt(self, seat: Seat, why: str) -> None:
        if not seat.is_in_doubt:
            seat.is_in_doubt = True
            self.count("seats-in-doubt")
            self.world.tell(seat.client, f"on {seat.topic} {why}: it may get too much from now on")

    def not_subscribed(self, seat: Seat, server: str, begun_ns: int) -> None:
        """A client was told so by a server, though it believes that it is."""
        if seat.told_ns is None or seat.is_in_doubt or self.has_conflict(seat.topic, begun_ns):
            return
        if self.is_excused:
            self._doubt(seat, "is not subscribed: by clocks that were stepped it left after it came")
            return
        if server in self.places[seat.topic]:
            told = f"{seat.client} was told to be subscribed to {seat.topic}, and then by {server} that it is not"
            raise Violation("subscribe", told)

    def begins_put(self, topic: str, who: str, number: int, body: bytes) -> PutTold:
        """Somebody is about to put something, perhaps once more."""
        return self.puts.setdefault(body, PutTold(topic, who, number, self.world.now_ns))

    def taken(self, put: PutTold, proxy: str = "", server: str = "") -> None:
        """Somebody was told that a put is taken; by which proxy, if one alone was asked, and whom that had asked."""
        if not put.told_ns:
            put.told_ns = self.world.now_ns
            self.count("puts")
            is_known = proxy and proxy not in self.of_page and not self.may_hear_late
            if is_known and self._lives[proxy] <= put.begun_ns:
                heard_ns = self._claims[proxy].get(server, {}).get(put.topic, -1)
                is_claimed = heard_ns >= self.places[put.topic].get(server, 0)
                put.route = Route(proxy, self._lives[proxy], server, is_claimed)

    def got(self, seat: Seat, message_id: str, body: bytes) -> None:
        """A client has a message for good."""
        self.count("gets")
        put = self.puts.get(body)
        if put is None or put.topic != seat.topic:
            raise Violation("get", f"{seat.client} got {body!r} of {seat.topic}, which nobody put there")
        if message_id == NO_MESSAGE_ID:
            raise Violation("get", f"{seat.client} got a message with the id {message_id}")
        # Of a put that two servers took, no keeper finds the twin that was trimmed at the giver.
        may_come = put.may_be_anew or body in seat.forgotten or (body in self.missed.trimmed and put.may_be_twin)
        # Who has left, and is subscribed all the same, may not have named what it was answered last.
        may_come |= seat.is_in_doubt and seat.is_of_last(body)
        if body in seat.got and not (self.is_excused or may_come):
            raise Violation("get", f"{seat.client} got {body!r} twice, now as {message_id}")
        # What comes once more came first when it did: its place among the others is of then.
        seat.got.setdefault(body, (seat.gets_ns, self.world.now_ns))
        if seat.is_in_doubt:
            return
        if seat.has_left or seat.asked_ns is None:
            raise Violation("left", f"{seat.client} is not subscribed to {seat.topic} and got {body!r}")
        merges_max = min(self.merge_count, len(self.servers) - 1)
        slack_ns = merges_max * (self._uncertainty_ns + self.drift_ns)
        put_ns = max(put.told_ns, put.asked_ns)
        if put.told_ns and put_ns < seat.asked_ns - slack_ns and not self.is_excused:
            early_ms = (seat.asked_ns - put_ns) / MILLISECOND
            told = f"{seat.client} got {body!r}, which was put {early_ms:.1f} ms before it subscribed to {seat.topic}"
            raise Violation("subscribe", told)

    def forgets(self, seat: Seat) -> bool:
        """Whether a client may forget what it had last, since no server knows it any more; then it does."""
        if self.may_forget and seat.topic in self.removals.topics:
            seat.forgotten = tuple(seat.got)
        return bool(seat.forgotten)

    def answers(self, seat: Seat, asked: str, word: str, text: bytes, message_id: str = "") -> None:
        """A client was answered: what is refused was wrong, and nobody here says anything wrong."""
        if word in (StatusWord.REFUSED, StatusWord.BAD_MESSAGE) and not seat.is_in_doubt:
            said = f"{seat.client} asked {asked} and was told {word}: {text.decode()}"
            raise Violation("put" if asked == "PUT" else "get", said)
        if word == StatusWord.INTERNAL_ERROR and asked == "GET":
            self.missed.tell(seat.client, seat.topic, message_id)


def judge(told: Told, rows: dict[str, list[bytes]], abandoned: Container[str]) -> None:
    """Everything is known: `rows` stand in each topic; nobody waits for those who are `abandoned`."""
    for topic in told.topics:
        _judge_stream(told, topic, rows.get(topic, []))
        _judge_order(told, "the stream", topic, rows.get(topic, []), True)
    for seat in told.seats.values():
        if not seat.is_in_doubt and not told.is_excused:
            _judge_order(told, seat.client, seat.topic, list(seat.got), False)
            _judge_weave(told, seat)
        if seat.told_ns is not None and seat.client not in abandoned:
            _judge_seat(told, seat)


def _judge_stream(told: Told, topic: str, rows: Sequence[bytes]) -> None:
    there: dict[bytes, None] = {}
    for body in rows:
        if body in there and not told.is_excused:
            raise Violation("put", f"{body!r} stands twice in {topic}")
        if body not in told.puts or told.puts[body].topic != topic:
            raise Violation("put", f"{body!r} stands in {topic}, and nobody put it there")
        there[body] = None
    lost = [body for body, put in told.puts.items() if put.topic == topic and put.told_ns and body not in there]
    lost = [body for body in lost if body not in told.missed.trimmed and not told.puts[body].removed_ns]
    if lost:
        raise Violation("put", f"{len(lost)} that were told to be taken are not in {topic}: {lost[:5]}")


def _judge_seat(told: Told, seat: Seat) -> None:
    """What was put after it was subscribed has come, or was trimmed, and it was told."""
    assert seat.told_ns is not None
    since_ns = seat.told_ns + (told.drift_ns if told.merge_count else 0)
    owed = [body for body, put in told.puts.items() if put.topic == seat.topic and put.told_ns]
    late = [body for body in owed if told.puts[body].begun_ns > since_ns and body not in seat.got]
    missing = [body for body in late if not told.missed.is_told(seat.client, seat.topic, body)]
    if missing and not told.is_excused:
        said = f"{seat.client} was subscribed to {seat.topic} at {since_ns / 1e9:.6f} s, and never got"
        raise Violation("subscribe", f"{said} {len(missing)} messages: {missing[:5]}")


def _judge_order(told: Told, whose: str, topic: str, bodies: Sequence[bytes], is_stream: bool) -> None:
    """What one client put comes in its order.

    While several servers have a topic, that holds for what went by one proxy, and in the stream: who subscribed at two
    servers may have got the later part of one of them before. What a copy that was late brought to a second server is
    in no order: a keeper has it before all that it takes over, and who subscribed at both may get it behind anything.

    What was published to one server's stream goes one way with it, and stays in order. Among three servers the next
    incarnation of that stream may go another way, and arrive before.
    """
    by_putter: dict[str, list[tuple[PutTold, int]]] = {}
    for place, body in enumerate(bodies):
        by_putter.setdefault(told.puts[body].who, []).append((told.puts[body], place))
    for who, puts in by_putter.items():
        puts.sort(key=lambda one: one[0].number)
        for (first, first_place), (second, second_place) in pairwise(puts):
            if first_place > second_place and _is_ordered(told, first, second, is_stream):
                said = f"{whose} has the {first.number}. put of {who} to {topic} behind the {second.number}."
                raise Violation("order", said)


def _judge_weave(told: Told, seat: Seat) -> None:
    """Once one server has all of a topic, what a client of the service put comes by its counters.

    Whatever came before then stays where it is: nobody can be given anything before what it has received already.
    """
    last: dict[str, tuple[PutTold, int, int]] = {}
    for body, (asked_ns, got_ns) in seat.got.items():
        put = told.puts[body]
        if put.stream or put.may_be_anew:
            continue
        second, second_asked_ns, second_got_ns = last.setdefault(put.who, (put, asked_ns, got_ns))
        if put.number >= second.number:
            last[put.who] = put, asked_ns, got_ns
            continue
        told.count("late")
        since_ns = second_asked_ns - ANSWERED_MAX_NS
        was_there = 0 < put.told_ns < since_ns and not told.had_conflict(seat.topic, since_ns, second_got_ns)
        if was_there and not told.is_order_lost:
            said = f"{seat.client} got the {put.number}. put of {put.who} to {seat.topic} behind the {second.number}."
            raise Violation("order", f"{said}, for which it asked when one server had both")


def _is_ordered(told: Told, first: PutTold, second: PutTold, is_stream: bool) -> bool:
    if first.may_be_anew or second.may_be_anew:
        return False
    if first.stream and is_stream:
        return len(told.servers) <= 2 or first.stream == second.stream
    if not first.told_ns or not second.told_ns or first.told_ns > second.begun_ns:
        return False
    is_late = second.may_be_twin or (first.may_be_twin and not is_stream)
    if is_late and told.has_conflict(first.topic, first.begun_ns):
        return False
    if not told.had_conflict(first.topic, first.begun_ns, second.told_ns):
        return True
    one, other = first.route, second.route
    if one is None or other is None or len(told.servers) > 2:
        return False
    return (one.proxy, one.life) == (other.proxy, other.life) and one.is_claimed and is_stream
