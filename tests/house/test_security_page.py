"""SECURITY.md names what holds its promises: each thing that it names exists."""

import re

from tests.house.tree import ROOT


def test_what_the_security_page_names_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)`", text) + re.findall(r"\]\(((?!http)[^)#]+)", text)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []
