"""What came of it: `results.json` for machines, and a table in docs/proof.md for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mutants.nets import Catch
from mutants.patches import HERE, ROOT

RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "proof.md"
_NETS = ("simulator", "properties", "units")
_BEGIN, _END = "<!-- mutants -->", "<!-- /mutants -->"


@dataclass(slots=True)
class Result:
    """What the nets caught of one planted bug; None for a net that was not cast."""

    name: str
    what: str
    breaks: int
    digest: str
    """Of the engines with the bug in them."""
    seeds: int = 0
    """How many worlds it had to show itself."""
    simulator: Catch | None = None
    properties: Catch | None = None
    units: Catch | None = None

    def beside(self, before: Result | None) -> Result:
        """This result, with what was known of the same bug and sources from a net that was not cast this time."""
        if before is not None and before.digest == self.digest:
            if self.simulator is None:
                self.simulator, self.seeds = before.simulator, before.seeds
            self.properties = self.properties or before.properties
            self.units = self.units or before.units
        return self


def kept_results(path: Path = RESULTS) -> dict[str, Result]:
    """The results of the last time, by name; none where there was none."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["name"]: Result(**{**row, **{net: _catch_in(row[net]) for net in _NETS}}) for row in rows}


def _catch_in(row: Mapping[str, object] | None) -> Catch | None:
    return None if row is None else Catch(**row)  # type: ignore[arg-type]


def write_results(results: Mapping[str, Result], path: Path = RESULTS) -> None:
    """Keep the results, in the order of their names."""
    rows = [asdict(result) for _, result in sorted(results.items())]
    for row in rows:
        row |= {net: None if row[net] is None else row[net]._asdict() for net in _NETS}
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(results: Sequence[Result]) -> str:
    """The results as a Markdown table, after a sentence that counts them."""
    counts = [sum(c is not None and c.is_caught for c in (getattr(r, net) for r in results)) for net in _NETS]
    worlds, properties, units = counts
    caught = f"simulated worlds caught {worlds}, laws and properties {properties}, and the floors' own tests {units}"
    lines = [
        f"Of {len(results)} planted bugs, {caught}.",
        "",
        "| planted bug | what is broken | guarantee | simulated worlds | laws and properties | the floor's tests |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{r.name}` | {r.what} | {r.breaks} | {_seen(r)} | {_failed(r.properties)} | {_failed(r.units)} |"
        for r in results
    ]
    return "\n".join(lines)


def _seen(result: Result) -> str:
    catch = result.simulator
    if catch is None:
        return "?"
    return f"seed {catch.seed} ({catch.oracle})" if catch.is_caught else f"not in {result.seeds:,}"


def _failed(catch: Catch | None) -> str:
    if catch is None:
        return "?"
    return f"`{catch.test.removeprefix('tests/')}`" if catch.is_caught else "—"


def write_page(results: Sequence[Result], path: Path = PAGE) -> None:
    """Put the table between its marks; make the page where there is none."""
    text = path.read_text(encoding="utf-8") if path.is_file() else f"{_BEGIN}\n{_END}\n"
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{path.name} has no {_BEGIN} … {_END} for the table to stand between: put them in")
    path.write_text(f"{before}{_BEGIN}\n{table(results)}\n{_END}{after}", encoding="utf-8")
