"""Somebody whose token was removed, and who neither reads nor leaves: his connection ends all the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.attack.figures import Figures
from tests.interop import native_by_hand as hand
from tests.system.serving import ServedNode
from veredus.runtime.security import add_token, remove_token

pytestmark = pytest.mark.slow


def sockets_of(pid: int, port: int) -> int:
    """How many connections of a listener the process holds."""
    wanted = f"0100007F:{port:04X}"
    rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[1] == wanted and row[3] != "0A"}
    held = [path.readlink().name for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    return sum(name in inodes for name in held)


def test_a_revoked_peer_that_reads_nothing_is_let_go(tmp_path: Path, figures: Figures) -> None:
    settings = tmp_path / "veredus.toml"
    settings.write_text(f'[security]\ntokens = "{tmp_path}/tokens"\n[[security.rules]]\nprincipal = "*"\nmay = ["*"]\n')
    (mine, _), (his, line) = (add_token(tmp_path / "tokens", name) for name in ("operator", "mallory"))
    served = ServedNode(tmp_path / "journal", environment={"VEREDUS_SETTINGS": str(settings)})
    try:
        with served.start(mine) as node:
            process = served.process
            assert process is not None
            with node.publisher("s", source="p") as publisher:
                publisher.publish_many([b"k"] * 32, [bytes(1 << 20)] * 32)
            lingering = hand.Client("127.0.0.1", served.port, his)
            lingering.ask(1, hand.SUBSCRIBE, stream="s", credit=1 << 40)
            lingering.hear(1, hand.SUBSCRIBED)
            lingering.hear(1, hand.SOURCES)  # much is on its way to it, and it reads no more
            began = time.monotonic()
            assert sockets_of(process.pid, served.port) == 2
            remove_token(tmp_path / "tokens", line.id)
            while sockets_of(process.pid, served.port) == 2:
                assert time.monotonic() - began < 20, served.said()
                time.sleep(0.02)
            attack = figures.attack("a removed token, its peer reads nothing")
            attack.record("until it is gone", time.monotonic() - began, "s")
            lingering.close()
    finally:
        served.kill()
