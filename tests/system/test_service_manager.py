"""A service manager hears of a node, and of a proxy, when it serves, reloads, recovers and stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import Child, free_port
from tests.system.serving import ServedNode
from veredus.cli.exits import Exit
from veredus.client.blocking import connect

KIB = 1 << 10


class Manager:
    """The socket of a service manager, and what came to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(30)

    def next(self) -> dict[str, str]:
        """The next that it is told."""
        lines = self.socket.recv(4096).decode().split("\n")
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def is_told(self) -> bool:
        """Whether it is told something that it has not heard yet."""
        self.socket.setblocking(False)
        try:
            self.socket.recv(4096)
        except BlockingIOError:
            return False
        return True


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    path = tmp_path / "notify"
    own = Manager(str(path) if request.param == "path" else f"@{path}")
    yield own
    own.socket.close()


def served_under(manager: Manager | str, directory: Path, **settings: str) -> ServedNode:
    address = manager if isinstance(manager, str) else manager.address
    return ServedNode(directory / "journal", settings, environment={"NOTIFY_SOCKET": address})


def test_ready_is_said_once_clients_can_connect_and_stopping_at_the_stop(manager: Manager, tmp_path: Path) -> None:
    served = served_under(manager, tmp_path)
    try:
        process = served.spawn()
        said = manager.next()
        assert (said["READY"], f"tcp 127.0.0.1:{served.port}" in said["STATUS"]) == ("1", True)
        socket.create_connection(("127.0.0.1", served.port), timeout=1).close()
        process.send_signal(signal.SIGTERM)
        said = manager.next()
        # 10 s for peers, 60 s for the journal, 10 s for the rest.
        assert (said["STOPPING"], said["EXTEND_TIMEOUT_USEC"]) == ("1", "80000000")
        assert process.wait(20) == Exit.OK
        assert not manager.is_told()
    finally:
        served.kill()


def test_a_reload_is_said_to_begin_and_to_end_also_where_it_is_refused(manager: Manager, tmp_path: Path) -> None:
    settings = tmp_path / "veredus.toml"
    settings.touch()
    served = served_under(manager, tmp_path, SETTINGS=str(settings))
    try:
        process = served.spawn()
        assert manager.next()["READY"] == "1"
        for text, is_refused in (("", False), ("[node]\ndirektory = 1\n", True)):
            settings.write_text(text)
            process.send_signal(signal.SIGHUP)
            reloading = manager.next()
            assert reloading["RELOADING"] == "1"
            assert int(reloading["MONOTONIC_USEC"]) > 0
            ready = manager.next()
            assert ready["READY"] == "1"
            assert ("direktory" in ready["STATUS"]) is is_refused
        assert process.poll() is None
    finally:
        served.kill()


def test_a_proxy_of_topics_says_the_same_of_itself(manager: Manager, tmp_path: Path) -> None:
    settings = tmp_path / "topics.toml"
    address = f"127.0.0.1:{free_port()}"
    settings.write_text(f'[topics]\nproxies = ["{address}"]\n')
    environment = {**os.environ, "NOTIFY_SOCKET": manager.address, "VEREDUS_SETTINGS": str(settings)}
    with Child([sys.executable, "-m", "veredus", "proxy"], env=environment, stderr=subprocess.DEVNULL) as process:
        assert manager.next() == {"READY": "1", "STATUS": f"serving: topics {address}"}
        settings.write_text("[topics]\nproxis = 1\n")
        process.send_signal(signal.SIGHUP)
        assert manager.next()["RELOADING"] == "1"
        ready = manager.next()
        assert (ready["READY"], "proxis" in ready["STATUS"]) == ("1", True)
        process.send_signal(signal.SIGTERM)
        assert manager.next()["STOPPING"] == "1"
        assert process.wait(20) == Exit.OK


def test_a_recovery_says_what_it_reads_and_asks_for_time_before_the_node_is_ready(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    served = served_under(manager, tmp_path, JOURNAL_SEGMENT_SIZE="64 KiB")
    try:
        with served.start() as node, node.publisher("s", source="p") as publisher:
            publisher.publish_many([b"k"] * 64, [bytes(4 * KIB)] * 64)
        assert manager.next()["READY"] == "1"
        served.kill()
        served.spawn()
        said = manager.next()
        assert said["STATUS"].startswith("recovering: reading ")
        assert int(said["EXTEND_TIMEOUT_USEC"]) >= 60_000_000
        while "READY" not in said:
            said = manager.next()
    finally:
        served.kill()
        manager.socket.close()


def test_a_node_that_cannot_listen_never_says_that_it_is_ready(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    served = served_under(manager, tmp_path)
    try:
        with socket.create_server(("127.0.0.1", served.port)):
            assert served.spawn().wait(20) == Exit.UNAVAILABLE
        assert not manager.is_told()
    finally:
        served.kill()
        manager.socket.close()


@pytest.mark.parametrize("address", ["/nowhere/notify", "@nobody-listens-here", "x" * 300, "vsock:2:1234", "@\udcff"])
def test_a_manager_that_cannot_be_told_harms_no_node_and_is_in_the_log(address: str, tmp_path: Path) -> None:
    served = served_under(address, tmp_path)
    try:
        served.start().close()
        assert served.stop() == Exit.OK
        assert "service-manager-not-told" in served.said()
    finally:
        served.kill()


def test_a_manager_that_reads_nothing_holds_up_no_node(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filling:
        filling.setblocking(False)
        filling.connect(manager.address)
        with suppress(BlockingIOError):
            while True:
                filling.send(b"STATUS=full")
        served = served_under(manager, tmp_path)
        try:
            with served.start() as node:
                assert list(node.streams.list()) == []
            assert served.stop() == Exit.OK
        finally:
            served.kill()
            manager.socket.close()


def test_without_a_manager_nothing_is_said_in_the_log_either(tmp_path: Path) -> None:
    served = ServedNode(tmp_path / "journal")
    try:
        with served.start() as node, connect(served.address) as other:
            assert list(node.streams.list()) == list(other.streams.list())
        assert served.stop() == Exit.OK
        assert "service-manager" not in served.said()
    finally:
        served.kill()
