"""What an attack measured: kept while the tests run, and written into docs/security.md by `make attack`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

BEGIN, END = "<!-- figures: made by make attack -->", "<!-- end of figures -->"
HEAD = "| attack | what was measured | value | bound |\n|---|---|---|---|\n"


@dataclass(frozen=True)
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
        """Put these figures into the page's table; the rows of attacks that were not made now stay."""
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        kept, _, after = rest.partition(END)
        made = {figure.attack for figure in self.rows}
        stay = [row + "\n" for row in kept.splitlines()[3:] if row.split("|")[1].strip() not in made]
        table = HEAD + "".join(sorted([*stay, *(figure.row for figure in self.rows)]))
        page.write_text(f"{before}{BEGIN}\n{table}{END}{after}", encoding="utf-8")
