"""Sinks: runs fence one another, stages gather rows unseen, and one commit record shows them all at once.

    run opened ──► stage opened ──► rows (durable, invisible) ──► COMMIT record ──► visible, contiguous, for ever
         │                                    │
         └── a newer run: fenced, its open stages dropped

Invariants
    (1) A commit is one record: after any crash all of its stages are visible, or none.
    (2) (sink, commit id) commits once; asked again it answers what the first one did, and refuses other contents.
    (3) An open stage holds back no reader: it has no sequences.
    (4) No stage is open for a commit that is over, whoever is late: it is done, or its run has given it up. The latter
        is known while this process lasts, and a stage for no commit in particular is none of these.
Source: docs/internals/DESIGN.md, "Sinks"; guarantee 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from veredus.journal.exchange import StagesPublished, StagesUnwanted
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused

from .contents import check_commits_kept, check_repeated, check_rows_kept, contents_of
from .exchange import (
    AnswerAdmin,
    CommitRequested,
    ConfirmCommitted,
    Durability,
    GrantStage,
    Refuse,
    StageOpenRequested,
    StagesDropRequested,
)
from .facts import (
    Committed,
    CommittedStage,
    Contents,
    CursorMoved,
    Fact,
    MergedBefore,
    RunOpened,
    SinkRemoved,
    StageOpened,
    StagesDropped,
    Woven,
)
from .moving import Moving, place_of_cursor, sequence_of
from .orders import Orders, Unheard
from .publishing import Publishing
from .rights import PUBLISH, on_stream
from .runs import Runs
from .stream import Stream
from .tables import Run, Stage, Tables
from .weave import completed

_Held: TypeAlias = list[tuple[Stream, CursorMoved]]
"""Subscriptions that nothing else may change before a commit is answered."""


class Committing:
    """Changes runs and stages as sinks ask for it."""

    __slots__ = ("_moving", "_orders", "_publishing", "_runs", "_tables")

    def __init__(self, tables: Tables, orders: Orders, publishing: Publishing, moving: Moving, runs: Runs) -> None:
        self._tables = tables
        self._orders = orders
        self._publishing = publishing
        self._moving = moving
        self._runs = runs

    # ── stages ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def open_stage(self, event: StageOpenRequested, stream: Stream, now: Now) -> None:
        """A new stage of the present run for `stream`; or the one with this key, to be written by this session now."""
        run = self._runs.joined(event)
        if run is None:
            return
        self._check_not_over(run, event.commit_id)
        known = self._stage_with(event, stream, run)
        if known is not None:
            _check_same_commit(known, event.commit_id)
            if known.session not in (0, event.session):
                self._orders.end_former(known.session, f"stage {known.stage} of sink {known.sink!r}")
            self._publishing.open_stage(event.session, stream, known)
            self._orders.append((), _StageGranted(self, event.session, known, is_new=False))
            return
        self._runs.check_room_for_stage(run, now)
        # A return to a copy may take stages back: who still knows the number of one would commit another's rows.
        number = now.number_after(self._tables.next_stage - 1)
        stage = Stage(number, event.sink, event.run_epoch, stream.stream_id, event.stage_key, commit_id=event.commit_id)
        self._tables.next_stage = number + 1
        self._tables.add_stage(stage)
        self._publishing.open_stage(event.session, stream, stage)
        self._runs.begin_lease(stage.sink, now)
        fact = StageOpened(number, stage.sink, stage.run_epoch, stage.stream_id, stage.stage_key, stage.commit_id)
        self._orders.append_fact(fact, _StageGranted(self, event.session, stage, is_new=True), now)

    def is_kept(self, event: StageOpenRequested) -> bool:
        """Whether a stage may be opened; asked before a stream is made for it. Where one is to be opened again that is
        not open any more, who asks is fenced by a newer run, or it raises `Refused("stage-closed")`. Its key tells its
        owner from others, who learn nothing here.
        """
        known = self._tables.open_stage(event.stage)
        if not event.stage or (known and not known.is_committing and known.stage_key == event.stage_key):
            return True
        if self._tables.newer_run(event.sink, event.run_epoch) is not None:
            return self._runs.joined(event) is not None
        message = (
            f"stage {event.stage} of sink {event.sink!r} is not open any more: it was committed or dropped, its"
            " stream was deleted, or the journal was put back to an older copy"
        )
        raise Refused("stage-closed", message, stage=event.stage)

    def _stage_with(self, event: StageOpenRequested, stream: Stream, run: Run) -> Stage | None:
        stage = run.attempts.get((event.stage_key, event.run_epoch, stream.stream_id))
        return None if stage is None or stage.is_committing else stage

    def _check_not_over(self, run: Run, commit_id: int) -> None:
        if 0 <= commit_id <= run.over_id:
            how = "done" if commit_id <= run.commit_id else "given up"
            raise Refused("stage-closed", f"commit {commit_id} of sink {run.sink!r} is {how}: nothing is staged for it")

    def grant_stage(self, session: int, stage: Stage) -> None:
        """The stage is in the journal: it is granted, unless its session is over by now or its stream is gone."""
        if not self._publishing.grant_stage(session, stage):
            return
        if self._tables.open_stage(stage.stage) is not stage:
            self._publishing.leave_stage(stage)
            self._publishing.end_stage(session, stage, "dropped while it was being opened")
            return
        self._orders.say(GrantStage(session, stage.stage, stage.stream_id, stage.count_durable))

    def drop_stages(self, event: StagesDropRequested, now: Now) -> None:
        """Drop the stages that are still open; the others are left alone. With a commit that is given up, all of it."""
        run = self._runs.own(event)
        if run is None:
            return
        stages = self._still_open(event)
        self._check_rights(event, [stream.name for stream in self._streams_of(stages).values()])
        run.given_up_id = max(run.given_up_id, event.commit_id)
        dropped = tuple(dict.fromkeys(stage.stage for stage in (*stages, *run.take_overdue())))
        self._runs.forget_stages(dropped)
        waiter = _Dropped(self, event.session, event.request, dropped)
        if dropped:
            self._orders.append_fact(StagesDropped(dropped), waiter, now)
        else:
            self._orders.append((), waiter)

    def _still_open(self, event: CommitRequested | StagesDropRequested) -> list[Stage]:
        """Those of the named stages that are open, of this sink, and not being committed."""
        named = (self._tables.open_stage(number) for number in dict.fromkeys(event.stages))
        return [stage for stage in named if stage and stage.sink == event.sink and not stage.is_committing]

    def _streams_of(self, stages: Iterable[Stage]) -> dict[int, Stream]:
        """The streams of open stages, by id, each once."""
        return {stage.stream_id: self._tables.streams_by_id[stage.stream_id] for stage in stages}

    def _check_rights(self, event: CommitRequested | StagesDropRequested, names: Iterable[str]) -> None:
        """Raise `Refused("forbidden")` unless the principal may write to each of these streams."""
        for name in names:
            self._tables.rights.check(event.session, event.principal, PUBLISH, on_stream(name, source=""))

    # ── commit ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, event: CommitRequested, now: Now) -> None:
        """Append the one record that shows the stages, unless this commit is there already."""
        run = self._runs.own(event)
        if run is None:
            return
        self._check_rights(event, [content.stream for content in event.contents])
        check_commits_kept(run, event)
        if event.commit_id == run.commit_id and not run.is_committing:
            check_repeated(run, self._contents_asked(event))
            self._orders.append((), _Repeated(self, event, run.detail))
            return
        if run.is_committing and event.commit_id == run.coming_id:
            self._orders.append((), _AskedAgain(self, event))
            return
        if event.commit_id < run.commit_id:
            message = (
                f"sink {run.sink!r} has committed {run.commit_id}, and {event.commit_id} is smaller: nothing was"
                " written. Has another driver of the same query committed meanwhile? Stop it, and start this one again."
                " Or was a checkpoint deleted, or an earlier one put back?"
            )
            raise Refused("commit-id-behind", message, commit_id=run.commit_id)
        if run.is_committing:
            raise Refused(
                "commit-under-way", f"commit {run.coming_id} of sink {run.sink!r} is not finished: wait for its answer"
            )
        stages = self._open_stages_of(event, event.stages)
        streams = self._streams_of(stages)
        self._check_rights(event, [stream.name for stream in streams.values()])
        check_rows_kept(stages, event)
        contents = contents_of(self._tables, stages, event.contents)
        named_count = max(len(contents), len(streams))
        self._runs.check_room_for_commit(run, named_count, now)
        held = self._hold(event, stages, now)
        wall_us = max([now.wall_us, *(stream.append_time_us for stream in streams.values())])
        placed: list[CommittedStage] = []
        for stage in stages:
            first, _ = streams[stage.stream_id].assign(stage.count_durable, wall_us)
            placed.append(CommittedStage(stage.stage, stage.stream_id, first, stage.count_durable))
            stage.is_committing = True
        run.is_committing, run.coming_id, run.coming_count = True, event.commit_id, named_count
        cursors, (weaves, merged) = tuple(move for _, move in held), _merges_in(event, placed)
        fact = Committed(
            run.sink, run.epoch, event.commit_id, tuple(placed), wall_us, cursors, contents, weaves, run.owner, merged
        )
        self._orders.append_fact(fact, _Committed(self, event, fact, held), now)

    def _contents_asked(self, event: CommitRequested) -> tuple[Contents, ...]:
        """What a commit that was done before is said to hold: by what it says, else by what was staged for it anew."""
        if event.contents:
            return contents_of(self._tables, None, event.contents)
        anew = self._open_stages_of(event, [stage.stage for stage in self._still_open(event)])
        return contents_of(self._tables, anew, ())

    def _hold(self, event: CommitRequested, stages: Sequence[Stage], now: Now) -> _Held:
        """Hold the subscriptions that move with the commit, all or none; where each will stand."""
        if not event.cursors:
            return []
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
                moved = place_of_cursor(move, stream.stream_id, first)
                self._moving.hold(event, stream, moved)
                held.append((stream, moved))
        except Refused:
            self._release(held, now, is_moved=False)
            raise
        return held

    def _release(self, held: _Held, now: Now, is_moved: bool) -> None:
        for stream, move in held:
            self._moving.release(stream, move, is_moved, now)

    def _open_stages_of(self, event: CommitRequested, numbers: Iterable[int]) -> list[Stage]:
        """These stages, each once. Raises `Refused`: `unknown-stage` and `stage-not-durable`."""
        stages: list[Stage] = []
        for number in dict.fromkeys(numbers):
            stage = self._tables.open_stage(number)
            if stage is None or stage.sink != event.sink or stage.run_epoch != event.run_epoch:
                message = f"stage {number} is not an open stage of this run of sink {event.sink!r}"
                raise Refused("unknown-stage", message, stage=number)
            if stage.count_durable != stage.count_assigned:
                message = f"stage {number} still has rows that are not durable: wait for their receipts"
                raise Refused("stage-not-durable", message, stage=number)
            stages.append(stage)
        return stages

    def committed(self, event: CommitRequested, fact: Committed, held: _Held, now: Now) -> None:
        """The commit is in the journal: show the rows, tell the sink."""
        run = self.show(fact)
        for name, _, _ in run.commit_streams:
            stream = self._tables.streams[name]
            self._publishing.touched[stream.stream_id] = stream
        self._release(held, now, is_moved=True)
        self._orders.counts.publications += sum(stage.count for stage in fact.stages)
        self._orders.say(ConfirmCommitted(event.session, event.request, fact.commit_id, False, run.detail))

    def show(self, fact: Committed) -> Run:
        """Make a commit's rows visible, live or in a replay; the run, which knows where they lie."""
        run = self._tables.runs.setdefault(fact.sink, Run(fact.sink))
        commit_streams = self._show_rows(fact)
        for woven in fact.weaves:
            if woven.stream_id in self._tables.streams_by_id:
                self._tables.streams_by_id[woven.stream_id].weave = woven.legs
        for before in fact.merged:
            if before.stream_id in self._tables.streams_by_id:
                stream = self._tables.streams_by_id[before.stream_id]
                stream.gone, stream.merged = before.gone, before.lives
        run.is_committing, run.coming_count = False, 0
        if fact.run_epoch > run.epoch:
            # What had opened the run was damaged: the commit tells of it.
            run.begin(fact.run_epoch, b"", fact.owner)
            self._tables.runs.note_owner(run)
        run.is_durable = True
        run.commit_id = fact.commit_id
        self._runs.forget_stages([left.stage for left in run.take_overdue()])
        run.contents = fact.contents
        run.commit_streams = commit_streams
        run.packed = b""
        return run

    def _show_rows(self, fact: Committed) -> tuple[tuple[str, int, int], ...]:
        """The stages' rows are their streams' now: what each stream has got, and where, in one piece."""
        streams = self._tables.streams_by_id
        self._tables.take_stages(stage.stage for stage in fact.stages)
        shown = [(one.stage, one.stream_id, one.first_sequence) for one in fact.stages if one.stream_id in streams]
        lost = [one.stage for one in fact.stages if one.stream_id not in streams]
        if shown:
            self._orders.say(StagesPublished(shown, fact.append_time_us))
        if lost:
            self._orders.say(StagesUnwanted(lost))
        spans: dict[int, tuple[int, int]] = {}
        for stage in fact.stages:
            first, count = spans.get(stage.stream_id, (stage.first_sequence, 0))
            spans[stage.stream_id] = first, count + stage.count
        touched: list[tuple[str, int, int]] = []
        for stream_id, (first, count) in spans.items():
            stream = streams.get(stream_id)
            if stream is not None:
                if count:
                    stream.tail.forget()
                    stream.become_durable(first + count - 1)
                stream.append_time_us = max(stream.append_time_us, fact.append_time_us)
                touched.append((stream.name, first, count))
        return tuple(touched)

    def commit_failed(
        self, event: CommitRequested, fact: Committed, held: _Held, code: str, reason: str, now: Now
    ) -> None:
        """The commit could not be journaled: its sequences are given back; its stages stay open as long as its run."""
        run = self._tables.runs[fact.sink]
        run.is_committing, run.coming_count = False, 0
        for placed in fact.stages:
            stream = self._tables.streams_by_id.get(placed.stream_id)
            if stream is not None and placed.count:
                stream.unassign(placed.first_sequence)
            stage = self._tables.open_stage(placed.stage)
            if stage is not None:
                stage.is_committing = False
                run.await_commit(stage)
        self._release(held, now, is_moved=False)
        self._runs.drop_open_stages(run)
        self._drop(tuple(stage.stage for stage in run.take_overdue()), now)
        message = f"the node could not store the commit ({reason}): nothing of it is visible; retry the commit later"
        self._orders.refuse(event.session, code, message, event.request, is_final=False)

    def repeat(self, event: CommitRequested, detail: bytes, now: Now) -> None:
        """The commit was there before; stages that a retry staged anew are garbage."""
        self._drop(tuple(stage.stage for stage in self._still_open(event)), now)
        self._orders.say(ConfirmCommitted(event.session, event.request, event.commit_id, True, detail))

    def _drop(self, stages: tuple[int, ...], now: Now) -> None:
        self._runs.forget_stages(stages)
        if stages:
            self._orders.append_fact(StagesDropped(stages), Unheard(), now)

    def commit_again(self, event: CommitRequested, now: Now) -> None:
        """The same commit was on its way to the journal, which has answered now."""
        try:
            self.commit(event, now)
        except Refused as refused:
            said = Refuse(event.session, refused.code, refused.message, refused.details, event.request, is_final=False)
            self._orders.say(said)

    # ── replay ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, fact: Fact) -> None:
        """Replay a fact about runs and stages."""
        match fact:
            case SinkRemoved() | RunOpened():
                self._runs.apply(fact)
            case StageOpened(number, sink, run_epoch, stream_id, stage_key, commit_id):
                self._tables.next_stage = max(self._tables.next_stage, number + 1)
                current = self._tables.runs.get(sink)
                is_present = current is not None and current.epoch == run_epoch
                is_over = current is not None and 0 <= commit_id <= current.over_id
                if is_present and not is_over and stream_id in self._tables.streams_by_id:
                    self._tables.add_stage(Stage(number, sink, run_epoch, stream_id, stage_key, commit_id=commit_id))
                else:
                    self._orders.say(StagesUnwanted((number,)))
            case StagesDropped(stages):
                self._runs.forget_stages(stages)
            case Committed():
                self.show(fact)
            case _:
                pass


def _check_same_commit(known: Stage, commit_id: int) -> None:
    if known.commit_id != commit_id:
        was, now = ("no commit in particular" if one < 0 else f"commit {one}" for one in (known.commit_id, commit_id))
        message = (
            f"stage {known.stage} has this key and is for {was}, not for {now}: open another, with a key of its own"
        )
        raise Refused("stage-key-used", message, commit_id=known.commit_id)


def _merges_in(
    event: CommitRequested, placed: Iterable[CommittedStage]
) -> tuple[tuple[Woven, ...], tuple[MergedBefore, ...]]:
    """The weaves of a commit where its stages lie, and what was merged into their streams; what a weave leaves out
    comes behind all else.
    """
    if not (event.weaves or event.merged):
        return (), ()
    at = {entry.stage: entry for entry in placed}
    weaves: list[Woven] = []
    for stage, named in event.weaves:
        first = at[stage].first_sequence
        starts = ((sequence_of(place, first), count) for place, count in named)
        legs = completed(((start, start + count - 1) for start, count in starts), first + at[stage].count - 1)
        weaves.append(Woven(at[stage].stream_id, legs))
    return tuple(weaves), tuple(MergedBefore(at[stage].stream_id, gone, lives) for stage, gone, lives in event.merged)


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
            self.committing._runs.forget_stages((self.stage.stage,))
        if self.stage.session == self.session:
            self.committing._publishing.leave_stage(self.stage)
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
        message = f"the node could not store that the stages are dropped ({reason}): drop them again later"
        self.committing._orders.refuse(self.session, code, message, self.request, is_final=False)


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
    detail: bytes

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.committing.repeat(self.event, self.detail, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.committing._orders.refuse(self.event.session, code, reason, self.event.request, is_final=False)


@dataclass(slots=True)
class _AskedAgain:
    """A commit that was asked for while it was on its way."""

    committing: Committing
    event: CommitRequested

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.committing.commit_again(self.event, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.committing._orders.refuse(self.event.session, code, reason, self.event.request, is_final=False)
