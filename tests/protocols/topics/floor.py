"""A real streams floor and log below one part of a server of topics, or below a whole one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from tests.streams.rig import Rig, incarnation
from veredus.delivery.batch import read_header
from veredus.delivery.payload import read_rows
from veredus.delivery.record import records_in
from veredus.kernel.effects import CloseLink, Note
from veredus.kernel.events import DeadlineReached, LinkOpened
from veredus.protocols.topics.exchange import Answer, Ask, Asked, LateAnswer, Meet
from veredus.protocols.topics.messages import Message, Status, decode_message, encode_message
from veredus.protocols.topics.server import Server, ServerSettings
from veredus.streams import exchange as x
from veredus.streams.tables import StreamsLimits

E = TypeVar("E")
K = TypeVar("K")


class Floor(Generic[E]):
    """`ended` is what became of questions, in order: the effects of these kinds; all others go down."""

    def __init__(self, kind: type[E] | tuple[type[E], ...], limits: StreamsLimits | None = None) -> None:
        self.rig = Rig(limits or StreamsLimits())
        self.ended: list[E] = []
        self._kind = kind
        self._count = 0

    def join(self, handle: Callable[[Any], Sequence[Any]], check: Callable[[], None]) -> None:
        """This part stands above the floor from now on."""
        self._handle, self._check = handle, check

    def follow(self, effects: Sequence[Any]) -> None:
        """Hand orders down and answers up until nothing follows; what is ordered of the disk is left undone."""
        orders = list(effects)
        while orders:
            order = orders.pop(0)
            if isinstance(order, self._kind):
                self.ended.append(order)
            else:
                before = len(self.rig.said)
                self.rig.tell(order)
                orders += self.up(before)
            self._check()

    def up(self, before: int) -> list[Any]:
        """What follows from what the floor said since."""
        return [effect for event in self.rig.said[before:] for effect in self._handle(event)]

    def sync(self) -> None:
        """Carry out what was ordered of the disk, and what follows."""
        is_going_on = True
        while is_going_on:
            before = len(self.rig.said)
            self.rig.carry_out()
            is_waiting = len(self.rig.said) == before and self.rig.floor.deadline() == self.rig.time_ns + 1
            if is_waiting:
                # Flows wait for their next turn.
                self.rig.time_ns += 1
                self.rig.tell(DeadlineReached())
            effects = self.up(before)
            self.follow(effects)
            is_going_on = is_waiting or len(self.rig.said) > before

    def next_id(self) -> int:
        """A number that nobody has."""
        self._count += 1
        return self._count


LINK = 1
SERVER = "127.0.0.1:9001"
PROXY = "127.0.0.1:9101"
MS = 1_000_000
SETTINGS = ServerSettings(SERVER, (PROXY,))
Order: TypeAlias = Answer | LateAnswer | Ask | Meet | Note | CloseLink


class ServerScene(Floor[Order]):
    """A whole server: its orders to sockets, log and link are gathered in `ended`, all others go down."""

    def __init__(self, settings: ServerSettings = SETTINGS, limits: StreamsLimits | None = None) -> None:
        super().__init__((Answer, LateAnswer, Ask, Meet, Note, CloseLink), limits)
        self.settings = settings
        self.peer = 0
        self.boot()

    def boot(self) -> None:
        self.server = Server(LINK, self.settings, lambda: incarnation(1_000_000 + self.next_id()))
        self.join(lambda event: self.server.handle(event, self.rig.now), self.server.check)
        self.tell(LinkOpened(LINK, "topics", SERVER))

    def restart(self) -> None:
        """The node is killed, with all that was not on the disk or not answered yet; another one recovers."""
        self.rig.restart()
        self.ended.clear()
        self.boot()

    def tell(self, event: object) -> None:
        """A fact of the host's; the disk is left alone."""
        self.follow(self.server.handle(event, self.rig.now))

    def ask(self, question: Message | bytes) -> int:
        """Ask as a new peer, whose number this is; the disk is left alone."""
        self.peer += 1
        data = question if isinstance(question, bytes) else encode_message(question)
        self.tell(Asked(self.peer, data, LINK))
        return self.peer

    def say(self, question: Message | bytes) -> Status:
        """Ask, carry everything out, and take the answer."""
        peer = self.ask(question)
        self.sync()
        ((answered, status),) = self.answers()
        assert answered == peer
        return status

    def answers(self) -> list[tuple[int, Status]]:
        """Who was answered, and what, since the last time."""
        answers = [*self.take(Answer), *self.take(LateAnswer)]
        return [(order.peer, status_of(order.data)) for order in answers]

    def take(self, kind: type[K]) -> list[K]:
        """The orders of one kind since the last time."""
        taken = [order for order in self.ended if isinstance(order, kind)]
        self.ended = [order for order in self.ended if not isinstance(order, kind)]
        return taken

    def pass_time(self, ns: int) -> None:
        """Let time pass, and wake the server whenever it wants to be woken."""
        end_ns = self.rig.time_ns + ns
        while (at := self.server.deadline()) is not None and at <= end_ns:
            self.rig.time_ns = max(at, self.rig.time_ns)
            self.tell(DeadlineReached())
            following = self.server.deadline()
            assert following is None or following > self.rig.time_ns, "what is due is done with"
        self.rig.time_ns = end_ns

    def listed(self, topic: str) -> dict[str, Any]:
        """All that the streams floor shows of a topic: its stream, sources and subscriptions."""
        (answer,) = self.rig.do(x.AdminRequested(0, 1, "local", "stream.show", {"name": topic}))
        assert isinstance(answer.result, dict)
        return answer.result

    def bodies(self, topic: str) -> list[bytes]:
        """The bodies of all messages in a topic, in order."""
        session = self.next_id()
        self.rig.do(x.SubscribeRequested(session, "local", topic, credit=1 << 40))
        found: list[bytes] = []
        for push in self.rig.pushes(session):
            for view in records_in(b"".join(push.buffers)):
                found += read_rows(view.body, read_header(view.body)).bodies
        self.rig.do(x.SessionClosed(session))
        return found


def status_of(data: bytes) -> Status:
    """An answer, which is a STATUS."""
    status = decode_message(data)
    assert isinstance(status, Status)
    return status
