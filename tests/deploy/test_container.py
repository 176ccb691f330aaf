"""The image and the composition name what the project has, and what they run does what they run it for."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.deploy.reading import DEPLOY, check_command, faults_of_environment
from tests.house.tree import ROOT
from tests.processes import Child, ended, free_port
from tests.system.serving import ServedNode
from veredus.cli.exits import Exit
from veredus.kernel.errors import Refused
from veredus.node.settings import NodeSettings
from veredus.runtime.configuration import read_configuration
from veredus.runtime.serve import JOURNAL_TIMEOUT_S
from veredus.runtime.service_manager import END_S

CONTAINER = DEPLOY / "container"
SETTINGS = CONTAINER / "veredus.toml"


class Instruction(NamedTuple):
    """One instruction of a Containerfile, in its stage."""

    stage: str
    name: str
    text: str


def instructions() -> Iterator[Instruction]:
    lines = [line for line in (CONTAINER / "Containerfile").read_text("utf-8").splitlines() if not line.startswith("#")]
    stage = ""
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        name, _, text = line.partition(" ")
        stage = text.rpartition(" AS ")[2] if name == "FROM" else stage
        if line:
            yield Instruction(stage, name, text)


def texts_of(name: str, stage: str = "node") -> list[str]:
    return [found.text for found in instructions() if (found.stage, found.name) == (stage, name)]


def text_of(name: str, stage: str = "node") -> str:
    (text,) = texts_of(name, stage)
    return text


def composition() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text("utf-8"))
    return found


def health_check() -> list[str]:
    words: list[str] = json.loads(text_of("HEALTHCHECK").partition("CMD ")[2])
    return words


def test_every_stage_begins_with_the_same_image_of_a_given_version() -> None:
    images = {found.text.partition(" AS ")[0] for found in instructions() if found.name == "FROM"}
    assert len(images) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", images.pop())


def test_every_file_that_is_copied_is_there_and_they_make_a_wheel(tmp_path: Path) -> None:
    context = tmp_path / "build"
    context.mkdir()
    for found in instructions():
        if found.name == "COPY":
            *sources, _ = found.text.split()
            assert [source for source in sources if not (ROOT / source).exists()] == []
            for source in sources if found.stage == "build" else ():
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, context / source)
    command = next(text for text in texts_of("RUN", "build") if text.startswith("pip wheel "))
    words = [str(tmp_path / "wheels") if word == "/wheels" else word for word in shlex.split(command)]
    made = ended([sys.executable, "-m", *words], cwd=context)
    assert made.returncode == 0, made.stderr
    assert len(list((tmp_path / "wheels").glob("veredus-*.whl"))) == 1


def test_what_one_stage_takes_from_another_is_made_there() -> None:
    made = {"/wheels", f"{text_of('WORKDIR', 'build')}/requirements"}
    taken = {
        source
        for found in instructions()
        for stage, source in re.findall(r"--mount=from=(\w+),source=([^, ]+)", found.text)
        if stage == "build"
    }
    assert taken == made


def test_the_image_runs_a_node_that_is_not_root_and_keeps_its_journal_in_a_volume() -> None:
    check_command([*json.loads(text_of("ENTRYPOINT")), *json.loads(text_of("CMD"))])
    assert int(text_of("USER")) > 0
    assert text_of("STOPSIGNAL") == "SIGTERM"
    settings = tomllib.loads(SETTINGS.read_text("utf-8"))
    assert Path(settings["node"]["directory"]).parent == Path(text_of("VOLUME"))
    variable, place = text_of("ENV").split("=")
    assert (variable, place) == ("VEREDUS_SETTINGS", text_of("COPY").split()[1])
    assert text_of("COPY").split()[0] == str(SETTINGS.relative_to(ROOT))
    ports = {settings["listen"][name].rpartition(":")[2] for name in ("tcp", "metrics")}
    assert set(text_of("EXPOSE").split()) == ports
    assert any(f", {settings['listen']['metrics'].rpartition(':')[2]}, " in word for word in health_check())


def test_the_image_starts_no_open_node_before_somebody_says_that_its_peers_are_trusted() -> None:
    with pytest.raises(Refused, match="insecure") as refused:
        read_configuration(SETTINGS, {})
    assert refused.value.code == "bad-settings"
    assert read_configuration(SETTINGS, {"VEREDUS_SECURITY_INSECURE": "true"}).settings.security.insecure


def test_the_health_check_tells_a_node_that_lives_from_none(tmp_path: Path) -> None:
    port = free_port()
    program, *arguments = [word.replace("7073", str(port)) for word in health_check()]
    assert program == "python"
    served = ServedNode(tmp_path / "journal", {"LISTEN_METRICS": f"127.0.0.1:{port}"})
    try:
        assert ended([sys.executable, *arguments]).returncode == 1
        served.start().close()
        assert ended([sys.executable, *arguments]).returncode == 0
    finally:
        served.kill()


def test_a_node_that_is_the_first_process_stops_at_sigterm(tmp_path: Path) -> None:
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    if shutil.which("unshare") is None or ended([*apart, "true"]).returncode:
        pytest.skip("this machine gives no process identifiers of their own")
    log = tmp_path / "log"
    environment = {
        **os.environ,
        "VEREDUS_NODE_DIRECTORY": str(tmp_path / "journal"),
        "VEREDUS_LISTEN_TCP": "127.0.0.1:0",
    }
    environment |= {"VEREDUS_LISTEN_ZEROMQ": "", "VEREDUS_LISTEN_METRICS": ""}
    with (
        log.open("wb") as said,
        Child([*apart, sys.executable, "-m", "veredus", "serve"], env=environment, stderr=said) as own,
    ):
        until_s = time.monotonic() + 30
        while b"node-ready" not in log.read_bytes():
            assert time.monotonic() < until_s, log.read_text()
            time.sleep(0.02)
        assert (tmp_path / "journal" / "lock").read_text() == "1\n"
        (first,) = Path(f"/proc/{own.pid}/task/{own.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert own.wait(20) == Exit.OK
    assert "node-stopped" in log.read_text()


def test_the_composition_sets_what_exists_and_publishes_what_is_listened_on() -> None:
    node = composition()["services"]["node"]
    assert faults_of_environment(node["environment"]) == []
    settings = read_configuration(SETTINGS, node["environment"]).settings
    listened = {settings.listen.tcp, settings.listen.metrics}
    assert {f"0.0.0.0:{port.rpartition(':')[2]}" for port in node["ports"]} == listened
    assert all(port.startswith("127.0.0.1:") for port in node["ports"])
    assert [volume.partition(":")[2] for volume in node["volumes"]] == [text_of("VOLUME")]
    assert node["ulimits"]["nofile"] >= settings.limits.connections_max
    takes_s = NodeSettings().node.drain_timeout_ns / 1e9 + JOURNAL_TIMEOUT_S + END_S
    assert float(node["stop_grace_period"].removesuffix("s")) >= takes_s


def test_the_composition_builds_stages_and_mounts_files_and_volumes_that_are_there() -> None:
    whole = composition()
    stages = {found.stage for found in instructions()}
    mounted = set()
    for service in whole["services"].values():
        build = service["build"]
        assert (CONTAINER / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()
        assert build["target"] in stages
        assert set(service.get("depends_on", {})) <= set(whole["services"])
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert (CONTAINER / source).is_file() if source.startswith(".") else source in whole["volumes"]
            mounted.add(source)
    assert set(whole["volumes"]) <= mounted


def test_every_command_in_the_comments_of_the_composition_is_one_of_the_command_line() -> None:
    text = (CONTAINER / "compose.yaml").read_text("utf-8")
    commands = re.findall(r"^#.* node (veredus .*)$", text, re.MULTILINE)
    assert commands
    for command in commands:
        check_command(shlex.split(command))


@pytest.mark.spark
def test_the_spark_of_the_composition_counts_what_the_node_gets(tmp_path: Path) -> None:
    spark = composition()["services"]["spark"]
    _, program, stream, checkpoint = spark["command"]
    mounts = {target: source for source, target, *_ in (volume.split(":") for volume in spark["volumes"])}
    served = ServedNode(tmp_path / "journal", life_s=200)
    command = [sys.executable, str(CONTAINER / mounts[program]), stream, str(tmp_path / "checkpoint")]
    assert checkpoint.startswith(text_of("VOLUME", "spark"))
    environment = {**os.environ, "VEREDUS_ADDRESS": served.address}
    try:
        with (
            served.start() as node,
            node.publisher(stream, source="shell") as publisher,
            Child(command, env=environment, stdout=subprocess.PIPE, life_s=200) as counting,
        ):
            publisher.publish_many([b"k"] * 1000, [b"body"] * 1000)
            assert counting.stdout is not None
            assert any(re.search(rb"\|\s*shell\|\s*1000\|", line) for line in counting.stdout)
    finally:
        served.kill()
