"""The command: a plan can be looked at, what cannot be run is refused with its place, and Spark is asked for first."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import wait_until
from veredus.chaos import netem
from veredus.chaos.plan import draw, faults_of
from veredus.cli import veredus
from veredus.cli.exits import Exit, run


def test_a_plan_is_printed_and_nothing_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["chaos", "--plan", "--seed", "4", "--seconds", "20", "--faults", "kill,flip", "--directory"]
    assert run(veredus, [*arguments, str(tmp_path / "none")]) == Exit.OK
    said = capsys.readouterr().out
    plan = draw(4, 20, ("kill", "flip"), page_count=2, topic_count=2)
    assert said.startswith(f"seed 4, 20 s, {len(plan.strikes)} faults\n")
    assert all(f"  {strike}\n" in said for strike in plan.strikes)
    assert all(member.name in said for member in plan.members)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--faults", "kill,flop"], "fault 2 of 'kill,flop' is 'flop'"),
        (["--seconds", "1"], "seconds is 1: it may be 3 to 3600"),
        (["--sources", "0"], "sources is 0: it may be 1 to 16"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    directory = tmp_path / "none"
    assert run(veredus, ["chaos", "--directory", str(directory), *arguments]) == Exit.USAGE
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
    assert not directory.exists()


def test_without_spark_it_says_what_to_install_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else real(name))
    assert run(veredus, ["chaos", "--directory", str(tmp_path / "none")]) == Exit.REFUSED
    assert "pip install 'veredus[spark]'" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_directory_that_holds_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / "plan.json").touch()
    assert run(veredus, ["chaos", "--faults", "kill", "--directory", str(tmp_path)]) == Exit.USAGE
    assert "is not empty" in capsys.readouterr().err


def test_packets_are_never_spoiled_outside_of_a_namespace_of_the_run_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(netem.subprocess, "run", lambda *arguments, **_: ran.append(arguments))
    for is_marked in (False, True):
        if is_marked:
            # Marked, but with interfaces beside loopback: whatever this is, it is not the run's own.
            monkeypatch.setenv("VEREDUS_CHAOS_NAMESPACE", "1")
            monkeypatch.setattr(netem.socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
        with pytest.raises(RuntimeError, match="namespace of the run's own"):
            netem.begin("loss", 10)
        assert not netem.is_inside()
    assert ran == []
    monkeypatch.setattr(netem.socket, "if_nameindex", lambda: [(1, "lo")])
    netem.begin("delay", 10)
    assert ran == [(["tc", "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "10ms", "10ms"],)]


def test_why_the_kernel_s_bad_network_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netem.shutil, "which", lambda name: None if name == "tc" else "/sbin/" + name)
    monkeypatch.setattr(netem.sys, "platform", "linux")
    assert netem.why_not() == "tc is not installed"
    monkeypatch.setattr(netem.sys, "platform", "darwin")
    assert netem.why_not() == "it takes Linux"


def test_a_list_of_faults_may_have_spaces_and_repeat_itself() -> None:
    assert faults_of(" kill , kill,pause") == ("kill", "pause")


def mounts_of(process: int | str) -> str:
    return Path(f"/proc/{process}/mounts").read_text()


def processes_of(name: str) -> list[int]:
    """The processes that were told the run's directory."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return [int(pid) for pid, stat, said in rows if f"/{name}" in said and not stat.startswith("Z")]


@pytest.mark.timeout(120)
def test_a_run_that_is_killed_leaves_no_process_and_no_mount_behind(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    if not netem.may_mount():
        pytest.skip("this user may have no mounts of its own")
    name = f"run-of-{os.getpid()}"
    command = [sys.executable, "-m", "veredus", "chaos", "--seconds", "60", "--faults", "full,pause"]
    with subprocess.Popen([*command, "--directory", str(tmp_path / name)], stderr=subprocess.DEVNULL) as running:
        try:
            wait_until(lambda: len(processes_of(name)) > 3)
            assert "veredus-chaos" in mounts_of(running.pid)
            assert str(tmp_path) not in mounts_of("self")
        finally:
            running.kill()
    wait_until(lambda: not processes_of(name))
    assert list((tmp_path / name / "seed-1" / "disk").iterdir()) == []
