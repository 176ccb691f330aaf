"""SECURITY.md names what holds its promises: each thing that it names exists, and `make attack` runs the attacks."""

import re

from tests.house.tree import ROOT

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_what_the_security_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", TEXT) + re.findall(r"\]\(((?!http)[^)#]+)", TEXT)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_what_the_security_page_names_of_whole_systems_is_run_by_make_attack() -> None:
    named = re.findall(r"`(tests/system/\w+\.py)`", TEXT)
    assert len(named) > 5
    assert [path for path in named if "pytest.mark.attack" not in (ROOT / path).read_text(encoding="utf-8")] == []
