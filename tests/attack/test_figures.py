"""The page of figures is written by those who measured them, and a neighbour feels what it feels."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.attack.figures import BEGIN, END, HEAD, Figures
from tests.attack.neighbour import Felt, neighbour, resident_size, resident_size_peak
from tests.processes import ended
from tests.system.serving import ServedNode

ROOT = Path(__file__).parent.parent.parent
OTHER = "| another |  | stays | 3 |  |\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n\n{BEGIN}\n{HEAD}{OTHER}| first | 7 | old | 7 |  |\n{END}\n\nAfter.\n")
    return page


@pytest.fixture
def figures() -> Figures:
    figures = Figures()
    second = figures.attack("second")
    second.record("memory", 2.5, "MiB", "at most 3 MiB")
    second.record("growth", 1, "MiB")
    figures.attack("first", "8 peers").record_felt(Felt([1.0, 1234.5]))
    return figures


MADE = (
    "| first | 8 peers | neighbour: median / p99 / worst | 1,234 / 1,234 / 1,234 ms, of 2 |  |\n"
    "| second |  | memory | 2.5 MiB | at most 3 MiB |\n"
    "| second |  | growth | 1 MiB |  |\n"
)


@pytest.mark.parametrize(("is_whole", "stays"), [(False, OTHER), (True, "")])
def test_figures_take_the_place_of_those_of_the_same_attacks_and_those_of_all_attacks_of_all(
    page: Path, figures: Figures, is_whole: bool, stays: str
) -> None:
    for _ in range(2):
        figures.write(page, is_whole=is_whole)
        assert page.read_text() == f"Before.\n\n{BEGIN}\n{HEAD}{stays}{MADE}{END}\n\nAfter.\n"


@pytest.mark.parametrize("name", ["second", "3000 lists asked for", "1,000 peers"])
def test_a_name_that_another_attack_has_or_that_changes_with_its_size_is_none(figures: Figures, name: str) -> None:
    with pytest.raises(AssertionError):
        figures.attack(name)


ATTACKS = """
import pytest
from pathlib import Path

pytestmark = pytest.mark.attack

def test_one(figures):
    figures.attack("first").record("new", 1)

def test_two(figures):
    figures.attack("second").record("new", 2)

def test_three():
    assert not Path("fails").exists()
"""
CONFTEST = """
import pytest
from pathlib import Path
from tests.attack.figures import Page

PAGE = Page(Path("page.md"))

def pytest_configure(config):
    config.pluginmanager.register(PAGE)

@pytest.fixture(scope="session")
def figures():
    return PAGE.figures
"""
INI = "[pytest]\ntestpaths = attacks others\nmarkers = attack: one\n"
FIRST, SECOND = ("| first |  | new | 1 |  |\n", "| second |  | new | 2 |  |\n")
OLD = "| first | 7 | old | 7 |  |\n"


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["-m", "attack"], FIRST + SECOND),
        (["-m", "attack", "attacks"], OTHER + FIRST + SECOND),
        (["-m", "attack", "-k", "two"], OTHER + OLD + SECOND),
        (["-m", "attack", "attacks/test_attacks.py::test_one"], OTHER + FIRST),
        (["-m", "attack", "--lf"], OTHER + FIRST + SECOND),
        (["others"], OTHER + OLD),
    ],
)
def test_a_run_of_all_attacks_writes_the_page_anew_and_one_of_some_attacks_their_rows(
    tmp_path: Path, page: Path, arguments: list[str], rows: str
) -> None:
    assert run(tmp_path, *arguments) == 0
    assert page.read_text() == f"Before.\n\n{BEGIN}\n{HEAD}{rows}{END}\n\nAfter.\n"


def test_a_run_in_which_something_fails_writes_nothing(tmp_path: Path, page: Path) -> None:
    before = page.read_text()
    (tmp_path / "fails").touch()
    assert run(tmp_path, "-m", "attack") == 1
    assert page.read_text() == before


def run(directory: Path, *arguments: str) -> int:
    """The exit code of pytest for a little project with three attacks and a test that is none."""
    files = {
        "pytest.ini": INI,
        "conftest.py": CONFTEST,
        "attacks/test_attacks.py": ATTACKS,
        "others/test_others.py": "def test_another():\n    pass\n",
    }
    for name, text in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return ended([sys.executable, "-m", "pytest", "-q", *arguments], cwd=directory, env=environment).returncode


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
