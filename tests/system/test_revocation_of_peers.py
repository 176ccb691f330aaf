"""Peers that speak ZEPS 1, ZeroMQ or topics are ended where they are, too, when what they proved or may has changed."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zmq

import veredus
from tests.interop import zeps1_by_hand as zeps1
from tests.interop.ears import Ear, LibzmqEar, Zeps1Ear, over_tcp
from tests.interop.zeps1_by_hand import Client
from tests.processes import free_port, wait_until
from tests.runtime.authority import Authority
from tests.system.secured import Secured, reload_by_command
from tests.system.serving_topics import said
from veredus.protocols.zmtp.z85 import decode_z85, encode_z85
from veredus.runtime.curve_keys import make_server_key
from veredus.runtime.security import add_key, add_token, read_tokens, remove_token

pytestmark = [pytest.mark.slow, pytest.mark.attack]

EVERYTHING = ((("*", ">")), ("anonymous", ">"))


class Doors(Secured):
    """Secured, with every door at which peers come that are not of ours."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory / "authority")
        authority.sign("node", "/CN=localhost", "IP:127.0.0.1")
        self.revoked = authority.revoke()
        self.zeromq, self.topics = f"tcp://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.node_key = directory / "node.key"
        self.public = encode_z85(make_server_key(self.node_key).public)
        settings = {"LISTEN_ZEROMQ": self.zeromq, "TOPICS_LISTEN": self.topics, "TOPICS_PROXIES": ""}
        settings |= {"SECURITY_ZEROMQ_KEY": str(self.node_key), "TLS_REVOKED": str(self.revoked)}
        super().__init__(directory, authority, settings)
        self.write(EVERYTHING)

    def options_of(self, principal: str, mechanism: str) -> dict[str, bytes]:
        """What a peer of libzmq shows to be this principal, whom the file of tokens knows from now on."""
        if mechanism == "PLAIN":
            token, _ = add_token(self.tokens, principal)
            return {"PLAIN_USERNAME": b"anybody", "PLAIN_PASSWORD": token.encode()}
        public, secret = zmq.curve_keypair()
        add_key(self.tokens, principal, decode_z85(public.decode()))
        return {"CURVE_SERVERKEY": self.public.encode(), "CURVE_PUBLICKEY": public, "CURVE_SECRETKEY": secret}

    def disown(self, principal: str) -> None:
        """Its token or key is removed from the file."""
        (line,) = (line for line in read_tokens(self.tokens) if line.principal == principal)
        remove_token(self.tokens, line.id)

    def tls_ear(self, certificate: str, key: str) -> Ear:
        """A peer of version 1 with this certificate."""
        assert self.authority is not None
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.check_hostname = False
        context.load_cert_chain(certificate, key)
        return Zeps1Ear(context.wrap_socket(over_tcp(f"127.0.0.1:{self.tls_port}")))

    def wait_ended(self, ear: Ear) -> None:
        def has_ended() -> bool:
            ear.turn()
            return not ear.is_open

        wait_until(has_ended, self.served.said)


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[Doors]:
    doors = Doors(tmp_path)
    yield doors
    doors.served.kill()


def hears_on(ear: Ear) -> bool:
    """Whether it is still open after a while in which others were ended."""
    end_s = time.monotonic() + 1.5
    while ear.is_open and time.monotonic() < end_s:
        ear.turn()
    return ear.is_open


@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_a_zeromq_peer_whose_token_or_key_is_removed_is_let_go_and_no_other(doors: Doors, mechanism: str) -> None:
    options = {name: doors.options_of(name, mechanism) for name in ("desk-1", "desk-2")}
    doors.start()
    gone, kept = (LibzmqEar(doors.zeromq, options[name]) for name in ("desk-1", "desk-2"))
    gone.attaches_again = True
    with closing(gone), closing(kept):
        doors.disown("desk-1")
        doors.wait_ended(gone)
        assert hears_on(kept)
    assert gone.invalid.startswith(b"revoked:"), "it is told"
    assert gone.strays == [], "it is not let in again by what it has proved before"
    told = doors.wait_said("principal-revoked")
    assert (told["principal"], told["code"], told["listener"]) == ("desk-1", "revoked", "zeromq")
    assert doors.said("principal-revoked") == 1


def test_a_peer_of_version_1_over_tls_whose_certificate_is_revoked_is_let_go_and_no_other(doors: Doors) -> None:
    authority = doors.authority
    assert authority is not None
    certificates = [authority.sign(f"desk-{number}", f"/CN=desk-{number}") for number in (1, 2)]
    doors.start()
    with closing(doors.tls_ear(*certificates[0])) as gone, closing(doors.tls_ear(*certificates[1])) as kept:
        authority.revoke("desk-1")
        assert reload_by_command(doors).returncode == 0
        doors.wait_ended(gone)
        assert hears_on(kept)
    assert gone.invalid.startswith(b"revoked:"), "it is told"
    told = doors.wait_said("principal-revoked")
    assert (told["principal"], told["code"], told["listener"]) == ("desk-1", "revoked", "tls")


@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_a_peer_directly_at_a_server_of_topics_whose_token_or_key_is_removed_is_let_go_and_no_other(
    doors: Doors, mechanism: str
) -> None:
    options = {name: doors.options_of(name, mechanism) for name in ("alice", "bob")}
    doors.start()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = {name: context.socket(zmq.REQ) for name in options}
    try:
        monitors = {name: opened.get_monitor_socket(zmq.EVENT_DISCONNECTED) for name, opened in sockets.items()}
        for name, opened in sockets.items():
            for option, value in options[name].items():
                opened.setsockopt(getattr(zmq, option), value)
            opened.connect(f"tcp://{doors.topics}")
            assert put(opened, name, 1) == "OK"
        doors.disown("alice")
        assert monitors["alice"].poll(10_000), "it is still connected"
        assert put(sockets["bob"], "bob", 2) == "OK"
        assert not monitors["bob"].poll(0)
    finally:
        for opened in sockets.values():
            opened.disable_monitor()
        context.destroy(linger=0)
    ended = doors.wait_said("principal-revoked")
    assert (ended["principal"], ended["code"], ended["listener"]) == ("alice", "revoked", "topics")
    assert doors.said("principal-revoked") == 1


def put(opened: zmq.Socket[bytes], client: str, counter: int) -> str:
    """The status that a put is answered with."""
    opened.send(b"PUT %s t %d\r\n\r\nx" % (client.encode(), counter))
    assert opened.poll(10_000), "no answer"
    return said(opened.recv()).status


def test_a_change_of_nothing_but_rules_by_command_ends_the_sessions_whose_right_is_gone_and_no_others(
    doors: Doors,
) -> None:
    token, _ = add_token(doors.tokens, "desk-1")
    plain, curve = (doors.options_of(principal, principal.upper()) for principal in ("plain", "curve"))
    doors.start()
    ways: dict[str, Callable[[], Client]] = {
        "version 1 over TCP": lambda: zeps1.over_tcp("127.0.0.1", doors.served.port),
        "version 1 by PLAIN": lambda: zeps1.over_zeromq(doors.zeromq, plain),
        "version 1 by CURVE": lambda: zeps1.over_zeromq(doors.zeromq, curve),
    }
    gone, kept = ({name: subscribed(way(), stream) for name, way in ways.items()} for stream in ("gone", "kept"))
    try:
        with doors.by_token(token) as node, node.subscribe("gone") as native, node.publisher("kept") as publisher:
            doors.write((("*", "kept"), ("anonymous", "kept")))
            done = reload_by_command(doors)
            assert (done.returncode, done.stderr.endswith("applied: security.rules\n")) == (0, True), done.stderr
            with pytest.raises(veredus.Refused) as caught:
                native.next_batch(timeout_s=20)
            assert caught.value.code == "forbidden"
            assert {name: ending(client) for name, client in gone.items()} == dict.fromkeys(gone, "forbidden")
            publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
            for name, client in kept.items():
                delivered = client.hear()
                assert (delivered.command, delivered.fields) == (client.DELIVER, (1, b"k", b"1")), name
    finally:
        for client in (*gone.values(), *kept.values()):
            client.close()


def subscribed(client: Client, stream: str) -> Client:
    """Attached to the stream, and subscribed to all that comes."""
    client.attach(stream)
    assert client.hear().command == client.ATTACH_OK
    client.subscribe(b"", 0)
    assert client.hear().command == client.SUBSCRIBE_OK
    client.credit(1000)
    return client


def ending(client: Client) -> str:
    """The code with which the node ends what a client of version 1 is doing."""
    told = client.hear()
    assert told.command == client.INVALID, told
    return "forbidden" if b"forbidden" in bytes(told.fields[0]) else repr(told.fields[0])
