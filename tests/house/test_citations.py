"""What code, tests and pages cite is there: pages and their sections, guarantees, decisions, and specifications."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.tree import ROOT, TEXT_SUFFIXES, files_under

PLACES = ("src", "tests", "docs", "changes", "examples", "fuzz", "benchmarks", "mutants", "scripts")
PAGES = ("README.md", "CHANGELOG.md", "SECURITY.md")
CHANGELOG = ROOT / "CHANGELOG.md"
DESIGN = "docs/internals/DESIGN.md"
DECISIONS = ROOT / "docs" / "decisions"
GUARANTEES = ROOT / "docs" / "reference" / "guarantees.md"


def some(item: str) -> str:
    """One of these, or several: `4`, `1 to 4 and 7`."""
    return rf"({item}(?:(?:, and|,| and| to) {item})*)"


BREAK = re.compile(r"[#*>\s]+")
"""What may stand between two words of a citation: also the end of a line, in a comment too."""
NUMBER, QUOTED = r"\d+", r'"[^"]+"'
PAGE = re.compile(rf"(?<!\]\()(docs/[\w/-]+\.md)(?:,? \(?{some(QUOTED)})?")
GUARANTEE = re.compile(rf"\bguarantees? {some(NUMBER)}", re.IGNORECASE)
DECISION = re.compile(rf"(?:docs/decisions/|\bADR |\bdecision ){some(NUMBER)}", re.IGNORECASE)
SEED = re.compile(rf"\bseed {some('00[0-9]')}", re.IGNORECASE)
NOWHERE = re.compile(r"\bthe design\b", re.IGNORECASE)
"""The design is a page, and has sections."""
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")


@cache
def headings_of(page: Path) -> tuple[str, ...]:
    return tuple(HEADING.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))))


@cache
def guarantees() -> frozenset[int]:
    return frozenset(int(heading.partition(".")[0]) for heading in headings_of(GUARANTEES) if heading[0].isdigit())


@cache
def decisions() -> frozenset[int]:
    return frozenset(int(path.name[:4]) for path in DECISIONS.iterdir())


@cache
def seeds() -> frozenset[int]:
    return frozenset(map(int, re.findall(r"^\| seed (\d+) \|", (ROOT / DESIGN).read_text("utf-8"), re.MULTILINE)))


def numbers_in(pattern: re.Pattern[str], text: str) -> list[int]:
    return [int(number) for cited in pattern.findall(text) for number in re.findall(NUMBER, cited)]


def faults_of(text: str) -> Iterator[str]:
    """Citations in `text` that lead nowhere."""
    text = BREAK.sub(" ", text)
    for page, sections in PAGE.findall(text):
        if not (ROOT / page).is_file():
            yield f"{page}: there is no such page"
        elif page == DESIGN and not sections:
            yield f"{page}: cite a section of it"
        else:
            known = headings_of(ROOT / page)
            yield from (f"{page}, {name}" for name in re.findall(QUOTED, sections) if name[1:-1] not in known)
    yield from (f"guarantee {number}" for number in numbers_in(GUARANTEE, text) if number not in guarantees())
    yield from (f"decision {number}" for number in numbers_in(DECISION, text) if number not in decisions())
    yield from (f"seed {number:03}" for number in numbers_in(SEED, text) if number not in seeds())
    yield from (f"{said!r}: cite a section of {DESIGN}" for said in NOWHERE.findall(text))


def anchor_of(heading: str) -> str:
    """The anchor by which a page links to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def place_of(page: Path) -> Path:
    """From where a page's links lead: a note of a change will be a part of the changelog."""
    return CHANGELOG if page.parent == ROOT / "changes" else page


def broken_links_in(text: str, place: Path) -> list[str]:
    """Links in the text of the page at `place` that lead to no file, or to no heading."""
    broken = []
    for target, anchor in LINK.findall(BLOCK.sub("", text)):
        page = place.parent / target if target else place
        if not page.exists() or (anchor and anchor not in map(anchor_of, headings_of(page))):
            broken.append(f"{target}#{anchor}" if anchor else target)
    return broken


def texts() -> list[Path]:
    """All that may cite; but for this file, which cites wrongly to see that it is found."""
    files = [ROOT / page for page in PAGES]
    files += [path for name in PLACES for path in files_under(ROOT / name)]
    return [path for path in files if path.suffix in TEXT_SUFFIXES | {".patch"} and path != Path(__file__)]


def test_every_citation_leads_somewhere() -> None:
    assert len(texts()) > 500
    found = [f"{path.relative_to(ROOT)}: {fault}" for path in texts() for fault in faults_of(path.read_text("utf-8"))]
    assert found == []


def test_a_decision_has_the_number_of_its_file() -> None:
    titles = {path: headings_of(path)[0] for path in sorted(DECISIONS.iterdir())}
    assert [path.name for path, title in titles.items() if not title.startswith(f"{int(path.name[:4])}. ")] == []


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [path for path in texts() if path.suffix == ".md"]
    assert len(pages) > 300
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in broken_links_in(page.read_text("utf-8"), place_of(page))
    ]
    assert broken == []


def test_a_citation_that_leads_nowhere_is_found() -> None:
    good = f'{DESIGN}, "Flow" and "Checkpoints and\n    # space"; guarantees 1 to 4 and 7; docs/decisions/0004 and 0007'
    assert list(faults_of(good)) == []
    assert list(faults_of(f'{DESIGN}, "Flow" and "Flood"')) == [f'{DESIGN}, "Flood"']
    assert list(faults_of(f"{DESIGN}; guarantee 1")) == [f"{DESIGN}: cite a section of it"]
    assert list(faults_of("docs/how-to/nothing.md")) == ["docs/how-to/nothing.md: there is no such page"]
    assert list(faults_of("guarantees 3, 8 and\n# 9")) == ["guarantee 9"]
    assert list(faults_of("docs/decisions/0012 and 9999; ADR 777")) == ["decision 9999", "decision 777"]
    assert list(faults_of("Source: seed 004, section 2; seed 009, section 1")) == ["seed 009"]
    assert len(list(faults_of("The design, section 4"))) == 1
    links = "[a](docs/nothing.md) [b](SECURITY.md#nothing) [c](LICENSE) [d](docs/proof.md#simulated-worlds)"
    assert broken_links_in(links, ROOT / "README.md") == ["docs/nothing.md", "SECURITY.md#nothing"]
