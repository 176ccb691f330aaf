"""The report as one page: no script, nothing loaded from elsewhere, light and dark, plots as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from .guarantees import VIOLATIONS, Guarantee, Outcome, Where
from .verdict import Judged, Verdict, type_of_value

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #626b78; --line: #d9dee5; --paper: #fff; --card: #f6f7f9;
  --holds: #1a7f47; --refuted: #c22f2f; --unproved: #9a6a00; --bar: #3b6fb6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #9aa4b1; --line: #343b45; --paper: #14171b;
  --card: #1d2127; --holds: #4cc27e; --refuted: #ff7a75; --unproved: #e0b04a; --bar: #7aa7e6; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 68rem; padding: 2rem 1.25rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem } h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem }
p { margin: .4rem 0; max-width: 46rem } .soft { color: var(--soft) }
.holds { color: var(--holds) } .refuted { color: var(--refuted) } .not-proved { color: var(--unproved) }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: .75rem }
.card { background: var(--card); border: 1px solid var(--line); border-left: 4px solid currentColor;
  border-radius: 6px; padding: .7rem .9rem }
.card p, .card ul { color: var(--ink) } .card ul { margin: .3rem 0 0; padding-left: 1.1rem; font-size: .9rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem; width: 100% }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td { overflow-wrap: break-word; max-width: 18rem } th { color: var(--soft); font-weight: 500; white-space: nowrap }
table.about { width: auto } table.about td { max-width: none }
td.name { white-space: nowrap } td.number, th.number { text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap }
svg { width: 100%; min-width: 38rem; height: auto; display: block }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif }
svg .soft { fill: var(--soft) } svg .bar { fill: var(--bar) } svg .hit { fill: var(--refuted) }
svg .unsure { fill: var(--unproved) }
svg .track { fill: var(--card); stroke: var(--line) }
"""
_SIGN: Final = {Outcome.HOLDS: "✓", Outcome.REPORTED: "✓", Outcome.REFUTED: "✗", Outcome.NOT_PROVED: "?"}
_CLASS: Final = {
    Outcome.HOLDS: "holds",
    Outcome.REPORTED: "not-proved",
    Outcome.REFUTED: "refuted",
    Outcome.NOT_PROVED: "not-proved",
}
_SAYS: Final = {
    Outcome.HOLDS: "The recordings prove every selected claim.",
    Outcome.REPORTED: "Every claim is proved, except for publications that the node itself reported as gone.",
    Outcome.REFUTED: "At least one claim is refuted: the first violations are listed below.",
    Outcome.NOT_PROVED: "No claim is refuted, but the evidence does not prove every claim; each lists what is missing.",
}
_WHERE: Final = {
    Where.JOURNAL: "From sources into the journal",
    Where.SUBSCRIPTIONS: "From the journal to subscriptions",
}
_WHERE_THEY_LIE: Final = (
    "Along the sequences of the streams, to the end of the journal; "
    "along the numbers of sources where the sequence is not known. Red speaks "
    "against the claim, amber rests on what the evidence does not hold; what the node had reported by name is left out."
)
_LEFT, _WIDTH, _ROW = 190, 960, 30
SHOWN_MAX: Final = 1_000
"""Sources, and subscriptions, that the page shows."""
BIN_COUNT: Final = 96
"""Bins between the first and the last sequence of the journal."""


def page_of(verdict: Verdict) -> str:
    """The whole page."""
    outcome = verdict.outcome
    parts = [
        f"<h1>Audit: <span class={_CLASS[outcome]!r}>{_SIGN[outcome]} {outcome}</span></h1>",
        f"<p>{_SAYS[outcome]}</p>",
        f'<p class="soft">{sum(verdict.rows.values()):,} rows of evidence, judged in {verdict.seconds:,.1f} s.</p>',
        _about(verdict.about),
        *(_claims(where, verdict) for where in Where),
        "<h2>What was read</h2>",
        _bars({str(kind): count for kind, count in verdict.rows.items()}),
    ]
    places = [place for place in verdict.places if place["counts_as"] != "reported"]
    if places:
        parts += [
            "<h2>Where violations lie</h2>",
            f'<p class="soft">{_WHERE_THEY_LIE}</p>',
            _strips(places),
        ]
    if verdict.samples:
        parts += ["<h2>The first violations of each kind</h2>", _samples(verdict.samples)]
    parts += _counted("Sources", verdict.sources) + _counted("Subscriptions", verdict.subscriptions)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Audit: '
        f'{escape(outcome)}</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _about(about: Mapping[str, str]) -> str:
    """When, by what, and what was judged."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in about.items())
    return f'<div class="scroll"><table class="about">{rows}</table></div>' if rows else ""


def _claims(where: Where, verdict: Verdict) -> str:
    order = list(Guarantee)
    judged = sorted(
        (judged for judged in verdict.judged if judged.claim.where is where),
        key=lambda judged: order.index(judged.claim.guarantee),
    )
    cards = "\n".join(map(_card, judged))
    return f'<h2>{_WHERE[where]}</h2>\n<div class="grid">{cards}</div>' if judged else ""


def _card(judged: Judged) -> str:
    outcome = judged.outcome
    lines = [
        f"{count.certain:,} × {VIOLATIONS[name].words}" for name, count in judged.violations.items() if count.certain
    ]
    lines += [
        f"{count.reported:,} × {VIOLATIONS[name].words}: reported by the node: not proved, and not a violation"
        for name, count in judged.violations.items()
        if count.reported
    ]
    lines += [f"not proved: {reason}" for reason in judged.reasons]
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f'<div class="card {_CLASS[outcome]}"><strong>{_SIGN[outcome]} {outcome}</strong> '
        f'<span class="soft">{judged.claim.name}</span><p>{escape(judged.claim.words)}.</p>'
        + (f"<ul>{listed}</ul>" if listed else "")
        + "</div>"
    )


def _bars(counts: Mapping[str, int]) -> str:
    most = max([*counts.values(), 1])
    rows = []
    for index, (name, count) in enumerate(counts.items()):
        y, width = index * _ROW, (_WIDTH - _LEFT - 130) * count / most
        rows.append(
            f'<text x="0" y="{y + 19}">{escape(name)}</text>'
            f'<rect class="bar" x="{_LEFT}" y="{y + 5}" width="{max(width, min(count, 1)):.1f}" height="20" rx="3"/>'
            f'<text class="soft" x="{_LEFT + width + 8:.1f}" y="{y + 19}">{count:,}</text>'
        )
    return _svg(len(counts) * _ROW, rows, "Rows of each side")


def _strips(places: Sequence[Mapping[str, type_of_value]]) -> str:
    """A strip for each kind of violation; the darker a bin, the more lie there. What is certain lies on top."""
    by_kind: dict[str, list[tuple[int, int, str]]] = {}
    for place in sorted(places, key=lambda place: place["counts_as"] == "violation"):
        style = "hit" if place["counts_as"] == "violation" else "unsure"
        found = (int(place["bin"] or 0), int(place["count"] or 0), style)
        by_kind.setdefault(str(place["violation"]), []).append(found)
    last = max(int(place["last"] or 0) for place in places)
    step = (_WIDTH - _LEFT) / BIN_COUNT
    rows = []
    for index, (kind, bins) in enumerate(sorted(by_kind.items())):
        y = index * _ROW
        most = {style: max(count for _, count, of in bins if of == style) for _, _, style in bins}
        rows.append(
            f'<text x="0" y="{y + 19}">{escape(kind)}</text>'
            f'<rect class="track" x="{_LEFT}" y="{y + 5}" width="{_WIDTH - _LEFT}" height="20" rx="3"/>'
        )
        rows += [
            f'<rect class="{style}" x="{_LEFT + place * step:.1f}" y="{y + 5}" width="{max(step, 3):.1f}" height="20" '
            f'opacity="{0.35 + 0.65 * count / most[style]:.2f}"><title>{count:,}</title></rect>'
            for place, count, style in bins
        ]
    y = len(by_kind) * _ROW
    rows.append(f'<text class="soft" x="{_LEFT}" y="{y + 16}">1</text>')
    rows.append(f'<text class="soft" x="{_WIDTH}" y="{y + 16}" text-anchor="end">{last:,}</text>')
    return _svg(y + 24, rows, "Where violations lie")


def _svg(height: int, rows: Iterable[str], title: str) -> str:
    drawn = f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">{"".join(rows)}</svg>'
    return f'<div class="scroll">{drawn}</div>'


def _samples(samples: Sequence[Mapping[str, type_of_value]]) -> str:
    return _table(
        ("violation", "counts_as", "stream", "subscription", "source", "number", "sequence", "detail"), samples
    )


def _counted(title: str, rows: Sequence[Mapping[str, type_of_value]]) -> list[str]:
    if not rows:
        return []
    rest = f"The first {SHOWN_MAX:,}; all of them are in <code>{title.lower()}</code> beside this page."
    told = [f'<p class="soft">{rest}</p>'] if len(rows) == SHOWN_MAX else []
    return [f"<h2>{title}</h2>", *told, _table(tuple(rows[0]), rows)]


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, type_of_value]]) -> str:
    listed = list(rows)
    numeric = {name for name in columns if all(isinstance(row[name], int | None) for row in listed)}
    kinds = {name: ' class="number"' if name in numeric else "" for name in columns} | {"violation": ' class="name"'}
    head = "".join(f"<th{kinds[name]}>{escape(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{kinds[name]}>{escape(_text(row[name]))}</td>" for name in columns) + "</tr>"
        for row in listed
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(value: type_of_value) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else value
