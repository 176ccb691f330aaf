"""Publishes some carriers' flights, each as a source of its own, up to the gate; killed anywhere, it goes on there.

Each flush closes its batch with the index of the next flight as resume token. The node keeps the two together, so a new
process learns from it where the carrier's series goes on; what the killed one had offered and the node had taken is not
published again, and what it had not is.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from board import GATE, Board
from flights import ATTRIBUTES, RESTART_SECONDS, carriers_of, open_flights, series_of

import veredus

POLL_SECONDS = 0.1
CHUNK_COUNT_MAX = 4096
END_OF_TIME_US = (1 << 62) - 1


@dataclass
class Series:
    """One carrier's flights and how far they are: its first flight is number 1 of the source, and so on."""

    carrier: str
    table: pa.Table
    times_us: npt.NDArray[np.int64]
    publisher: veredus.Publisher
    offered: int

    def offer(self, gate_us: int) -> None:
        """Publish what leaves up to the gate."""
        stop = int(np.searchsorted(self.times_us, gate_us, side="right"))
        while self.offered < stop:
            end = min(stop, self.offered + CHUNK_COUNT_MAX)
            chunk = self.table.slice(self.offered, end - self.offered)
            self.publisher.publish_table(
                chunk, key="key", body="body", event_time="event_time", attributes=list(ATTRIBUTES)
            )
            self.publisher.flush(resume_token=str(end).encode(), wait=False)
            self.offered = end

    @property
    def acknowledged(self) -> int:
        """How many of the flights are acknowledged."""
        return self.publisher.taken_number

    @property
    def is_done(self) -> bool:
        """Whether all of them are."""
        return self.acknowledged == len(self.times_us)

    def report(self, board: Board) -> None:
        """Tell the conductor."""
        next_us = END_OF_TIME_US if self.is_done else int(self.times_us[self.acknowledged])
        board.report(self.carrier, self.acknowledged, next_us)


def opened(node: veredus.Node, stream: str, table: pa.Table, carrier: str) -> Series:
    """The carrier's series, at the place that the node remembers."""
    flights = series_of(table, carrier)
    publisher = node.publisher(stream, source=carrier, resume="token")
    times_us = flights["event_time"].cast(pa.int64()).to_numpy()
    return Series(carrier, flights, times_us, publisher, int(publisher.resume_token or b"0"))


def main() -> int:
    """Publish until every flight of these carriers is acknowledged."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--carriers", required=True)
    arguments = parser.parse_args()
    table = open_flights(arguments.directory / "flights.arrow")
    board = Board(arguments.directory / "board", carriers_of(table))
    with veredus.connect(arguments.address, refused_s=RESTART_SECONDS) as node:
        all_series = [opened(node, arguments.stream, table, carrier) for carrier in arguments.carriers.split(",")]
        while not all(series.is_done for series in all_series):
            gate_us = board.read(GATE)
            for series in all_series:
                series.offer(gate_us)
                series.report(board)
            time.sleep(POLL_SECONDS)
        for series in all_series:
            series.report(board)
            series.publisher.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
