"""Shells complete what the commands have, and the man pages say it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.house.tree import ROOT
from tests.processes import ended
from veredus.cli import VERBS, veredus
from veredus.cli.completion import SHELLS
from veredus.cli.exits import Exit

PROGRAM = Path(sys.executable).with_name("veredus")
LAZY = """
import os, sys
os.environ["_VEREDUS_COMPLETE"], os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "bash_complete", "veredus ", "1"
from veredus.cli import main
try:
    main()
finally:
    print("imported", sorted(name for name in sys.modules if name.startswith("veredus.cli.")))
"""
BASH = """
source "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
complete -p veredus
_veredus_completion veredus 2>&1
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the script of each shell, named for it."""
    directory = tmp_path_factory.mktemp("scripts")
    for shell in SHELLS:
        made = ended([str(PROGRAM), "completion", shell])
        assert (made.returncode, made.stderr) == (Exit.OK, "")
        (directory / shell).write_text(made.stdout)
    return directory


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}


def completed_by_bash(scripts: Path, *words: str) -> list[str]:
    """What a real bash would offer behind these words, of which the last one is being typed."""
    command = ["bash", "--norc", "-c", BASH, "bash", str(scripts / "bash"), *words]
    said = ended(command, env=environment())
    assert said.returncode == 0, said.stderr
    first, *offered = said.stdout.splitlines()
    assert first == "complete -o nosort -F _veredus_completion veredus"
    return [word for word in offered if word]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_and_choices(scripts: Path) -> None:
    assert completed_by_bash(scripts, "veredus", "") == list(VERBS)
    assert completed_by_bash(scripts, "veredus", "s") == [name for name in VERBS if name.startswith("s")]
    assert completed_by_bash(scripts, "veredus", "stream", "al") == ["alter"]
    assert "--directory" in completed_by_bash(scripts, "veredus", "serve", "--d")
    assert completed_by_bash(scripts, "veredus", "pub", "s", "--compression", "z") == ["zstd"]
    assert completed_by_bash(scripts, "veredus", "completion", "") == list(SHELLS)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_an_unknown_command_on_the_way_is_no_error_in_the_middle_of_typing(scripts: Path) -> None:
    assert completed_by_bash(scripts, "veredus", "nonsense", "") == list(VERBS)
    assert completed_by_bash(scripts, "veredus", "stream", "nonsense", "l") == ["ls"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_takes_the_script_and_asks_the_command(scripts: Path) -> None:
    take = f"autoload -U compinit; compinit -D; source {scripts / 'zsh'}; print -- $_comps[veredus]"
    said = ended(["zsh", "-f", "-c", take], env=environment())
    assert (said.returncode, said.stdout, said.stderr) == (0, "_veredus_completion\n", "")
    asked = {**environment(), "COMP_WORDS": "veredus st", "COMP_CWORD": "1", "_VEREDUS_COMPLETE": "zsh_complete"}
    words = ended([str(PROGRAM)], env=asked).stdout.splitlines()
    assert words[1::3] == ["stream", "stage"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes_commands_with_what_they_do(scripts: Path) -> None:
    said = ended(
        ["fish", "--no-config", "-c", f"source {scripts / 'fish'}; complete -C 'veredus strea'"], env=environment()
    )
    assert (said.stdout, said.stderr) == (f"stream\t{VERBS['stream'][1]}\n", "")


def test_an_unknown_shell_is_refused_with_those_that_are_known() -> None:
    refused = ended([str(PROGRAM), "completion", "tcsh"])
    assert refused.returncode == Exit.USAGE
    assert all(shell in refused.stderr for shell in SHELLS)


def test_the_names_of_commands_are_completed_without_importing_one() -> None:
    said = ended([sys.executable, "-c", LAZY])
    *words, imported = said.stdout.splitlines()
    assert [word.partition(",")[2] for word in words] == list(VERBS)
    assert imported == "imported ['veredus.cli.exits']"


def commands(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    """A command and all below it, by the names of their pages."""
    found = [(name, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            found += commands(below, f"{name}-{each}")
    return found


def test_there_is_a_man_page_for_each_command_with_all_its_options(tmp_path: Path) -> None:
    made = ended([sys.executable, str(ROOT / "scripts" / "man.py"), str(tmp_path)])
    assert (made.returncode, made.stderr) == (0, "")
    pages = {path.stem: path.read_text("utf-8").replace("\\-", "-") for path in tmp_path.iterdir()}
    known = commands(veredus, "veredus")
    assert set(pages) == {name for name, _ in known}
    for name, command in known:
        options = [option for param in command.params for option in param.opts if isinstance(param, click.Option)]
        assert [option for option in [*options, "--help"] if option not in pages[name]] == []
        assert {f"{name}-{each}" for each in getattr(command, "commands", {})} <= set(pages)
    if shutil.which("groff") is not None:
        checking = ["groff", "-man", "-ww", "-z", "-Kutf8", "-Tutf8", *map(str, sorted(tmp_path.iterdir()))]
        assert subprocess.run(checking, capture_output=True, text=True, timeout=60).stderr == ""
