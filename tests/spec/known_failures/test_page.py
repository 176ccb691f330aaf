"""The page of known failures has a line for each test here, and each test says where its anomaly was seen."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/explanation/known-failures.md"
ANOMALIES_MIN = 15


def anomalies() -> dict[str, str]:
    """The tests that re-enact something, with their docstrings."""
    here = Path(__file__)
    return {
        node.name: ast.get_docstring(node) or ""
        for path in sorted(here.parent.glob("test_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if path.name != here.name and isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_each_anomaly_is_on_the_page_and_the_page_names_no_test_that_is_not_there() -> None:
    named = re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert [name for name in anomalies() if name not in named] == []
    assert [name for name in named if name not in there] == []
    assert len(anomalies()) >= ANOMALIES_MIN


def test_each_anomaly_says_where_it_was_seen_and_what_is_re_enacted() -> None:
    sourced = re.compile(r"^Seen in: .*(https?://|#\d+|KAFKA-\d+).*^Here: ", re.MULTILINE | re.DOTALL)
    assert [name for name, docstring in anomalies().items() if not sourced.search(docstring)] == []
