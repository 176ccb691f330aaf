"""One ZeroMQ message of endless parts, before anybody has said who it is: what may be held of it is bounded."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

import veredus
from tests.attack.asking import asked
from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour, resident_size, resident_size_peak
from tests.processes import free_port
from tests.protocols.zmtp.by_hand import OPENING, frame
from tests.system.serving import ServedNode
from tests.system.serving_topics import QUICK, ServedProxy
from veredus.runtime.security import add_token

MIB = 1 << 20
RISE_MAX = 16 * MIB
PARTS = frame(1, b"") * 10_000 + frame(1, bytes(200)) * 1000
KINDS = [("small parts", PARTS), ("one part that never ends", b"\x03" + (1 << 40).to_bytes(8, "big") + bytes(60_000))]


def flooded(port: int, said: bytes, connections_count: int, seconds: float) -> int:
    """How many bytes connections took in so many seconds that each say this without an end."""
    taken = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        flooders = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(connections_count)]
        for flooder in flooders:
            flooder.setblocking(False)
        try:
            flooder_end = min(end, time.monotonic() + 0.5)
            opening = dict.fromkeys(flooders, OPENING)
            while time.monotonic() < flooder_end:
                for flooder in flooders:
                    try:
                        taken += flooder.send(opening.pop(flooder, said))
                    except BlockingIOError:
                        continue
        except ConnectionError:
            pass
        finally:
            for flooder in flooders:
                flooder.close()
    return taken


@pytest.mark.parametrize("listener", ["ZEPS", "topics"])
@pytest.mark.parametrize(("kind", "said"), KINDS)
def test_a_message_without_an_end_takes_no_memory(
    listener: str, kind: str, said: bytes, tmp_path: Path, figures: Figures, is_full: bool
) -> None:
    port, tokens, settings = free_port(), tmp_path / "tokens", tmp_path / "veredus.toml"
    token, _ = add_token(tokens, "neighbour")
    # Where a rule names `anonymous`, topics are open to peers that prove nothing.
    rules = "".join(f'[[security.rules]]\nprincipal = "{who}"\nmay = ["*"]\n' for who in ("neighbour", "anonymous"))
    settings.write_text(f'[security]\ntokens = "{tokens}"\n{rules}')
    address = f"127.0.0.1:{port}"
    listen = {"LISTEN_ZEROMQ": f"tcp://{address}"} if listener == "ZEPS" else {"TOPICS_LISTEN": address}
    served = ServedNode(tmp_path / "journal", {**listen, "SETTINGS": str(settings)})
    try:
        served.spawn()
        assert served.process is not None
        veredus.connect(served.address, token=token, timeout_s=20, refused_s=20).close()
        with neighbour(served.address, token=token) as felt:
            before = resident_size(served.process.pid)
            flooded(port, said, 8, 11 if is_full else 0.7)
        rise = resident_size_peak(served.process.pid) - before
    finally:
        served.kill()
    attack = figures.attack(f"ZeroMQ: a message without an end, {kind}, at the listener of {listener}")
    attack.record("growth", rise / MIB, "MiB", f"at most {RISE_MAX // MIB} MiB")
    attack.record_felt(felt)
    assert rise < RISE_MAX
    assert felt.trips_ms


@pytest.mark.parametrize(("kind", "said"), KINDS)
def test_a_message_without_an_end_takes_no_memory_of_a_proxy(
    kind: str, said: bytes, tmp_path: Path, figures: Figures, is_full: bool
) -> None:
    proxy = ServedProxy(tmp_path, *QUICK)
    try:
        proxy.start()
        assert proxy.process is not None
        before = resident_size(proxy.process.pid)
        flooded(int(proxy.address.rpartition(":")[2]), said, 8, 11 if is_full else 0.7)
        rise = resident_size_peak(proxy.process.pid) - before
        assert b"STATUS" in asked(proxy.address)
    finally:
        proxy.end()
    attack = figures.attack(f"ZeroMQ: a message without an end, {kind}, at a proxy")
    attack.record("growth", rise / MIB, "MiB", f"at most {RISE_MAX // MIB} MiB")
    assert rise < RISE_MAX
