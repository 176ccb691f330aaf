"""Topics by PLAIN and by CURVE, with sockets of libzmq, our clients, a proxy and servers in processes of their own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.interop.serving_topics_secured import CURVE, PLAIN, SecuredService, Shown, environment_of
from tests.system.serving_topics import said
from veredus.kernel.errors import Refused, Unavailable
from veredus.runtime.security import read_tokens, remove_token
from veredus.topics import AsyncClient, AsyncClientGroup, Client

pytestmark = [pytest.mark.interop, pytest.mark.slow]
QUIET_MS = 400


@pytest.fixture(scope="module", params=[PLAIN, CURVE])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredService]:
    service = SecuredService(tmp_path_factory.mktemp("secured"), request.param)
    try:
        service.start()
        yield service
    finally:
        service.end()


def credentials(service: SecuredService, name: str) -> dict[str, str]:
    """As our clients take them."""
    shown = service.shown[name]
    if shown.token:
        return {"token": shown.token}
    return {"server_key": service.server_key, "secret_key": shown.secret}


def test_rules_apply_to_the_principal_that_a_client_has_proved_through_a_proxy(service: SecuredService) -> None:
    assert service.ask("SUBSCRIBE bob rules", who="bob").status == "OK"
    assert service.ask("PUT alice rules 1", b"hello").status == "OK"
    got = service.ask("GET bob rules -1", who="bob")
    assert (got.status, got.body) == ("OK", b"hello")
    refused = service.ask("PUT bob rules 1", b"mine", who="bob")
    assert refused.status == "REFUSED"
    assert b"bob may not publish on stream 'rules'" in refused.body


def test_nobody_puts_or_gets_under_the_id_of_another_principals_client(service: SecuredService) -> None:
    assert service.ask("SUBSCRIBE alice ids").status == "OK"
    assert service.ask("PUT alice ids 1", b"hello").status == "OK"
    for question in ("PUT alice ids 2", "GET alice ids -1", "UNSUBSCRIBE alice ids", "SUBSCRIBE alice ids"):
        assert service.ask(question, b"forged" if "PUT" in question else b"", who="mallory").status == "REFUSED"
        assert service.ask(question, b"forged" if "PUT" in question else b"", who="bob").status == "REFUSED", question
    got = service.ask("GET alice ids -1")
    assert (got.status, got.body) == ("OK", b"hello")
    assert service.ask(f"GET alice ids {got.message_id}").status == "NO_MESSAGES"


@pytest.mark.parametrize("place", ["proxy", "server"])
@pytest.mark.parametrize("case", ["nothing", "a wrong token", "an unknown key", "another node's key"])
def test_who_shows_nothing_or_the_wrong_thing_gets_no_answer(service: SecuredService, case: str, place: str) -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    shown = {
        "nothing": Shown(),
        "a wrong token": Shown((service.shown["alice"].token or "veredus_00000000_abc")[:-3] + "abc"),
        "an unknown key": Shown("", public, secret),
        "another node's key": Shown("", public, secret),
    }[case]
    address = service.proxy.address if place == "proxy" else service.servers[0]
    key = service.server_key
    if case == "another node's key":
        service.server_key = public
    try:
        with service.socket(address, shown) as asking:
            asking.send(b"PUT alice refused 1\r\n\r\nbody")
            assert not asking.poll(QUIET_MS)
    finally:
        service.server_key = key


def test_our_clients_show_who_they_are(service: SecuredService, tmp_path: Path) -> None:
    async def talk() -> None:
        shared = {"proxies": [service.proxy.address], "directory": tmp_path}
        async with AsyncClient("bob", **shared, **credentials(service, "bob")) as bob:  # type: ignore[arg-type]
            await bob.subscribe("ours")
            async with AsyncClientGroup(**shared, **credentials(service, "alice")) as group:  # type: ignore[arg-type]
                await group.client("alice").put("ours", b"from a group")
            got = await bob.get("ours", wait_s=10)
            assert got is not None
            assert got.body == b"from a group"

    asyncio.run(talk())
    with Client(
        "alice", proxies=[service.proxy.address], directory=tmp_path / "b", **credentials(service, "alice")
    ) as alice:
        alice.subscribe("ours")
        alice.put("ours", b"blocking")
        got = alice.get("ours", wait_s=10)
        assert got is not None
        assert got.body == b"blocking"


def test_a_client_that_is_not_let_in_is_told_to_check_what_it_shows(service: SecuredService, tmp_path: Path) -> None:
    wrong = {"token": "veredus_00000000_wrong"}
    for shown in ({}, wrong):
        client = Client("alice", proxies=[service.proxy.address], directory=tmp_path, **shown)
        with client, pytest.raises(Unavailable, match=r"before the handshake is done: check .*token") as caught:
            client.put("t", b"body")
        assert caught.value.code == "no-proxy"


def test_a_client_with_another_key_than_the_proxy_knows_is_told_to_check_both(
    service: SecuredService, tmp_path: Path
) -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    known = service.shown["alice"].secret or secret
    for server_key, secret_key in ((public, known), (service.server_key, secret)):
        client = Client(
            "alice", proxies=[service.proxy.address], directory=tmp_path, server_key=server_key, secret_key=secret_key
        )
        said = r"before the handshake is done: check .*, the server_key, and that the proxy knows the key"
        with client, pytest.raises(Unavailable, match=said) as caught:
            client.put("t", b"body")
        assert caught.value.code == "no-proxy"


def test_commands_show_what_their_settings_name(service: SecuredService, tmp_path: Path) -> None:
    def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "veredus", "topics", "--id", name, "--directory", str(tmp_path), *words]
        return subprocess.run(
            command, env=environment_of(service, name), input="hello", capture_output=True, text=True, timeout=30
        )

    assert run("bob", "subscribe", "told").returncode == 0
    assert run("alice", "put", "told").returncode == 0
    got = run("bob", "get", "told", "--wait", "10s")
    assert (got.returncode, got.stdout) == (0, "hello")
    assert "bob may not publish" in run("bob", "put", "told").stderr


def test_servers_that_prove_who_they_are_merge_a_topic_that_both_have(service: SecuredService) -> None:
    for number, address in enumerate(service.servers, 1):
        assert service.ask("SUBSCRIBE bob both", who="bob", address=address).status == "OK"
        assert service.ask(f"PUT alice both {number}", b"at %d" % number, address=address).status == "OK"
    service.wait_for(lambda: '"topic-given"' in "".join(node.said() for node in service.nodes), "one gave the topic")
    bodies, last = [], "-1"
    while (got := service.ask(f"GET bob both {last}", who="bob")).status == "OK":
        bodies.append(got.body)
        last = got.message_id
    assert sorted(bodies) == [b"at 1", b"at 2"]


@pytest.mark.parametrize(
    ("question", "body"),
    [("PERIODIC 127.0.0.1:1", b"t"), ("MERGE alice t 127.0.0.1:1", b""), ("TRANSFER 127.0.0.1:1 t", b"")],
    ids=["PERIODIC", "MERGE", "TRANSFER"],
)
def test_who_is_no_member_neither_announces_nor_merges(service: SecuredService, question: str, body: bytes) -> None:
    address = service.proxy.address if question.startswith("PERIODIC") else service.servers[0]
    told = service.ask(question, body, who="alice", address=address)
    assert told.status == "REFUSED"
    assert b"alice is not a proxy or a server of this service" in told.body


def test_who_is_no_member_speaks_for_nobody_else(service: SecuredService) -> None:
    for address in (service.proxy.address, service.servers[0]):
        with service.socket(address, service.shown["bob"], zmq.DEALER) as asking:
            asking.send_multipart([b"for alice", b"", b"PUT alice stolen 1\r\n\r\nforged"])
            assert asking.poll(10_000)
            assert said(asking.recv_multipart()[-1]).status == "REFUSED"


def test_a_client_whose_token_or_key_is_removed_is_let_go(service: SecuredService) -> None:
    with service.socket(service.proxy.address, service.shown["mallory"]) as asking:
        with asking.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
            asking.send(b"GET mallory t -1\r\n\r\n")
            assert asking.poll(10_000)
            asking.recv()
            line = next(line for line in read_tokens(service.tokens) if line.principal == "mallory")
            remove_token(service.tokens, line.id)
            assert monitor.poll(10_000), "it is still connected"
        asking.disable_monitor()


@pytest.mark.parametrize(
    ("shown", "code"),
    [
        ({"token": "a" * 256}, "bad-token"),
        ({"token": "a", "server_key": "b"}, "bad-token"),
        ({"server_key": "a" * 40}, "bad-key"),
        ({"server_key": "a" * 40, "secret_key": "short"}, "bad-key"),
    ],
)
def test_what_nobody_can_show_is_refused_before_a_client_is_opened(shown: dict[str, str], code: str) -> None:
    with pytest.raises(Refused) as caught:
        Client("alice", proxies=["127.0.0.1:1"], **shown)  # type: ignore[arg-type]
    assert caught.value.code == code
