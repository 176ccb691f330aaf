"""No outcome is better than the evidence."""

import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from veredus.audit import CLAIMS, VIOLATIONS, Evidence, NodeJournal, Outcome
from veredus.audit.page import SHOWN_MAX, page_of
from veredus.audit.verdict import Count, Verdict, judge
from veredus.recording import Kind

WHOLE: dict[Kind, tuple[str, ...]] = dict.fromkeys(Kind, ())


def outcomes(counts: dict[str, Count], doubts: dict[Kind, tuple[str, ...]]) -> dict[str, Outcome]:
    return {judged.claim.name: judged.outcome for judged in judge(CLAIMS, counts, doubts)}


def test_every_claim_holds_where_all_evidence_is_there_and_nothing_speaks_against_it() -> None:
    assert set(outcomes({}, WHOLE).values()) == {Outcome.HOLDS}


@pytest.mark.parametrize("missing", list(Kind))
def test_a_claim_is_not_proved_without_a_side_that_it_needs(missing: Kind) -> None:
    there = {kind: () for kind in Kind if kind is not missing}
    for name, outcome in outcomes({}, there).items():
        needed = missing in CLAIMS[name].needs
        assert outcome is (Outcome.NOT_PROVED if needed else Outcome.HOLDS), name


@pytest.mark.parametrize("side", list(Kind))
def test_a_claim_is_not_proved_by_a_side_of_which_something_is_missing(side: Kind) -> None:
    for name, outcome in outcomes({}, WHOLE | {side: ("a part is missing",)}).items():
        assert outcome is (Outcome.NOT_PROVED if side in CLAIMS[name].needs else Outcome.HOLDS), name


@pytest.mark.parametrize("violation", list(VIOLATIONS))
def test_one_certain_violation_refutes_its_claim_and_no_other(violation: str) -> None:
    found = outcomes({violation: Count(certain=1)}, WHOLE)
    assert [name for name, outcome in found.items() if outcome is Outcome.REFUTED] == [VIOLATIONS[violation].claim]
    assert set(found.values()) == {Outcome.HOLDS, Outcome.REFUTED}


def test_what_the_evidence_cannot_tell_is_neither_proved_nor_refuted() -> None:
    (judged,) = judge(["kept/journal"], {"lost": Count(uncertain=3)}, WHOLE)
    assert judged.outcome is Outcome.NOT_PROVED
    assert "3" in judged.reasons[0]


def test_what_was_reported_by_name_refutes_nothing_and_is_not_proved() -> None:
    (judged,) = judge(["kept/journal"], {"lost": Count(reported=3)}, WHOLE)
    assert (judged.outcome, judged.violation_count, judged.reported_count) == (Outcome.REPORTED, 0, 3)


def test_the_worst_outcome_is_that_of_the_whole() -> None:
    both = judge(CLAIMS, {"lost": Count(certain=1)}, {kind: () for kind in Kind if kind is not Kind.PUSHED})
    assert Verdict(both).outcome is Outcome.REFUTED
    assert Verdict(judge(CLAIMS, {}, {})).outcome is Outcome.NOT_PROVED
    assert Verdict(judge(CLAIMS, {}, WHOLE)).outcome is Outcome.HOLDS


def test_the_page_loads_nothing_and_escapes_what_it_shows() -> None:
    sample = {
        "violation": "lost", "counts_as": "violation", "stream": "<script>", "subscription": "", "source": "a&b",
        "number": 1234567, "sequence": None, "detail": "gone",
    }  # fmt: skip
    place = {"violation": "lost", "counts_as": "violation", "bin": 3, "count": 1, "last": 99}
    page = page_of(Verdict(judge(CLAIMS, {"lost": Count(1)}, WHOLE), (sample,), {Kind.JOURNAL: 5}, places=(place,)))
    assert "<script" not in page
    assert "http" not in page
    assert "src=" not in page
    assert "url(" not in page
    assert "&lt;script&gt;" in page
    assert "a&amp;b" in page
    assert "1,234,567" in page
    assert all(escape(claim.words) in page for claim in CLAIMS.values())


def test_the_page_says_when_it_was_judged_by_what_and_what_was() -> None:
    about = {"judged": "2026-11-23 06:00:00 UTC", "version": "Veredus 0.1.0", "journal": "unix:///run/<node>: trades"}
    page = page_of(Verdict(judge(CLAIMS, {}, WHOLE), about=about))
    for name, text in about.items():
        assert f"<th>{name}</th><td>{escape(text)}</td>" in page


def test_the_evidence_tells_where_it_was_gathered(tmp_path: Path) -> None:
    journal = NodeJournal("veredus://127.0.0.1:7071", ("trades", "quotes"), {})
    sides = Evidence(offered=tmp_path / "offered", journal=journal)
    assert sides.told() == {"offered": str(tmp_path / "offered"), "journal": "veredus://127.0.0.1:7071: trades, quotes"}
    gathered = replace(sides, origin=str(tmp_path))
    assert gathered.told() == {"evidence": str(tmp_path), "journal": "veredus://127.0.0.1:7071: trades, quotes"}


def test_the_page_tells_what_is_certain_from_what_is_not_and_nothing_from_little() -> None:
    places = tuple(
        {"violation": "lost", "counts_as": says, "bin": index, "count": 1, "last": 99}
        for index, says in enumerate(("not certain", "violation", "reported"))
    )
    page = page_of(Verdict(judge(CLAIMS, {}, WHOLE), rows={Kind.JOURNAL: 5, Kind.GAPS: 0}, places=places))
    assert re.findall(r'<rect class="(hit|unsure)"', page) == ["unsure", "hit"]
    assert re.findall(r'<rect class="bar"[^>]* width="([\d.]+)"', page) == ["640.0", "0.0"]


def test_the_page_says_where_all_sources_are_when_it_does_not_show_them() -> None:
    def page(count: int) -> str:
        sources = tuple({"stream": "s", "source": f"desk-{number}"} for number in range(count))
        return page_of(Verdict(judge(CLAIMS, {}, WHOLE), sources=sources))

    assert "The first 1,000; all of them are in <code>sources</code>" in page(SHOWN_MAX)
    assert "The first" not in page(SHOWN_MAX - 1)
