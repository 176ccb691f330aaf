"""Stages, and sinks without a name of their own, go when nobody is there for them any more, or when somebody says so.

    opened ──► a channel of the run is open ──► the last one closes ──lease──► stages dropped, ephemeral sink forgotten
                      ▲──────────── another one joins ◄──┘   └──no room──► the same, for ephemeral ones (`Runs`)

Invariants
    (1) Nothing goes by its lease while a channel of its run is open, or one that writes one of its stages.
    (2) A commit on its way keeps its stages; what was committed stays.
    (3) What goes is journaled, so that it does not come back; time is the node's, and begins anew with its process.
Source: docs/internals/DESIGN.md, "Sinks".
"""

from __future__ import annotations

from dataclasses import dataclass

from veredus.kernel.engine import Now

from .exchange import AdminRequested, AnswerAdmin, Durability
from .facts import StagesDropped
from .orders import Orders
from .runs import Runs
from .tables import Stage, Tables

LOOKED_AT_MAX = 256
"""Sinks that are let go in one turn: the others have theirs at once."""


class Leases:
    """Owns when a sink's open stages, and the sink where it is ephemeral, go by themselves."""

    __slots__ = ("_is_begun", "_orders", "_runs", "_tables")

    def __init__(self, tables: Tables, orders: Orders, runs: Runs) -> None:
        self._tables = tables
        self._orders = orders
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
            for name, run in self._tables.runs.items():
                if (run.is_ephemeral or run.stages) and not self._runs.leases.is_set(name):
                    self._runs.begin_lease(name, now)
                    self._tables.note_left(name)
        for sink in self._runs.leases.due(now.monotonic_ns, LOOKED_AT_MAX):
            left = self._tables.runs.get(sink)
            if left is None or not (left.is_ephemeral or left.stages):
                continue
            if self._runs.may_go(left):
                self._runs.let_go(left, now, "lease-over")
            else:
                self._runs.begin_lease(sink, now)

    # ── what somebody says ───────────────────────────────────────────────────────────────────────────────────────────

    def shown(self, stage: Stage) -> dict[str, object]:
        """An open stage as plain data."""
        return {
            "stage": stage.stage,
            "sink": stage.sink,
            "epoch": stage.run_epoch,
            "stream": self._tables.streams_by_id[stage.stream_id].name,
            "count": stage.count_durable,
            "is_committing": stage.is_committing,
            "is_attached": self._runs.is_there(self._tables.runs[stage.sink]),
        }

    def drop_stages(self, event: AdminRequested, sink: str, now: Now) -> None:
        """Drop a sink's open stages, whoever writes them; asked of its owner, or of who may take over."""
        run = self._tables.runs.get(sink)
        if run is not None:
            self._runs.check_owner(event, run)
        dropped = self._runs.drop_stages(run) if run is not None else ()
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
