"""Sockets of libzmq that prove who they are by PLAIN and by CURVE, before a whole node in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.interop.test_zmtp_peers import ATTACH, ATTACH_OK, Sockets
from tests.processes import free_port
from tests.system.serving import ServedNode
from veredus.runtime.security import add_token

pytestmark = pytest.mark.interop

INVALID = b"\xaa\xa5\x0c"
RULES = '[[security.rules]]\nprincipal = "desk"\nmay = ["*"]\n'


def command(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "veredus", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


class Scene:
    """A node that knows a token and a key of `desk`."""

    def __init__(self, directory: Path) -> None:
        tokens, settings = directory / "tokens", directory / "veredus.toml"
        self.tokens = tokens
        self.token, _ = add_token(tokens, "desk")
        self.node_key = command("token", "node-key", str(directory / "node.key")).strip().encode()
        self.desk = json.loads(command("token", "add-key", "desk", "--file", str(tokens), "--output", "json"))
        settings.write_text(
            f'[security]\ntokens = "{tokens}"\nzeromq_key = "{directory / "node.key"}"\n{RULES}', encoding="utf-8"
        )
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self.served = ServedNode(directory / "journal", {"LISTEN_ZEROMQ": self.endpoint, "SETTINGS": str(settings)})
        self.served.spawn()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("security"))
    yield scene
    scene.served.kill()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


def proving(sockets: Sockets, scene: Scene, options: dict[str, bytes]) -> zmq.Socket[bytes]:
    socket = about_to_prove(sockets, options)
    socket.connect(scene.endpoint)
    return socket


def about_to_prove(sockets: Sockets, options: dict[str, bytes]) -> zmq.Socket[bytes]:
    socket = sockets.make(zmq.DEALER)
    for name, value in options.items():
        socket.setsockopt(getattr(zmq, name), value)
    return socket


def curve(scene: Scene, public: bytes, secret: bytes, node_key: bytes = b"") -> dict[str, bytes]:
    return {
        "CURVE_SERVERKEY": node_key or scene.node_key,
        "CURVE_PUBLICKEY": public,
        "CURVE_SECRETKEY": secret,
    }


def test_a_token_is_the_password_of_plain(scene: Scene, sockets: Sockets) -> None:
    plain = {"PLAIN_USERNAME": b"desk", "PLAIN_PASSWORD": scene.token.encode()}
    socket = proving(sockets, scene, plain)
    socket.send(ATTACH)
    assert socket.recv() == ATTACH_OK


def test_the_holder_of_a_known_key_attaches_and_publishes_by_curve(scene: Scene, sockets: Sockets) -> None:
    socket = proving(sockets, scene, curve(scene, scene.desk["key"].encode(), scene.desk["secret"].encode()))
    socket.send(ATTACH)
    assert socket.recv() == ATTACH_OK
    socket.send(b"\xaa\xa5\x06\x01k\x00\x01\x00\x00" + bytes(65_536))
    socket.send(b"\xaa\xa5\x0a")
    assert socket.recv() == b"\xaa\xa5\x0b"


def test_who_proves_nothing_is_told_so_where_principals_are_known(scene: Scene, sockets: Sockets) -> None:
    socket = proving(sockets, scene, {})
    socket.send(ATTACH)
    assert socket.recv().startswith(INVALID)


@pytest.mark.parametrize("case", ["an unknown key", "another node's key", "a wrong password"])
def test_who_proves_the_wrong_thing_is_not_let_in(scene: Scene, sockets: Sockets, case: str) -> None:
    stranger, secret = zmq.curve_keypair()
    options = {
        "an unknown key": curve(scene, stranger, secret),
        "another node's key": curve(scene, scene.desk["key"].encode(), scene.desk["secret"].encode(), stranger),
        "a wrong password": {"PLAIN_USERNAME": b"desk", "PLAIN_PASSWORD": scene.token[:-3].encode() + b"abc"},
    }[case]
    socket = about_to_prove(sockets, options)
    # It listens before anything can fail: after a failed handshake libzmq does not connect again.
    with socket.get_monitor_socket(
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
    ) as m:
        socket.connect(scene.endpoint)
        socket.send(ATTACH)
        assert m.poll(10_000)
        assert not socket.poll(50)
    socket.disable_monitor()
