"""Where nobody listens, the caller hears so soon; where somebody comes in time, all is well."""

import inspect
import socket
import threading
import time
from pathlib import Path

import pytest

import veredus
from veredus.client.embedded import Embedded
from veredus.kernel.errors import Unavailable


def refusing_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_ports_that_refuse_end_the_attempt_long_before_the_timeout() -> None:
    addresses = [f"127.0.0.1:{refusing_port()}", "unix:///nowhere/at/all"]
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no process listens there") as caught:
        veredus.connect(*addresses, timeout_s=30, refused_s=0.2)
    assert caught.value.code == "unreachable"
    assert time.monotonic() - began < 10


def test_a_port_that_refuses_is_given_up_after_two_seconds_unless_said_otherwise() -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"no process listens there.*tried for 2 s") as caught:
        veredus.connect(f"127.0.0.1:{refusing_port()}")
    assert caught.value.code == "unreachable"
    assert 2 <= time.monotonic() - began < 5
    for opening in (veredus.connect, veredus.connect_async):
        assert inspect.signature(opening).parameters["refused_s"].default == 2.0


def test_a_node_that_comes_within_that_time_is_found(node: Embedded, tmp_path: Path) -> None:
    place = tmp_path / "late.socket"
    late = threading.Timer(0.2, lambda: place.symlink_to(node.served.address.removeprefix("unix://")))
    late.start()
    with veredus.connect(f"unix://{place}", refused_s=10) as far:
        assert far.name == node.name
    late.join()


def test_a_node_is_found_by_a_path_that_is_longer_than_an_address_of_a_socket(node: Embedded, tmp_path: Path) -> None:
    place = tmp_path / ("d" * 100) / ("e" * 100) / "far.socket"
    with pytest.raises(Unavailable, match=r"no process listens there|No such file"):
        veredus.connect(f"unix://{place}", refused_s=0.1)
    place.parent.mkdir(parents=True)
    place.symlink_to(node.served.address.removeprefix("unix://"))
    with veredus.connect(f"unix://{place}", refused_s=10) as far:
        assert far.name == node.name


def test_one_address_that_does_not_refuse_keeps_the_attempt_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        addresses = [f"127.0.0.1:{refusing_port()}", f"127.0.0.1:{silent.getsockname()[1]}"]
        with pytest.raises(Unavailable, match="no node answered") as caught:
            veredus.connect(*addresses, timeout_s=0.6, refused_s=0.1)
    assert "nobody listens" not in caught.value.message
