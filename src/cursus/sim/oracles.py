"""The oracles: what was promised, against what a node was seen to say. Each names the guarantee that it watches.

    taken           what was acknowledged is in the stream, and stays there                              (1, 4)
    once            no identity stands in a stream twice, and a sequence has the same bytes for ever     (2, 6)
    order           per source, numbers follow one another without a hole, epochs never fall             (1, 7)
    delivered       what matches reaches every subscription that covered it, in order                    (1)
    settled         what is durably settled is never pushed again, and nothing else is ever settled      (1)
    marked          what may have been pushed before is marked as redelivered                            (1)
    matching        nothing before the start, nothing that does not match                                (1)
    fenced          an older epoch is never acknowledged once a newer one was granted                    (7)
    committed       stages are visible whole, contiguous, once, and only if somebody asked               (8)
    damage          a gap is told only where something was trimmed or damaged                            (6)

They stand at the streams floor, so a lost answer does not blind them. Sequences that nobody was pushed are learned by
the audit that ends each world: a reading of every stream from its floor to its head.
Source: the design, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cursus.kernel.engine import Now
from cursus.streams.exchange import (
    BatchOffered,
    CommitRequested,
    ConfirmCommitted,
    ConfirmSettled,
    ConfirmTaken,
    GrantRun,
    GrantSource,
    GrantSubscription,
    Push,
    PushGap,
    RunOpenRequested,
    SettleMode,
    SettleRequested,
    SourceAttachRequested,
    SubscribeRequested,
)

from .commits import Commits
from .content import TASTES, Identity, Row, body_of, key_of, seen_rows
from .world import Violation, World


@dataclass(slots=True)
class StreamView:
    """What is known of one stream."""

    name: str
    rows: dict[int, Row] = field(default_factory=dict)
    places: dict[Identity, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    """The greatest number acknowledged, by source."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The newest epoch granted, by source."""
    head: int = 0
    """The greatest sequence that anybody was told of."""
    floor: int = 1
    """The greatest floor that anybody asked for."""

    def learn(self, sequence: int, row: Row) -> None:
        """A row was seen at a place."""
        known = self.rows.get(sequence)
        if known is not None and known != row:
            raise Violation("once", f"{self.name}/{sequence} was {known.identity}, now it is {row.identity}")
        place = self.places.get(row.identity)
        if place is not None and place != sequence:
            raise Violation("once", f"{row.identity} stands at {place} and at {sequence} of {self.name}")
        if row.body != body_of(row.identity) or row.key != key_of(row.identity):
            raise Violation("once", f"{self.name}/{sequence}: the bytes of {row.identity} are not what was offered")
        self.rows[sequence] = row
        self.places[row.identity] = sequence
        self.head = max(self.head, sequence)


@dataclass(slots=True)
class SessionView:
    """One session of a subscriber: where it began, and what it was pushed."""

    position: int
    pushed: list[int] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    excused: dict[int, None] = field(default_factory=dict)
    """Sequences that it need not have been pushed, since they were settled by then."""


@dataclass(slots=True)
class SubscriptionView:
    """What is known of one durable subscription, or of one ephemeral session."""

    stream: StreamView
    name: str
    taste: int
    start: int = 0
    is_durable: bool = True
    sessions: list[SessionView] = field(default_factory=list)
    pushed: dict[int, None] = field(default_factory=dict)
    requested: dict[int, None] = field(default_factory=dict)
    """Sequences whose settling was asked for."""
    requested_to: int = 0
    """Everything up to here was asked for, in order."""
    floor: int = 0
    settled: dict[int, None] = field(default_factory=dict)
    """Above the floor, settled durably."""

    def is_settled(self, sequence: int) -> bool:
        """Whether it was confirmed that this is settled durably."""
        return sequence <= self.floor or sequence in self.settled

    def is_asked(self, sequence: int) -> bool:
        """Whether anybody asked to settle this."""
        return sequence <= self.requested_to or sequence in self.requested


class Oracles:
    """Owns the views of one world, and judges each thing that its node says."""

    def __init__(self, world: World) -> None:
        """Of a world in which nothing has been said yet."""
        self._world = world
        self.streams: dict[str, StreamView] = {}
        self.subscriptions: dict[tuple[str, str, str], SubscriptionView] = {}
        self.commits = Commits()
        self.may_damage = False
        """Whether something may not be readable just now."""
        self._sources: dict[int, SourceAttachRequested] = {}
        self._epochs: dict[int, int] = {}
        self._subscribers: dict[int, SubscribeRequested] = {}
        self._views: dict[int, tuple[SubscriptionView, SessionView]] = {}
        self._runs: dict[int, str] = {}

    def stream(self, name: str) -> StreamView:
        """The view of a stream."""
        return self.streams.setdefault(name, StreamView(name))

    # ── the witness ──────────────────────────────────────────────────────────────────────────────────────────────────

    def boot(self) -> None:
        """Sessions of the process before are over."""
        for sessions in (self._sources, self._epochs, self._subscribers, self._views, self._runs):
            sessions.clear()

    def hear(self, fact: Any, now: Now) -> None:
        """What the floor was told."""
        match fact:
            case SourceAttachRequested(session):
                self._sources[session] = fact
            case SubscribeRequested(session):
                self._subscribers[session] = fact
            case SettleRequested(session, ranges):
                self._hear_settle(session, ranges)
            case RunOpenRequested(session):
                self._runs[session] = fact.sink
            case CommitRequested():
                self.commits.ask(fact)
            case BatchOffered():
                self._world.counts["offers"] += 1
            case _:
                pass

    def see(self, effect: Any, now: Now) -> None:
        """What the floor said."""
        match effect:
            case GrantSource(session):
                self._see_source(session, effect)
            case ConfirmTaken(session, last):
                self._see_taken(session, last, effect)
            case GrantSubscription(session):
                self._see_subscription(session, effect)
            case Push(session):
                self._see_push(session, effect)
            case PushGap(session, first, next_sequence, code):
                self._see_gap(session, first, next_sequence, code)
            case ConfirmSettled(session, floor, ranges):
                self._see_settled(session, floor, ranges)
            case GrantRun(session, _, commit_id):
                self.commits.see_run(self._runs[session], commit_id)
            case ConfirmCommitted():
                self.commits.see(effect)
            case _:
                pass

    # ── the way in ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _see_source(self, session: int, grant: GrantSource) -> None:
        asked = self._sources[session]
        if not asked.source:
            return
        stream = self.stream(asked.stream)
        taken = stream.taken.get(asked.source, 0)
        if grant.last_number < taken:
            raise Violation("taken", f"{asked.source} was told {taken}, and now {grant.last_number}, of {asked.stream}")
        if grant.epoch < stream.epochs.get(asked.source, 0):
            raise Violation("fenced", f"epoch {grant.epoch} was granted to {asked.source} after a newer one")
        if grant.token_number > grant.last_number:
            raise Violation("taken", f"the token of {asked.source} speaks up to {grant.token_number}")
        if grant.token and grant.token != str(grant.token_number).encode():
            raise Violation("taken", f"{asked.source} got token {grant.token!r} for number {grant.token_number}")
        stream.taken[asked.source] = grant.last_number
        stream.epochs[asked.source] = grant.epoch
        self._epochs[session] = grant.epoch

    def _see_taken(self, session: int, last: int, taken: ConfirmTaken) -> None:
        asked = self._sources.get(session)
        if asked is None or not asked.source:
            return
        stream = self.stream(asked.stream)
        if self._epochs.get(session, 0) < stream.epochs.get(asked.source, 0):
            raise Violation("fenced", f"{asked.source} of an older epoch was told that {last} is taken")
        self._world.counts["taken"] += 1
        if taken.is_duplicate:
            self._world.counts["duplicates"] += 1
        stream.taken[asked.source] = max(last, stream.taken.get(asked.source, 0))

    # ── the way out ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _see_subscription(self, session: int, grant: GrantSubscription) -> None:
        asked = self._subscribers[session]
        stream = self.stream(asked.stream)
        stream.head = max(stream.head, grant.head)
        key = (
            (asked.stream, asked.subscriber, asked.name)
            if asked.subscriber
            else (asked.stream, "", str(len(self.subscriptions)))
        )
        view = self.subscriptions.get(key) if asked.subscriber else None
        if view is None:
            taste = next(i for i, taste in enumerate(TASTES) if asked.filter is None or taste.filter == asked.filter)
            view = SubscriptionView(stream, "/".join(key[1:]), taste, grant.position, bool(asked.subscriber))
            self.subscriptions[key] = view
        first = SessionView(grant.position)
        for sequence in view.settled:
            first.excused[sequence] = None
        view.sessions.append(first)
        view.floor = max(view.floor, grant.position - 1)
        self._views[session] = (view, first)

    def _see_push(self, session: int, push: Push) -> None:
        view, current = self._views[session]
        stream = view.stream
        wants = TASTES[view.taste].wants
        try:
            rows = list(seen_rows(push.buffers))
        except (ValueError, KeyError) as error:
            raise Violation("damage", f"{view.name} was pushed something unsound: {error}") from error
        self._world.counts["pushed"] += len(rows)
        for sequence, row in rows:
            stream.learn(sequence, row)
            where = f"{stream.name}/{sequence} ({row.identity})"
            if sequence < current.position or (current.pushed and sequence <= current.pushed[-1]):
                raise Violation("delivered", f"{view.name} was pushed {where} out of order")
            if not wants(row.identity):
                raise Violation("matching", f"{view.name} was pushed {where}, which it does not want")
            if view.is_durable and view.is_settled(sequence):
                raise Violation("settled", f"{view.name} was pushed {where} again, though it was settled")
            if view.is_durable and sequence in view.pushed and sequence > push.redelivered_to:
                raise Violation("marked", f"{view.name} was pushed {where} again, and not told so")
            current.pushed.append(sequence)
            view.pushed[sequence] = None

    def _see_gap(self, session: int, first: int, next_sequence: int, code: str) -> None:
        view, current = self._views[session]
        if code == "damaged" and not self.may_damage:
            raise Violation("damage", f"{view.stream.name}: {first} to {next_sequence - 1} are said to be damaged")
        if code == "trimmed" and next_sequence > view.stream.floor:
            raise Violation("damage", f"{view.stream.name}: {first} to {next_sequence - 1} are said to be trimmed")
        self._world.counts[f"gap.{code}"] += 1
        current.gaps.append((first, next_sequence - 1))

    def _hear_settle(self, session: int, ranges: tuple[tuple[int, int], ...]) -> None:
        if session not in self._views:
            return
        view, current = self._views[session]
        is_ordered = self._subscribers[session].mode == SettleMode.IN_ORDER
        for first, last in ranges:
            if is_ordered:
                view.requested_to = max(view.requested_to, last)
            for sequence in range(first, last + 1):
                view.requested[sequence] = None
                current.excused[sequence] = None

    def _see_settled(self, session: int, floor: int, ranges: tuple[tuple[int, int], ...]) -> None:
        view, _ = self._views[session]
        if floor < view.floor:
            raise Violation("settled", f"{view.name} was told floor {view.floor}, and now {floor}")
        self._world.counts["settled"] += 1
        view.floor = floor
        view.settled = {s: None for first, last in ranges for s in range(first, last + 1)}

    # ── the audit ────────────────────────────────────────────────────────────────────────────────────────────────────

    def judge(self) -> None:
        """Everything is known now: hold every view against every other."""
        for stream in self.streams.values():
            self._judge_stream(stream)
            self.commits.judge(stream.name, stream.rows, stream.floor)
        for view in self.subscriptions.values():
            self._judge_subscription(view)

    def _judge_stream(self, stream: StreamView) -> None:
        numbers: dict[str, tuple[int, int]] = {}
        for sequence in sorted(stream.rows):
            row = stream.rows[sequence]
            who, number = row.identity
            if not row.epoch or sequence < stream.floor:
                continue
            last, epoch = numbers.get(who, (number - 1 if stream.floor > 1 else 0, 0))
            if number != last + 1:
                raise Violation("order", f"{stream.name}: {who} goes from {last} to {number} at sequence {sequence}")
            if row.epoch < epoch:
                raise Violation("fenced", f"{stream.name}: {who} goes back from epoch {epoch} to {row.epoch}")
            numbers[who] = (number, row.epoch)
        for who, taken in stream.taken.items():
            last, _ = numbers.get(who, (0, 0))
            if last < taken and stream.floor == 1:
                raise Violation("taken", f"{stream.name}: {who} was told {taken}, but only {last} are there")

    def _judge_subscription(self, view: SubscriptionView) -> None:
        stream, wants = view.stream, TASTES[view.taste].wants
        for session in view.sessions:
            last = session.pushed[-1] if session.pushed else 0
            pushed = set(session.pushed)
            for sequence in range(session.position, last):
                row = stream.rows.get(sequence)
                if row is None or sequence in pushed or sequence in session.excused or not wants(row.identity):
                    continue
                if not view.is_asked(sequence) and not any(a <= sequence <= b for a, b in session.gaps):
                    raise Violation(
                        "delivered", f"{view.name} was never pushed {stream.name}/{sequence} ({row.identity})"
                    )
        if not view.is_durable:
            return
        for sequence in range(view.start, view.floor + 1):
            row = stream.rows.get(sequence)
            if row is None or sequence < stream.floor or view.is_asked(sequence) or not wants(row.identity):
                continue
            if not any(a <= sequence <= b for session in view.sessions for a, b in session.gaps):
                raise Violation("settled", f"{view.name} never settled {stream.name}/{sequence}, but it is settled")

    def missing_of(self, view: SubscriptionView) -> int:
        """The first sequence that a durable subscription should have been pushed by now and was not, 0 for none."""
        wants = TASTES[view.taste].wants
        for sequence in sorted(view.stream.rows):
            if sequence < max(view.start, view.stream.floor) or sequence in view.pushed:
                continue
            if wants(view.stream.rows[sequence].identity) and not any(
                a <= sequence <= b for session in view.sessions for a, b in session.gaps
            ):
                return sequence
        return 0
