"""Topics that several servers claim, as a proxy sees them: whom it asks to give one away, and what its log says of it.

Invariants
    (1) At most `MERGES_MAX` are asked about at a time, and none of them waits too.
    (2) The log tells each conflict once while it lasts, and why it stays once in `NOT_GIVEN_NS`.
Source: seed 000, sections 3.1.5 and 3.1.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from veredus.kernel.effects import Note

from .mapping import Conflict
from .messages import StatusWord, reason_of, status_of

MERGES_MAX = 16
HELD_NS = 10_000_000_000
"""For so long a giver that does not answer may have copied the topic, and not have given it away yet."""
NOT_GIVEN_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class _Held:
    """A giver was asked to give a topic, and has not answered."""

    conflict: Conflict
    until_ns: int
    """Until when its answer is waited for (monotonic)."""
    waiting: list[int] = field(default_factory=list)
    """The questions that wait for it, too."""


class Conflicts:
    """Owns the conflicts that a proxy has heard of."""

    def __init__(self) -> None:
        """There are none."""
        self.merging: dict[Conflict, None] = {}
        """Whose giver is being asked to give."""
        self._waiting: dict[Conflict, None] = {}
        self._held: dict[tuple[str, str], _Held] = {}
        """By topic and giver."""
        self._logged: dict[Conflict, int] = {}
        """What the log has told, and when it may tell next why it stays (monotonic)."""

    def hear(self, conflicts: Iterable[Conflict], is_one: Callable[[Conflict], bool]) -> None:
        """A server has spoken: these are there, and of the others those of which `is_one` says so."""
        self._logged = {known: due_ns for known, due_ns in self._logged.items() if is_one(known)}
        self._held = {place: held for place, held in self._held.items() if is_one(held.conflict)}
        for conflict in conflicts:
            if conflict not in self.merging:
                self._waiting[conflict] = None

    def next_to_merge(self) -> Iterator[Conflict]:
        """Take what may be asked about now."""
        while self._waiting and len(self.merging) < MERGES_MAX:
            conflict = next(iter(self._waiting))
            del self._waiting[conflict]
            self.merging[conflict] = None
            yield conflict

    def note_asked(self, conflict: Conflict, now_ns: int) -> list[Note]:
        """A giver is asked: what the log says of it."""
        self._held.setdefault((conflict.topic, conflict.giver), _Held(conflict, now_ns + HELD_NS))
        if conflict in self._logged:
            return []
        self._logged[conflict] = now_ns
        return [Note("warning", "topic-conflict", conflict._asdict())]

    def note_answered(self, conflict: Conflict, data: bytes, now_ns: int) -> list[Note]:
        """A giver has answered: what the log says of it, which the log of that server alone would say otherwise."""
        status = status_of(data)
        if status is None or status.status == StatusWord.OK or self._logged.get(conflict, now_ns + 1) > now_ns:
            return []
        self._logged[conflict] = now_ns + NOT_GIVEN_NS
        fields = {**conflict._asdict(), "status": status.status, "reason": reason_of(status)}
        return [Note("warning", "topic-not-given", fields)]

    def why_held(self, topic: str, server: str, now_ns: int) -> str:
        """Why no message for a topic is handed to a server, "" where it is: it is being asked to give the topic."""
        held = self._held.get((topic, server)) if self._held else None
        if held is not None and now_ns < held.until_ns:
            return f"{server} is being asked to move the topic {topic}: try again"
        return ""

    def hold(self, topic: str, server: str, token: int) -> None:
        """A question waits for the answer of a giver, which is being asked."""
        self._held[topic, server].waiting.append(token)

    def release(self, topic: str, server: str) -> list[int]:
        """The giver has answered: what waited for that, and perhaps waits no more."""
        held = self._held.pop((topic, server), None)
        return [] if held is None else held.waiting

    def end(self, conflict: Conflict) -> None:
        """Whoever was asked has answered, or does not."""
        del self.merging[conflict]

    def check(self) -> None:
        """The invariants of the module hold."""
        assert len(self.merging) <= MERGES_MAX, "(1)"
        assert not self.merging.keys() & self._waiting.keys(), "(1)"
