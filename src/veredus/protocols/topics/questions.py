"""Questions of our own that are on their way to others: each is asked a few times, and answered once or given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.engine import Now

from .exchange import Ask
from .messages import Status, status_of

Then: TypeAlias = Callable[[Status | None, Now], None]
"""Told of the answer, None where there was none in time."""


@dataclass(slots=True)
class _Question:
    address: str
    data: bytes
    then: Then
    answer_ns: int
    asked_again_max: int
    principal: str
    count: int = 1


class Questions:
    """Owns what is on its way to others, by token; `order` takes what is to be sent."""

    def __init__(self, order: Callable[[Ask], None]) -> None:
        """Nothing is on its way."""
        self._order = order
        self._asked: dict[int, _Question] = {}
        self._deadlines: Deadlines[int] = Deadlines()
        self._last_token = 0

    def ask(
        self, address: str, data: bytes, then: Then, now: Now, answer_ns: int, retries_max: int, principal: str = ""
    ) -> None:
        """Ask, and again after each `answer_ns` without an answer, `retries_max` times; for `principal`."""
        self._last_token += 1
        self._asked[self._last_token] = _Question(address, data, then, answer_ns, retries_max, principal)
        self._send(self._last_token, now)

    def answer(self, token: int, data: bytes, now: Now) -> None:
        """Whoever was asked answered; what is no STATUS is none."""
        question = self._asked.get(token)
        if question is None:
            return
        message = status_of(data)
        if message is not None:
            del self._asked[token]
            self._deadlines.clear(token)
            question.then(message, now)

    def wake(self, now: Now) -> None:
        """Ask again what was not answered in time, or give it up."""
        for token in self._deadlines.due(now.monotonic_ns):
            question = self._asked[token]
            if question.count <= question.asked_again_max:
                question.count += 1
                self._send(token, now)
            else:
                del self._asked[token]
                question.then(None, now)

    def deadline(self) -> int | None:
        """When an answer is due."""
        return self._deadlines.next_ns()

    def _send(self, token: int, now: Now) -> None:
        question = self._asked[token]
        self._order(Ask(question.address, token, question.data, question.principal))
        self._deadlines.set(token, now.monotonic_ns + question.answer_ns)
