"""The oracle of sinks: a commit shows the stages of one attempt whole, contiguous and once, and nothing else ever
shows rows.

A staged row says whose it is as `sink/commit id/attempt`, with its index in its stream as number; so what is visible
tells by itself which attempt it came from.
Source: docs/internals/DESIGN.md, "Sinks"; guarantee 8.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from veredus.delivery.content import Content
from veredus.streams.exchange import CommitRequested, ConfirmCommitted, RunOpenRequested
from veredus.streams.tables import PAST_RUNS_MAX, Tables

from .views import PARKED, StreamView
from .world import Violation


@dataclass(slots=True)
class CommitView:
    """What is known of one commit id of one sink."""

    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each attempt: how many rows it staged for each stream."""
    asked: dict[str, None] = field(default_factory=dict)
    """Attempts whose stages somebody asked to commit."""
    shown: tuple[tuple[str, int, int], ...] | None = None
    """What the node said, once it did."""
    stages: dict[int, None] = field(default_factory=dict)
    """Stages that somebody asked to show."""
    contents: tuple[Content, ...] = ()
    """What the sink said that it holds, once it was shown."""
    gone: dict[str, None] = field(default_factory=dict)
    """Streams in which it was shown, and which the node forgot since: another one may have the name now."""


def who_staged(sink: str, commit_id: int, attempt: str) -> str:
    """Whose rows they are, as their identity says it."""
    return f"{sink}/{commit_id}/{attempt}"


class Commits:
    """Owns what is known of all commits of a world."""

    def __init__(self) -> None:
        """Nobody has committed anything."""
        self.views: dict[tuple[str, int], CommitView] = {}
        self._last: dict[str, int] = {}
        self._asking: dict[tuple[int, int], CommitRequested] = {}
        self.refused_stages: dict[int, None] = {}
        """Stages of which a batch was refused."""
        self._runs: dict[tuple[str, bytes], int] = {}
        """The epoch of each incarnation's run."""
        self._has_forgotten = False
        """Whether a node may have forgotten rows that it had confirmed."""
        self.lapsed: dict[str, None] = {}
        """Sinks whose stages went with their lease."""
        self.removed: dict[str, None] = {}
        """Sinks that have gone with their last commit, or may have."""

    def stage(self, sink: str, commit_id: int, attempt: str, stream: str, count: int) -> None:
        """An attempt stages `count` more rows for a stream."""
        view = self.views.setdefault((sink, commit_id), CommitView())
        sizes = view.sizes.setdefault(attempt, {})
        sizes[stream] = sizes.get(stream, 0) + count

    def will_ask(self, sink: str, commit_id: int, attempt: str) -> None:
        """An attempt asks for its commit."""
        self.views.setdefault((sink, commit_id), CommitView()).asked[attempt] = None

    def ask(self, fact: CommitRequested) -> None:
        """The floor was asked to commit."""
        self._asking[fact.session, fact.request] = fact
        self.views.setdefault((fact.sink, fact.commit_id), CommitView()).stages.update(dict.fromkeys(fact.stages))

    def see_run(self, asked: RunOpenRequested, epoch: int, commit_id: int) -> None:
        """A run was granted, and told what was committed last."""
        sink = asked.sink
        known = self._runs.setdefault((sink, asked.incarnation), epoch)
        is_past = 0 < epoch - known <= PAST_RUNS_MAX
        if is_past and not self._has_forgotten and sink not in self.removed:
            raise Violation("fenced", f"an incarnation of {sink} had run {known}, and was granted {epoch}")
        # Who asked before the sink was removed, and is heard behind that, begins a new one.
        if commit_id < self._last.get(sink, -1) and sink not in self.removed:
            raise Violation("committed", f"{sink} had committed {self._last[sink]}, a new run was told {commit_id}")

    def see(self, effect: ConfirmCommitted) -> None:
        """The floor said what was committed, and where."""
        asked = self._asking[effect.session, effect.request]
        sink, commit_id = asked.sink, asked.commit_id
        view = self.views.setdefault((sink, commit_id), CommitView())
        if view.shown is not None and view.shown != effect.streams:
            raise Violation("committed", f"{sink} {commit_id} was at {view.shown}, now it is at {effect.streams}")
        view.shown = effect.streams
        if not effect.is_duplicate:
            view.contents = asked.contents
        elif view.contents and asked.contents and sorted(view.contents) != sorted(asked.contents):
            raise Violation("committed", f"{sink} {commit_id} holds {view.contents}, {asked.contents} was taken for it")
        self._last[sink] = max(commit_id, self._last.get(sink, -1))

    def recovered(self, tables: Tables, may_forget: bool) -> None:
        """A new process read the journal: it knows what was committed, unless it may have forgotten it."""
        self._has_forgotten = self._has_forgotten or may_forget
        if may_forget:
            names = {stream.name for stream in tables.streams.values()}
            for view in self.views.values():
                view.gone.update((name, None) for name, _, _ in view.shown or () if name not in names)
        for sink, commit_id in list(self._last.items()):
            run = tables.runs.get(sink)
            known = -1 if run is None else run.commit_id
            if known >= commit_id:
                continue
            if sink in self.removed and (not may_forget or (run is None and self._is_whole(sink, tables))):
                continue
            if not may_forget:
                raise Violation("recovered", f"{sink} had committed {commit_id}, and now {known}")
            self._last[sink] = known
            for (name, later), view in self.views.items():
                if name == sink and later > known:
                    view.shown, view.contents = None, ()

    def _is_whole(self, sink: str, tables: Tables) -> bool:
        """Whether all that a sink showed which has gone is there: its streams say so, as its run cannot any more."""
        heads = {stream.name: stream.head_durable for stream in tables.streams.values()}
        shown = [place for (name, _), view in self.views.items() if name == sink for place in view.shown or ()]
        return all(first + count - 1 <= heads.get(name, 0) for name, first, count in shown if count)

    def judge(self, view: StreamView) -> None:
        """Hold what is visible in a stream against what was staged and said."""
        stream, rows, floor = view.name, view.rows, view.floor
        if stream.startswith(PARKED):
            return
        is_torn = view.is_shaken or bool(view.holes)
        found: dict[tuple[str, int], dict[str, list[int]]] = {}
        for sequence in sorted(rows):
            who, number = rows[sequence].identity
            if who.count("/") != 2 or sequence < floor or sequence in view.redriven:
                continue
            sink, said_id, attempt = who.split("/")
            places = found.setdefault((sink, int(said_id)), {}).setdefault(attempt, [])
            if number != len(places) + 1 and floor == 1 and not is_torn:
                raise Violation("committed", f"{stream}/{sequence}: {who} shows row {number} after {len(places)}")
            places.append(sequence)
        if is_torn:
            return
        for key, attempts in found.items():
            self._judge_attempts(stream, key, attempts, floor)
        for (sink, commit_id), known in self.views.items():
            for name, first, count in known.shown or ():
                shown = [p for places in found.get((sink, commit_id), {}).values() for p in places]
                expected = [s for s in range(first, first + count) if s >= floor]
                is_there = name == stream and name not in known.gone
                if is_there and not view.was_replaced and [p for p in shown if p >= floor] != expected:
                    raise Violation("committed", f"{sink} {commit_id} is at {shown[:3]}…, not at {first} of {stream}")

    def _judge_attempts(self, stream: str, key: tuple[str, int], attempts: dict[str, list[int]], floor: int) -> None:
        view = self.views.get(key)
        if view is None or len(attempts) != 1:
            raise Violation("committed", f"{stream}: rows of {key} are visible from attempts {sorted(attempts)}")
        attempt, places = next(iter(attempts.items()))
        if attempt not in view.asked:
            raise Violation("committed", f"{stream}: attempt {attempt} of {key} is visible, and was never committed")
        if places[-1] - places[0] + 1 != len(places):
            raise Violation("committed", f"{stream}: the rows of {key} are not contiguous: {places}")
        staged = view.sizes.get(attempt, {}).get(stream, 0)
        may_lack = self._has_forgotten or any(stage in self.refused_stages for stage in view.stages)
        if len(places) != staged and floor == 1 and not (may_lack and len(places) < staged):
            raise Violation("committed", f"{stream}: {len(places)} of {staged} rows of {key} are visible")
