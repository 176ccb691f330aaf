"""The checkpoint that the log wants: begun at one moment, its state taken in turns, so that nobody waits for all of it.

    CheckpointWanted ──► wants ──► begin: CheckpointBegun ──► go_on, in this turn and later ones ──► CheckpointRequested
                                          close: the last one, of one moment ──────────────────────► CheckpointRequested

Source: docs/internals/DESIGN.md, "Checkpoints and space".
"""

from __future__ import annotations

from veredus.journal.exchange import CheckpointBegun, CheckpointRequested
from veredus.streams.engine import StreamsEngine
from veredus.streams.snapshot import Taking


class Checkpointing:
    """Owns the state that is being taken, if one is."""

    __slots__ = ("_floor", "_taking", "is_wanted")

    def __init__(self, floor: StreamsEngine) -> None:
        """No checkpoint is wanted yet."""
        self._floor = floor
        self._taking: Taking | None = None
        self.is_wanted = False

    @property
    def is_under_way(self) -> bool:
        """Whether `go_on` has more to do."""
        return self._taking is not None

    def begin(self) -> CheckpointBegun:
        """What the log is to be told of the moment at which the state is begun to be taken, which is now."""
        self.is_wanted = False
        self._taking = self._floor.take_snapshot()
        return CheckpointBegun()

    def go_on(self) -> tuple[CheckpointRequested, ...]:
        """Take what is a turn's share; returns what the log is to be told then."""
        limits, taking = self._floor.tables.limits, self._taking
        if taking is None or not taking.go_on(limits.snapshot_rows_max, limits.snapshot_size_max):
            return ()
        self._taking = None
        return (CheckpointRequested(taking.state),)

    def close(self) -> CheckpointRequested:
        """What the log is to be told last: one that is under way is not needed any more."""
        self._taking = None
        return CheckpointRequested(self._floor.snapshot(), is_final=True)
