"""An UNSUBSCRIBE that waits in a stopped proxy, while its client leaves and subscribes again through another one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

from tests.system.serving_topics import QUICK, WAIT_MS, ServedProxy, Server, said
from veredus.topics import Client

pytestmark = pytest.mark.slow


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[list[ServedProxy]]:
    """Two of them, not started yet."""
    proxies = [ServedProxy(tmp_path, *QUICK) for _ in range(2)]
    yield proxies
    for proxy in proxies:
        proxy.end()


@pytest.fixture
def server(proxies: list[ServedProxy], tmp_path: Path) -> Iterator[Server]:
    settings = {"TOPICS_PROXIES": ",".join(proxy.address for proxy in proxies), "TOPICS_PERIOD": "20ms"}
    server = Server(tmp_path / "journal", settings)
    yield server
    server.end()


@pytest.mark.parametrize(("is_numbered", "status"), [(True, "OK"), (False, "NOT_SUBSCRIBED")])
def test_a_late_unsubscribe_undoes_no_later_subscribe_that_was_acknowledged_unless_it_has_no_number(
    server: Server, proxies: list[ServedProxy], tmp_path: Path, is_numbered: bool, status: str
) -> None:
    stopped = proxies[0]
    server.start()
    for proxy in proxies:
        proxy.start()
        put_until_ok(server, proxy, "PUT bob t 1")
    with (
        ExitStack() as asking,
        Client("alice", proxies=[proxy.address for proxy in proxies], directory=tmp_path) as alice,
    ):
        alice.subscribe("t")
        assert stopped.process is not None
        stopped.process.send_signal(signal.SIGSTOP)
        if not is_numbered:
            # As a client of the page asks.
            asking.enter_context(asked(server, stopped, "UNSUBSCRIBE alice t"))
        alice.unsubscribe("t")
        alice.subscribe("t")
        stopped.process.send_signal(signal.SIGCONT)
        # Behind what the stopped one has of alice's, over the same connection to the server.
        put_until_ok(server, stopped, "PUT bob t 2")
        assert server.ask("GET alice t -1").status == status


def asked(server: Server, proxy: ServedProxy, question: str) -> zmq.Socket[bytes]:
    """A socket that has asked the proxy."""
    asking = server.context.socket(zmq.REQ)
    asking.linger = 0
    asking.connect(f"tcp://{proxy.address}")
    asking.send(question.encode() + b"\r\n\r\n")
    return asking


def put_until_ok(server: Server, proxy: ServedProxy, question: str) -> None:
    """Put through the proxy, until it knows the server."""

    def is_put() -> bool:
        with asked(server, proxy, question) as asking:
            assert asking.poll(WAIT_MS), "no answer"
            return said(asking.recv()).status == "OK"

    proxy.wait_for(is_put)
