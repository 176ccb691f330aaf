"""The demo's driver, in a process of its own, reads a day of flights to their end; the whole demo takes minutes."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.processes import Child
from veredus import Embedded

DEMO = Path(__file__).parents[2] / "examples" / "demo"
FLIGHTS_COUNT = 500

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
LIFE_S = 200.0


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """The demo's modules of the board and the flights; they lie in no package."""
    sys.path.insert(0, str(DEMO))
    try:
        found = ModuleType("demo")
        found.board, found.flights = importlib.import_module("board"), importlib.import_module("flights")  # type: ignore[attr-defined]
        return found
    finally:
        sys.path.remove(str(DEMO))


def test_the_driver_of_the_demo_reads_all_and_ends_by_itself(demo: ModuleType, node: Embedded, tmp_path: Path) -> None:
    flights = demo.flights.load_flights().slice(0, FLIGHTS_COUNT)
    demo.flights.store_flights(tmp_path / "flights.arrow", flights)
    board = demo.board.Board(tmp_path / "board", demo.flights.carriers_of(flights))
    with node.publisher("demo/flights", source="all") as publisher:
        publisher.publish_table(flights, key="key", body="body", event_time="event_time")
        late = demo.flights.CLOSING_TIME + 2 * demo.flights.WATERMARK
        last = publisher.wait(publisher.publish(b"closing", b"", event_time=late), timeout_s=20).sequence
    board.write(demo.board.FINISH_AT, last)
    place = ("--address", node.served.address, "--directory", str(tmp_path))
    streams = ("--stream", "demo/flights", "--statistics", "demo/delays")
    command = [sys.executable, str(DEMO / "driver.py"), *place, *streams]
    with (tmp_path / "log").open("wb") as log, Child(command, life_s=LIFE_S, stdout=log, stderr=log) as driver:
        assert driver.wait(LIFE_S) == 0, (tmp_path / "log").read_text()
    assert [board.read(field) for field in (demo.board.ARCHIVED, demo.board.AGGREGATED)] == [last, last]
    assert board.read(demo.board.FINISHED) == 1
    assert json.loads((tmp_path / "archive.json").read_text())
    assert sum(stream["head"] for stream in node.streams.list() if stream["name"] == "demo/delays") > 0
