"""A node with a listener of every kind, and a proxy before it; both keep an audit log. And who comes to them."""

from __future__ import annotations

import json
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import zmq

import veredus
from tests.interop.serving_topics_secured import Shown
from tests.interop.zeps1_by_hand import TIMEOUT_S, Client, StreamWay, over_tcp
from tests.processes import free_port, whole_lines
from tests.runtime.authority import Authority
from tests.system.serving import ServedNode
from tests.system.serving_topics import QUICK, ServedProxy
from veredus.client.blocking import Node, connect
from veredus.protocols.zmtp.z85 import decode_z85, encode_z85
from veredus.runtime.curve_keys import make_server_key
from veredus.runtime.security import add_key, add_token, client_context, remove_token

WAIT_S = 20.0
MEMBERS = ("proxy", "server")
SETTINGS = """
[topics]
servers = ["{topics}"]
members = "proxy, server"
period = "100ms"
[tls]
certificate = "{authority}/node.pem"
key = "{authority}/node.key"
client_authorities = "{authority}/authority.pem"
[security]
tokens = "{tokens}"
zeromq_key = "{key}"
[[security.rules]]
principal = "*"
may = ["*"]
streams = ["trades"]
"""


class Records:
    """What stands in the file of an audit log."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def all(self, kind: str, **fields: object) -> list[dict[str, Any]]:
        """The records of a kind that have these fields."""
        if not self.file.exists():
            return []
        found = [json.loads(line) for line in whole_lines(self.file)]
        return [one for one in found if one["kind"] == kind and fields.items() <= one.items()]

    def wait(self, kind: str, **fields: object) -> dict[str, Any]:
        """The last record of a kind that has these fields."""
        wait_for(lambda: bool(self.all(kind, **fields)), lambda: f"{kind} {fields}: {self.file.read_text()}")
        return self.all(kind, **fields)[-1]


def wait_for(is_so: Callable[[], bool], why: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


class Holder(NamedTuple):
    """Somebody with a token and a pair of keys, and what takes them away."""

    name: str
    token: str
    public: str
    secret: str
    ids: tuple[str, ...]


class AuditedPlace:
    """Owns a node that has every listener, and a proxy of its topics, once they are started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tokens = directory / "tokens"
        self.authority = Authority(directory / "authority")
        self.authority.sign("node", "/CN=localhost", "IP:127.0.0.1")
        self.server_key = encode_z85(make_server_key(directory / "node.key").public)
        self.tls, self.zeromq, self.topics = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.unix = f"{directory}/node.socket"
        self.config = directory / "veredus.toml"
        self.config.write_text(
            SETTINGS.format(
                topics=self.topics, authority=self.authority.directory, tokens=self.tokens, key=directory / "node.key"
            )
        )
        self.at_node, self.at_proxy = (Records(directory / f"{name}.jsonl") for name in ("node", "proxy"))
        server, proxy = (self._shown_by(name) for name in ("server", "proxy"))
        audit = ("--set", f"audit.file={self.at_proxy.file}", "--set", "node.name=proxy-1")
        self.proxy = ServedProxy(
            directory, *QUICK, "--config", str(self.config), "--set", f"topics.token={proxy}", *audit
        )
        self.node = ServedNode(
            directory / "journal",
            {
                "SETTINGS": str(self.config),
                "LISTEN_TLS": self.tls,
                "LISTEN_UNIX": self.unix,
                "LISTEN_ZEROMQ": f"tcp://{self.zeromq}",
                "TOPICS_LISTEN": self.topics,
                "TOPICS_PROXIES": self.proxy.address,
                "TOPICS_TOKEN": str(server),
                "AUDIT_FILE": str(self.at_node.file),
            },
        )

    def _shown_by(self, name: str) -> Path:
        path = self.directory / f"{name}.token"
        path.touch(0o600)
        path.write_text(add_token(self.tokens, name)[0])
        return path

    def start(self) -> None:
        self.proxy.start()
        self.node.spawn()
        wait_for(lambda: '"node-ready"' in self.node.said(), self.node.said)

    def end(self) -> None:
        self.proxy.end()
        if self.node.process is not None:
            self.node.kill()

    def hold(self, name: str) -> Holder:
        """Somebody new."""
        token, line = add_token(self.tokens, name)
        public, secret = (key.decode() for key in zmq.curve_keypair())
        key = add_key(self.tokens, name, decode_z85(public))
        return Holder(name, token, public, secret, (line.id, key.id))

    def take_away(self, holder: Holder) -> None:
        """Nobody knows the token and the key any more."""
        for one in holder.ids:
            remove_token(self.tokens, one)


class Visitor(ABC):
    """A connection that somebody has opened, by one way."""

    listener = ""
    protocol = ""

    @abstractmethod
    def __init__(self, place: AuditedPlace, holder: Holder) -> None:
        """Come, and show what `holder` has."""

    @abstractmethod
    def publish(self, stream: str) -> None:
        """Publish, and wait for the answer, whichever it is."""

    @abstractmethod
    def close(self) -> None:
        """Go."""


class Native(Visitor):
    protocol = "zeps/2"

    def __init__(self, place: AuditedPlace, holder: Holder) -> None:
        self.node = self._connect(place, holder.token)
        self.node.streams.list()

    def _connect(self, place: AuditedPlace, token: str) -> Node:
        raise NotImplementedError

    def publish(self, stream: str) -> None:
        with suppress(veredus.Refused), self.node.publisher(stream, source="p") as publisher:
            publisher.wait(publisher.publish("k", b"1"), timeout_s=WAIT_S)

    def close(self) -> None:
        self.node.close()


class NativeTcp(Native):
    listener = "tcp"

    def _connect(self, place: AuditedPlace, token: str) -> Node:
        return connect(place.node.address, token=token)


class NativeTls(Native):
    listener = "tls"

    def _connect(self, place: AuditedPlace, token: str) -> Node:
        context = client_context(str(place.authority.certificate))
        return connect(f"veredus+tls://{place.tls}", token=token, tls=context)


class NativeUnix(Native):
    listener = "unix"

    def _connect(self, place: AuditedPlace, token: str) -> Node:
        return connect(f"unix://{place.unix}", token=token)


def attach(client: Client, stream: str) -> None:
    client.attach(stream)
    if client.hear().command != Client.ATTACH_OK:
        client.close()
        raise ConnectionError("the node refuses")


class Zeps1Tls(Visitor):
    """By a certificate: version 1 has no tokens."""

    listener, protocol = "tls", "zeps/1"

    def __init__(self, place: AuditedPlace, holder: Holder) -> None:
        pair = place.authority.sign(holder.name, f"/CN={holder.name}") if holder.ids else ("", "")
        context = client_context(str(place.authority.certificate), *pair)
        host, _, port = place.tls.rpartition(":")
        connected = socket.create_connection((host, int(port)))
        self.client = Client(StreamWay(context.wrap_socket(connected, server_hostname="127.0.0.1")))
        attach(self.client, "payroll")

    def publish(self, stream: str) -> None:
        self.client.publish(b"k", b"1")
        self.client.hear()

    def close(self) -> None:
        self.client.close()


class Zeps1Tcp(Visitor):
    """As nobody: that is all that version 1 can be there."""

    listener, protocol = "tcp", "zeps/1"

    def __init__(self, place: AuditedPlace, holder: Holder) -> None:
        self.client = over_tcp("127.0.0.1", place.node.port)
        attach(self.client, "trades")

    def publish(self, stream: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.client.close()


class ZeroMq(Visitor):
    """A socket of libzmq, which hides from whoever uses it that it was not let in."""

    kind = zmq.DEALER
    mechanism = "PLAIN"

    def __init__(self, place: AuditedPlace, holder: Holder) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(self.kind)
        shown = {
            "NULL": Shown(),
            "PLAIN": Shown(holder.token),
            "CURVE": Shown("", holder.public, holder.secret),
        }[self.mechanism]
        for option, value in {"LINGER": 0, **shown.options(place.server_key)}.items():
            self.socket.setsockopt(getattr(zmq, option), value)
        self.socket.connect(f"tcp://{self.address(place)}")
        self.name = holder.name
        self.greet()

    def address(self, place: AuditedPlace) -> str:
        return place.zeromq

    def greet(self) -> None:
        self.ask(b"\xaa\xa5\x01\x04ZEPS\x00\x01\x07payroll")

    def ask(self, question: bytes) -> bytes:
        self.socket.send(question)
        return self.socket.recv() if self.socket.poll(2_000) else b""

    def publish(self, stream: str) -> None:
        assert stream == "payroll"
        assert self.ask(b"\xaa\xa5\x06\x01k\x00\x00\x00\x011")

    def close(self) -> None:
        self.socket.close()
        self.context.term()


class Zeps1Null(ZeroMq):
    listener, protocol, mechanism = "zeromq", "zeps/1", "NULL"


class Zeps1Plain(ZeroMq):
    listener, protocol, mechanism = "zeromq", "zeps/1", "PLAIN"


class Zeps1Curve(ZeroMq):
    listener, protocol, mechanism = "zeromq", "zeps/1", "CURVE"


class Topics(ZeroMq):
    listener, protocol, kind = "topics", "topics", zmq.REQ

    def address(self, place: AuditedPlace) -> str:
        return place.topics

    def greet(self) -> None:
        """Who asks nothing is there, too."""

    def publish(self, stream: str) -> None:
        assert b" REFUSED" in self.ask(f"PUT {self.name} {stream} 1\r\n\r\nbody".encode())


class TopicsPlain(Topics):
    mechanism = "PLAIN"


class TopicsCurve(Topics):
    mechanism = "CURVE"


class ProxyPlain(TopicsPlain):
    def address(self, place: AuditedPlace) -> str:
        return place.proxy.address


class ProxyCurve(TopicsCurve):
    def address(self, place: AuditedPlace) -> str:
        return place.proxy.address


def try_as(way: type[Visitor], place: AuditedPlace, holder: Holder) -> None:
    """Come, as far as one is let."""
    try:
        visitor = way(place, holder)
    except (veredus.VeredusError, ConnectionError):
        return
    if isinstance(visitor, Topics):
        visitor.ask(b"GET nobody payroll -1\r\n\r\n")
    visitor.close()


def greet_badly(address: str, count: int) -> None:
    """Speak HTTP, so often, each time until the other hangs up."""
    host, _, port = address.rpartition(":")
    for _ in range(count):
        with socket.create_connection((host, int(port)), TIMEOUT_S) as peer, suppress(ConnectionError):
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while peer.recv(4096):
                pass
