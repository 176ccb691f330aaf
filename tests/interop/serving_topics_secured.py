"""A topic service of real processes that asks everybody who he is: two servers, a proxy, and sockets of libzmq."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import zmq

from tests.processes import LIFE_S, free_port
from tests.system.serving import ServedNode
from tests.system.serving_topics import ANSWER_MS, QUICK, Said, ServedProxy, said
from veredus.protocols.zmtp.z85 import decode_z85, encode_z85
from veredus.runtime.curve_keys import make_server_key
from veredus.runtime.security import add_key, add_token

PLAIN, CURVE = "PLAIN", "CURVE"
MEMBERS = ("proxy", "server-1", "server-2")
PEOPLE = ("alice", "bob", "mallory")
RULES = """
[[security.rules]]
principal = "local"
may = ["*"]

[[security.rules]]
principal = "alice"
may = ["publish", "create", "subscribe", "describe"]
sources = ["alice"]
subscribers = ["alice"]

[[security.rules]]
principal = "bob"
may = ["subscribe", "create", "describe"]
"""
WAIT_S = 20.0


class Shown(NamedTuple):
    """What somebody shows for who he is, and where: a token, or a pair of keys."""

    token: str = ""
    public: str = ""
    secret: str = ""

    def options(self, server_key: str) -> dict[str, bytes]:
        """As libzmq has it."""
        if self.token:
            return {"PLAIN_USERNAME": b"anybody", "PLAIN_PASSWORD": self.token.encode()}
        if self.secret:
            return {
                "CURVE_SERVERKEY": server_key.encode(),
                "CURVE_PUBLICKEY": self.public.encode(),
                "CURVE_SECRETKEY": self.secret.encode(),
            }
        return {}


class SecuredService:
    """Owns the processes; `mechanism` is by which everybody comes. Nobody may come without."""

    def __init__(self, directory: Path, mechanism: str, answer: str = "50ms", life_s: float = LIFE_S) -> None:
        """Not started yet; `answer` is how long the proxy waits for one."""
        self.directory, self.mechanism = directory, mechanism
        self.tokens = directory / "tokens"
        self.server_key = encode_z85(make_server_key(directory / "node.key").public)
        self.shown = {name: self._make(name) for name in (*MEMBERS, *PEOPLE)}
        self.servers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.config = directory / "veredus.toml"
        topics = f'[topics]\nservers = {json.dumps(self.servers)}\nmembers = "{", ".join(MEMBERS)}"\nperiod = "100ms"\n'
        self.config.write_text(
            f'{topics}[security]\ntokens = "{self.tokens}"\nzeromq_key = "{directory / "node.key"}"\n{RULES}'
        )
        self.proxy = ServedProxy(
            directory,
            *(*QUICK, "--set", f"topics.answer={answer}", "--config", str(self.config), *self._as("proxy")),
            life_s=life_s,
        )
        self.nodes = [
            ServedNode(
                directory / f"journal-{number}",
                environment={
                    "VEREDUS_SETTINGS": str(self.config),
                    "VEREDUS_TOPICS_LISTEN": address,
                    "VEREDUS_TOPICS_PROXIES": self.proxy.address,
                    **{
                        f"VEREDUS_TOPICS_{name.upper()}": value
                        for name, value in self.files(f"server-{number}").items()
                    },
                },
                life_s=life_s,
            )
            for number, address in enumerate(self.servers, 1)
        ]
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def start(self) -> None:
        for node in self.nodes:
            node.spawn()
        self.proxy.start()
        self.wait_for(lambda: all('"node-ready"' in node.said() for node in self.nodes), "the servers are ready")
        # The proxy knows them once they have announced themselves to it.
        self.ask("UNSUBSCRIBE alice started")

    def end(self) -> None:
        self.context.destroy(linger=0)
        self.proxy.end()
        for node in self.nodes:
            if node.process is not None:
                node.kill()

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, f"not in time: {what}: {self.proxy.said()} {self.nodes[0].said()}"
            time.sleep(0.02)

    def files(self, name: str) -> dict[str, str]:
        """The settings of [topics] by which `name` shows who he is."""
        shown = self.shown[name]
        path = self.directory / f"{name}.secret"
        path.write_text(shown.token or shown.secret)
        path.chmod(0o600)
        return {"token": str(path)} if shown.token else {"key": str(path), "server_key": self.server_key}

    def _as(self, name: str) -> list[str]:
        return [word for key, value in self.files(name).items() for word in ("--set", f"topics.{key}={value}")]

    def _make(self, name: str) -> Shown:
        if self.mechanism == PLAIN:
            return Shown(add_token(self.tokens, name)[0])
        public, secret = zmq.curve_keypair()
        add_key(self.tokens, name, decode_z85(public.decode()))
        return Shown("", public.decode(), secret.decode())

    def socket(self, address: str, shown: Shown, kind: int = zmq.REQ) -> zmq.Socket[bytes]:
        """A socket of libzmq that is connecting."""
        opened = self.context.socket(kind)
        opened.linger = 0
        for option, value in shown.options(self.server_key).items():
            opened.setsockopt(getattr(zmq, option), value)
        opened.connect(f"tcp://{address}")
        return opened

    def ask(self, question: str, body: bytes = b"", who: str = "alice", address: str = "") -> Said:
        """Ask the proxy, or who is at `address`, until it knows of the servers."""
        deadline = time.monotonic() + WAIT_S
        while True:
            with self.socket(address or self.proxy.address, self.shown[who]) as asking:
                asking.send(question.encode() + b"\r\n\r\n" + body)
                assert asking.poll(ANSWER_MS), "no answer"
                told = said(asking.recv())
            if told.status not in ("SERVER_UNAVAILABLE", "PROXY_DOES_NOT_KNOW_ANY_SERVER"):
                return told
            assert time.monotonic() < deadline, told
            time.sleep(0.05)


def environment_of(service: SecuredService, name: str) -> dict[str, str]:
    """In which a command of `name`'s runs."""
    files = {f"VEREDUS_TOPICS_{key.upper()}": value for key, value in service.files(name).items()}
    return {**os.environ, "VEREDUS_TOPICS_PROXIES": service.proxy.address, **files}
