"""`veredus proxy` says where it could listen, and keeps shut what should be."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import veredus.topics
from tests.processes import Child
from veredus.cli import veredus as command
from veredus.cli.exits import Exit, run
from veredus.cli.proxy import proxy_settings
from veredus.node.settings import TopicsSection
from veredus.protocols.topics.proxy import ProxySettings

OPEN = "0.0.0.0:7081"
ELSEWHERE = "192.0.2.1:7081"


def refusal(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said about settings with which no proxy starts."""
    assert run(command, ["proxy", *arguments]) == Exit.USAGE
    said = capfd.readouterr().err
    assert "[bad-settings]" in said
    return said


def test_which_of_several_proxies_it_is_has_to_be_said(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "topics.toml"
    config.write_text('[topics]\nproxies = ["127.0.0.1:7081", "127.0.0.1:7082"]\n')
    said = refusal(capfd, "--config", str(config))
    assert "give --listen, one of 127.0.0.1:7081, 127.0.0.1:7082" in said
    assert "there are none in topics.proxies" in refusal(capfd, "--set", "topics.proxies=")


@pytest.mark.parametrize(
    "arguments",
    [("--listen", OPEN), ("--set", f"topics.listen={OPEN}"), ("--set", f"topics.proxies={ELSEWHERE}")],
    ids=["flag", "setting", "the only proxy"],
)
def test_off_loopback_it_must_be_meant_and_its_servers_listed(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, str]
) -> None:
    address = arguments[1].rpartition("=")[2]
    assert f"topics.listen: {address} is open to other machines" in refusal(capfd, *arguments)
    said = refusal(capfd, *arguments, "--set", "security.insecure=true")
    assert f"topics.listen: {address} is open to other machines" in said
    assert "list the servers by id in topics.servers (--set or VEREDUS_TOPICS_SERVERS)" in said


def test_what_is_set_wrongly_is_told_with_its_place(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "topics.toml"
    config.write_text('[topics]\nanswer = "0ms"\n')
    assert f"{config}:2:1: topics.answer" in refusal(capfd, "--config", str(config))
    assert run(command, ["proxy", "--set", "topics.listen"]) == Exit.USAGE
    assert "is not SECTION.NAME=VALUE" in capfd.readouterr().err


def test_a_proxy_learns_for_longer_than_the_servers_period() -> None:
    given = TopicsSection(
        answer_ns=3, retries_max=4, period_ns=1000, servers=("s:1",), requests_max=5, body_size_max=6000
    )
    assert proxy_settings(given, 7) == ProxySettings("", 3, 4, 1200, ("s:1",), 5, 6000, 7)


def test_a_proxy_that_could_let_nobody_in_does_not_start(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "topics.toml"
    file.write_text('[security]\ntokens = "gone"\n[[security.rules]]\nprincipal = "*"\nmay = ["*"]\n')
    said = refusal(capfd, "--config", str(file), "--listen", "127.0.0.1:0")
    assert "security.tokens: gone: there is no such file" in said.replace(f"{tmp_path}/", "")


def test_a_proxy_waits_for_announcements_from_its_start_on_and_not_from_the_first_question(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from veredus.cli import main; main()"]
    settings = ["--set", "topics.servers=127.0.0.1:1", "--set", "topics.period=500ms", "--listen", "127.0.0.1:0"]
    with Child([*program, "proxy", *settings], stderr=subprocess.PIPE) as proxy:
        assert proxy.stderr is not None
        address = json.loads(proxy.stderr.readline())["address"]
        time.sleep(1)
        with (
            veredus.topics.Client("a", proxies=[address], directory=tmp_path, retries_max=0) as client,
            pytest.raises(veredus.Unavailable, match="no server has announced itself"),
        ):
            client.subscribe("t")
