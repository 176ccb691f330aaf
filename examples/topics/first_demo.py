"""What this demo takes over from the first one: the flights, the processes, and how rows are counted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "demo"))

from cast import Player
from flights import load_flights

from audit import Tally

__all__ = ["Member", "Tally", "load_flights"]


class Member(Player):
    """One process of the cast, which can be stopped too."""

    def send(self, number: int) -> None:
        """A signal to the whole group, if it is there."""
        if self.process is not None and self.is_running:
            os.killpg(self.process.pid, number)
