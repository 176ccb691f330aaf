"""What an attack measured: kept while the tests run, and written into docs/security.md by `make attack`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

BEGIN, END = "<!-- figures: made by make attack -->", "<!-- end of figures -->"
HEAD = "| attack | what was measured | value | bound |\n|---|---|---|---|\n"


@dataclass(frozen=True, order=True)
class Figure:
    """One measured value of one attack, as a row of the page."""

    attack: str
    what: str
    value: str
    bound: str

    @property
    def row(self) -> str:
        """The row of the table."""
        return f"| {self.attack} | {self.what} | {self.value} | {self.bound} |\n"


@dataclass
class Figures:
    """Owns the figures of one run of the tests."""

    rows: list[Figure] = field(default_factory=list)

    def record(self, attack: str, what: str, value: float, unit: str, bound: str = "") -> None:
        """Keep a value: `attack` says in a few words what was done, `bound` what the test demands, if anything."""
        self.rows.append(Figure(attack, what, f"{value:,.4g} {unit}".strip(), bound))

    def write(self, page: Path) -> None:
        """Put the table of these figures in the place of the one that the page has."""
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        table = HEAD + "".join(figure.row for figure in sorted(self.rows))
        page.write_text(f"{before}{BEGIN}\n{table}{END}{after}", encoding="utf-8")
