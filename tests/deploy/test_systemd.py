"""The unit of systemd names what exists, gives a stop its time, and tries again what may go away by itself."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.deploy.reading import DEPLOY, check_command, faults_of_environment
from tests.processes import END_S, ended
from tests.reference.pages import REFERENCE
from veredus.cli.exits import Exit, exit_of
from veredus.kernel.errors import Misuse, Refused, Unavailable
from veredus.node.settings import NodeSettings
from veredus.runtime.limits import DESCRIPTORS_RESERVED
from veredus.runtime.serve import JOURNAL_TIMEOUT_S
from veredus.runtime.service_manager import END_S as REST_S
from veredus.runtime.telemetry import CONNECTIONS_MAX as METRICS_CONNECTIONS_MAX

UNIT = DEPLOY / "systemd" / "veredus.service"
PROGRAM = "/opt/veredus/bin/veredus"
KINDS = {"Misuse": Misuse, "Refused": Refused, "Unavailable": Unavailable}


def values_of(name: str) -> list[str]:
    """What a setting of the unit is set to, one by one."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)


def codes_of(name: str) -> set[int]:
    return {int(code) for value in values_of(name) for code in value.split()}


def environment() -> dict[str, str]:
    return dict(value.split("=", 1) for value in values_of("Environment"))


def failures_of_a_start() -> list[tuple[str, str]]:
    """Code and kind of each error of a node and its journal, as the page of errors lists them."""
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    part = page.partition("## The node and its journal\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in part.splitlines() if line.startswith("| `")]
    return [(code, kind.strip()) for codes, kind in rows for code in re.findall(r"`([a-z-]+)`", codes)]


def test_every_variable_of_the_unit_is_a_setting() -> None:
    assert set(environment()) == {"VEREDUS_SETTINGS", "VEREDUS_NODE_DIRECTORY"}
    assert faults_of_environment(environment()) == []


def test_every_command_of_the_unit_is_one_of_the_command_line(tmp_path: Path) -> None:
    commands = values_of("ExecStart") + values_of("ExecReload")
    assert len(commands) == 2
    for command in commands:
        check_command(shlex.split(command.replace("${VEREDUS_NODE_DIRECTORY}", str(tmp_path))))


def test_what_needs_somebody_to_put_it_right_is_not_tried_again_and_all_else_is() -> None:
    given_up = codes_of("RestartPreventExitStatus")
    failures = failures_of_a_start()
    assert ("journal-damaged", "Refused") in failures
    wrong = [
        (code, kind)
        for code, kind in failures
        if (exit_of(KINDS[kind](code, "said")) in given_up) is (kind == "Unavailable")
    ]
    assert wrong == []
    assert Exit.ERROR not in given_up
    assert codes_of("SuccessExitStatus") == {Exit.INTERRUPTED}


def test_a_stop_has_the_time_that_it_may_take_and_the_node_the_files_that_it_may_open() -> None:
    settings = NodeSettings()
    takes_s = settings.node.drain_timeout_ns / 1e9 + JOURNAL_TIMEOUT_S + REST_S
    assert int(values_of("TimeoutStopSec")[0]) >= takes_s
    files = settings.limits.connections_max + DESCRIPTORS_RESERVED + METRICS_CONNECTIONS_MAX
    assert int(values_of("LimitNOFILE")[0]) >= files


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("veredus")
    unit = tmp_path / "veredus.service"
    text = UNIT.read_text(encoding="utf-8")
    assert PROGRAM in text
    unit.write_text(text.replace(PROGRAM, str(program)), encoding="utf-8")
    verified = ended(["systemd-analyze", "verify", "--man=no", str(unit)], life_s=4 * END_S)
    assert (verified.returncode, verified.stderr) == (0, "")
