"""Runs of sinks: a newer one fences the older and drops what that left open.

Invariants
    (1) A session commits and drops stages of the run that it opened or joined, and of no other.
    (2) A sink is joined, and taken over, by the principal who owns it, or by who may take over.
    (3) A sink that no fact has made is in no table once the journal has refused it.
    (4) What a session asks of a run counts from when the journal has the run: until then it may come to nothing.
    (5) Where there is no room, the sinks without a name go first that nobody is there for, the oldest first.
    (6) No epoch is given twice, also after the sink was removed, and after the journal was put back to an older copy,
        unless runs begin more often than once a second: a new one is the wall clock in seconds, and at least one above
        the sink's last. Who has the epoch may join.
    (7) A run whose sink somebody has removed is not begun again by who comes late, while this process remembers it.
Source: docs/internals/DESIGN.md, "Sinks"; guarantees 7 and 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from veredus.journal.exchange import StagesUnwanted
from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused
from veredus.kernel.names import check_incarnation, checked_name

from .exchange import (
    AdminRequested,
    AnswerAdmin,
    CommitRequested,
    Durability,
    Fence,
    GrantRun,
    RunOpenRequested,
    StageOpenRequested,
    StagesDropRequested,
)
from .facts import RunOpened, SinkRemoved, StagesDropped
from .fencing import fenced_run
from .orders import Orders, Unheard
from .rights import next_owner, on_sink
from .room import Amounts, Room
from .shares import COMMITS, SINKS, STAGES
from .tables import Run, Tables

ENDED_MAX = 1_024
"""Runs that are remembered since somebody has removed their sink: whoever still opens them is seconds late."""


class Runs:
    """Changes the table of runs; knows which session has opened which."""

    __slots__ = (
        "_away", "_ended", "_granted", "_orders", "_room_for_commits", "_tables", "_there", "leases", "sessions",
    )  # fmt: skip

    def __init__(self, tables: Tables, orders: Orders) -> None:
        self._tables = tables
        self._orders = orders
        self._room_for_commits = Room(self._commits_left)
        self.sessions: dict[int, RunOpened] = {}
        """Whose run each session has opened or joined, or is about to."""
        self._granted: set[int] = set()
        """The sessions of them whose run the journal has."""
        self._there: dict[str, dict[int, None]] = {}
        """The sessions by sink."""
        self._away: dict[int, RunOpened] = {}
        """The sessions whose sink is about to be removed: they are there again if the journal refuses that."""
        self._ended: dict[tuple[str, bytes], None] = {}
        """The runs whose sink somebody has removed, by sink and incarnation, the newest last."""
        self.leases: Deadlines[str] = Deadlines()
        """When to see whether anybody is there for a sink: `Leases` does."""

    def open(self, event: RunOpenRequested, now: Now) -> None:
        """Join the present run, or begin a new one that fences it."""
        checked_name("sink", event.sink)
        check_incarnation(event.incarnation)
        run = self._tables.runs.get(event.sink)
        if run is not None:
            self.check_owner(event, run)
        if event.epoch > (0 if run is None else run.epoch):
            message = (
                f"there is no run {event.epoch} of sink {event.sink!r} any more: it was removed, or went when nobody"
                " was there for it, or the journal was put back to an older copy: write again, under a new run"
            )
            raise Refused("unknown-run", message)
        if not event.epoch and (event.sink, event.incarnation) in self._ended:
            raise Refused("unknown-run", _removed(event.sink))
        if run is None:
            self._check_room(event.principal, now)
            run = self._tables.runs[event.sink] = Run(event.sink, is_ephemeral=event.is_ephemeral)
        is_joined = event.epoch == run.epoch if event.epoch else event.incarnation == run.incarnation
        if not is_joined and (event.epoch or event.incarnation in run.past):
            self._fence(event.session, run)
            return
        before = run.owner
        if not is_joined:
            run.begin(now.number_after(run.epoch), event.incarnation, next_owner(event.principal, before))
            self._tables.runs.note_owner(run)
            if run.is_durable:
                self._change_owner(before, run.owner)
            self._orders.note_owner(event, "sink", run.sink, "", run.epoch, before)
            self.drop_open_stages(run)
        fact = RunOpened(run.sink, run.epoch, run.incarnation, run.owner, run.is_ephemeral)
        self._enter(event.session, fact)
        self.begin_lease(run.sink, now)
        waiter = _RunGranted(self, event.session, run, fact, before, is_new=not is_joined)
        if is_joined:
            self._orders.append((), waiter)
        else:
            self._orders.append_fact(fact, waiter, now)

    def check_owner(self, event: RunOpenRequested | StageOpenRequested | AdminRequested, run: Run) -> None:
        """Raise `Refused("forbidden")` unless the principal owns the sink, or may take over."""
        self._tables.rights.check_owner(event.session, event.principal, run.owner, on_sink(run.sink))

    # ── room ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_room(self, principal: str, now: Now) -> None:
        limits, runs, owner = self._tables.limits, self._tables.runs, next_owner(principal, "")
        if len(runs) >= limits.sinks_max and not self._make_room(None, now):
            message = f"this node has {len(runs)} sinks, its limit: remove some, or raise limits.sinks_max"
            raise Refused("too-many-sinks", message, sinks_max=limits.sinks_max)
        if len(runs.of(owner)) >= limits.sinks_per_principal_max and not self._make_room(owner, now):
            raise SINKS.refusal(owner, limits.sinks_per_principal_max)

    def check_room_for_stage(self, run: Run, now: Now) -> None:
        """Raise `Refused("too-many-stages")` when the node, or the sink's owner, has as many as may be."""
        limits, stages, owner = self._tables.limits, self._tables.stages, run.owner
        if len(stages) >= limits.stages_max and not self._make_room(None, now, is_staged=True):
            message = f"{len(stages)} stages are open, and this is the limit: commit or drop some"
            raise Refused("too-many-stages", message, stages_max=limits.stages_max)
        is_full = self._tables.stage_counts.get(owner, 0) >= limits.stages_per_principal_max
        if is_full and not self._make_room(owner, now, is_staged=True):
            raise STAGES.refusal(owner, limits.stages_per_principal_max)

    def check_room_for_commit(self, run: Run, named_count: int, now: Now) -> None:
        """Raise `Refused("commits-too-large")` where a commit that names so many streams leaves the sink's owner with
        more than may be kept.
        """
        wanted, removed_count = max(0, named_count - run.named_count), self._tables.removed_count
        left, _ = self._room_for_commits.take(run.owner, (wanted, 0), removed_count, now.monotonic_ns)
        COMMITS.check(run.owner, wanted, left, self._tables.limits.committed_streams_per_principal_max)

    def _commits_left(self, owner: str) -> Amounts:
        count = sum(run.named_count for run in self._tables.runs.of(owner))
        return self._tables.limits.committed_streams_per_principal_max - count, 0

    def _change_owner(self, before: str, after: str) -> None:
        """A sink is another's now: the one has room for commits, the other perhaps none."""
        if before != after:
            for owner in (before, after):
                self._room_for_commits.forget(owner)

    def _make_room(self, owner: str | None, now: Now, is_staged: bool = False) -> bool:
        """Forget the ephemeral sink, of this owner or of anybody (None), that was left first, of those with stages or
        of all; whether there was one.
        """
        left = self._tables.left_with_stages if is_staged else self._tables.left
        passed: list[str] = []
        found = None
        for run in map(self._tables.runs.__getitem__, left.of(owner)):
            if self.is_there(run) or (is_staged and not run.stages):
                passed.append(run.sink)
            elif not run.is_committing:
                found = run
                break
        for sink in passed:
            left.take(sink)
        if found is not None:
            self.let_go(found, now, "no-room")
        return found is not None

    def may_go(self, run: Run) -> bool:
        """Whether nobody is there for the sink, and nothing of it is on its way."""
        return not (run.is_committing or self.is_there(run))

    # ── who is there ─────────────────────────────────────────────────────────────────────────────────────────────────

    def is_there(self, run: Run) -> bool:
        """Whether a channel of the run is open, or one that writes a stage of the sink."""
        return run.sink in self._there or bool(run.written)

    def _enter(self, session: int, opened: RunOpened) -> None:
        self._leave(session)
        self.sessions[session] = opened
        self._there.setdefault(opened.sink, {})[session] = None

    def _leave(self, session: int) -> RunOpened | None:
        opened = self.sessions.pop(session, None)
        self._granted.discard(session)
        if opened is not None:
            there = self._there[opened.sink]
            del there[session]
            if not there:
                del self._there[opened.sink]
                self._tables.note_left(opened.sink)
        return opened

    def close(self, session: int, now: Now) -> None:
        """The session is over; its run goes on, for others that join it while its lease lasts."""
        self._away.pop(session, None)
        opened = self._leave(session)
        if opened is not None:
            self.begin_lease(opened.sink, now)

    def begin_lease(self, sink: str, now: Now) -> None:
        """What the sink has open goes unless somebody is there for it when the lease is over."""
        self.leases.set(sink, now.monotonic_ns + self._tables.limits.stage_lease_ns)

    def drop_open_stages(self, run: Run) -> None:
        """A newer run drops what older ones left open; a commit on its way keeps its own."""
        self.forget_stages(
            [n for n, stage in run.stages.items() if stage.run_epoch < run.epoch and not stage.is_committing]
        )

    def granted(self, session: int, run: Run, opened: RunOpened) -> None:
        """The run is in the journal."""
        run.is_durable = True
        if self.sessions.get(session) is not opened:
            return
        if run.epoch == opened.epoch:
            self._granted.add(session)
            self._orders.say(GrantRun(session, run.epoch, run.commit_id, run.detail))
        else:
            self._fence(session, run)

    def failed(self, waiter: _RunGranted, code: str, reason: str) -> None:
        """The journal does not have the run: whoever asks again gets another."""
        run, opened = waiter.run, waiter.opened
        sessions = [waiter.session] if self.sessions.get(waiter.session) is opened else []
        if waiter.is_new:
            # Who has joined it meanwhile waits for what will not be, too.
            sessions = [s for s in self._there.get(run.sink, ()) if self.sessions[s].epoch == opened.epoch]
        for session in sessions:
            self._leave(session)
            self._orders.refuse(session, code, f"the node could not store the run ({reason}): try again later")
        if waiter.is_new and run.epoch == opened.epoch:
            self._change_owner(run.owner, waiter.owner_before)
            run.incarnation, run.owner = b"", waiter.owner_before
            self._tables.runs.note_owner(run)
            self._tables.note_left(run.sink)
            if not run.is_durable and self._tables.runs.get(run.sink) is run:
                self.apply(SinkRemoved(run.sink))

    def _fence(self, session: int, run: Run) -> None:
        self._leave(session)
        self._orders.say(Fence(session, run.epoch, fenced_run(run.sink, run.epoch)))

    def current(self, session: int, sink: str, run_epoch: int) -> Run | None:
        """The present run of a sink, if that is its epoch; who asks for an older one is fenced.

        Raises `Refused("unknown-run")` for a sink that has none, or only an older one: the node was put back.
        """
        run = self._tables.runs.get(sink)
        if run is None or run.epoch < run_epoch:
            raise _unknown_run(sink, run_epoch)
        if run.epoch != run_epoch:
            self._fence(session, run)
            return None
        return run

    def joined(self, event: StageOpenRequested) -> Run | None:
        """The present run of a sink, for a stage of it; as `current`, and asked of its owner."""
        run = self._tables.runs.get(event.sink)
        if run is not None:
            self.check_owner(event, run)
        return self.current(event.session, event.sink, event.run_epoch)

    def own(self, event: CommitRequested | StagesDropRequested) -> Run | None:
        """The run that this session was granted, if it is the present one of its sink.

        Raises `Refused("unknown-run")` for another one, in the same words whether or not there is one.
        """
        opened = self.sessions.get(event.session) if event.session in self._granted else None
        if opened is None or (opened.sink, opened.epoch) != (event.sink, event.run_epoch):
            raise _unknown_run(event.sink, event.run_epoch)
        return self.current(event.session, event.sink, event.run_epoch)

    def remove(self, event: AdminRequested, sink: str, now: Now) -> None:
        """Forget a sink that has nothing open: its commits stay, a repeated one would not be recognised any more.

        An ephemeral one goes with what it has open: nobody will commit that.
        """
        run = self._tables.runs.get(sink)
        if run is None:
            raise Refused("unknown-sink", f"the node has no sink {sink!r}")
        self.check_owner(event, run)
        is_open = any(self._tables.open_stage(number) is not None for number in run.stages)
        if run.is_committing or (is_open and not run.is_ephemeral):
            raise Refused("sink-in-use", f"sink {sink!r} has open stages: drop them, or open a new run")
        dropped = self.drop_stages(run)
        if dropped:
            self._orders.append_fact(StagesDropped(dropped), Unheard(), now)
        fact = SinkRemoved(sink)
        there = self._there.get(sink, ())
        away = {session: self.sessions[session] for session in there if session in self._granted}
        for session in [session for session in there if session not in away]:
            self._orders.refuse(session, "unknown-run", _removed(sink))
        self.apply(fact)
        self._away |= away
        self._ended[run.sink, run.incarnation] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        self._orders.append_fact(fact, _SinkRemoved(self, event, run, away), now)

    def gone(self, away: Mapping[int, RunOpened]) -> list[int]:
        """The sink of these sessions is gone, or is not; those that are still open."""
        return [session for session, opened in away.items() if self._away.pop(session, None) is opened]

    def put_back(self, run: Run, away: Mapping[int, RunOpened], now: Now) -> None:
        """The journal still has the sink, which was forgotten; and these sessions of it are there."""
        still_open = self.gone(away)
        self._ended.pop((run.sink, run.incarnation), None)
        if self._tables.runs.setdefault(run.sink, run) is not run:
            return
        self.begin_lease(run.sink, now)
        self._tables.note_left(run.sink)
        for session in still_open:
            if session not in self.sessions:
                self._enter(session, away[session])
                self._granted.add(session)

    def let_go(self, run: Run, now: Now, why: str) -> None:
        """Drop the open stages of a sink that nobody is there for, and forget the sink where it is ephemeral."""
        dropped = self.drop_stages(run)
        if dropped:
            self._orders.append_fact(StagesDropped(dropped), Unheard(), now)
        if run.is_ephemeral:
            fact = SinkRemoved(run.sink)
            self.apply(fact)
            self._orders.append_fact(fact, Unheard(), now)
        fields = {"sink": run.sink, "stages": len(dropped), "is_removed": run.is_ephemeral, "why": why}
        self._orders.say(Note("info", "lease-over", fields))

    def drop_stages(self, run: Run) -> tuple[int, ...]:
        """Forget the sink's open stages; their numbers."""
        dropped = tuple(number for number, stage in run.stages.items() if not stage.is_committing)
        self.forget_stages(dropped)
        return dropped

    def forget_stages(self, numbers: Iterable[int]) -> None:
        """These stages will never be seen."""
        gone = tuple(stage.stage for stage in self._tables.take_stages(numbers))
        if gone:
            self._orders.say(StagesUnwanted(gone))

    def apply(self, fact: RunOpened | SinkRemoved) -> None:
        """What a durable or replayed fact does to the table of runs."""
        if isinstance(fact, SinkRemoved):
            run = self._tables.runs.get(fact.sink)
            if run is not None:
                # None is open here, unless the journal was damaged: what showed or dropped it may be lost.
                self.drop_stages(run)
                del self._tables.runs[fact.sink]
                self._tables.removed_count += 1
            self._tables.left.take(fact.sink)
            self._tables.left_with_stages.take(fact.sink)
            self.leases.clear(fact.sink)
            for session in list(self._there.get(fact.sink, ())):
                self._leave(session)
            return
        run = self._tables.runs.setdefault(fact.sink, Run(fact.sink, is_ephemeral=fact.is_ephemeral))
        run.begin(fact.epoch, fact.incarnation, fact.owner)
        self._tables.runs.note_owner(run)
        run.is_durable = True


def _unknown_run(sink: str, epoch: int) -> Refused:
    return Refused("unknown-run", f"run {epoch} of sink {sink!r} is not open on this connection: open it first")


def _removed(sink: str) -> str:
    return f"the sink {sink!r} of this run was removed: write again, under a new run"


@dataclass(slots=True)
class _RunGranted:
    runs: Runs
    session: int
    run: Run
    opened: RunOpened
    owner_before: str
    is_new: bool

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.runs.granted(self.session, self.run, self.opened)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.runs.failed(self, code, reason)


@dataclass(slots=True)
class _SinkRemoved:
    runs: Runs
    event: AdminRequested
    run: Run
    away: Mapping[int, RunOpened]

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.runs.gone(self.away)
        self.runs._orders.say(AnswerAdmin(self.event.session, self.event.request, {"removed": True}))

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.runs.put_back(self.run, self.away, now)
        message = f"the node could not store the removal ({reason}): the sink is still there"
        self.runs._orders.refuse(self.event.session, code, message, self.event.request, is_final=False)
