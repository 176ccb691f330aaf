"""Who has a place at a node in a process of its own, and as whom: by listener, address and user of the machine."""

from __future__ import annotations

import json
import os
import pwd
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import veredus
from tests.interop.ears import ATTACH_NATIVE, ATTACH_OK
from tests.processes import ended
from tests.system.serving import ServedNode

pytestmark = [pytest.mark.slow, pytest.mark.attack]

RULE = """
[[security.rules]]
principal = "{}"
may = {}
streams = {}
"""
# One client that comes as one user after the other, root first. All that it needs is imported by then: the others may
# not be allowed to read it.
CLIENT = """
import json, os, sys, veredus

def code_of(do, *arguments):
    try:
        return do(*arguments)
    except veredus.VeredusError as error:
        return error.code

def publish(node, stream, source):
    with node.publisher(stream, source=source) as publisher:
        publisher.wait(publisher.publish("k", b"1"))
    return "published"

def visit():
    with veredus.connect(sys.argv[1], timeout_s=2, refused_s=0) as node:
        return [node.principal, code_of(publish, node, "shut", ""), code_of(publish, node, "shared", "named")]

told = []
for user in map(int, sys.argv[2:]):
    os.seteuid(user)
    told.append(code_of(visit))
    os.seteuid(0)
print(json.dumps(told))
"""


@pytest.fixture
def crossroads() -> Iterator[Path]:
    """A directory that every user of the machine may pass."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="veredus-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("mode", ["666", "600"])
def test_peers_of_a_unix_socket_are_told_apart_by_their_user(crossroads: Path, mode: str) -> None:
    users = [user for user in pwd.getpwall() if user.pw_uid][:2]
    others = [f"unix:{user.pw_name}" for user in users]
    settings, address = crossroads / "veredus.toml", f"unix://{crossroads}/socket"
    rules = [("local", ["*"], [">"]), *((other, ["publish"], ["shared"]) for other in others)]
    settings.write_text("".join(RULE.format(who, json.dumps(may), json.dumps(streams)) for who, may, streams in rules))
    listen = {"SETTINGS": str(settings), "LISTEN_UNIX": str(crossroads / "socket"), "LISTEN_UNIX_MODE": mode}
    served = ServedNode(crossroads / "journal", listen)
    try:
        served.spawn()
        veredus.connect(address, timeout_s=20, refused_s=20).close()
        visited = ended([sys.executable, "-c", CLIENT, address, "0", *(str(user.pw_uid) for user in users)])
    finally:
        served.kill()
    assert visited.returncode == 0, visited.stderr
    own, *told = json.loads(visited.stdout)
    assert own == ["local", "published", "published"]
    if mode == "600":
        assert told == ["unreachable"] * 2, "the system lets nobody else open it"
    else:
        # The first of them to whom a name belongs keeps it; what `local` has made belongs to nobody.
        assert told == [[others[0], "forbidden", "published"], [others[1], "forbidden", "forbidden"]]


def test_a_full_listener_lets_nobody_in_until_there_is_room_and_another_listener_has_its_own(crossroads: Path) -> None:
    unix = f"unix://{crossroads}/socket"
    settings = {"LISTEN_UNIX": f"{crossroads}/socket", "LIMITS_CONNECTIONS_PER_LISTENER_MAX": "3"}
    served = ServedNode(crossroads / "journal", settings)
    with ExitStack() as held:
        held.callback(served.kill)
        first = served.start()
        for _ in range(2):
            held.enter_context(veredus.connect(served.address))
        with pytest.raises(veredus.Unavailable):
            veredus.connect(served.address, timeout_s=1, refused_s=0)
        for _ in range(3):
            held.enter_context(veredus.connect(unix))
        with pytest.raises(veredus.Unavailable):
            veredus.connect(unix, timeout_s=1, refused_s=0)
        with first, first.publisher("s", source="p") as publisher:
            publisher.wait(publisher.publish("k", b"who has a place keeps it"), timeout_s=20)
        held.enter_context(veredus.connect(served.address, timeout_s=20, refused_s=20)).streams.list()


def test_an_address_has_so_many_connections_that_prove_nothing_and_no_more_and_others_have_theirs(
    crossroads: Path,
) -> None:
    settings = {"LIMITS_CONNECTIONS_UNPROVEN_PER_ADDRESS_MAX": "3", "LIMITS_GREETING_TIMEOUT": "60s"}
    served = ServedNode(crossroads / "journal", settings)
    with ExitStack() as held:
        held.callback(served.kill)
        node = held.enter_context(served.start())
        place = ("127.0.0.1", served.port)
        crowd, modest = (
            [held.enter_context(socket.create_connection(place, 20, (source, 0))) for _ in range(count)]
            for source, count in (("127.0.0.2", 5), ("127.0.0.3", 3))
        )
        assert [has_ended(stranger) for stranger in crowd[:2]] == [True] * 2, "the oldest make room"
        with veredus.connect(served.address) as late:
            late.streams.create("s")
        assert [stream["name"] for stream in node.streams.list()] == ["s"]
        for stranger in (*crowd[2:], *modest):
            stranger.sendall(ATTACH_NATIVE)
            assert stranger.recv(3) == ATTACH_OK


def has_ended(connection: socket.socket) -> bool:
    """Waits until the node closes the connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
