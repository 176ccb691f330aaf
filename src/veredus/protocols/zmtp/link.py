"""A ZMTP connection in time: who does not finish the handshake, answers no PING, or is silent, is let go.

    opened ── greeting_timeout ──► fault          traffic ── heartbeat_interval of silence ──► PING
                                                             silence_max, or the peer's TTL ──► fault

A peer of ZMTP 3.0 knows no PING: its silence says nothing, and its dialect's own heartbeat has to do.
Source: RFC 37 of ZeroMQ, "Connection Heartbeating"; docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from veredus.kernel.absence import was_away
from veredus.kernel.deadlines import Deadlines
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets

from .connection import MESSAGES_AT_ONCE_MAX, Connection, Message, Phase

TTL_UNIT_NS: Final = 100_000_000


class Timing(NamedTuple):
    """How long a peer is waited for, in nanoseconds."""

    greeting_timeout_ns: int
    heartbeat_interval_ns: int
    silence_max_ns: int


class ZmtpLink:
    """Owns a connection and its deadlines. Whoever carries it writes `take_outgoing` after each call, and closes the
    link when `fault` is set and every message was taken.
    """

    __slots__ = ("_deadlines", "_is_paused", "_received_ns", "connection", "timing")

    def __init__(self, connection: Connection, timing: Timing) -> None:
        """The time of `connection`."""
        self.connection = connection
        self.timing = timing
        self._deadlines: Deadlines[str] = Deadlines()
        self._received_ns = 0
        self._is_paused = False

    @property
    def fault(self) -> PeerFault | None:
        """Why the connection is over."""
        return self.connection.fault

    @property
    def has_greeted(self) -> bool:
        """Whether the handshake was done, whatever came behind it."""
        return self.connection.mechanism.is_done

    def open(self, now: Now) -> None:
        """The transport is there: greet."""
        self._received_ns = now.monotonic_ns
        self._deadlines.set("greeting", now.monotonic_ns + self.timing.greeting_timeout_ns)
        self.connection.begin()

    def receive(self, data: Octets, now: Now) -> None:
        """Octets came."""
        self._received_ns = now.monotonic_ns
        self.connection.receive(data)

    def hear(self, now: Now) -> None:
        """The peer has taken something that was sent to it: its PONG lies behind what it has not read yet."""
        self._received_ns = now.monotonic_ns

    def next_messages(self, now: Now, count_max: int = MESSAGES_AT_ONCE_MAX) -> list[Message]:
        """Some of what came, in order, `count_max` at most; none, and not `connection.has_more`, when there is no more
        for now.
        """
        messages = self.connection.next_messages(count_max)
        if self.connection.phase is Phase.TRAFFIC:
            self._watch(now)
        return messages

    def admit(self) -> None:
        """The peer is who it says it is."""
        self.connection.admit()

    def pause(self) -> None:
        """Nobody reads: silence is not the peer's."""
        self._is_paused = True

    def resume(self, now: Now) -> None:
        """The peer is read from again."""
        self._is_paused = False
        self._received_ns = now.monotonic_ns

    def wake(self, now: Now) -> None:
        """A deadline may be due.

        For how long the node comes late is not silence: it has pinged nobody meanwhile, nor answered a greeting.
        """
        due_ns = self._deadlines.next_ns()
        if due_ns is not None and due_ns < now.monotonic_ns:
            self._received_ns = min(now.monotonic_ns, self._received_ns + now.monotonic_ns - due_ns)
        greeting_ns = self.timing.greeting_timeout_ns
        for name in self._deadlines.due(now.monotonic_ns):
            silent_ns = 0 if self._is_paused else now.monotonic_ns - self._received_ns
            if name == "greeting" and due_ns is not None and was_away(due_ns, now.monotonic_ns, greeting_ns):
                self._deadlines.set("greeting", now.monotonic_ns + greeting_ns)
            elif name == "greeting":
                self.connection.fail(
                    PeerFault("greeting-timeout", "the handshake was not complete within limits.greeting_timeout")
                )
            elif name == "silence":
                self._judge_silence(silent_ns, now)
            elif silent_ns >= self.timing.heartbeat_interval_ns:
                self.connection.ping()
                self._deadlines.set("heartbeat", now.monotonic_ns + self.timing.heartbeat_interval_ns)
            else:
                self._deadlines.set("heartbeat", now.monotonic_ns - silent_ns + self.timing.heartbeat_interval_ns)

    def deadline(self) -> int | None:
        """When to be woken, in monotonic nanoseconds."""
        return None if self.connection.phase is Phase.CLOSED else self._deadlines.next_ns()

    def _watch(self, now: Now) -> None:
        if self._deadlines.is_set("greeting"):
            self._deadlines.clear("greeting")
            if self.connection.minor:
                self._deadlines.set("heartbeat", now.monotonic_ns + self.timing.heartbeat_interval_ns)
                self._deadlines.set("silence", now.monotonic_ns + self.timing.silence_max_ns)
        if self.connection.ping_ttl:
            self._deadlines.set_earlier("silence", now.monotonic_ns + self._silence_max_ns)

    @property
    def _silence_max_ns(self) -> int:
        ttl_ns = self.connection.ping_ttl * TTL_UNIT_NS
        if not self.connection.minor:
            return ttl_ns
        return min(self.timing.silence_max_ns, ttl_ns or self.timing.silence_max_ns)

    def _judge_silence(self, silent_ns: int, now: Now) -> None:
        silence_max_ns = self._silence_max_ns
        if silent_ns >= silence_max_ns:
            self.connection.fail(PeerFault("silent", f"the peer was silent for {silent_ns // 1_000_000} ms"))
        elif silence_max_ns:
            self._deadlines.set("silence", now.monotonic_ns - silent_ns + silence_max_ns)

    def take_outgoing(self) -> Sequence[Octets]:
        """What is to be written to the peer, in order."""
        return self.connection.take_outgoing()
