"""The outbox: a source's publications stay here, in order, until the stream has taken them; each is offered until then.

                granted                     refused
    DETACHED ────────────► ATTACHED ──────────────────────► REWINDING
        ▲  ▲                  ▲  ▲                              │ every offer was answered
        │  └── link lost ─────┘  └──────────────────────────────┤
        │                     ▲            for now              ▼
        └── link lost         └──── rest is over ─────────── RESTING
    any ── fenced, or refused for good ──► STOPPED

DETACHED   Nobody to offer to. What is in doubt is kept.
ATTACHED   What is cut is offered at once.
REWINDING  A batch was refused, so all behind it will be. Nothing is offered until every offer has its answer.
RESTING    The node could not store it for now, or is too busy. What is in doubt is offered again afterwards.
STOPPED    Final. What is in doubt stays in doubt, and is never offered again.

Invariants
    (1) Batches in doubt are consecutive: each begins behind the one before it; the first, behind the last one taken.
    (2) What was offered on this attachment is a prefix of what is in doubt.
    (3) A publication has one number for ever; a batch is cut anew only behind a number that the node names.
    (4) A batch leaves only when the node has said that it was taken, in a receipt or when the source attached again.
    (5) The size in doubt exceeds the window by at most one batch.
An anonymous source (source id 0) counts from 1 on each attachment: there the numbers on the wire are shifted, and what
was in doubt may be doubled.
Source: docs/internals/DESIGN.md, "Sources"; guarantees 2 to 4 and 7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from veredus.kernel.engine import Now
from veredus.kernel.errors import UNSTORED, Misuse, PeerFault
from veredus.kernel.events import DeadlineReached
from veredus.kernel.symbol import Symbol

from .batch import BatchHeader, Layout, sign_batch
from .cutting import Cutting, Publications, halves_of
from .outbox_exchange import (
    BatchRejected,
    Delay,
    Demand,
    Detached,
    Effect,
    Event,
    GiveUp,
    Granted,
    Offer,
    OutboxSettings,
    Published,
    Settle,
    Spoil,
    Stopped,
    Taken,
)

__all__ = [
    "BatchRejected",
    "Delay",
    "Demand",
    "Detached",
    "Effect",
    "Event",
    "GiveUp",
    "Granted",
    "Offer",
    "Outbox",
    "OutboxSettings",
    "Phase",
    "Published",
    "Settle",
    "Spoil",
    "Stopped",
    "Taken",
]

REST_NS = 50_000_000
REST_NS_MAX = 5_000_000_000


class Phase(Symbol):
    """See the module."""

    DETACHED = "detached"
    ATTACHED = "attached"
    REWINDING = "rewinding"
    RESTING = "resting"
    STOPPED = "stopped"


@dataclass(slots=True)
class _Batch:
    first: int
    last: int
    header: BatchHeader
    record: bytearray


class Outbox:
    """Owns the batches of one source that are in doubt; see the module."""

    __slots__ = (
        "_batches",
        "_cut_ns",
        "_cutting",
        "_duplicate_to",
        "_effects",
        "_gap_behind",
        "_granted",
        "_is_spoiled",
        "_now",
        "_offered_count",
        "_refusal",
        "_rest_ns",
        "_rest_until_ns",
        "_settings",
        "_shift",
        "_unanswered_count",
        "last_number",
        "phase",
        "size",
        "taken_number",
    )

    def __init__(self, settings: OutboxSettings) -> None:
        """An outbox that is not attached yet."""
        self.phase = Phase.DETACHED
        self.last_number = 0
        """The number given last; known from the first grant on."""
        self.taken_number = 0
        """Everything up to here is in the stream."""
        self.size = 0
        """Bytes of records in doubt."""
        self._settings = settings
        self._cutting = Cutting(settings.codec)
        self._batches: deque[_Batch] = deque()
        self._offered_count = 0
        self._unanswered_count = 0
        self._granted: Granted | None = None
        self._duplicate_to = 0
        self._is_spoiled = False
        self._shift = 0
        self._refusal: BatchRejected | None = None
        self._gap_behind = -1
        """Behind which number the node missed something, when it has taken nothing since; -1 for none."""
        self._cut_ns = 0
        self._rest_ns = REST_NS
        self._rest_until_ns = 0
        self._now = Now(0, 0)
        self._effects: list[Effect] = []

    # ── what the owner asks ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def batch_count(self) -> int:
        """How many publications a full batch holds at most."""
        count_max = self._settings.batch_count
        return count_max if self._granted is None else min(count_max, self._granted.limits.count_max)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in doubt."""
        return not self._batches

    @property
    def _takes_more(self) -> bool:
        """Whether the next publications could be cut and offered."""
        has_room = self.size < self._settings.window_size
        return self.phase is Phase.ATTACHED and has_room and not self._is_spoiled

    def demand(self, now: Now) -> Demand:
        """What to give next, if there is anything."""
        if not self._takes_more:
            return Demand.NOTHING
        if len(self._batches) < self._settings.eager_count:
            return Demand.ANY
        return Demand.ANY if now.monotonic_ns >= self._cut_ns + self._settings.linger_ns else Demand.FULL

    def deadline(self) -> int | None:
        if self.phase is Phase.RESTING:
            return self._rest_until_ns
        if not self._takes_more:
            return None
        linger_end_ns = self._cut_ns + self._settings.linger_ns
        is_lingering = len(self._batches) >= self._settings.eager_count and self._now.monotonic_ns < linger_end_ns
        return linger_end_ns if is_lingering else None

    def handle(self, event: Event, now: Now) -> Sequence[Effect]:
        self._now = now
        effects: list[Effect] = []
        self._effects = effects
        _TABLE[self.phase][type(event)](self, event)
        return effects

    # ── attach ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self, event: Granted) -> None:
        """Forget what the node has, sign the rest anew if it goes by other ids now, and offer it again."""
        before, self._granted = self._granted, event
        is_anonymous = event.source_id == 0 and not event.is_stage
        self.detach(Detached())
        if before is None:
            self.last_number = self.taken_number = event.resume_number
        elif not is_anonymous and not self._learn_last(event):
            return
        self._duplicate_to = max(self._duplicate_to, event.last_number)
        self._shift = self.taken_number if is_anonymous else 0
        if is_anonymous or before is None or _ids_of(before) != _ids_of(event):
            for batch in self._batches:
                self._sign(batch, event)
        self.phase = Phase.ATTACHED
        self._offer_waiting()

    def _learn_last(self, granted: Granted) -> bool:
        """The node has the source up to there; whether that can be."""
        last = granted.last_number
        if last > max(self.last_number, self._duplicate_to):
            message = (
                f"the node has numbers up to {last} of this source, and this publisher has published only up to"
                f" {self.last_number}"
            )
            self._give_up("foreign", f"{message}: another publisher uses the name of its source", last)
            return False
        if last < self.taken_number:
            message = f"number {self.taken_number} was acknowledged, and now the node has only numbers up to {last}"
            self._give_up("lost", f"the node has lost acknowledged publications: {message}", last)
            return False
        while self._batches and self._batches[0].last <= last:
            batch = self._pop()
            self._settle(batch, 0, batch.last <= self._duplicate_to, granted.durability)
        return True

    def _sign(self, batch: _Batch, granted: Granted) -> None:
        """Sign under the ids granted now, in memory of its own: the old one may still be in somebody's hands."""
        batch.header = batch.header._replace(
            stream_id=granted.stream_id,
            source_id=granted.source_id,
            epoch=granted.epoch,
            first_number=batch.first - self._shift,
        )
        batch.record = bytearray(batch.record)
        sign_batch(batch.record, batch.header)

    # ── cut and offer ────────────────────────────────────────────────────────────────────────────────────────────────

    def cut(self, event: Published) -> None:
        """Number, encode, sign and offer what was published, in as many batches as the limits ask for."""
        granted = self._granted
        if self._is_spoiled:
            raise Misuse("spoiled", f"the publisher received an invalid message as number {self.last_number + 1}")
        if granted is None:
            raise Misuse("not-attached", "the source is not attached yet: wait until it is attached before publishing")
        publications, token = event.publications, event.token
        try:
            self._cut_batches(publications, token, granted)
        except PeerFault as fault:
            self._is_spoiled = True
            self._effects.append(Spoil(self.last_number + 1, fault.code, fault.message))
        self._cut_ns = self._now.monotonic_ns
        if self.phase is Phase.ATTACHED:
            self._offer_waiting()

    def _cut_batches(self, publications: Publications, token: bytes, granted: Granted) -> None:
        count, step = len(publications), self.batch_count
        for start in range(0, count, step):
            end = min(start + step, count)
            part = publications if end - start == count else publications.part(start, end)
            self._cut_batch(part, token if end == count else b"", granted)

    def _cut_batch(self, publications: Publications, token: bytes, granted: Granted) -> None:
        count, first = len(publications), self.last_number + 1
        header = BatchHeader(
            Layout.ROWS, 0, 0, 0, count, granted.stream_id, granted.source_id, granted.epoch, count,
            first - self._shift, 0, 0,
        )  # fmt: skip
        made = self._cutting.record_of(publications, header, token, self._now.wall_us, granted.limits)
        if made is None:
            self._cut_batch(publications.part(0, count // 2), b"", granted)
            self._cut_batch(publications.part(count // 2, count), token, granted)
            return
        self._push(_Batch(first, first + count - 1, *made))

    def _push(self, batch: _Batch) -> None:
        self.last_number = batch.last
        self._batches.append(batch)
        self.size += len(batch.record)

    def _pop(self) -> _Batch:
        batch = self._batches.popleft()
        self.size -= len(batch.record)
        self._offered_count = max(0, self._offered_count - 1)
        self.taken_number = max(self.taken_number, batch.last)
        return batch

    def _offer_waiting(self) -> None:
        for index in range(self._offered_count, len(self._batches)):
            self._effects.append(Offer(self._batches[index].record))
            self._unanswered_count += 1
        self._offered_count = len(self._batches)

    def _split(self, last: int) -> None:
        """Cut the batch that holds `last` and more in two: what is up to there, and the rest with the token."""
        holding = (index for index, batch in enumerate(self._batches) if batch.first <= last < batch.last)
        index = next(holding, None)
        if index is None:
            return
        batch = self._batches[index]
        del self._batches[index]
        self.size -= len(batch.record)
        head, tail = halves_of(batch.record, batch.header, last - batch.first + 1)
        for half, first in ((tail, last + 1), (head, batch.first)):
            header, record = half
            self._batches.insert(index, _Batch(first, first + header.count - 1, header, record))
            self.size += len(record)

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def confirm(self, event: Taken) -> None:
        """What was taken is in doubt no longer."""
        self._unanswered_count -= 1
        last = event.last_number + self._shift
        self._rest_ns = REST_NS
        self._gap_behind = -1
        while self._batches and self._batches[0].last <= last:
            batch = self._pop()
            sequence = event.first_sequence if batch.last == last else 0
            self._settle(batch, sequence, event.is_duplicate, event.durability)
        self._rewind_when_answered()

    def _settle(self, batch: _Batch, sequence: int, is_duplicate: bool, durability: int) -> None:
        self._effects.append(Settle(batch.first, batch.last, sequence, is_duplicate, durability))

    def reject(self, event: BatchRejected) -> None:
        """Offer no more until every offer was answered; the first refusal is the one that counts."""
        self._unanswered_count -= 1
        if self.phase is Phase.ATTACHED:
            self.phase = Phase.REWINDING
            self._refusal = event
        elif self._refusal is not None and event.first_number < self._refusal.first_number:
            self._refusal = event
        self._rewind_when_answered()

    def _rewind_when_answered(self) -> None:
        refusal = self._refusal
        if self.phase is not Phase.REWINDING or self._unanswered_count > 0 or refusal is None:
            return
        self._refusal = None
        self._offered_count = 0
        last = refusal.last_number + self._shift
        if refusal.code == "straddles" and last >= self.taken_number:
            # What lies before that batch is offered again, too: its receipts may be on their way, or lost.
            self._split(last)
        elif refusal.code in UNSTORED or refusal.code == "too-busy":
            self._effects.append(Delay(refusal.code, refusal.message))
            self._rest_until_ns = self._now.monotonic_ns + self._rest_ns
            self._rest_ns = min(2 * self._rest_ns, REST_NS_MAX)
            self.phase = Phase.RESTING
            return
        elif refusal.code != "gap" or not self._may_be_late(last):
            self._give_up(refusal.code, refusal.message, last)
            return
        self.phase = Phase.ATTACHED
        self._offer_waiting()

    def _may_be_late(self, last: int) -> bool:
        """Whether a gap behind `last` can be what was overtaken or repeated on the way, and not what the node forgot.

        It forgot what it acknowledged if it says so twice, and has taken nothing in between.
        """
        may_be_late = last >= self.taken_number or last != self._gap_behind
        self._gap_behind = last
        return may_be_late

    def end_rest(self, event: DeadlineReached) -> None:
        """Offer again what is in doubt."""
        if self._now.monotonic_ns >= self._rest_until_ns:
            self.phase = Phase.ATTACHED
            self._offer_waiting()

    # ── leave ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def detach(self, event: Detached) -> None:
        """Answers that had not come will not come."""
        self.phase = Phase.DETACHED
        self._offered_count = self._unanswered_count = 0
        self._refusal = None

    def stop(self, event: Stopped) -> None:
        """Offer nothing any more."""
        self.detach(Detached())
        self.phase = Phase.STOPPED

    def _give_up(self, code: str, message: str, last: int) -> None:
        self.stop(Stopped())
        self._effects.append(GiveUp(code, message, last))

    def ignore(self, event: Event) -> None:
        """Nothing follows from it here."""

    def forbid(self, event: Published) -> None:
        """A source that has stopped publishes no more."""
        raise Misuse("stopped", "this source has stopped and accepts no more publications")

    def check(self) -> None:
        expected = self.taken_number + 1
        for batch in self._batches:
            assert batch.first == expected, "(1)"
            assert batch.header.first_number == batch.first - self._shift, "(3)"
            expected = batch.last + 1
        assert expected == self.last_number + 1, "(1)"
        assert 0 <= self._offered_count <= len(self._batches), "(2)"
        assert self.size == sum(len(batch.record) for batch in self._batches), "(5)"


def _ids_of(granted: Granted) -> tuple[int, int, int]:
    return granted.stream_id, granted.source_id, granted.epoch


_DETACHED: dict[type, Callable[..., None]] = {
    Granted: Outbox.attach,
    Published: Outbox.cut,
    Taken: Outbox.ignore,
    BatchRejected: Outbox.ignore,
    Detached: Outbox.ignore,
    Stopped: Outbox.stop,
    DeadlineReached: Outbox.ignore,
}
_ATTACHED = _DETACHED | {
    Taken: Outbox.confirm,
    BatchRejected: Outbox.reject,
    Detached: Outbox.detach,
}
_TABLE: dict[Phase, dict[type, Callable[..., None]]] = {
    Phase.DETACHED: _DETACHED,
    Phase.ATTACHED: _ATTACHED,
    Phase.REWINDING: _ATTACHED,
    Phase.RESTING: _ATTACHED | {DeadlineReached: Outbox.end_rest},
    Phase.STOPPED: dict.fromkeys(_DETACHED, Outbox.ignore) | {Published: Outbox.forbid},
}
