"""Clients of topics that know the page alone: their octets, what they keep and their manners are the page's.

    invoked ──► ask ──100 ms──► ask again, three times ──► an answer, or an error: nobody asks for that any more
    put: the counter is kept, then asked for               get: what came is kept, and was received by then

Nothing is known of a put that was not answered, and the next one has the next counter. The last id is kept for ever,
also when its client leaves and comes back. ZeroMQ connects to whoever is not there as well: so a client goes on with
the proxy that answered last, and with the next one where it gave up. SUBSCRIBE and UNSUBSCRIBE have no number, so a
late copy of either counts; `Told` knows of each that came late (docs/reference/guarantees.md).
Source: seed 000, sections 2 to 5. It shares nothing with the clients, nor with the messages, of veredus.protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, TypeAlias

from . import topics_page_codec as page
from .network import Network
from .peers import Peer
from .topics_hosts import Solo
from .topics_lines import Lines
from .topics_page_codec import Said
from .topics_people import FORGETS, STEP_MAX_NS, STEP_MIN_NS, ClientTemper
from .topics_seats import Seat
from .topics_told import ASKED, LEAVING, Told
from .world import MILLISECOND, Violation, World

ANSWER_NS, RETRIES_MAX = 100 * MILLISECOND, 3
"""In this time an answer is due, and so often it is asked again. Source: section 3."""


class Kept(NamedTuple):
    """What is in the directory of a client for a topic. Source: section 5.1."""

    last_get_id: str = page.NOTHING_GOT
    last_put_counter: int = 0
    got: tuple[str, bytes] | None = None
    """Not on the page: the message that is kept together with its id, so that it is known when it was received."""


class Keep(NamedTuple):
    """This is to be in the directory before anything else happens."""

    topic: str
    kept: Kept


Step: TypeAlias = Generator[bytes | Keep, Said | None, Said | None]


class PageProcess(Peer):
    """One process, which invokes one operation after the other."""

    def __init__(self, client: PageClient, name: str) -> None:
        """A process that is not started."""
        super().__init__(client.world, client.network, name, "")
        self.client = client
        self.is_busy = False
        self.is_drained = False
        self._lines: Lines | None = None
        self._asked_count = 0
        self._tries_left = RETRIES_MAX
        """How often what was asked last may be asked again."""

    def start(self) -> None:
        """Begin to live."""
        self.is_alive = True
        self.world.tell(self.name, "starts, and knows the page alone")
        self._invoke_later()

    def kill(self, why: str) -> None:
        """End at once."""
        if self._lines is not None:
            self._lines.close()
        super().kill(why)

    # ── what it does ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _invoke_later(self) -> None:
        self.is_busy = False
        most_ns = 20 * MILLISECOND if self.client.is_resting else self.client.temper.pause_max_ns
        self.later(self.die.spread(MILLISECOND // 2, most_ns), self._invoke)

    def _invoke(self) -> None:
        operation = self._operation()
        if operation is None:
            self.later(50 * MILLISECOND, self._invoke)
        else:
            self.is_busy = True
            self._go_on(operation, None)

    def _operation(self) -> Step | None:
        client, die, temper = self.client, self.die, self.client.temper
        if client.is_resting:
            return self._drain() if client.is_draining and not self.is_drained else None
        seat = client.told.seat(client.name, client.topics[die.between(0, len(client.topics) - 1)])
        believes, draw = seat.topic in client.believed, die.random()
        if not believes and draw < (temper.returns if seat.has_left else 0.4):
            return self._subscribe(seat)
        if believes and draw < temper.leaves:
            return self._unsubscribe(seat)
        if believes and die.chance(temper.repeats):
            return self._subscribe(seat)
        return self._put(seat) if client.may_put and die.chance(temper.puts) else self._get(seat)

    def _drain(self) -> Step:
        """Get all there is; a subscription that is relied on is asked for again first."""
        told = self.client.told
        for seat in [told.seat(self.client.name, topic) for topic in self.client.topics]:
            status = ""
            while status != page.NONE:
                said = yield from self._get(seat)
                status = "" if said is None else said.status
                if status not in ("", page.OK) and seat.told_ns is None:
                    break
        self.is_drained = True
        return None

    # ── operations ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, seat: Seat) -> Step:
        told, begun_ns = self.client.told, self.world.now_ns
        told.wishes(seat, ASKED)
        said = yield page.subscribe(self.client.name, seat.topic)
        if said is not None:
            told.answers(seat, "SUBSCRIBE", said.status, said.body)
            if said.status in (page.OK, page.ALREADY):
                self.client.believed[seat.topic] = None
                told.subscribed(seat, begun_ns)
        return said

    def _unsubscribe(self, seat: Seat) -> Step:
        told, begun_ns = self.client.told, self.world.now_ns
        told.wishes(seat, LEAVING)
        told.leaves(seat)
        said = yield page.unsubscribe(self.client.name, seat.topic)
        if said is not None and said.status in (page.OK, page.NOT_SUBSCRIBED):
            self.client.believed.pop(seat.topic, None)
            # By the page, a copy of what was done, and not answered, is told NOT_SUBSCRIBED.
            is_asked_once = self._tries_left == RETRIES_MAX and self.network.carelessness is None
            proxy = self.client.proxy if is_asked_once else ""
            told.left(seat, said.sender, said.status == page.OK, begun_ns, proxy)
        return said

    def _put(self, seat: Seat) -> Step:
        client, told = self.client, self.client.told
        kept = client.kept(seat.topic)
        counter, body = kept.last_put_counter + 1, client.next_body(seat.topic)
        yield Keep(seat.topic, kept._replace(last_put_counter=counter))
        put = told.begins_put(seat.topic, client.name, counter, body)
        said = yield page.put(client.name, seat.topic, counter, body)
        if said is not None:
            told.answers(seat, "PUT", said.status, said.body)
            if said.status == page.OK:
                told.taken(put, client.proxy, said.sender)
        return said

    def _get(self, seat: Seat) -> Step:
        client, told, begun_ns = self.client, self.client.told, self.world.now_ns
        kept = client.kept(seat.topic)
        told.gets(seat)
        said = yield page.get(client.name, seat.topic, kept.last_get_id)
        if said is None:
            return None
        told.answers(seat, "GET", said.status, said.body, said.message_id)
        if said.status == page.NOT_SUBSCRIBED:
            client.believed.pop(seat.topic, None)
            told.not_subscribed(seat, said.sender, begun_ns)
        elif said.status == page.OK:
            if said.message_id in ("", kept.last_get_id):
                raise Violation("get", f"{client.name} got {said.body!r} under the id {said.message_id!r} once more")
            kept = kept._replace(last_get_id=said.message_id, got=(said.message_id, said.body))
            yield Keep(seat.topic, kept)
        elif said.status == page.UNAVAILABLE and said.message_id and client.die.chance(FORGETS) and told.forgets(seat):
            yield Keep(seat.topic, kept._replace(last_get_id=page.NOTHING_GOT))
        return said

    # ── how it does it ───────────────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self, operation: Step, said: Said | None) -> None:
        try:
            wanted = operation.send(said)
        except StopIteration:
            self._invoke_later()
            return
        if isinstance(wanted, Keep):
            self._keep(wanted, operation)
        else:
            self._ask(wanted, RETRIES_MAX, lambda answer: self._go_on(operation, answer))

    def _keep(self, wanted: Keep, operation: Step) -> None:
        def write() -> None:
            self.client.keep(wanted.topic, wanted.kept)
            self.later(self.die.spread(STEP_MIN_NS, STEP_MAX_NS), lambda: self._go_on(operation, None))

        self.later(self.die.spread(STEP_MIN_NS, STEP_MAX_NS), write)

    def _ask(self, octets: bytes, tries_left: int, then: Callable[[Said | None], None]) -> None:
        """On a new socket each time, as a REQ must that was not answered."""
        self._hang_up()
        self._asked_count += 1
        number, self._tries_left = self._asked_count, tries_left

        def answered(token: int, data: bytes, _: str) -> None:
            if token == number == self._asked_count:
                self._asked_count += 1
                self._hang_up()
                try:
                    said = page.heard(data)
                except ValueError as error:
                    raise Violation("answered", f"{self.name} was answered by {data[:60]!r}: {error}") from error
                then(said)

        def overdue() -> None:
            if number == self._asked_count and tries_left:
                self._ask(octets, tries_left - 1, then)
            elif number == self._asked_count:
                self._asked_count += 1
                self._hang_up()
                self.client.take_next_proxy()
                then(None)

        self._lines = Lines(self.world, self.network, self.name, self.gate, answered)
        self._lines.ask(self.client.proxy, number, octets, insists=True)
        self.later(ANSWER_NS, overdue)

    def _hang_up(self) -> None:
        if self._lines is not None:
            self._lines.leave()
            self._lines.close()
            self._lines = None


class PageClient(Solo[PageProcess]):
    """A client from the page: its directory, and its processes one after the other."""

    def __init__(
        self, world: World, network: Network, name: str, topics: Sequence[str], proxies: Sequence[str], told: Told,
        temper: ClientTemper, puts_max: int,
    ) -> None:  # fmt: skip
        """It asks `proxies`, the first one first, and puts at most so many messages."""
        super().__init__(world, network, name, "")
        self.topics = topics
        self.told = told
        told.clients_of_page.add(name)
        self.temper = temper
        self.is_resting = self.is_draining = False
        self.believed: dict[str, None] = {}
        """The topics to which it was told to be subscribed, and did not hear the contrary."""
        self._proxies = list(proxies)
        self._puts_left = puts_max
        self._put_count = 0
        self._first_counter = self.die.between(0, 1)
        """The page does not say with which one a client begins."""
        self._kept: dict[str, Kept] = {}

    def process_of(self, name: str) -> PageProcess:
        """A process that is not started."""
        return PageProcess(self, name)

    @property
    def proxy(self) -> str:
        """The one that it asks."""
        return self._proxies[0]

    def take_next_proxy(self) -> None:
        """Ask the next one from now on."""
        self._proxies.append(self._proxies.pop(0))

    def kept(self, topic: str) -> Kept:
        """What its directory says of a topic."""
        return self._kept.get(topic, Kept(last_put_counter=self._first_counter - 1))

    def keep(self, topic: str, kept: Kept) -> None:
        """What its directory says from now on; a message that is in it was received."""
        before, self._kept[topic] = self.kept(topic).got, kept
        if kept.got is not None and kept.got != before:
            self.told.got(self.told.seat(self.name, topic), *kept.got)

    @property
    def may_put(self) -> bool:
        """Whether it has anything left to put."""
        return self._puts_left > 0

    def next_body(self, topic: str) -> bytes:
        """What it puts next; none is like another."""
        self._puts_left -= 1
        self._put_count += 1
        return f"{self.name}|{self._put_count}|{topic}".encode()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way; what was not answered nobody asks for any more."""
        return self.process is not None and self.process.is_alive and not self.process.is_busy

    @property
    def is_drained(self) -> bool:
        """Whether it got all there was."""
        return self.process is not None and self.process.is_drained
