"""What a version 1 client says before ATTACH-OK: held in order, and bounded; it is obeyed afterwards.

Invariants
    (1) No octet beyond the size of a greeting is looked at, however the octets were cut.
    (2) Behind a command that cannot be obeyed nothing is held; those in front of it are kept.
Source: docs/reference/wire/zeps-1.md ("What a node does").
"""

from __future__ import annotations

from veredus.kernel.errors import PeerFault, VeredusError
from veredus.kernel.octets import Octets

from .frames import Command

TOO_EARLY = "before ATTACH-OK was sent: read ATTACH-OK, then send large commands"
"""Behind what was too large; its peer may hear it behind the ATTACH-OK that was on its way."""


class Held:
    """Owns commands that wait for ATTACH-OK, and the fault behind them."""

    __slots__ = ("_commands", "_room", "_size_max", "fault")

    def __init__(self, size_max: int) -> None:
        """Room for `size_max` octets."""
        self._commands: list[Command] = []
        self._room = self._size_max = size_max
        self.fault: VeredusError | None = None
        """What ends the attachment once the commands in front of it have been obeyed."""

    def admit(self, octets: Octets) -> Octets:
        """As much of what came as there is room for."""
        admitted = octets[: self._room]
        self._room -= len(admitted)
        return admitted

    def hold(self, command: Command) -> None:
        """Keep one more."""
        self._commands.append(command)

    def release(self) -> list[Command]:
        """Take out the commands, in order."""
        commands, self._commands = self._commands, []
        return commands

    @property
    def overflow(self) -> PeerFault:
        """What is to be said of octets for which there was no room."""
        return PeerFault("too-large", f"more than {self._size_max} bytes arrived {TOO_EARLY}")
