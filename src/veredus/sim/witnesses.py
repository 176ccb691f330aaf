"""A node's engines with a witness beside them: unchanged, but seen and counted.

What is counted as `engine events` is each event that an engine of the product takes: links, streams floor and log in a
node, links and outboxes at its peers. A composite, which only hands on, is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from veredus.journal.exchange import LogEffect, LogEvent
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings, Recovered
from veredus.kernel.engine import Now
from veredus.streams.engine import StreamsEngine
from veredus.streams.exchange import Durability
from veredus.streams.rights import Resource
from veredus.streams.stream import Stream
from veredus.streams.tables import StreamsLimits

from .rights import ACCESS
from .world import World

EVENTS = "engine events"


class Witness(Protocol):
    """Who sees what the streams floor is told and what it says, and judges it."""

    def boot(self) -> None:
        """A new process: its sessions are new."""
        ...

    def hear(self, fact: object, now: Now) -> None:
        """The floor was told `fact`."""
        ...

    def see(self, effect: object, now: Now) -> None:
        """The floor said `effect`."""
        ...

    def note(self, event: str, fields: dict[str, object]) -> None:
        """The node noted something."""
        ...

    def recovered(self, floor: StreamsEngine, may_forget: bool, is_shaken: bool, durable_ns: int) -> None:
        """A process knows what the journal holds; see `Oracles.recovered`."""
        ...

    def renewed(self) -> None:
        """The node has ended what its rules do not allow any more."""
        ...

    def trims(self, stream: Stream, floor: int) -> None:
        """The node's retention decided this."""
        ...


class WatchedFloor(StreamsEngine):
    """The streams floor, unchanged, with a witness beside it."""

    def __init__(
        self,
        world: World,
        limits: StreamsLimits,
        durability: Durability,
        ids: Callable[[], bytes],
        size_of: Callable[[int], int],
        witness: Witness,
        on_said: Callable[[object], None],
    ) -> None:
        """An empty floor, for peers as `sim.rights` says; `on_said` is called with all that it says."""

        def may(principal: str, verb: str, resource: Resource) -> bool:
            return principal not in world.suspended and ACCESS.may(principal, verb, resource)

        super().__init__(limits, durability, ids, may, size_of)
        self._counts = world.counts
        self._witness = witness
        self._on_said = on_said

    def handle_all(self, events: Iterable[object], now: Now) -> Sequence[object]:
        """As the floor does; the witness hears and sees."""
        said: list[object] = []
        for event in events:
            self._counts[EVENTS] += 1
            self._witness.hear(event, now)
        said.extend(super().handle_all(events, now))
        return self._seen(said, now)

    def trim(self, stream: Stream, floor: int, now: Now) -> Sequence[object]:
        """As the floor does; the witness hears."""
        self._witness.trims(stream, floor)
        return self._seen(super().trim(stream, floor, now), now)

    def renew_rights(self, now: Now) -> Sequence[object]:
        """As the floor does; the witness sees, and hears that it is done."""
        effects = self._seen(super().renew_rights(now), now)
        self._witness.renewed()
        return effects

    def set_congested(self, session: int, is_congested: bool, now: Now) -> Sequence[object]:
        """As the floor does; the witness sees."""
        return self._seen(super().set_congested(session, is_congested, now), now)

    def _seen(self, effects: Sequence[object], now: Now) -> Sequence[object]:
        for effect in effects:
            self._witness.see(effect, now)
            self._on_said(effect)
        return effects


class CountedLog(Log):
    """The log, unchanged; its events are counted."""

    def __init__(self, world: World, settings: LogSettings, recovered: Recovered) -> None:
        """A log that goes on where `recovered` ends."""
        super().__init__(settings, recovered)
        self._counts = world.counts

    def handle(self, event: LogEvent, now: Now) -> Sequence[LogEffect]:
        """As the log does."""
        self._counts[EVENTS] += 1
        return super().handle(event, now)
