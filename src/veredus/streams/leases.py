"""Stages, and sinks without a name of their own, go when nobody is there for them any more, or when somebody says so.

    opened ──► a channel of the run is open ──► the last one closes ──lease──► stages dropped, ephemeral sink forgotten
                      ▲──────────── another one joins ◄──┘

Invariants
    (1) Nothing goes by its lease while a channel of its run is open, or one that writes one of its stages.
    (2) A commit on its way keeps its stages; what was committed stays.
    (3) What goes is journaled, so that it does not come back; time is the node's, and begins anew with its process.
Source: the design, section 2 ("stage → commit").
"""

from __future__ import annotations

from dataclasses import dataclass

from veredus.kernel.effects import Note
from veredus.kernel.engine import Now

from .exchange import AdminRequested, AnswerAdmin, Durability
from .facts import Fact, SinkRemoved, StagesDropped
from .orders import Orders, Unheard
from .publishing import Publishing
from .runs import Runs
from .tables import Run, Stage, Tables


class Leases:
    """Owns when a sink's open stages, and the sink where it is ephemeral, go by themselves."""

    __slots__ = ("_is_begun", "_orders", "_publishing", "_runs", "_tables")

    def __init__(self, tables: Tables, orders: Orders, publishing: Publishing, runs: Runs) -> None:
        self._tables = tables
        self._orders = orders
        self._publishing = publishing
        self._runs = runs
        self._is_begun = False

    def next_ns(self) -> int | None:
        """When to look; at once for what a process finds in its journal."""
        if not self._is_begun and self._tables.runs:
            return 0
        return self._runs.leases.next_ns()

    def look(self, now: Now) -> None:
        """Let go of what nobody is there for, and whose time is over."""
        if not self._is_begun:
            self._is_begun = True
            open_stages = (stage.sink for stage in self._tables.stages.values())
            ephemeral = (run.sink for run in self._tables.runs.values() if run.is_ephemeral)
            for name in dict.fromkeys((*open_stages, *ephemeral)):
                if not self._runs.leases.is_set(name):
                    self._runs.begin_lease(name, now)
        due = self._runs.leases.due(now.monotonic_ns)
        if not due:
            return
        joined = {opened.sink for opened in self._runs.sessions.values()}
        written = {attached.stage.sink for attached in self._publishing.attachments.values() if attached.stage}
        for sink in due:
            run = self._tables.runs.get(sink)
            if run is None or sink in joined or not self._may_go(run):
                # Whoever leaves it, or opens a stage, lets its lease begin anew.
                continue
            if run.is_committing or sink in written:
                self._runs.begin_lease(sink, now)
            else:
                self._expire(run, now)

    def _may_go(self, run: Run) -> bool:
        return run.is_ephemeral or any(stage.sink == run.sink for stage in self._tables.stages.values())

    def _expire(self, run: Run, now: Now) -> None:
        dropped = self.drop(run.sink)
        facts: list[Fact] = [StagesDropped(dropped)] if dropped else []
        if run.is_ephemeral:
            del self._tables.runs[run.sink]
            facts.append(SinkRemoved(run.sink))
        for fact in facts:
            self._orders.append_fact(fact, Unheard(), now)
        fields = {"sink": run.sink, "stages": len(dropped), "is_removed": run.is_ephemeral}
        self._orders.say(Note("info", "lease-over", fields))

    def drop(self, sink: str) -> tuple[int, ...]:
        """Forget the sink's open stages; their numbers."""
        dropped = tuple(s.stage for s in self._tables.stages.values() if s.sink == sink and not s.is_committing)
        for number in dropped:
            self._runs.forget_stage(number)
        return dropped

    # ── what somebody says ───────────────────────────────────────────────────────────────────────────────────────────

    def shown(self, stage: Stage) -> dict[str, object]:
        """An open stage as plain data."""
        is_written = any(attached.stage is stage for attached in self._publishing.attachments.values())
        return {
            "stage": stage.stage,
            "sink": stage.sink,
            "epoch": stage.run_epoch,
            "stream": self._tables.streams_by_id[stage.stream_id].name,
            "count": stage.count_durable,
            "is_committing": stage.is_committing,
            "is_attached": is_written or any(opened.sink == stage.sink for opened in self._runs.sessions.values()),
        }

    def drop_stages(self, event: AdminRequested, sink: str, now: Now) -> None:
        """Drop a sink's open stages, whoever writes them; asked of its owner, or of who may take over."""
        run = self._tables.runs.get(sink)
        if run is not None:
            self._runs.check_owner(event, run)
        dropped = self.drop(sink)
        waiter = _Answered(self._orders, event, {"dropped": list(dropped)})
        if dropped:
            self._orders.append_fact(StagesDropped(dropped), waiter, now)
        else:
            self._orders.append((), waiter)


@dataclass(slots=True)
class _Answered:
    orders: Orders
    event: AdminRequested
    result: dict[str, object]

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.orders.say(AnswerAdmin(self.event.session, self.event.request, self.result))

    def fail(self, code: str, reason: str, now: Now) -> None:
        message = f"the node could not store that the stages are dropped ({reason}): retry later"
        self.orders.refuse(self.event.session, code, message, self.event.request, is_final=False)
