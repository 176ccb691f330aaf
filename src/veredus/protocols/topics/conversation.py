"""One question of a client's: asked of one proxy after the other, each a few times, until one answers.

    ASKING ── Answered ──► DONE: Tell
       │ not in time: again, `retries_max` times; then, or where a proxy cannot be reached, the next one
       └── no proxy left ──► DONE: GiveUp, which names each and why

Whoever gives up does not know whether the question was heard: a proxy may have passed it on.

Invariants
    (1) One proxy is asked at a time.
    (2) The conversation ends with exactly one `Tell` or `GiveUp`.
Source: seed 000, section 3 ("Communication Protocol").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from veredus.kernel.engine import Now
from veredus.kernel.errors import Misuse, PeerFault
from veredus.kernel.events import DeadlineReached
from veredus.kernel.symbol import Symbol

from .messages import Status, decode_body, decode_header

ANSWER_NS = 100_000_000
RETRIES_MAX = 3


class ProxyAnswered(msgspec.Struct, frozen=True):
    """Something came back from the proxy that was asked last."""

    data: bytes


class ProxyUnreachable(msgspec.Struct, frozen=True):
    """The proxy that was asked last cannot be reached."""

    reason: str


class AskProxy(msgspec.Struct, frozen=True):
    """Ask this proxy. The answer to any copy of what it was asked is its answer; others are forgotten."""

    address: str
    data: bytes


class Tell(msgspec.Struct, frozen=True):
    """The answer."""

    status: Status


class GiveUp(msgspec.Struct, frozen=True):
    """Nobody answered: each proxy's address, and why it is of no help."""

    reasons: tuple[tuple[str, str], ...]


Event: TypeAlias = ProxyAnswered | ProxyUnreachable | DeadlineReached
Effect: TypeAlias = AskProxy | Tell | GiveUp


class Phase(Symbol):
    """Where the conversation stands; see the module."""

    ASKING = "asking"
    DONE = "done"


class Conversation:
    """Owns one question until it is answered, or nobody is left to ask."""

    def __init__(
        self, data: bytes, proxies: Sequence[str], answer_ns: int = ANSWER_NS, retries_max: int = RETRIES_MAX
    ) -> None:
        """Ask `data` of `proxies`, by their addresses, in this order. Raises `Misuse("no-proxies")` for none."""
        if not proxies:
            raise Misuse("no-proxies", "no proxy is configured: list at least one address in `proxies`")
        self.phase = Phase.ASKING
        self._data = data
        self._proxies = tuple(proxies)
        self._answer_ns = answer_ns
        self._retries_max = retries_max
        self._index = 0
        self._try_count = 0
        self._due_ns: int | None = None
        self._reasons: list[tuple[str, str]] = []
        self._effects: list[Effect] = []

    def begin(self, now: Now) -> Sequence[Effect]:
        """Ask the first proxy."""
        self._effects = []
        self._ask(now)
        return self._effects

    def handle(self, event: Event, now: Now) -> Sequence[Effect]:
        """Take one fact; the orders that follow from it."""
        self._effects = []
        _TABLE[self.phase][type(event)](self, event, now)
        return self._effects

    def deadline(self) -> int | None:
        """When the answer is due."""
        return self._due_ns

    def hear(self, event: ProxyAnswered, now: Now) -> None:
        """An answer is told; what is none speaks against the proxy that gave it."""
        try:
            header = decode_header(event.data)
            answer = decode_body(header, event.data) if header.name == "STATUS" else None
        except PeerFault as fault:
            self._pass_over(f"gave an invalid answer: {fault.message}", now)
            return
        if isinstance(answer, Status):
            self._end(Tell(answer))
        else:
            self._pass_over(f"answered with {header.name}", now)

    def be_unreachable(self, event: ProxyUnreachable, now: Now) -> None:
        """Ask the next one."""
        self._pass_over(event.reason, now)

    def ask_again(self, event: DeadlineReached, now: Now) -> None:
        """Ask the same proxy again, or the next one."""
        if self._due_ns is None or now.monotonic_ns < self._due_ns:
            return
        if self._try_count <= self._retries_max:
            self._ask(now)
        else:
            tries = f"{self._try_count} tries" if self._try_count > 1 else "1 try"
            each = " each" if self._try_count > 1 else ""
            self._pass_over(f"did not answer in {tries} of {self._answer_ns // 1_000_000} ms{each}", now)

    def ignore(self, event: Event, now: Now) -> None:
        """Nothing follows from it any more."""

    def _ask(self, now: Now) -> None:
        self._try_count += 1
        self._due_ns = now.monotonic_ns + self._answer_ns
        self._effects.append(AskProxy(self._proxies[self._index], self._data))

    def _pass_over(self, reason: str, now: Now) -> None:
        self._reasons.append((self._proxies[self._index], reason))
        self._index += 1
        self._try_count = 0
        if self._index < len(self._proxies):
            self._ask(now)
        else:
            self._end(GiveUp(tuple(self._reasons)))

    def _end(self, effect: Tell | GiveUp) -> None:
        self.phase = Phase.DONE
        self._due_ns = None
        self._effects.append(effect)


_TABLE: dict[Phase, dict[type, Callable[..., None]]] = {
    Phase.ASKING: {
        ProxyAnswered: Conversation.hear,
        ProxyUnreachable: Conversation.be_unreachable,
        DeadlineReached: Conversation.ask_again,
    },
    Phase.DONE: dict.fromkeys((ProxyAnswered, ProxyUnreachable, DeadlineReached), Conversation.ignore),
}
