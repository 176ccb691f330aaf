"""The page of figures is written by those who measured them, and a neighbour feels what it feels."""

from __future__ import annotations

from pathlib import Path

from tests.attack.figures import BEGIN, END, Figures
from tests.attack.neighbour import Felt, neighbour, resident_size, resident_size_peak
from tests.system.serving import ServedNode


def test_figures_take_the_place_of_those_that_a_page_had_of_the_same_attacks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    before = "| another | stays | 3 | |\n| first | old | 7 | |\n"
    page.write_text(f"Before.\n\n{BEGIN}\n| attack |\n|---|\n{before}{END}\n\nAfter.\n")
    figures = Figures()
    figures.record("second", "memory", 2.5, "MiB", "at most 3 MiB")
    figures.record("first", "p99", 1234.5, "ms")
    figures.write(page)
    table = "| another | stays | 3 | |\n| first | p99 | 1,234 ms |  |\n| second | memory | 2.5 MiB | at most 3 MiB |\n"
    said = page.read_text()
    assert said.startswith("Before.\n\n")
    assert said.endswith(f"{END}\n\nAfter.\n")
    assert table in said
    assert "old" not in said
    figures.write(page)
    assert page.read_text() == said


def test_a_neighbour_that_was_never_answered_waited_for_ever() -> None:
    assert Felt().p99_ms == float("inf")
    assert Felt([float(trip) for trip in range(1, 101)]).p50_ms == 51


def test_a_neighbour_of_nobody_is_served_all_the_time(served: ServedNode) -> None:
    served.start().close()
    assert served.process is not None
    with neighbour(served.address) as felt:
        while len(felt.trips_ms) < 20:
            assert 0 < resident_size(served.process.pid) <= resident_size_peak(served.process.pid)
    assert felt.p50_ms <= felt.p99_ms <= felt.worst_ms < float("inf")
