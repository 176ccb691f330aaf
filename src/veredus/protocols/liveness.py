"""When a peer counts as gone: whoever is silent is pinged, and whoever stays silent is let go. For every dialect.

    begin ──► listening ── silent for an interval ──► PING ── silent for `silence_max_ns` ──► SILENT
                  ▲                                     │
                  └──────────── heard ◄─────────────────┘

Invariants
    (1) A peer is pinged once in each interval of its silence, and never while it talks.
    (2) A peer from which the node does not read is not silent.
    (3) A due deadline, once looked at, is followed by one in the future.
    (4) For how long the node comes late to look is not silence: it has pinged nobody meanwhile.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from veredus.kernel.symbol import Symbol


class Verdict(Symbol):
    """What is to be done about a peer now."""

    WELL = "well"
    PING = "ping"
    SILENT = "silent"


class Liveness:
    """Owns when one peer was heard last, and when it is looked after next; times in monotonic nanoseconds."""

    __slots__ = ("_due_ns", "_heard_ns", "_interval_ns", "_is_paused", "_silence_max_ns")

    def __init__(self, interval_ns: int, silence_max_ns: int) -> None:
        """A peer that is pinged after `interval_ns` of silence and let go after `silence_max_ns`; not begun yet."""
        self._interval_ns = interval_ns
        self._silence_max_ns = silence_max_ns
        self._heard_ns = 0
        self._due_ns: int | None = None
        self._is_paused = False

    def begin(self, now_ns: int) -> None:
        """The peer was heard just now, and is looked after from now on."""
        self._heard_ns = now_ns
        self._due_ns = now_ns + self._interval_ns

    def end(self) -> None:
        """Look after the peer no more."""
        self._due_ns = None

    def hear(self, now_ns: int) -> None:
        """The peer said something, or took something that was sent to it."""
        self._heard_ns = now_ns

    def pause(self) -> None:
        """The node reads from the peer no more for now."""
        self._is_paused = True

    def resume(self, now_ns: int) -> None:
        """The node reads from the peer again."""
        self._is_paused = False
        self._heard_ns = now_ns

    def silent_ns(self, now_ns: int) -> int:
        """For how long nothing was heard that could have been heard."""
        return 0 if self._is_paused else now_ns - self._heard_ns

    def look(self, now_ns: int) -> Verdict:
        """What is to be done now; harmless when nothing is due."""
        if self._due_ns is None or now_ns < self._due_ns:
            return Verdict.WELL
        self._heard_ns = min(now_ns, self._heard_ns + now_ns - self._due_ns)
        silent_ns = self.silent_ns(now_ns)
        if silent_ns >= self._silence_max_ns:
            self._due_ns = None
            return Verdict.SILENT
        is_quiet = silent_ns >= self._interval_ns
        wait_ns = self._interval_ns if is_quiet or self._is_paused else self._interval_ns - silent_ns
        self._due_ns = now_ns + min(wait_ns, self._silence_max_ns - silent_ns)
        return Verdict.PING if is_quiet else Verdict.WELL

    def deadline(self) -> int | None:
        """When to look next."""
        return self._due_ns
