"""Silent peers on real sockets, at each listener and by each mechanism: let go in time, and never for the node's own
absence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import veredus
from tests.certificates import CERTIFICATES
from tests.interop.ears import (
    Ear,
    LibzmqEar,
    NativeEar,
    StreamEar,
    Zeps1Ear,
    ZmtpEar,
    listen,
    over_tcp,
    over_tls,
    over_unix,
)
from tests.processes import free_port
from tests.system.serving import ServedNode
from veredus.runtime.parting import LINGER_LOOKS, LOOK_S
from veredus.runtime.security import add_token

pytestmark = [pytest.mark.interop, pytest.mark.attack]

LONG_SIZE, BODY_SIZE, ROOM_SIZE = 12 << 20, 8 << 10, 16 << 10
PIECE_SIZE = 8_000
RULES = '[[security.rules]]\nprincipal = "desk"\nmay = ["*"]\n'
INTERVAL_S, SILENCE_S = 1.0, 4.0
TIMES = {"LIMITS_HEARTBEAT_INTERVAL": "1s", "LIMITS_SILENCE_MAX": "4s"}


class Open:
    """A node whose peers on loopback prove nothing, with each listener that there is."""

    def __init__(self, directory: Path) -> None:
        self.tls, self.zeromq = f"127.0.0.1:{free_port()}", f"tcp://127.0.0.1:{free_port()}"
        self.topics, self.unix = f"127.0.0.1:{free_port()}", str(directory / "socket")
        settings = {
            "LISTEN_UNIX": self.unix,
            "LISTEN_TLS": self.tls,
            "LISTEN_ZEROMQ": self.zeromq,
            "TOPICS_LISTEN": self.topics,
            "TLS_CERTIFICATE": str(CERTIFICATES / "node.pem"),
            "TLS_KEY": str(CERTIFICATES / "node.key"),
        }
        self.served = ServedNode(directory / "journal", {**settings, **TIMES}, life_s=180)
        self.served.start().close()
        self._fill()

    def peers(self) -> dict[str, Callable[[], Ear]]:
        tcp, authority = f"127.0.0.1:{self.served.port}", CERTIFICATES / "authority.pem"
        return {
            "native over TCP": lambda: NativeEar(over_tcp(tcp)),
            "native over TLS": lambda: NativeEar(over_tls(self.tls, authority)),
            "native over Unix": lambda: NativeEar(over_unix(self.unix)),
            "ZEPS 1 over TCP": lambda: Zeps1Ear(over_tcp(tcp)),
            "ZEPS 1 over TLS": lambda: Zeps1Ear(over_tls(self.tls, authority)),
            "ZEPS 1 over Unix": lambda: Zeps1Ear(over_unix(self.unix)),
            "ZEPS 1 over ZMTP": lambda: ZmtpEar(over_tcp(self.zeromq), attaches=True),
            "ZEPS 1 over libzmq": lambda: LibzmqEar(self.zeromq),
            "topics": lambda: ZmtpEar(over_tcp(self.topics), attaches=False),
        }

    def readers(self) -> dict[str, Callable[[], StreamEar]]:
        tcp, authority = f"127.0.0.1:{self.served.port}", CERTIFICATES / "authority.pem"
        return {
            "native over TCP": lambda: NativeEar(over_tcp(tcp, ROOM_SIZE)),
            "native over TLS": lambda: NativeEar(over_tls(self.tls, authority, ROOM_SIZE)),
            "native over Unix": lambda: NativeEar(over_unix(self.unix)),
            "ZEPS 1 over TCP": lambda: Zeps1Ear(over_tcp(tcp, ROOM_SIZE)),
            "ZEPS 1 over TLS": lambda: Zeps1Ear(over_tls(self.tls, authority, ROOM_SIZE)),
            "ZEPS 1 over Unix": lambda: Zeps1Ear(over_unix(self.unix)),
            "ZEPS 1 over ZMTP": lambda: ZmtpEar(over_tcp(self.zeromq, ROOM_SIZE), attaches=True),
        }

    def _fill(self) -> None:
        """Publish what takes long to read."""
        with veredus.connect(self.served.address) as node, node.publisher("long") as publisher:
            for _ in range(LONG_SIZE // BODY_SIZE + 2):
                last = publisher.publish("k", os.urandom(BODY_SIZE))
            publisher.wait(last)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    scene = Open(tmp_path_factory.mktemp("open"))
    yield scene
    scene.served.kill()


class Secured:
    """A node that asks its ZeroMQ peers who they are."""

    def __init__(self, directory: Path) -> None:
        tokens, settings = directory / "tokens", directory / "veredus.toml"
        token, _ = add_token(tokens, "desk")
        self._plain = {"PLAIN_USERNAME": b"desk", "PLAIN_PASSWORD": token.encode()}
        node_key = command("token", "node-key", str(directory / "node.key")).strip()
        desk = json.loads(command("token", "add-key", "desk", "--file", str(tokens), "--output", "json"))
        self._curve = {
            "CURVE_SERVERKEY": node_key.encode(),
            "CURVE_PUBLICKEY": desk["key"].encode(),
            "CURVE_SECRETKEY": desk["secret"].encode(),
        }
        settings.write_text(
            f'[security]\ntokens = "{tokens}"\nzeromq_key = "{directory / "node.key"}"\n{RULES}', encoding="utf-8"
        )
        self._tcp = f"tcp://127.0.0.1:{free_port()}"
        self.served = ServedNode(
            directory / "journal", {"LISTEN_ZEROMQ": self._tcp, "SETTINGS": str(settings), **TIMES}, life_s=180
        )
        self.served.start(token).close()

    def peers(self, **options: int) -> dict[str, Callable[[], LibzmqEar]]:
        return {
            "ZEPS 1 by PLAIN": lambda: LibzmqEar(self._tcp, {**self._plain, **options}),
            "ZEPS 1 by CURVE": lambda: LibzmqEar(self._tcp, {**self._curve, **options}),
        }


def command(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "veredus", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    yield secured
    secured.served.kill()


@pytest.fixture
def ears() -> Iterator[list[Ear]]:
    ears: list[Ear] = []
    yield ears
    for ear in ears:
        ear.close()


def test_nobody_is_closed_for_silence_by_a_node_that_was_stopped_for_longer(scene: Open, ears: list[Ear]) -> None:
    peers = scene.peers()
    ears += [peer() for peer in peers.values()]
    assert scene.served.process is not None
    listen(ears, INTERVAL_S)
    scene.served.process.send_signal(signal.SIGSTOP)
    listen(ears, 1.5 * SILENCE_S)
    scene.served.process.send_signal(signal.SIGCONT)
    listen(ears, 1.5 * SILENCE_S)
    assert [name for name, ear in zip(peers, ears, strict=True) if not ear.is_open] == []


@pytest.mark.parametrize("credit", [2 << 20, LONG_SIZE], ids=["what the node hands over", "more than it hands over"])
def test_who_reads_slowly_and_steadily_stays_and_who_reads_nothing_is_let_go(
    scene: Open, ears: list[Ear], credit: int
) -> None:
    slow = {name: reader() for name, reader in scene.readers().items()}
    stuck = {name: reader() for name, reader in scene.readers().items()}
    ears += [*slow.values(), *stuck.values()]
    for reader in (*slow.values(), *stuck.values()):
        reader.subscribe(credit)
    end_s = time.monotonic() + 1.5 * SILENCE_S + LINGER_LOOKS * LOOK_S + 1
    while time.monotonic() < end_s:
        for reader in slow.values():
            reader.read(PIECE_SIZE)
        time.sleep(0.1)
    assert [name for name, reader in slow.items() if reader.has_ended()] == []
    assert [name for name, reader in stuck.items() if not reader.has_ended()] == []


def test_a_silent_peer_of_each_listener_is_closed_and_one_that_answers_each_ping_lives(
    scene: Open, secured: Secured, ears: list[Ear]
) -> None:
    peers = {**scene.peers(), **secured.peers()}
    lively, mute = {name: peer() for name, peer in peers.items()}, {name: peer() for name, peer in peers.items()}
    ears += [*lively.values(), *mute.values()]
    for ear in mute.values():
        ear.is_lively = False
    listen(ears, 2 * SILENCE_S)
    assert {name for name, ear in lively.items() if not (ear.is_open and ear.ping_count)} == set()
    assert {name for name, ear in mute.items() if ear.is_open or not ear.ping_count} == set()
    assert {name for name, ear in mute.items() if not ear.was_detached} == {"topics"}, "the others are told"


def test_a_heartbeat_of_libzmq_is_answered_and_one_of_the_node_is_no_message_by_each_mechanism(
    scene: Open, secured: Secured, ears: list[Ear]
) -> None:
    times = {"HEARTBEAT_IVL": 300, "HEARTBEAT_TIMEOUT": 900, "HEARTBEAT_TTL": 3000}
    peers = {
        "ZEPS 1 over libzmq": lambda: LibzmqEar(scene.zeromq),
        "ZEPS 1 over libzmq that heartbeats": lambda: LibzmqEar(scene.zeromq, {**times}),
        **secured.peers(),
        **{f"{name} that heartbeats": peer for name, peer in secured.peers(**times).items()},
    }
    heard = {name: peer() for name, peer in peers.items()}
    ears += heard.values()
    for ear in heard.values():
        ear.is_lively = False
    listen(ears, 3 * INTERVAL_S)
    assert {name: ear.strays for name, ear in heard.items() if ear.strays} == {}
    assert [name for name, ear in heard.items() if not ear.is_open] == []
