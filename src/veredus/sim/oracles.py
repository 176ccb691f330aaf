"""The oracles: what was promised, against what a node was seen to say. Each names the guarantee that it watches.

    taken           what was acknowledged is in the stream, and stays there                              (1, 4)
    once            no identity stands in a stream twice, and a sequence has the same bytes for ever     (2, 6)
    order           per source, numbers follow one another without a hole, epochs never fall             (1, 7)
    delivered       what matches reaches every subscription that covered it, in order                    (1)
    settled         what is durably settled is never pushed again, and nothing else is ever settled      (1)
    marked          what may have been pushed before is marked as redelivered                            (1)
    matching        nothing before the start, nothing that does not match                                (1)
    parked          what was handed out as often as it may be is parked, once; nothing else is           (1)
    redriven        dead letters that were moved back are there in their order, each once                (2, 4)
    fenced          an older epoch is never acknowledged once a newer one was granted                    (7)
    committed       stages are visible whole, contiguous, once, and only if somebody asked               (8)
    damage          what is missing was trimmed, or is damaged and was named                             (6)
    deleted         a stream that was said to be deleted never comes back; another has its name          (1)
    changed         who knew what was lost is told from where on sequences mean something else           (6)
    pinned          retention takes nothing that a durable cursor still needs                            (1)
    altered         what was altered of how a stream is kept is so, behind every restart                 (3, 6)
    rights          who may not do what it asks for is told so, and nothing else, by every answer        (security)
    recovered       a new process knows all that the one before it said                                  (3, 6)

They stand at the streams floor, so a lost answer does not blind them. Sequences that nobody was pushed are learned by
the audit that ends each world: a reading of every stream from its floor to its head.

Two things make a node forget without breaking its word, and then the oracles forget with it (`recovered`): the power
was cut under weak durability, which takes a suffix of the journal and no more; or the disk damaged what the journal
remembers, and recovery named that. Source: docs/reference/guarantees.md.
"""

from __future__ import annotations

from typing import Any

from veredus.kernel.engine import Now
from veredus.streams.engine import StreamsEngine
from veredus.streams.exchange import (
    AdminRequested,
    AnswerAdmin,
    BatchOffered,
    CommitRequested,
    ConfirmCommitted,
    ConfirmFilter,
    ConfirmSettled,
    ConfirmTaken,
    Fence,
    FilterChangeRequested,
    GrantRun,
    GrantSource,
    GrantStage,
    GrantSubscription,
    Push,
    PushGap,
    Refuse,
    RefuseBatch,
    RunOpenRequested,
    SessionClosed,
    SettleMode,
    SettleRequested,
    SourceAttachRequested,
    SubscribeRequested,
    TokenStoreRequested,
)
from veredus.streams.stream import Stream

from .alterations import Alterations
from .audit import at_place
from .content import EVERY_TASTE, Taste, seen_rows, taste_of
from .incoming import WayIn
from .owners import Owners
from .rights import Trespasses, Wards
from .takeovers import Takeovers
from .trying import Trying
from .views import SessionView, StreamView, SubscriptionView, is_within
from .world import Violation, World


class Oracles(WayIn):
    """Owns the views of one world, and judges each thing that its node says."""

    def __init__(self, world: World) -> None:
        """Of a world in which nothing has been said yet."""
        super().__init__(world)
        self.may_damage = False
        """Whether something may not be readable just now."""
        self.rotten: dict[int, list[tuple[int, int]]] = {}
        """By stream id: sequences whose bytes on the disk were damaged, or whose place there was."""
        self.is_rotten = False
        """Whether anything on the disk was damaged."""
        self.is_memory_rotten = False
        """Whether anything but publications was."""
        self._subscribers: dict[int, SubscribeRequested] = {}
        self._wishes: dict[tuple[str, str, str], list[Taste]] = {}
        """Tastes that were asked for of subscriptions that nobody has been granted, by stream, subscriber and name."""
        self._views: dict[int, tuple[SubscriptionView, SessionView]] = {}
        self._runs: dict[int, RunOpenRequested] = {}
        self._granted: dict[int, None] = {}
        """Sessions that have a run."""
        self._stages: dict[int, int] = {}
        self._trespasses = Trespasses()
        self._owners = Owners(world)
        self._alterations = Alterations()
        self._wards = Wards(world)
        self._takeovers = Takeovers()
        self._trying = Trying(self._views)
        self._watchers = (
            self._trespasses, self._owners, self._alterations, self._wards, self._takeovers, self._trying,
        )  # fmt: skip

    # ── the witness ──────────────────────────────────────────────────────────────────────────────────────────────────

    def boot(self) -> None:
        """Sessions of the process before are over."""
        for sessions in (*self.sessions_in, self._subscribers, self._views, self._runs, self._stages, self._granted):
            sessions.clear()
        for watcher in self._watchers:
            watcher.clear()

    def hear(self, fact: Any, now: Now) -> None:
        """What the floor was told."""
        for watcher in self._watchers:
            watcher.hear(fact)
        match fact:
            case BatchOffered(session) | TokenStoreRequested(session):
                self.hear_offer(session, fact)
            case SessionClosed(session):
                self.hear_closed(session)
                for sessions in (self._stages, self._views, self._granted):
                    sessions.pop(session, None)
            case SourceAttachRequested(session):
                self.asking_sources[session] = fact
            case SubscribeRequested(session):
                self._hear_subscribe(session, fact)
            case SettleRequested(session, ranges):
                self._hear_settle(session, ranges)
            case FilterChangeRequested(session, wanted, position) if session in self._views:
                view, current = self._views[session]
                view.ask_taste(taste_of(wanted))
                current.asked.append((taste_of(wanted), position))
            case RunOpenRequested(session):
                self._runs[session] = fact
            case CommitRequested():
                self.commits.ask(fact)
            case AdminRequested(session, request, _, "stream.delete", {"name": str(name)}):
                self.hear_deletion(session, request, name)
            case _:
                pass

    def see(self, effect: Any, now: Now) -> None:
        """What the floor said."""
        for watcher in self._watchers:
            watcher.see(effect)
        match effect:
            case ConfirmTaken(session, last):
                self.see_taken(session, last, effect)
            case Push(session) | PushGap(session) if session not in self._views:
                raise Violation("delivered", f"session {session} was told something after it had left: {effect}")
            case Push(session):
                self._see_push(session, effect)
            case ConfirmSettled(session, floor, ranges) if session in self._views:
                self._see_settled(session, floor, ranges)
            case GrantSource(session):
                self.see_source(session, effect)
            case GrantSubscription(session):
                self._see_subscription(session, effect)
            case PushGap(session, first, next_sequence, code):
                self._see_gap(session, first, next_sequence, code)
            case ConfirmFilter(session, position) if session in self._views:
                view, current = self._views[session]
                view.change(position, current.confirm_taste(position))
            case Refuse(session, code) if session in self._views:
                view, current = self._views[session]
                if code == "too-many-filters" and current.asked and not current.may_be_refused:
                    view.refuse_taste(current.asked.pop(0)[0])
                else:
                    current.may_be_refused = current.may_be_refused or bool(current.asked)
            case GrantRun(session, epoch, commit_id):
                self._granted[session] = None
                self.commits.see_run(self._runs[session], epoch, commit_id)
            case Fence(session):
                self._granted.pop(session, None)
            case GrantStage(session, stage):
                self._stages[session] = stage
            case RefuseBatch(session) if session in self._stages:
                self.commits.refused_stages[self._stages[session]] = None
            case ConfirmCommitted():
                self.commits.see(effect)
            case AnswerAdmin(session, request):
                self.see_answer(session, request)
            case _:
                pass

    def renewed(self) -> None:
        """The node has ended what its rules do not allow any more."""
        self._wards.renewed()

    def note(self, event: str, fields: dict[str, object]) -> None:
        """What recovery or the journal reported."""
        if event == "lease-over":
            self._see_lapsed(str(fields["sink"]), bool(fields["is_removed"]))
        if event == "letter-gone" and (stream := self.current.get(str(fields["stream"]))):
            subscriber, name = str(fields["subscription"]).split("/")
            sequence = int(str(fields["sequence"]))
            self._judge_gone(stream, sequence, sequence, str(fields["cause"]))
            self.subscriptions[stream.incarnation, subscriber, name].lose_letter(sequence)
        if event in ("journal-damaged", "journal-segment-missing") and not self.is_rotten and not self.may_damage:
            raise Violation("damage", f"the journal says {event}, and it is not so: {fields}")

    def _see_lapsed(self, sink: str, is_removed: bool) -> None:
        """A sink's stages went, since nobody was there for them, and maybe the sink itself."""
        there = [session for session, asked in self._runs.items() if asked.sink == sink and session in self._granted]
        if there:
            raise Violation("committed", f"the stages of {sink} went with their lease, and session {there[0]} is there")
        self.commits.lapsed[sink] = None
        if is_removed:
            self.commits.removed[sink] = None
            self._owners.forget("sink", sink)

    # ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def recovered(self, floor: StreamsEngine, may_forget: bool, is_shaken: bool, durable_ns: int) -> None:
        """A new process read the journal; hold what it knows against what the ones before it said.

        `may_forget`: a suffix of the journal may be lost, but for what was there at `durable_ns`. `is_shaken`: what
        lies behind the checkpoint was damaged, and that was said.
        """
        tables = floor.tables
        self.was_shaken = self.was_shaken or is_shaken
        self._owners.recovered(floor, may_forget or is_shaken)
        self._alterations.recovered(floor, may_forget or is_shaken)
        self.commits.recovered(tables, may_forget or is_shaken)
        by_incarnation = {stream.incarnation: stream for stream in tables.streams.values()}
        for view in self.streams.values():
            view.is_shaken = view.is_shaken or is_shaken
            stream = by_incarnation.get(view.incarnation)
            if view.is_gone and stream is not None and not (may_forget or is_shaken):
                raise Violation("deleted", f"{view.name} was deleted, and is there again")
            if view.is_gone and stream is None:
                continue
            if stream is None:
                if not (view.is_dying or may_forget or is_shaken):
                    raise Violation("recovered", f"stream {view.name} is gone")
                view.is_gone = True
            elif may_forget or is_shaken:
                if may_forget and stream.head_durable < view.head_before(durable_ns):
                    raise Violation("recovered", f"{view.name} ends at {stream.head_durable}: too much was lost")
                view.is_gone = False
                self.current[view.name] = view  # a newer one of its name may be forgotten
                if not (may_forget or self.is_memory_rotten):
                    self._hold_facts(view, stream)
                self._forget(view, stream)
            else:
                self._hold(view, stream)
        for key, known in list(self.subscriptions.items()):
            stream = by_incarnation.get(known.stream.incarnation)
            if known.is_durable and stream is not None and not known.stream.is_gone:
                self._recover_subscription(key, known, stream, may_forget or is_shaken)
            elif not known.is_durable:
                del self.subscriptions[key]
                self.judge_subscription(known)

    def _hold(self, view: StreamView, stream: Stream) -> None:
        where = f"stream {view.name}"
        if stream.head_durable < view.head:
            raise Violation("recovered", f"{where} ends at {stream.head_durable}, and was said to reach {view.head}")
        if stream.floor > view.floor:
            raise Violation(
                "recovered", f"{where} begins at {stream.floor}, and nobody asked for more than {view.floor}"
            )
        for name, last in view.taken.items():
            source = stream.sources.get(name)
            known = 0 if source is None else source.last_durable
            if known < last:
                raise Violation("recovered", f"{where} knows {name} up to {known}, and said that {last} was taken")
        self._hold_facts(view, stream)

    def _hold_facts(self, view: StreamView, stream: Stream) -> None:
        """What was journaled by itself is there, also when publications beside it were damaged."""
        for name, epoch in view.epochs.items():
            if name not in stream.sources or stream.sources[name].epoch < epoch:
                raise Violation("recovered", f"stream {view.name} forgot epoch {epoch} of {name}")
        for (incarnation, subscriber, label), known in self.subscriptions.items():
            if known.is_durable and incarnation == view.incarnation:
                kept = stream.subscriptions.get((subscriber, label))
                if kept is None or kept.epoch < known.epoch:
                    raise Violation("recovered", f"stream {view.name} forgot epoch {known.epoch} of {known.name}")
                # What is parked is one append with the cursor behind it, and goes with it.
                floor, _ = kept.cursor
                if floor < min(known.floor, stream.head_durable) and not known.attempts_max:
                    raise Violation("recovered", f"{known.name} stands at {floor}, and was told {known.floor}")

    def _forget(self, view: StreamView, stream: Stream) -> None:
        view.forget_above(stream.head_durable)
        view.floor = max(view.floor, stream.floor)
        sources = stream.sources
        view.taken = {name: sources[name].last_durable for name in view.taken if name in sources}
        view.epochs = {name: sources[name].epoch for name in view.epochs if name in sources}
        view.tokens.clear()

    def _recover_subscription(
        self, key: tuple[bytes, str, str], view: SubscriptionView, stream: Stream, may_forget: bool
    ) -> None:
        known = stream.subscriptions.get(key[1:])
        if may_forget:
            if known is None:
                del self.subscriptions[key]
            else:
                view.forget(*known.cursor, stream.head_durable)
                view.know_taste(taste_of(known.filter), is_sure=False)
                view.epoch = known.epoch
            return
        if known is None:
            raise Violation("recovered", f"subscription {view.name} of {view.stream.name} is gone")
        floor, ranges = known.cursor
        taste = taste_of(known.filter)
        if taste not in view.candidates:
            raise Violation("recovered", f"{view.name} has a filter again that was changed: {known.filter}")
        view.know_taste(taste, is_sure=True)
        if known.epoch < view.epoch:
            raise Violation("recovered", f"{view.name} forgot epoch {view.epoch} of its owner")
        if floor < view.floor:
            raise Violation("recovered", f"{view.name} stands at {floor}, and was told {view.floor}")
        for sequence in view.settled:
            if sequence > floor and view.is_asked(sequence) and not is_within(sequence, ranges):
                raise Violation("recovered", f"{view.name} forgot that {sequence} is settled")
        self._trying.recovered(view, known)
        # What was settled and not confirmed before the node died stays settled, and nobody may ask for it again.
        kept = [s for s in view.requested if s <= floor or is_within(s, ranges)]
        view.settled.update((s, None) for s in kept if s > view.floor)

    def trims(self, stream: Stream, floor: int) -> None:
        """The node's retention lets go of everything below `floor`."""
        view = self.streams.get(stream.incarnation)
        if view is None:
            self.trimmed[stream.incarnation] = floor
            return
        config = stream.config
        self._world.counts["retained"] += 1
        if config.retention_count and not config.retention_age_s and not config.retention_size:
            if floor > stream.head_durable - config.retention_count + 1:
                raise Violation("pinned", f"{view.name}: fewer than {config.retention_count} are kept")
        if not self.lag_size_max and not view.is_shaken:
            for known in self.subscriptions.values():
                if known.stream is view and known.is_durable:
                    self._judge_pin(known, view, floor)
        view.floor = max(view.floor, floor)

    def _judge_pin(self, known: SubscriptionView, view: StreamView, floor: int) -> None:
        if known.attempts_max:
            return
        wants_all = known.tastes == [EVERY_TASTE]
        for sequence in range(max(known.start, known.floor + 1, view.floor_asked), floor):
            row = view.rows.get(sequence)
            wanted = wants_all or (row is not None and known.must_want(row.identity))
            if wanted and not known.is_asked(sequence) and not known.is_told_missing(sequence):
                raise Violation("pinned", f"{known.name} needs {view.name}/{sequence}, which retention takes")

    # ── the way out ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _hear_subscribe(self, session: int, fact: SubscribeRequested) -> None:
        self._subscribers[session] = fact
        if not fact.subscriber:
            return
        stream = self.current.get(fact.stream)
        view = self.subscriptions.get((stream.incarnation, fact.subscriber, fact.name)) if stream is not None else None
        if view is not None:
            view.asking.append(fact.incarnation)
        if fact.filter is None:
            return
        taste = taste_of(fact.filter)
        if view is not None:
            view.ask_taste(taste)
        if view is None or view.stream.is_gone or self._world.may_forget(fact.stream):
            self._wishes.setdefault((fact.stream, fact.subscriber, fact.name), []).append(taste)

    def _see_subscription(self, session: int, grant: GrantSubscription) -> None:
        asked = self._subscribers[session]
        stream = self.stream_of(asked.stream, grant.stream_incarnation, grant.stream_id)
        if asked.stream_incarnation not in (b"", grant.stream_incarnation):
            raise Violation("deleted", f"{asked.subscriber} asked for another {asked.stream} than it was granted")
        if asked.stream_incarnation:
            self._judge_term(stream, asked.term, grant)
        stream.term = max(stream.term, grant.term)
        stream.floor_told = max(stream.floor_told, grant.floor)
        stream.note_head(grant.head, self._world.now_ns)
        if grant.floor > stream.floor and not stream.is_shaken:
            raise Violation("taken", f"{stream.name} begins at {grant.floor}, asked for was {stream.floor}")
        asked_taste = None if asked.filter is None else taste_of(asked.filter)
        key = (
            (stream.incarnation, asked.subscriber, asked.name)
            if asked.subscriber
            else (stream.incarnation, "", str(session))
        )
        view = self.subscriptions.get(key)
        if view is None:
            taste = asked_taste or EVERY_TASTE
            view = SubscriptionView(stream, "/".join(key[1:]), [taste], (taste,), course=[(0, (taste,))])
            view.start, view.is_durable = grant.position, bool(asked.subscriber)
            self.subscriptions[key] = view
            for wish in self._wishes.pop((asked.stream, asked.subscriber, asked.name), ()):
                # Somebody asked for it before anybody was told that it is there: the journal may have that.
                view.ask_taste(wish)
        if grant.epoch < view.epoch or 0 < asked.epoch < view.epoch:
            presented = f"{asked.epoch} was presented, {grant.epoch} granted"
            raise Violation("fenced", f"{view.name} has epoch {view.epoch}: {presented}")
        view.epoch = grant.epoch
        view.hand_on_attempts(asked.incarnation, asked.attempts_max)
        view.parked_to = asked.parked_to
        is_ordered = asked.mode == SettleMode.IN_ORDER
        first = SessionView(grant.position, view.hand_on(asked.incarnation, asked_taste), is_ordered)
        first.excused = dict.fromkeys(view.settled)
        view.sessions.append(first)
        view.floor = max(view.floor, grant.position - 1)
        self._views[session] = (view, first)

    def _judge_term(self, stream: StreamView, known: int, grant: GrantSubscription) -> None:
        """Who knew what was lost since is told from where on its sequences mean something else.

        Not where a fact is damaged, which is named: it may be the one that says so.
        """
        if self.is_memory_rotten:
            return
        for term, first in stream.losses:
            if 0 < known <= term and not 0 < grant.changed_from <= first:
                told = f"knew term {known}, and was told {grant.changed_from} of term {grant.term}"
                raise Violation("changed", f"{stream.name} lost what it had from {first} on; who asked {told}")

    def _see_push(self, session: int, push: Push) -> None:
        view, current = self._views[session]
        stream = view.stream
        try:
            rows = seen_rows(push.buffers)
        except (ValueError, KeyError) as error:
            raise Violation("damage", f"{view.name} was pushed something unsound: {error}") from error
        self._world.counts["pushed"] += len(rows)
        if stream.is_gone:
            raise Violation("deleted", f"{view.name} was pushed something of {stream.name}, which was deleted")
        last = current.pushed[-1] if current.pushed else current.position - 1
        may_want_all = all(EVERY_TASTE in tastes for _, tastes in current.tastes)
        for sequence, row in rows:
            stream.learn(sequence, row)
            if sequence <= last:
                raise Violation("delivered", f"{view.name} was pushed {at_place(stream, sequence, row)} out of order")
            if not may_want_all and not current.may_want(sequence, row.identity):
                raise Violation("matching", f"{view.name} was pushed {at_place(stream, sequence, row)}, unwanted")
            if view.is_durable:
                self._trying.judge(view, sequence, "is pushed")
                if view.is_settled(sequence):
                    raise Violation(
                        "settled", f"{view.name} was pushed {at_place(stream, sequence, row)}, which was settled"
                    )
                if sequence in view.pushed and sequence > push.redelivered_to:
                    raise Violation(
                        "marked", f"{view.name} was pushed {at_place(stream, sequence, row)} again, and not told"
                    )
            last = sequence
            current.pushed.append(sequence)
            view.pushed[sequence] = None
        stream.note_head(last, self._world.now_ns)

    def _see_gap(self, session: int, first: int, next_sequence: int, code: str) -> None:
        view, current = self._views[session]
        self._judge_gone(view.stream, first, next_sequence - 1, code)
        self._world.counts[f"gap.{code}"] += 1
        current.gaps.append((first, next_sequence - 1))

    def _judge_gone(self, stream: StreamView, first: int, last: int, code: str) -> None:
        if code == "damaged" and not self.may_damage and not stream.is_shaken:
            rotten = self.rotten.get(self.ids[stream.incarnation], ())
            if not all(is_within(sequence, rotten) for sequence in range(first, last + 1)):
                raise Violation("damage", f"{stream.name}: {first} to {last} are said to be damaged, and are not")
        if code == "trimmed" and last >= stream.floor:
            raise Violation("damage", f"{stream.name}: {first} to {last} are said to be trimmed")
        if code == "damaged":
            (stream.unread if self.may_damage else stream.holes).append((first, last))

    def _hear_settle(self, session: int, ranges: tuple[tuple[int, int], ...]) -> None:
        if session not in self._views:
            return
        view, current = self._views[session]
        is_ordered = self._subscribers[session].mode == SettleMode.IN_ORDER
        for first, last in ranges:
            if last > view.stream.head:
                continue
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
        settled = {s: None for first, last in ranges for s in range(first, last + 1)}
        for sequence in (*range(view.floor + 1, floor + 1), *settled):
            self.judge_settled(view, sequence)
        told_before = {s: None for s in view.settled if s > floor}
        view.floor, view.settled = floor, told_before | settled
