"""Asks the proxies: a conversation for each question, many at once. Source: seed 000, section 3."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from veredus.kernel.errors import Unavailable
from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics.conversation import (
    AskProxy,
    Conversation,
    Event,
    GiveUp,
    ProxyAnswered,
    ProxyUnreachable,
    Tell,
)
from veredus.protocols.topics.messages import HEADER_SIZE_MAX, Status
from veredus.runtime.clocks import read_clocks
from veredus.runtime.topics_credentials import Credentials

from .sockets import ProxySockets


@dataclass(slots=True, eq=False)
class _Question:
    conversation: Conversation
    answer: asyncio.Future[Status]
    token: int = 0
    address: str = ""
    """Under which it is asked of which proxy: of one always under the same, so that any copy may be answered."""
    timer: asyncio.TimerHandle | None = None


class Questions:
    """Owns the questions that are not answered yet, and the sockets; made, used and closed on the running loop."""

    def __init__(
        self, proxies: Sequence[str], answer_ns: int, retries_max: int, body_size_max: int, shown: Credentials
    ) -> None:
        """Ask `proxies`, by their addresses, in this order."""
        self._proxies = proxies
        self._answer_ns = answer_ns
        self._retries_max = retries_max
        self._loop = asyncio.get_running_loop()
        self._sockets = ProxySockets(HEADER_SIZE_MAX + body_size_max, shown, self._answered, self._unreachable)
        self._by_token: dict[int, _Question] = {}
        self._last_token = 0

    def close(self) -> None:
        """Close the sockets; nothing may be asked any more."""
        self._sockets.close()

    async def ask(self, data: bytes) -> Status:
        """The answer to `data`. Raises `Unavailable("no-proxy")`, which says of each proxy why it was of no help."""
        conversation = Conversation(data, self._proxies, self._answer_ns, self._retries_max)
        question = _Question(conversation, self._loop.create_future())
        self._carry_out(question, conversation.begin(read_clocks()))
        return await question.answer

    def _answered(self, token: int, data: bytes) -> None:
        self._tell(self._by_token[token], ProxyAnswered(data))

    def _unreachable(self, token: int, reason: str) -> None:
        question = self._by_token.get(token)
        if question is not None:
            self._tell(question, ProxyUnreachable(reason))

    def _tell(self, question: _Question, event: Event) -> None:
        self._carry_out(question, question.conversation.handle(event, read_clocks()))

    def _carry_out(self, question: _Question, effects: Sequence[AskProxy | Tell | GiveUp]) -> None:
        for effect in effects:
            match effect:
                case AskProxy(address, data):
                    if question.address != address:
                        self._forget(question)
                        self._last_token += 1
                        question.token, question.address = self._last_token, address
                        self._by_token[question.token] = question
                    self._sockets.ask(address, question.token, data)
                # Whoever asked may be gone: its loop ends.
                case Tell(status):
                    self._forget(question)
                    if not question.answer.done():
                        question.answer.set_result(status)
                case GiveUp(reasons):
                    self._forget(question)
                    if not question.answer.done():
                        question.answer.set_exception(_no_proxy([self._explained(*reason) for reason in reasons]))
        self._wake_in_time(question)

    def _explained(self, address: str, reason: str) -> tuple[str, str]:
        """A proxy and why it was of no help, with what to check where that is known."""
        return address, reason if _is_advice(reason) else reason + self._sockets.silence(address)

    def _forget(self, question: _Question) -> None:
        if self._by_token.pop(question.token, None) is not None:
            self._sockets.forget(question.token)

    def _wake_in_time(self, question: _Question) -> None:
        if question.timer is not None:
            question.timer.cancel()
            question.timer = None
        due_ns = question.conversation.deadline()
        if due_ns is not None:
            left_s = max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
            question.timer = self._loop.call_later(left_s, self._tell, question, DeadlineReached())


def _is_advice(reason: str) -> bool:
    """Whether it says what to check."""
    return ": " in reason


def _no_proxy(reasons: Sequence[tuple[str, str]]) -> Unavailable:
    said = "; ".join(f"{address} {reason}" for address, reason in reasons)
    is_advised = all(_is_advice(reason) for _, reason in reasons)
    then = "Then try again" if is_advised else "Check this, and try again"
    return Unavailable(
        "no-proxy",
        f"no proxy could handle the request: {said}. {then}",
        reasons=dict(reasons),
    )
