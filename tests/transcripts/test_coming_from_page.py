"""What the page for users of other systems translates to exists: commands, their options, and names of the library."""

import inspect
import re
import shlex

import pytest

import veredus
from tests.transcripts.pages import ROOT
from tests.transcripts.test_command_line_page import OPTION, commands, options_of
from veredus.cli import veredus as command_line

TEXT = (ROOT / "docs/how-to/coming-from.md").read_text(encoding="utf-8")
SPANS = [span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", TEXT)]
TYPED = [span.rpartition("| ")[2] for span in SPANS if re.search(r"(^|\| )veredus ", span)]


@pytest.mark.parametrize("typed", TYPED)
def test_a_command_that_the_page_names_exists_with_its_options(typed: str) -> None:
    words = " ".join(shlex.split(typed)[1:])
    found = [(name, command) for name, command in commands(command_line) if f"{words} ".startswith(f"{name} ")]
    assert len(found) == 1
    assert set(OPTION.findall(typed)) <= options_of(found[0][1])


def test_what_the_page_names_of_the_library_exists() -> None:
    names = {name for span in SPANS for name in re.findall(r"veredus\.(\w+)\(", span)}
    assert {"head", "beginning"} <= names
    assert [name for name in names if not hasattr(veredus, name)] == []
    arguments = {*inspect.signature(veredus.Node.subscribe).parameters} | {
        *inspect.signature(veredus.Node.publisher).parameters
    }
    named = {"subscriber", "mode", "window_size", "attempts_max", "parked_to", "keys", "where", "source", "linger_ms"}
    assert named <= arguments
    assert [name for name in named if name not in TEXT] == []
