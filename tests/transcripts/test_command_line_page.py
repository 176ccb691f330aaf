"""What the page on the command line says of commands, options and exit codes is what they are, and its blocks run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import veredus
from tests.transcripts.pages import ROOT, blocks_in
from tests.transcripts.shell import check_block, typed
from veredus.cli import veredus as command_line
from veredus.cli.exits import Exit

PAGE = "docs/reference/cli.md"
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")


def sections() -> dict[str, str]:
    """The text of each section of the page, by its title."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(group: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words that are typed for it."""
    if not isinstance(group, click.Group):
        yield name, group
        return
    context = click.Context(group)
    for verb in group.list_commands(context):
        command = group.get_command(context, verb)
        assert command is not None
        yield from commands(command, f"{name} {verb}".strip())


def options_of(command: click.Command) -> set[str]:
    return {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}


def synopses() -> dict[str, str]:
    """What the page shows of how each command is typed, by its words."""
    text = "".join(sections().values())
    typed = re.findall(r"^    veredus (.*(?:\n     .*)*)", text, re.MULTILINE)
    return {name: shown for shown in typed for name, _ in commands(command_line) if re.match(rf"{name}\b", shown)}


def test_every_command_is_shown_once_and_listed_at_the_top() -> None:
    known = [name for name, _ in commands(command_line)]
    assert sorted(synopses()) == sorted(known)
    listed = []
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for verb, rest in re.findall(r"^\| \[`(\w+)`\]\(#\w+\)([^|]*)\|", text, re.MULTILINE):
        listed += [f"{verb} {word}" for word in re.findall(r"`([\w-]+)`", rest)] or [verb]
    assert sorted(listed) == sorted(known)


@pytest.mark.parametrize("name", [name for name, _ in commands(command_line) if not name.startswith("sim ")])
def test_a_commands_section_names_its_options_and_no_others(name: str) -> None:
    known = dict(commands(command_line))
    verb = name.split()[0]
    section = without_blocks(sections()[verb])
    of_verb = [command for words, command in known.items() if words.split()[0] == verb]
    group = command_line.get_command(click.Context(command_line), verb)
    assert group is not None
    own = {option for command in (group, *of_verb) for option in options_of(command)}
    assert set(OPTION.findall(synopses()[name])) <= options_of(known[name])
    assert {option for code in re.findall(r"`[^`]+`", section) for option in OPTION.findall(code)} <= own
    told = set(OPTION.findall(section)) | of_all()
    options = [parameter for parameter in known[name].params if isinstance(parameter, click.Option)]
    assert [option.opts for option in options if told.isdisjoint((*option.opts, *option.secondary_opts))] == []


def without_blocks(section: str) -> str:
    return re.sub(r"^```.*?^```$", "", section, flags=re.MULTILINE | re.DOTALL)


def of_all() -> set[str]:
    """The options that are told of once for all commands."""
    common = "".join(sections()[title] for title in ("Which node, and as whom", "Records in pipes"))
    return {*OPTION.findall(common), "--output", "-o"}


def test_the_options_of_simulated_worlds_are_those_that_its_help_lists(tmp_path: Path) -> None:
    listed = {
        option
        for verb in ("run", "campaign")
        for option in OPTION.findall(typed(f"veredus sim {verb} --help", tmp_path))
    }
    assert set(OPTION.findall(without_blocks(sections()["sim"]))) == listed - {"-h", "--help"}


def test_the_options_for_the_node_are_those_that_commands_have() -> None:
    of_sub = options_of(dict(commands(command_line))["sub"])
    table = re.findall(r"^\| (`-[^|]*)\|", sections()["Which node, and as whom"], re.MULTILINE)
    assert {option for cell in table for option in OPTION.findall(cell)} <= of_sub


def test_every_exit_code_is_on_the_page() -> None:
    codes = re.findall(r"^\| (\d+) \|", sections()["Exit codes"], re.MULTILINE)
    assert [int(code) for code in codes] == list(Exit)


@pytest.mark.slow
def test_what_is_typed_on_the_page_gives_what_it_shows(tmp_path: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("there is no jq")
    blocks = blocks_in(PAGE, "console")
    assert blocks
    with veredus.embedded(journal={"sync": "none"}) as node:
        for block in blocks:
            check_block(block, tmp_path, VEREDUS_ADDRESS=node.served.address)
