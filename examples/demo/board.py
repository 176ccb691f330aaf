"""What the demo's processes know of one another: a few numbers in a file that all of them map into memory.

Each number has one writer and eight aligned bytes, so a reader sees an old value or a new one, also across a SIGKILL.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

GATE, FINISH_AT, ARCHIVED, AGGREGATED, FINISHED = range(5)
_HEAD_COUNT = 8
_FIELDS = 2


class Board:
    """Owns the mapped file. `carriers` in the same order everywhere.

    The conductor writes GATE and FINISH_AT; the driver ARCHIVED, AGGREGATED (sequences read) and FINISHED; each
    publisher the acknowledged count and the next scheduled departure of its carriers.
    """

    def __init__(self, path: Path, carriers: list[str]) -> None:
        self._indexes = {carrier: index for index, carrier in enumerate(carriers)}
        size = _HEAD_COUNT + _FIELDS * len(carriers)
        mode = "r+" if path.exists() else "w+"
        self._cells = np.memmap(path, np.int64, mode, shape=(size,))

    def read(self, field: int) -> int:
        """One of the numbers that the module names."""
        return int(self._cells[field])

    def write(self, field: int, value: int) -> None:
        """Set one of the numbers that the module names."""
        self._cells[field] = value

    def report(self, carrier: str, acknowledged: int, next_us: int) -> None:
        """So many of the carrier's flights are acknowledged; the first that is not leaves at `next_us`."""
        place = _HEAD_COUNT + _FIELDS * self._indexes[carrier]
        self._cells[place : place + _FIELDS] = acknowledged, next_us

    @property
    def acknowledged(self) -> int:
        """Acknowledged flights of all carriers."""
        return int(self._cells[_HEAD_COUNT::_FIELDS].sum())

    def acknowledged_of(self, carrier: str) -> int:
        """Acknowledged flights of one carrier."""
        return int(self._cells[_HEAD_COUNT + _FIELDS * self._indexes[carrier]])

    @property
    def next_us(self) -> int:
        """The earliest scheduled departure that is not acknowledged."""
        return int(self._cells[_HEAD_COUNT + 1 :: _FIELDS].min())
