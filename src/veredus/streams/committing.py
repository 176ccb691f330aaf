"""Sinks: runs fence one another, stages gather rows unseen, and one commit record shows them all at once.

    run opened ──► stage opened ──► rows (durable, invisible) ──► COMMIT record ──► visible, contiguous, for ever
         │                                    │
         └── a newer run: fenced, its open stages dropped

Invariants
    (1) A commit is one record: after any crash all of its stages are visible, or none.
    (2) (sink, commit id) commits once; asked again it answers what the first one did.
    (3) An open stage holds back no reader: it has no sequences.
Source: the design, sections 2 ("stage → commit") and 6; guarantee 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from veredus.journal.exchange import StageDropped, StagePublished
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused
from veredus.kernel.names import check_incarnation, checked_name

from .exchange import (
    AdminRequested,
    AnswerAdmin,
    CommitRequested,
    ConfirmCommitted,
    CursorMove,
    Durability,
    Fence,
    GrantRun,
    GrantStage,
    Place,
    RunOpenRequested,
    StageOpenRequested,
    StagesDropRequested,
)
from .facts import (
    Committed,
    CommittedStage,
    CursorMoved,
    Fact,
    Origin,
    RunOpened,
    SinkRemoved,
    StageOpened,
    StagesDropped,
)
from .moving import Moving
from .orders import Orders, Unheard
from .publishing import Publishing
from .ranges import cursor_of
from .stream import Stream
from .tables import Run, Stage, Tables

_Held: TypeAlias = list[tuple[Stream, CursorMoved]]
"""Subscriptions that nothing else may change before a commit is answered."""


class Committing:
    """Changes runs and stages as sinks ask for it."""

    __slots__ = ("_moving", "_orders", "_publishing", "_tables")

    def __init__(self, tables: Tables, orders: Orders, publishing: Publishing, moving: Moving) -> None:
        self._tables = tables
        self._orders = orders
        self._publishing = publishing
        self._moving = moving

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def open_run(self, event: RunOpenRequested, now: Now) -> None:
        """Join the present run, or begin a new one that fences it."""
        checked_name("sink", event.sink)
        check_incarnation(event.incarnation)
        run = self._tables.runs.get(event.sink)
        if run is None:
            run = self._tables.runs[event.sink] = Run(event.sink)
        if event.epoch and event.epoch != run.epoch:
            self._orders.say(Fence(event.session, run.epoch, _fenced(event.sink, run.epoch)))
            return
        if event.epoch or (run.epoch and event.incarnation == run.incarnation):
            self._orders.append((), _RunGranted(self, event.session, run, run.epoch, is_new=False))
            return
        if event.incarnation in run.past:
            self._orders.say(Fence(event.session, run.epoch, _fenced(event.sink, run.epoch)))
            return
        run.begin(run.epoch + 1, event.incarnation)
        self.drop_open_stages(run)
        fact = RunOpened(run.sink, run.epoch, run.incarnation)
        self._orders.append_fact(fact, _RunGranted(self, event.session, run, run.epoch, is_new=True), now)

    def drop_open_stages(self, run: Run) -> None:
        """A newer run drops what older ones left open; a commit on its way keeps its own."""
        for stage in [s for s in self._tables.stages.values() if s.sink == run.sink and s.run_epoch < run.epoch]:
            if not stage.is_committing:
                self.forget_stage(stage.stage)

    def grant_run(self, session: int, run: Run, epoch: int) -> None:
        """The run is in the journal."""
        if run.epoch == epoch:
            detail = msgspec.msgpack.encode(run.commit_streams)
            self._orders.say(GrantRun(session, epoch, run.commit_id, detail))
        else:
            self._orders.say(Fence(session, run.epoch, _fenced(run.sink, run.epoch)))

    def _current(self, session: int, sink: str, run_epoch: int) -> Run | None:
        run = self._tables.runs.get(sink)
        if run is None:
            raise Refused("unknown-run", f"sink {sink!r} has no run here: open one first")
        if run.epoch != run_epoch:
            self._orders.say(Fence(session, run.epoch, _fenced(sink, run.epoch)))
            return None
        return run

    def remove_sink(self, event: AdminRequested, sink: str, now: Now) -> None:
        """Forget a sink that has nothing open: its commits stay, a repeated one would not be recognised any more."""
        run = self._tables.runs.get(sink)
        if run is None:
            raise Refused("unknown-sink", f"there is no sink {sink!r} here")
        if run.is_committing or any(stage.sink == sink for stage in self._tables.stages.values()):
            raise Refused("sink-in-use", f"sink {sink!r} has open stages: drop them, or begin a new run")
        self._orders.append_fact(SinkRemoved(sink), _SinkRemoved(self, event, sink), now)

    # ── stages ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def open_stage(self, event: StageOpenRequested, stream: Stream, now: Now) -> None:
        """A new stage of the present run for `stream`; or the one with this key, to be written by this session now."""
        if self._current(event.session, event.sink, event.run_epoch) is None:
            return
        known = self._stage_with(event, stream)
        if known is not None:
            self._publishing.leave_stage(known)
            self._orders.append((), _StageGranted(self, event.session, known, is_new=False))
            return
        if len(self._tables.stages) >= self._tables.limits.stages_max:
            raise Refused("too-many-stages", f"{len(self._tables.stages)} stages are open: commit or drop some")
        stage = Stage(self._tables.next_stage, event.sink, event.run_epoch, stream.stream_id, event.stage_key)
        self._tables.next_stage += 1
        self._tables.stages[stage.stage] = stage
        fact = StageOpened(stage.stage, stage.sink, stage.run_epoch, stage.stream_id, stage.stage_key)
        self._orders.append_fact(fact, _StageGranted(self, event.session, stage, is_new=True), now)

    def _stage_with(self, event: StageOpenRequested, stream: Stream) -> Stage | None:
        wanted = (event.stage_key, event.sink, event.run_epoch, stream.stream_id)
        for stage in self._tables.stages.values():
            if (stage.stage_key, stage.sink, stage.run_epoch, stage.stream_id) == wanted and not stage.is_committing:
                return stage
        return None

    def grant_stage(self, session: int, stage: Stage) -> None:
        """The stage is in the journal."""
        stream = self._tables.streams_by_id.get(stage.stream_id)
        if self._tables.stages.get(stage.stage) is not stage or stream is None:
            self._orders.refuse(session, "stage-closed", f"stage {stage.stage} was dropped while it was opened")
            return
        self._publishing.open_stage(session, stream, stage)
        self._orders.say(GrantStage(session, stage.stage, stage.stream_id, stage.count_durable))

    def forget_stage(self, stage: int) -> None:
        """The stage will never be seen."""
        if self._tables.stages.pop(stage, None) is not None:
            self._orders.say(StageDropped(stage))

    def drop_stages(self, event: StagesDropRequested, now: Now) -> None:
        """Drop the stages that are still open; the others are left alone."""
        if self._current(event.session, event.sink, event.run_epoch) is None:
            return
        dropped = tuple(
            number
            for number in dict.fromkeys(event.stages)
            if (stage := self._tables.stages.get(number)) and stage.sink == event.sink and not stage.is_committing
        )
        for number in dropped:
            self.forget_stage(number)
        waiter = _Dropped(self, event.session, event.request, dropped)
        if dropped:
            self._orders.append_fact(StagesDropped(dropped), waiter, now)
        else:
            self._orders.append((), waiter)

    # ── commit ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, event: CommitRequested, now: Now) -> None:
        """Append the one record that shows the stages, unless this commit is there already."""
        run = self._current(event.session, event.sink, event.run_epoch)
        if run is None:
            return
        if event.commit_id == run.commit_id and not run.is_committing:
            self._orders.append((), _Repeated(self, event, run.commit_streams))
            return
        if event.commit_id < run.commit_id:
            message = (
                f"sink {run.sink!r} committed {run.commit_id}, {event.commit_id} lies before it (a deleted checkpoint?)"
            )
            raise Refused("commit-id-behind", message, commit_id=run.commit_id)
        if run.is_committing:
            raise Refused("commit-under-way", f"sink {run.sink!r} is committing already: wait for the answer")
        stages = [self._open_stage_of(event, number) for number in dict.fromkeys(event.stages)]
        held = self._hold(event, stages, now)
        placed: list[CommittedStage] = []
        wall_us = now.wall_us
        for stage in stages:
            stream = self._tables.streams_by_id[stage.stream_id]
            first, append_time_us = stream.assign(stage.count_durable, now.wall_us)
            wall_us = max(wall_us, append_time_us)
            placed.append(CommittedStage(stage.stage, stage.stream_id, first, stage.count_durable))
            stage.is_committing = True
        for entry in placed:
            stream = self._tables.streams_by_id[entry.stream_id]
            stream.append_time_us = max(stream.append_time_us, wall_us)
        run.is_committing = True
        cursors = tuple(move for _, move in held)
        fact = Committed(run.sink, run.epoch, event.commit_id, tuple(placed), wall_us, cursors)
        self._orders.append_fact(fact, _Committed(self, event, fact, held), now)

    def _hold(self, event: CommitRequested, stages: Sequence[Stage], now: Now) -> _Held:
        """Hold the subscriptions that move with the commit, all or none; where each will stand."""
        firsts: dict[int, tuple[Stream, int]] = {}
        heads: dict[int, int] = {}
        for stage in stages:
            stream = self._tables.streams_by_id[stage.stream_id]
            head = heads.get(stream.stream_id, stream.head_assigned)
            firsts[stage.stage] = stream, head + 1
            heads[stream.stream_id] = head + stage.count_durable
        held: _Held = []
        try:
            for move in event.cursors:
                if move.stage not in firsts:
                    raise Refused("unknown-stage", f"stage {move.stage} is not part of the commit", stage=move.stage)
                stream, first = firsts[move.stage]
                moved = _placed(move, stream.stream_id, first)
                self._moving.hold(stream, moved)
                held.append((stream, moved))
        except Refused:
            self._release(held, now, is_moved=False)
            raise
        return held

    def _release(self, held: _Held, now: Now, is_moved: bool) -> None:
        for stream, move in held:
            self._moving.release(stream, move, is_moved, now)

    def _open_stage_of(self, event: CommitRequested, number: int) -> Stage:
        stage = self._tables.stages.get(number)
        if stage is None or stage.sink != event.sink or stage.run_epoch != event.run_epoch:
            raise Refused(
                "unknown-stage", f"stage {number} is not an open stage of this run of sink {event.sink!r}", stage=number
            )
        if stage.count_durable != stage.count_assigned:
            raise Refused(
                "stage-not-durable",
                f"stage {number} still has rows on their way: wait for their receipts",
                stage=number,
            )
        return stage

    def committed(self, event: CommitRequested, fact: Committed, held: _Held, now: Now) -> None:
        """The commit is in the journal: show the rows, tell the sink."""
        for stage in fact.stages:
            stream = self._tables.streams_by_id.get(stage.stream_id)
            if stream is not None:
                self._publishing.touched[stream.stream_id] = stream
        streams = self.show(fact)
        self._release(held, now, is_moved=True)
        self._orders.counts.publications += sum(stage.count for stage in fact.stages)
        self._orders.say(ConfirmCommitted(event.session, event.request, fact.commit_id, False, streams))

    def show(self, fact: Committed) -> tuple[tuple[str, int, int], ...]:
        """Make a commit's rows visible, live or in a replay; (stream, first sequence, count) for each stream that it
        touched.
        """
        run = self._tables.runs.setdefault(fact.sink, Run(fact.sink))
        touched: dict[str, tuple[int, int]] = {}
        for stage in fact.stages:
            self._tables.stages.pop(stage.stage, None)
            stream = self._tables.streams_by_id.get(stage.stream_id)
            if stream is None:
                self._orders.say(StageDropped(stage.stage))
                continue
            self._orders.say(StagePublished(stage.stage, stage.stream_id, stage.first_sequence, fact.append_time_us))
            if stage.count:
                stream.tail.forget()
                stream.become_durable(stage.first_sequence + stage.count - 1)
            stream.append_time_us = max(stream.append_time_us, fact.append_time_us)
            first, count = touched.get(stream.name, (stage.first_sequence, 0))
            touched[stream.name] = (first, count + stage.count)
        run.is_committing = False
        run.commit_id = fact.commit_id
        run.commit_streams = tuple((name, first, count) for name, (first, count) in touched.items())
        return run.commit_streams

    def commit_failed(
        self, event: CommitRequested, fact: Committed, held: _Held, code: str, reason: str, now: Now
    ) -> None:
        """The commit could not be journaled: its sequences are given back; its stages stay open as long as its run."""
        run = self._tables.runs[fact.sink]
        run.is_committing = False
        for placed in fact.stages:
            stream = self._tables.streams_by_id.get(placed.stream_id)
            if stream is not None and placed.count:
                stream.unassign(placed.first_sequence)
            stage = self._tables.stages.get(placed.stage)
            if stage is not None:
                stage.is_committing = False
        self._release(held, now, is_moved=False)
        self.drop_open_stages(run)
        message = f"the node could not store the commit ({reason}): commit again later, nothing of it is visible"
        self._orders.refuse(event.session, code, message, event.request, is_final=False)

    def repeat(self, event: CommitRequested, streams: tuple[tuple[str, int, int], ...], now: Now) -> None:
        """The commit was there before; stages that a retry staged anew are garbage."""
        restaged = tuple(
            number
            for number in dict.fromkeys(event.stages)
            if (stage := self._tables.stages.get(number)) and stage.sink == event.sink and not stage.is_committing
        )
        for number in restaged:
            self.forget_stage(number)
        if restaged:
            self._orders.append_fact(StagesDropped(restaged), Unheard(), now)
        self._orders.say(ConfirmCommitted(event.session, event.request, event.commit_id, True, streams))

    # ── replay ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, fact: Fact) -> None:
        """Replay a fact about runs and stages."""
        match fact:
            case SinkRemoved(sink):
                self._tables.runs.pop(sink, None)
            case RunOpened(sink, epoch, incarnation):
                run = self._tables.runs.setdefault(sink, Run(sink))
                run.begin(epoch, incarnation)
            case StageOpened(number, sink, run_epoch, stream_id, stage_key):
                self._tables.next_stage = max(self._tables.next_stage, number + 1)
                current = self._tables.runs.get(sink)
                if current is not None and current.epoch == run_epoch and stream_id in self._tables.streams_by_id:
                    self._tables.stages[number] = Stage(number, sink, run_epoch, stream_id, stage_key)
                else:
                    self._orders.say(StageDropped(number))
            case StagesDropped(stages):
                for number in stages:
                    self.forget_stage(number)
            case Committed():
                self.show(fact)
            case _:
                pass


def _placed(move: CursorMove, stream_id: int, first: int) -> CursorMoved:
    """Where the cursor will stand, the stage's rows beginning at `first`."""
    rows = _shifted(move.settled_rows, first)
    never = (*move.unwanted, *_shifted(move.unwanted_rows, first))
    floor, settled = cursor_of(move.floor, (*move.settled, *rows, *never))
    below, unwanted = cursor_of(move.start - 1, never)
    origins = tuple(
        Origin(incarnation, following, tuple((run, _sequence_of(place, first), count) for run, place, count in runs))
        for incarnation, following, runs in move.origins
    )
    return CursorMoved(
        stream_id, move.subscriber, move.name, move.opened_us, below + 1, floor, move.kept_from, settled, origins,
        move.is_removed, unwanted, move.left_us,
    )  # fmt: skip


def _sequence_of(place: Place, first: int) -> int:
    return place.sequence if place.row < 0 else first + place.row


def _shifted(rows: Iterable[tuple[int, int]], first: int) -> tuple[tuple[int, int], ...]:
    """Where rows of a stage lie that begins at `first`."""
    return tuple((first + a, first + b) for a, b in rows)


def _fenced(sink: str, epoch: int) -> str:
    return f"a newer run (epoch {epoch}) of sink {sink!r} has begun: this one must stop"


@dataclass(slots=True)
class _RunGranted:
    committing: Committing
    session: int
    run: Run
    epoch: int
    is_new: bool

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.committing.grant_run(self.session, self.run, self.epoch)

    def fail(self, code: str, reason: str, now: Now) -> None:
        if self.is_new and self.run.epoch == self.epoch:
            # The journal does not have it: whoever asks again gets another.
            self.run.incarnation = b""
        self.committing._orders.refuse(
            self.session, code, f"the node could not store the run ({reason}): try again later"
        )


@dataclass(slots=True)
class _SinkRemoved:
    committing: Committing
    event: AdminRequested
    sink: str

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.committing.apply(SinkRemoved(self.sink))
        self.committing._orders.say(AnswerAdmin(self.event.session, self.event.request, {"removed": True}))

    def fail(self, code: str, reason: str, now: Now) -> None:
        message = f"the node could not store the removal ({reason}): nothing has changed"
        self.committing._orders.refuse(self.event.session, code, message, self.event.request, is_final=False)


@dataclass(slots=True)
class _StageGranted:
    committing: Committing
    session: int
    stage: Stage
    is_new: bool

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.committing.grant_stage(self.session, self.stage)

    def fail(self, code: str, reason: str, now: Now) -> None:
        if self.is_new:
            self.committing.forget_stage(self.stage.stage)
        self.committing._orders.refuse(
            self.session, code, f"the node could not store the stage ({reason}): try again later"
        )


@dataclass(slots=True)
class _Dropped:
    committing: Committing
    session: int
    request: int
    stages: tuple[int, ...]

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.committing._orders.say(AnswerAdmin(self.session, self.request, {"dropped": list(self.stages)}))

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.committing._orders.refuse(
            self.session, code, f"the drop is not journaled ({reason})", self.request, is_final=False
        )


@dataclass(slots=True)
class _Committed:
    committing: Committing
    event: CommitRequested
    fact: Committed
    held: _Held

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.committing.committed(self.event, self.fact, self.held, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.committing.commit_failed(self.event, self.fact, self.held, code, reason, now)


@dataclass(slots=True)
class _Repeated:
    committing: Committing
    event: CommitRequested
    streams: tuple[tuple[str, int, int], ...]

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.committing.repeat(self.event, self.streams, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.committing._orders.refuse(self.event.session, code, reason, self.event.request, is_final=False)
