"""The servers and the proxies: how they are started, and what they hold."""

from __future__ import annotations

import json
import socket
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from accounts import digest_of, index_of
from first_demo import Member

import veredus

SERVERS_COUNT, PROXIES_COUNT = 3, 2
PERIOD = "500ms"
"""How often servers say what they have: a tenth of what is usual, so that a minute has as much of it as ten."""
SUBSCRIPTION = "topics"
MERGED, GIVEN, CONFLICT = "topic-merged", "topic-given", "topic-conflict"
_PORT_FIRST, _PORT_COUNT = 27_500, 5_000


class Row(NamedTuple):
    """One row of a topic's stream, read natively; `message_id` as a client is told it."""

    server: str
    message_id: str
    client: str
    counter: int
    index: int
    digest: str
    was_moved: bool = False
    """Whether it came from another server."""


@dataclass(frozen=True)
class Cluster:
    """Where everybody listens; the servers in the order of their ids."""

    directory: Path
    servers: dict[str, str]
    """By name, where it takes messages: its id."""
    nodes: dict[str, str]
    """By name of a server, where its node takes native connections."""
    proxies: dict[str, str]

    def server(self, name: str, proxies: list[str]) -> Member:
        """A server that tells these proxies what it has."""
        told = ",".join(self.proxies[proxy] for proxy in proxies)
        settings = {
            "listen.zeromq": "", "listen.metrics": "", "journal.segment_size": "4 MiB", "log.format": "json",
            "topics.listen": self.servers[name], "topics.proxies": told, "topics.period": PERIOD,
        }  # fmt: skip
        arguments = ["serve", "--directory", str(self.directory / name), "--tcp", self.nodes[name]]
        return self._player(name, arguments, settings)

    def proxy(self, name: str) -> Member:
        """A proxy."""
        settings = {"log.format": "json", "topics.period": PERIOD}
        return self._player(name, ["proxy", "--listen", self.proxies[name]], settings)

    def _player(self, name: str, arguments: list[str], settings: dict[str, str]) -> Member:
        flags = [flag for path, text in settings.items() for flag in ("--set", f"{path}={text}")]
        return Member(name, [sys.executable, "-m", "veredus", *arguments, *flags], self.log_of(name))

    def log_of(self, name: str) -> Path:
        """Where a process says what it does."""
        return self.directory / f"{name}.log"

    def topics(self) -> Counter[str]:
        """How many servers have each topic. Raises `veredus.Unavailable` while one of them does not answer."""
        found: Counter[str] = Counter()
        for address in self.nodes.values():
            with veredus.connect(f"veredus://{address}") as node:
                found.update(stream["name"] for stream in node.streams.list())
        return found

    def rows(self) -> dict[str, list[Row]]:
        """By topic, all rows of its streams, in the order in which they lie there."""
        rows: dict[str, list[Row]] = {}
        for name, address in self.nodes.items():
            with veredus.connect(f"veredus://{address}") as node:
                for topic in [stream["name"] for stream in node.streams.list()]:
                    rows.setdefault(topic, []).extend(read_stream(node, name, topic))
        return rows

    def lags(self) -> int:
        """How many rows the subscriptions of all clients have not settled yet."""
        with ExitStack() as stack:
            nodes = [stack.enter_context(veredus.connect(f"veredus://{a}")) for a in self.nodes.values()]
            return sum(one["lag"] for node in nodes for one in node.subscriptions.list(name=SUBSCRIPTION))

    def said(self, event: str) -> list[dict[str, str]]:
        """What all of them have said of this kind."""
        found: list[dict[str, str]] = []
        for name in (*self.servers, *self.proxies):
            for line in self.log_of(name).read_text(errors="replace").splitlines():
                # A process that was killed may have left half a line.
                with suppress(ValueError):
                    note = json.loads(line)
                    if note.get("event") == event:
                        found.append(note)
        return found


def read_stream(node: veredus.Node, server: str, topic: str) -> list[Row]:
    """All rows of one stream; who put a row that came from another server stands in its attributes."""
    shown = node.streams.show(topic)
    incarnation = bytes(shown["incarnation"])[:8].hex()
    rows: list[Row] = []
    if shown["head"]:
        with node.subscribe(topic, start=veredus.beginning(), until=shown["head"] + 1) as subscription:
            for one in subscription:
                attributes = one.attributes
                client = attributes.get("put-client", one.source)
                counter = attributes.get("put-counter", one.number)
                message_id, index = f"{incarnation}-{one.sequence}", index_of(one.body)
                was_moved = "put-client" in attributes
                rows.append(Row(server, message_id, client, counter, index, digest_of(one.body), was_moved))
    return rows


def lay_out(directory: Path) -> Cluster:
    """A service on ports that nobody has at this moment, and that the system gives to no connection by itself."""
    names = [f"server-{n + 1}" for n in range(SERVERS_COUNT)]
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2 * SERVERS_COUNT + PROXIES_COUNT)]
    nodes, proxies = addresses[SERVERS_COUNT : 2 * SERVERS_COUNT], addresses[2 * SERVERS_COUNT :]
    return Cluster(
        directory,
        dict(zip(names, addresses[:SERVERS_COUNT], strict=True)),
        dict(zip(names, nodes, strict=True)),
        {f"proxy-{n + 1}": address for n, address in enumerate(proxies)},
    )


def free_ports(count: int) -> list[int]:
    """Ports in ascending order; all have five digits, so the ids of servers are in that order as well."""
    found: list[int] = []
    for port in Random().sample(range(_PORT_FIRST, _PORT_FIRST + _PORT_COUNT), _PORT_COUNT):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return sorted(found)
