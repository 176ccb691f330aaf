"""More clients than a server answers as quickly as they ask again: real engines, and a clock that is told."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics.conversation import AskProxy, Conversation, Effect, ProxyAnswered, Tell
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked
from veredus.protocols.topics.messages import Get, Periodic, Status, StatusWord, encode_message
from veredus.protocols.topics.proxy import MILLISECOND, Event, Proxy, ProxySettings

from .proxy_scene import SECOND

HOP_NS = MILLISECOND // 10
PAUSE_NS = 100 * MILLISECOND
"""How long whoever was refused waits before it asks anew."""
NOTHING = encode_message(Status("s1:1", StatusWord.NO_MESSAGES))


class Crowd:
    """Two proxies, a server that takes one question after the other, and what is going to happen."""

    def __init__(self, service_ns: int) -> None:
        self.now_ns = 0
        self.done_count = 0
        self.proxies = {address: Proxy(ProxySettings(address, servers=("s1:1",))) for address in ("p1", "p2")}
        self._service_ns = service_ns
        self._queue: deque[tuple[str, Ask]] = deque()
        self._agenda: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count(1)
        self._waiting: dict[int, Callable[[bytes], None]] = {}
        for address in self.proxies:
            self._tell(address, Asked(0, encode_message(Periodic("s1:1", ("t",)))))

    def later(self, after_ns: int, do: Callable[..., None], *what: object) -> None:
        heapq.heappush(self._agenda, (self.now_ns + after_ns, next(self._numbers), do, what))

    def pass_time(self, ns: int) -> int:
        """How many questions were done meanwhile."""
        before, end_ns = self.done_count, self.now_ns + ns
        while self._agenda[0][0] <= end_ns:
            self.now_ns, _, do, what = heapq.heappop(self._agenda)
            do(*what)
        self.now_ns = end_ns
        return self.done_count - before

    def ask(self, address: str, data: bytes, mark: bytes, hear: Callable[[bytes], None]) -> None:
        peer = next(self._numbers)
        self._waiting[peer] = hear
        self.later(HOP_NS, self._tell, address, Asked(peer, data, envelope=(mark, b"")))

    def _tell(self, address: str, event: Event) -> None:
        proxy = self.proxies[address]
        for effect in proxy.handle(event, Now(self.now_ns, self.now_ns)):
            if isinstance(effect, Answer) and effect.peer in self._waiting:
                self.later(HOP_NS, self._waiting.pop(effect.peer), effect.data)
            elif isinstance(effect, Ask):
                self._queue.append((address, effect))
                if len(self._queue) == 1:
                    self.later(self._service_ns, self._serve)
        due_ns = proxy.deadline()
        if due_ns is not None:
            self.later(max(0, due_ns - self.now_ns), self._wake, address)

    def _wake(self, address: str) -> None:
        due_ns = self.proxies[address].deadline()
        if due_ns is not None and due_ns <= self.now_ns:
            self._tell(address, DeadlineReached())

    def _serve(self) -> None:
        address, ask = self._queue.popleft()
        if self._queue:
            self.later(self._service_ns, self._serve)
        self.later(HOP_NS, self._tell, address, Answered(ask.token, NOTHING))


class Client:
    """Asks one question after the other, each until it is answered."""

    def __init__(self, crowd: Crowd, name: str, proxies: Sequence[str]) -> None:
        self._crowd, self._name, self._proxies = crowd, name, proxies
        self._done_count = self._talk_count = 0
        self._address = ""
        self._begin()

    def _begin(self) -> None:
        data = encode_message(Get(self._name, "t", str(self._done_count)))
        self._talk = Conversation(data, self._proxies)
        self._talk_count += 1
        self._carry_out(self._talk.begin(self._now))

    @property
    def _now(self) -> Now:
        return Now(self._crowd.now_ns, self._crowd.now_ns)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AskProxy):
                self._address = effect.address

                def hear(data: bytes, talk: Conversation = self._talk, address: str = effect.address) -> None:
                    if (talk, address) == (self._talk, self._address):
                        self._carry_out(talk.handle(ProxyAnswered(data), self._now))

                self._crowd.ask(effect.address, effect.data, f"{self._name}/{self._talk_count}".encode(), hear)
            elif isinstance(effect, Tell) and effect.status.status == StatusWord.NO_MESSAGES:
                self._done_count += 1
                self._crowd.done_count += 1
                self._crowd.later(HOP_NS, self._begin)
            else:
                self._crowd.later(PAUSE_NS, self._begin)
        due_ns = self._talk.deadline()
        if due_ns is not None:
            self._crowd.later(due_ns - self._crowd.now_ns, self._wake, self._talk)

    def _wake(self, talk: Conversation) -> None:
        if talk is self._talk:
            self._carry_out(talk.handle(DeadlineReached(), self._now))


def test_clients_that_ask_again_before_a_server_can_answer_do_not_keep_it_from_answering() -> None:
    crowd = Crowd(service_ns=MILLISECOND)
    for number in range(200):
        Client(crowd, f"c{number}", ("p1", "p2") if number % 2 else ("p2", "p1"))
    crowd.pass_time(SECOND)
    assert crowd.pass_time(SECOND) > 900, "of 1,000 that it can answer"
