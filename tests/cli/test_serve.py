"""A node as a process: it says where it listens, drains on SIGTERM, and recovers from SIGKILL."""

import errno
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import veredus
from tests.processes import Child, ended, free_port
from veredus.cli.exits import Exit
from veredus.cli.serve import SWITCH_INTERVAL_S
from veredus.kernel.turns import QUANTUM_NS
from veredus.node.figures import FIGURES

COMMAND = [sys.executable, "-c", "from veredus.cli import main; main()"]


class Served:
    """A node's process and where it listens."""

    def __init__(self, process: Child, ready: dict[str, str]) -> None:
        self.process = process
        self.ready = ready

    @property
    def address(self) -> str:
        return f"veredus://{self.ready['tcp']}"


@contextmanager
def served(directory: Path, *arguments: str, tcp: str = "127.0.0.1:0") -> Iterator[Served]:
    command = ["serve", "--directory", str(directory), "--tcp", tcp, "--set", "listen.zeromq=", *arguments]
    with Child([*COMMAND, *command, "--set", "listen.metrics=127.0.0.1:0"], stderr=-1) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said = json.loads(line)
            if said["event"] == "node-ready":
                yield Served(process, said)
                return
        raise AssertionError("the node ended before it was ready")


def serve_in_vain(*arguments: str) -> subprocess.CompletedProcess[str]:
    return ended([*COMMAND, "serve", *arguments])


def wait_for_head(node: veredus.Node, head: int) -> None:
    deadline = time.monotonic() + 30
    while not any(stream["head"] > head for stream in node.streams.list()):
        assert time.monotonic() < deadline, f"no stream came to {head}"


def test_a_node_drains_on_sigterm_and_what_it_took_is_there_at_the_next_start(tmp_path: Path) -> None:
    with served(tmp_path) as first:
        with veredus.connect(first.address) as node, node.publisher("trades", source="desk") as publisher:
            publisher.publish("key", b"body")
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait() == Exit.OK
    with served(tmp_path) as second:
        assert second.ready["was_clean"] is True
        with veredus.connect(second.address) as node:
            assert node.streams.show("trades")["head"] == 1


def test_two_nodes_on_one_directory_or_one_port_are_told_apart(tmp_path: Path) -> None:
    with served(tmp_path / "one") as first:
        locked = serve_in_vain("--directory", str(tmp_path / "one"), "--tcp", "127.0.0.1:0")
        assert (locked.returncode, "[journal-locked]" in locked.stderr) == (Exit.REFUSED, True)
        taken = serve_in_vain("--directory", str(tmp_path / "two"), "--tcp", first.ready["tcp"])
        assert (taken.returncode, "[port-in-use]" in taken.stderr) == (Exit.UNAVAILABLE, True)


def test_a_node_that_finds_addresses_taken_names_all_of_them_at_once(tmp_path: Path) -> None:
    with served(tmp_path / "one") as first:
        taken = first.ready["tcp"]
        unix = tmp_path / "file"
        unix.touch()
        told = (f"listen.tcp={taken}", f"listen.metrics={taken}", f"listen.zeromq=tcp://{taken}", f"listen.unix={unix}")
        settings = [argument for each in told for argument in ("--set", each)]
        vain = serve_in_vain("--directory", str(tmp_path / "two"), *settings)
    assert vain.returncode == Exit.UNAVAILABLE
    for setting in ("listen.tcp", "listen.metrics", "listen.zeromq"):
        assert f"cannot listen on {taken} (Address already in use): " in vain.stderr
        assert f"or change {setting}" in vain.stderr
    assert "a file that is not a socket has this path" in vain.stderr


@pytest.mark.parametrize("setting", ["listen.tcp", "listen.zeromq", "listen.metrics", "topics.listen"])
def test_a_start_that_finds_its_port_taken_has_begun_no_journal(tmp_path: Path, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert_not_begun(tmp_path, setting, f"tcp://{address}" if setting == "listen.zeromq" else address)


@pytest.mark.parametrize("setting", ["listen.unix", "listen.zeromq"])
def test_a_start_that_finds_its_path_taken_has_begun_no_journal(tmp_path: Path, setting: str) -> None:
    path = tmp_path / "node.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert_not_begun(tmp_path, setting, f"ipc://{path}" if setting == "listen.zeromq" else str(path))
        assert path.exists()


def test_a_start_that_cannot_send_to_its_group_has_begun_no_journal(tmp_path: Path) -> None:
    elsewhere = ("--set", "multicast.streams=trades", "--set", "multicast.interface=192.0.2.1")
    elsewhere += ("--set", "security.insecure=true")
    assert_not_begun(tmp_path, "multicast.group", "239.195.7.8:7074", *elsewhere)


def test_two_listeners_of_one_node_on_one_address_are_told_before_a_journal_is_begun(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    said = assert_not_begun(tmp_path, "listen.metrics", address, "--set", f"listen.tcp={address}")
    assert "has this address too: change listen.metrics" in said


def assert_not_begun(place: Path, setting: str, value: str, *others: str) -> str:
    """Start a node in vain with the setting, and nothing else that could be taken; what it said."""
    closed = [argument for name in ("tcp", "zeromq", "metrics") for argument in ("--set", f"listen.{name}=")]
    directory = place / "journal"
    settings = [*closed, "--set", f"{setting}={value}", *others]
    if setting != "listen.unix":
        settings += ["--set", f"listen.unix={place}/own.sock"]
    vain = serve_in_vain("--directory", str(directory), *settings)
    assert (vain.returncode, "[port-in-use]" in vain.stderr) == (Exit.UNAVAILABLE, True), vain.stderr
    assert not directory.exists()
    assert not (place / "own.sock").exists()
    return vain.stderr


TAKEN_MEANWHILE = """
import socket, sys
import veredus

other = socket.socket()
other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
other.bind(("127.0.0.1", 0))

def look_on(event, arguments):
    global told
    if event == "open" and str(arguments[0]).endswith("checkpoint") and not told:
        with socket.socket() as early:
            told = early.connect_ex(other.getsockname())
        other.listen()

told = 0
sys.addaudithook(look_on)
try:
    veredus.embedded(sys.argv[1], listen={"tcp": "127.0.0.1:%d" % other.getsockname()[1]})
except veredus.Unavailable as error:
    print(error.code, told)
"""


def test_nobody_is_let_in_before_the_journal_is_there_and_a_port_taken_meanwhile_leaves_it_clean(
    tmp_path: Path,
) -> None:
    said = ended([sys.executable, "-c", TAKEN_MEANWHILE, str(tmp_path)])
    assert said.stdout == f"port-in-use {errno.ECONNREFUSED}\n", said.stderr
    with served(tmp_path) as second:
        assert second.ready["was_clean"] is True


def test_a_running_node_shows_every_figure_and_is_alive_and_ready(tmp_path: Path) -> None:
    with served(tmp_path) as own, veredus.connect(own.address) as node:
        with node.publisher("trades") as publisher:
            publisher.publish("key", b"body")
        with node.subscribe("trades", subscriber="risk") as subscription:
            assert subscription.next_batch() is not None

            def get(path: str) -> str:
                with urllib.request.urlopen(f"http://{own.ready['metrics']}{path}", timeout=10) as response:
                    return response.read().decode()

            page = get("/metrics")
            assert [figure.name for figure in FIGURES if f"\n{figure.name}" not in page] == []
            assert "veredus_publications_total 1.0" in page
            assert 'veredus_stream_head{stream="trades"} 1.0' in page
            assert (get("/livez"), get("/readyz")) == ("ok\n", "ok\n")


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_reordered_while_the_node_is_killed_again_and_again(tmp_path: Path) -> None:
    tcp = f"127.0.0.1:{free_port()}"
    verify = ["verify", "--count", "24000", "--rate", "8000", "--address", f"veredus://{tcp}", "-o", "json"]
    with Child([*COMMAND, *verify], stdout=-1, stderr=-1) as judging:
        for head in (2_000, 6_000, 12_000):
            with served(tmp_path, tcp=tcp) as again, veredus.connect(again.address) as node:
                wait_for_head(node, head)
        with served(tmp_path, tcp=tcp) as last:
            out, err = judging.communicate()
            assert last.ready["was_clean"] is False
    row = json.loads(out)
    assert (judging.returncode, row["lost"], row["doubled"], row["out_of_order"]) == (Exit.OK, 0, 0, 0), err
    assert (row["published"], row["acknowledged"]) == (24_000, 24_000)


RULE = '\n[[security.rules]]\nprincipal = "*"\nmay = ["*"]\n'


@pytest.mark.parametrize("rules", ["", RULE])
def test_a_node_does_not_start_with_a_file_of_tokens_that_is_not_there(tmp_path: Path, rules: str) -> None:
    settings = tmp_path / "veredus.toml"
    settings.write_text(f'[security]\ntokens = "tokenz"{rules}')
    refused = serve_in_vain("--settings", str(settings), "--directory", str(tmp_path / "data"))
    first = refused.stderr.splitlines()[0]
    assert refused.returncode == Exit.USAGE
    assert first.startswith(f"veredus: {settings}:2:1: security.tokens: {tmp_path / 'tokenz'}: there is no such file")
    assert not (tmp_path / "data").exists()


def test_all_files_that_a_node_cannot_use_are_told_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "tokens").touch(0o644)
    (tmp_path / "node.pem").write_text("no certificate")
    settings = tmp_path / "veredus.toml"
    settings.write_text(
        '[listen]\ntls = "127.0.0.1:0"\n[tls]\ncertificate = "node.pem"\nkey = "node.pem"\n'
        f'[security]\ntokens = "tokens"{RULE}'
    )
    refused = serve_in_vain("--settings", str(settings), "--directory", str(tmp_path / "data"))
    assert refused.returncode == Exit.USAGE
    for part in ("security.tokens: ", "chmod 600", "tls.certificate: ", "not a PEM certificate chain"):
        assert part in refused.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("is_flag", [True, False])
def test_a_server_of_topics_has_its_socket_in_the_directory_that_was_named(tmp_path: Path, is_flag: bool) -> None:
    directory, server = tmp_path / "topics", f"127.0.0.1:{free_port()}"
    before, behind = [], ["--set", f"node.directory={directory}"]
    if is_flag:
        before, behind = ["--directory", str(directory)], []
    command = [*COMMAND, "topics", *before, "serve", server, *behind]
    with Child(command, cwd=tmp_path, stderr=-1) as process:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert '"node-ready"' in line, line
        assert json.loads(line)["unix"] == f"{directory}/native.socket"
        with veredus.connect(f"unix://{directory}/native.socket") as node:
            assert node.streams.list() == []
        assert [path.name for path in tmp_path.iterdir()] == ["topics"]


def test_a_server_of_topics_announces_itself_to_the_proxies_before_the_command(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(30)
        address = f"127.0.0.1:{proxy.getsockname()[1]}"
        with Child([*COMMAND, "topics", "--proxy", address, "serve", f"127.0.0.1:{free_port()}"], cwd=tmp_path):
            proxy.accept()[0].close()


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--id", "a", "serve", "127.0.0.1:1"], "--id"),
        (["--id", "a", "show"], "--id"),
        (["--proxy", "127.0.0.1:1", "show"], "--proxy"),
        (["--directory", "d", "show"], "--directory"),
    ],
)
def test_options_of_a_client_that_have_no_effect_on_servers_are_refused(
    tmp_path: Path, arguments: list[str], option: str
) -> None:
    done = ended([*COMMAND, "topics", *arguments], cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert f"{option} has no effect here: " in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_thread_that_waits_for_the_lock_asks_for_it_in_the_midst_of_a_turn() -> None:
    done_at_least_ns = QUANTUM_NS // 4
    """Work is priced for a slow machine: a quick one does it in a quarter of that."""
    assert done_at_least_ns > 4 * SWITCH_INTERVAL_S * 1e9
