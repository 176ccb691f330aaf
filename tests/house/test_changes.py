"""Changelog fragments are named and written as changes/README.md says."""

import re

from tests.house.tree import ROOT

KINDS = ("security", "added", "changed", "deprecated", "removed", "fixed", "formats")
NAME = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")


def faults_of(name: str, text: str) -> list[str]:
    faults = [] if NAME.fullmatch(name) else [f"{name}: is not named <topic>.<kind>.md"]
    return faults if text.strip().endswith(".") else [*faults, f"{name}: does not end with a full stop"]


def test_every_changelog_fragment_keeps_its_form() -> None:
    fragments = [path for path in sorted((ROOT / "changes").iterdir()) if path.name != "README.md"]
    assert [fault for path in fragments for fault in faults_of(path.name, path.read_text(encoding="utf-8"))] == []


def test_the_readme_of_changes_names_every_kind() -> None:
    readme = (ROOT / "changes" / "README.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"`{kind}`" not in readme] == []


def test_a_fragment_without_form_is_found() -> None:
    assert faults_of("resume-tokens.added.md", "A source can store a token.\n") == []
    assert len(faults_of("Resume_Tokens.md", "a token")) == 2
