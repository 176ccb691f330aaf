"""What attacks measured: kept while the tests run, and written into docs/security.md by `make attack`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.attack.neighbour import Felt

BEGIN, END = "<!-- figures: made by make attack -->", "<!-- end of figures -->"
HEAD = "| attack | its size | what was measured | value | bound |\n|---|---|---|---|---|\n"
COUNT = re.compile(r"\d[\d,]")


@dataclass
class Attack:
    """What one attack measured, as rows of the page in the order in which it came."""

    name: str
    size: str
    rows: list[str] = field(default_factory=list)

    def record(self, what: str, value: float, unit: str = "", bound: str = "") -> None:
        """Keep a value; `bound` is what the test demands, if anything."""
        self._add(what, f"{value:,.4g} {unit}".strip(), bound)

    def record_felt(self, felt: Felt) -> None:
        """Keep what the neighbour felt meanwhile, in milliseconds."""
        times = " / ".join(f"{trip:,.4g}" for trip in (felt.p50_ms, felt.p99_ms, felt.worst_ms))
        self._add("neighbour: median / p99 / worst", f"{times} ms, of {len(felt.trips_ms):,}", "")

    def _add(self, what: str, value: str, bound: str) -> None:
        self.rows.append(f"| {self.name} | {self.size} | {what} | {value} | {bound} |\n")


@dataclass
class Figures:
    """Owns the figures of one run of the tests."""

    attacks: dict[str, Attack] = field(default_factory=dict)

    def attack(self, name: str, size: str = "") -> Attack:
        """Where one attack records what it measures, `size` being how much of it there was.

        Rows of the page are found again by the name: it stays the same when the size is another.
        """
        assert not COUNT.search(name), f"how many there were belongs to the size: {name}"
        assert name not in self.attacks, f"two attacks have the name {name!r}"
        attack = self.attacks[name] = Attack(name, size)
        return attack

    def write(self, page: Path, *, is_whole: bool) -> None:
        """Put these figures into the page's table; of attacks that were not made now, rows stay unless `is_whole`."""
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        earlier, _, after = rest.partition(END)
        rows: dict[str, list[str]] = {}
        for row in earlier.splitlines(keepends=True)[3:] if not is_whole else ():
            rows.setdefault(row.split("|")[1].strip(), []).append(row)
        rows |= {attack.name: attack.rows for attack in self.attacks.values()}
        table = HEAD + "".join(row for name in sorted(rows) for row in rows[name])
        page.write_text(f"{before}{BEGIN}\n{table}{END}{after}", encoding="utf-8")


class Page:
    """A plugin of pytest that writes the figures of a run into a page, once all of the run has gone well."""

    def __init__(self, path: Path) -> None:
        """Nothing is measured yet."""
        self.figures = Figures()
        self._path = path
        self._is_chosen = False

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Some tests will not run: those that stay are a choice, if these were attacks."""
        self._is_chosen |= any(item.get_closest_marker("attack") for item in items)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write; of a run of chosen files or attacks, the rows of the others stay."""
        config = session.config
        is_chosen = self._is_chosen or config.args_source is not config.ArgsSource.TESTPATHS or config.getoption("lf")
        if exitstatus == pytest.ExitCode.OK and self.figures.attacks:
            self.figures.write(self._path, is_whole=not is_chosen)
