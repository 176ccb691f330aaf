"""The page of guarantees names tests that exist, and at least three for each guarantee."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/guarantees.md"


def test_every_test_that_the_page_of_guarantees_names_exists() -> None:
    named = re.findall(r"`(test_\w+)`", PAGE.read_text())
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert [name for name in named if name not in there] == []


def test_each_of_the_eight_guarantees_is_held_by_several_tests() -> None:
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert [section[0] for section in sections] == list("12345678")
    assert all(len(re.findall(r"`test_\w+`", section)) >= 3 for section in sections)
