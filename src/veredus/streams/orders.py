"""What the streams floor orders while it handles one event, and what waits for the journal's answers.

Invariants
    (1) Each token is given once, and its waiter is told exactly once: it became durable, or it failed.
    (2) The journal answers appends in the order in which they were ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from veredus.journal.exchange import AppendRequested, Entry, LocateRequested, PlacedRecord, ReadRequested, fact_entry
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now

from .exchange import Durability, Refuse
from .facts import Fact, StreamDeleted, StreamTrimmed, encode_fact
from .rights import next_owner


class Waiter(Protocol):
    """Something that was appended, and what is to be said once that is known to be durable."""

    def become_durable(self, durability: Durability, now: Now) -> None:
        """It is in the journal."""
        ...

    def fail(self, code: str, reason: str, now: Now) -> None:
        """The journal did not take it; undo what was assumed."""
        ...


class Unheard:
    """Waits for a fact that nobody waits for, and that is said again, or not missed, if it is lost."""

    def become_durable(self, durability: Durability, now: Now) -> None:
        """Nothing to do."""

    def fail(self, code: str, reason: str, now: Now) -> None:
        """Nothing to undo."""


@dataclass(slots=True)
class Then:
    """Waits to do one thing or another: `done` when it is there, `failed` with code and reason when it is not."""

    done: Callable[[Now], None]
    failed: Callable[[str, str], None]

    def become_durable(self, durability: Durability, now: Now) -> None:
        """Do what waits for it."""
        self.done(now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        """Do what is to be done then."""
        self.failed(code, reason)


class Reader(Protocol):
    """Who asked the journal for records or for a place."""

    def take_records(self, records: Sequence[PlacedRecord], now: Now) -> None:
        """The records that were asked for, from the position on."""
        ...

    def miss_range(self, code: str, next_sequence: int, now: Now) -> None:
        """Nothing below `next_sequence` can be had."""
        ...


class Locator(Protocol):
    """Who asked the journal for a place by time."""

    def take_place(self, sequence: int, now: Now) -> None:
        """The first sequence appended at or after the time that was asked for."""
        ...


class Asking(Protocol):
    """A request of a session, by a principal."""

    @property
    def session(self) -> int:
        """Whose request it is."""
        ...

    @property
    def principal(self) -> str:
        """Who that is."""
        ...


class Counts:
    """What happened since the process began, for the figures: publications, batches, and bytes of records pushed."""

    __slots__ = (
        "clock_behind_us",
        "dead_letters",
        "duplicate_batches",
        "publications",
        "pushed_size",
        "refused_batches",
    )

    def __init__(self) -> None:
        self.clock_behind_us = 0
        """How far the clock lay behind the append time of the batch that came last."""
        self.publications = 0
        self.duplicate_batches = 0
        self.refused_batches = 0
        self.pushed_size = 0
        self.dead_letters = 0


class Orders:
    """Owns the effects of the event that is being handled, and who waits for which token."""

    __slots__ = ("_next_token", "asker", "counts", "effects", "locators", "readers", "waiters")

    def __init__(self) -> None:
        self._next_token = 1
        self.asker: str | None = None
        """The principal whose request is being handled; None where the event does not say so."""
        self.counts = Counts()
        self.effects: list[object] = []
        self.waiters: dict[int, Waiter] = {}
        self.readers: dict[int, Reader] = {}
        self.locators: dict[int, Locator] = {}

    def take_effects(self) -> list[object]:
        """What was ordered since the last call, in order."""
        effects, self.effects = self.effects, []
        return effects

    def note_owner(self, event: Asking, what: str, name: str, stream: str, epoch: int, before: str) -> None:
        """Somebody has a name that was `before`'s: a take-over, if that is another principal and the name not new."""
        if next_owner(event.principal, "") != before and (before or epoch > 1):
            who = {"session": event.session, "principal": event.principal, "from": before}
            self.say(Note("info", "taken-over", {**who, "what": what, "name": name, "stream": stream, "epoch": epoch}))

    def say(self, effect: object) -> None:
        """Order `effect`."""
        self.effects.append(effect)

    def refuse(
        self, session: int, code: str, message: str, request: int = 0, is_final: bool = True, **details: object
    ) -> None:
        """Refuse a session's request, with a code and a sentence that says what to do."""
        self.effects.append(Refuse(session, code, message, details, request, is_final))

    def tell_deleted(self, session: int, stream: str) -> None:
        """The stream on which the session hung was deleted."""
        self.refuse(session, "stream-deleted", f"stream {stream!r} was deleted")

    def end_former(self, session: int, what: str) -> None:
        """The same owner goes on by another session: if this one still has a link, its client has to hear of that."""
        message = f"{what} was attached again with the same incarnation, by another channel, and this one has ended"
        self.refuse(session, "attached-again", f"{message}: attach again to go on with this one")

    def append(
        self,
        entries: Sequence[Entry],
        waiter: Waiter,
        is_synced: bool = False,
        payer: str | None = None,
        is_freeing: bool = False,
    ) -> None:
        """Append `entries` to the journal; `waiter` hears of it, if `is_synced` when no power cut can take it back."""
        token = self._token()
        self.waiters[token] = waiter
        self.effects.append(AppendRequested(token, entries, is_synced, payer, is_freeing))

    def append_fact(
        self, fact: Fact, waiter: Waiter, now: Now, is_synced: bool = False, payer: str | None = None
    ) -> None:
        """Append one fact to the journal; `waiter` hears of it, if `is_synced` when no power cut can take it back.

        It goes on the share of whoever asked; where the event does not say who that is, on the share of `payer`.
        """
        entries = (fact_entry(encode_fact(fact), now.wall_us),)
        payer = payer if self.asker is None else self.asker
        self.append(entries, waiter, is_synced, payer, isinstance(fact, StreamTrimmed | StreamDeleted))

    def read(self, stream_id: int, position: int, size_max: int, reader: Reader) -> None:
        """Ask the journal for the records from `position` on."""
        token = self._token()
        self.readers[token] = reader
        self.effects.append(ReadRequested(token, stream_id, position, size_max))

    def locate(self, stream_id: int, append_time_us: int, locator: Locator) -> None:
        """Ask the journal for the first sequence appended at or after a time."""
        token = self._token()
        self.locators[token] = locator
        self.effects.append(LocateRequested(token, stream_id, append_time_us))

    def _token(self) -> int:
        token = self._next_token
        self._next_token += 1
        return token
