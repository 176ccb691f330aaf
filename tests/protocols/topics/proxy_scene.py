"""A proxy, told by hand what clients and servers say."""

from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics import messages as m
from veredus.protocols.topics.exchange import Answer, Answered, Asked, Meet
from veredus.protocols.topics.messages import decode_message, encode_message
from veredus.protocols.topics.proxy import MILLISECOND, Effect, Proxy, ProxySettings

SETTINGS = ProxySettings("p1", learning_ns=0)
SECOND = 1000 * MILLISECOND


class Scene:
    """A proxy, and what it was told and ordered."""

    def __init__(self, settings: ProxySettings = SETTINGS) -> None:
        self.proxy = Proxy(settings)
        self.now_ns = 5 * SECOND
        self.notes: list[str] = []
        self.fields: dict[str, dict[str, object]] = {}
        """Of each kind of note, what the last one said."""
        self.met: list[str] = []

    def tell(self, event: Asked | Answered | DeadlineReached) -> list[Effect]:
        effects = self.proxy.handle(event, Now(self.now_ns, 1_700_000_000 * SECOND + self.now_ns))
        self.proxy.check()
        self.notes += [effect.event for effect in effects if isinstance(effect, Note)]
        self.fields |= {effect.event: effect.fields for effect in effects if isinstance(effect, Note)}
        self.met += [effect.address for effect in effects if isinstance(effect, Meet)]
        return [effect for effect in effects if not isinstance(effect, Note | Meet)]

    def ask(self, peer: int, message: m.Message) -> list[Effect]:
        return self.tell(Asked(peer, encode_message(message)))

    def claim(self, server: str, *topics: str) -> list[Effect]:
        """A server's periodic message; what is ordered beside its answer."""
        answer, *others = self.ask(99, m.Periodic(server, topics))
        assert answer == Answer(99, b"STATUS p1 OK\r\n\r\n")
        return others

    def answer(self, token: int, status: str = "OK", body: bytes = b"") -> list[Effect]:
        return self.tell(Answered(token, encode_message(m.Status("s", status, body=body))))

    def pass_time(self, ns: int) -> list[Effect]:
        """Let time pass, and say so whenever the engine wants to know."""
        end_ns, effects = self.now_ns + ns, []
        while (at := self.proxy.deadline()) is not None and at <= end_ns:
            self.now_ns = at
            effects += self.tell(DeadlineReached())
            following = self.proxy.deadline()
            assert following is None or following > at, "a due deadline is followed by one in the future"
        self.now_ns = end_ns
        return effects


def said(effects: list[Effect]) -> list[tuple[int, str, str]]:
    """Of each answer: to whom, its status, and its words."""
    told: list[tuple[int, str, str]] = []
    for effect in effects:
        assert isinstance(effect, Answer)
        status = decode_message(effect.data)
        assert isinstance(status, m.Status)
        assert status.sender == "p1"
        told.append((effect.peer, status.status, status.body.decode()))
    return told
