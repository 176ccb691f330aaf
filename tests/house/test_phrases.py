"""Phrases that readers had to read twice do not come back, in code, pages or notes of changes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.tree import ROOT, TEXT_SUFFIXES, files_under

PHRASES = (
    "prove or refute",
    "loses, doubles and reorders nothing",
    "is no way to settle",
    "waits for company",
    "the same put again is the same put",
    "until it has said who it is",
    "doors that prove nothing",
    "was given what is no publication",
    "while nobody uses it",
)
PLACES = ("src", "docs", "changes", "examples", "benchmarks", "scripts")
PAGES = ("README.md", "CHANGELOG.md", "SECURITY.md")
FOR_USERS = ("prove nothing", "proves nothing", "proves or refutes", "wrote down", "said who they are")
"""Phrases that users' pages do without; code may use its own words."""
BREAK = re.compile(r"""["'#*|>\s]+""")
"""What may stand between two words of a sentence: also the end of a line, and of a string that goes on behind it."""


def phrases_in(text: str, phrases: tuple[str, ...] = PHRASES) -> list[str]:
    said = BREAK.sub(" ", text).lower()
    return [phrase for phrase in phrases if phrase in said]


def texts() -> list[Path]:
    pages = [ROOT / page for page in PAGES]
    return [*pages, *(path for name in PLACES for path in files_under(ROOT / name) if path.suffix in TEXT_SUFFIXES)]


def test_phrases_that_had_to_be_read_twice_stand_nowhere() -> None:
    assert len(texts()) > 100
    found = [
        f"{path.relative_to(ROOT)}: {phrase}" for path in texts() for phrase in phrases_in(path.read_text("utf-8"))
    ]
    assert found == []


def test_pages_for_users_and_notes_of_changes_name_things_by_their_usual_names() -> None:
    places = [ROOT / "changes", *(ROOT / "docs" / name for name in ("how-to", "reference", "explanation"))]
    pages = [path for place in places for path in files_under(place) if path.suffix == ".md"]
    assert len(pages) > 100
    found = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for path in pages
        for phrase in phrases_in(path.read_text("utf-8"), FOR_USERS)
    ]
    assert found == []


def test_a_phrase_is_found_across_lines_and_strings() -> None:
    assert phrases_in('said = "This is no way"\n    " to settle"') == ["is no way to settle"]
    assert phrases_in("Doors that\n  # prove nothing.") == ["doors that prove nothing"]
    assert phrases_in("doors that prove who comes") == []
