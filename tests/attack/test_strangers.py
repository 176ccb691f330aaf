"""Strangers that speak without end, all from one address, have one turn together: a neighbour has its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attack.figures import Attack, Figures
from tests.attack.flooding import flooded
from tests.attack.neighbour import forget_peak, neighbour, resident_size, resident_size_peak
from tests.attack.tls_by_hand import client_hello, record_of
from tests.certificates import CERTIFICATES
from tests.interop.ears import ATTACH
from tests.processes import free_port
from tests.protocols.zmtp.by_hand import OPENING, command, message
from tests.system.serving import ServedNode
from veredus.runtime.security import add_token

pytestmark = pytest.mark.slow

KIB, MIB = 1 << 10, 1 << 20
GROWTH_MAX = 64 * MIB
TRIPS_PER_SECOND_MIN = 4
SAID = {
    ("ZEPS", "PINGs"): command(b"PING", bytes(2)),
    ("ZEPS", "unknown commands"): command(b"x"),
    ("ZEPS", "empty frames"): message(b""),
    ("ZEPS", "ATTACHes that are refused"): message(ATTACH),
    ("topics", "PINGs"): command(b"PING", bytes(2)),
    ("topics", "empty frames"): message(b""),
    ("topics", "bad requests"): message(b"", b"GET"),
}
RULE = '[[security.rules]]\nprincipal = "{}"\nmay = ["*"]\n'


class Attacked(ServedNode):
    """A node that asks who comes, and one listener of it; of topics it asks only who says so."""

    def __init__(self, directory: Path, listener: str) -> None:
        """Not started yet."""
        self.attacked_port, tokens, settings = free_port(), directory / "tokens", directory / "veredus.toml"
        self.token, _ = add_token(tokens, "neighbour")
        # Where a rule names `anonymous`, topics are open to peers that prove nothing.
        names = ("neighbour", "anonymous") if listener == "topics" else ("neighbour",)
        settings.write_text(f'[security]\ntokens = "{tokens}"\n' + "".join(map(RULE.format, names)))
        address = f"127.0.0.1:{self.attacked_port}"
        pair = {"TLS_CERTIFICATE": str(CERTIFICATES / "node.pem"), "TLS_KEY": str(CERTIFICATES / "node.key")}
        listeners = {
            "ZEPS": {"LISTEN_ZEROMQ": f"tcp://{address}"},
            "topics": {"TOPICS_LISTEN": address},
            "TLS": {"LISTEN_TLS": address, **pair},
        }
        super().__init__(directory / "journal", {"SETTINGS": str(settings), **listeners[listener]}, life_s=300)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


@pytest.fixture(scope="module")
def attacked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Attacked]]:
    """One node for all attacks at a listener; each finds it as the one before has left it."""
    started: dict[str, Attacked] = {}

    def attacked(listener: str) -> Attacked:
        if listener not in started:
            served = started[listener] = Attacked(tmp_path_factory.mktemp("attacked"), listener)
            served.start(served.token).close()
        return started[listener]

    yield attacked
    for served in started.values():
        served.kill()


def endure(served: Attacked, attack: Attack, count: int, seconds: float, *said: bytes) -> None:
    """Let strangers of one address say this, and see what it costs the node and a neighbour."""
    with neighbour(served.address, token=served.token) as felt:
        forget_peak(served.pid)
        before = resident_size(served.pid)
        with flooded(served.attacked_port, count, seconds, *said) as told:
            felt.trips_ms.clear()
        trip_count = len(felt.trips_ms)
    growth = resident_size_peak(served.pid) - before
    (flood,) = told
    attack.record("said by them", flood.octets / MIB, "MiB")
    attack.record("links that were let go", flood.connections - count)
    attack.record("growth", growth / MIB, "MiB", f"at most {GROWTH_MAX // MIB} MiB")
    attack.record_felt(felt)
    assert trip_count > seconds * TRIPS_PER_SECOND_MIN
    assert growth < GROWTH_MAX


@pytest.mark.parametrize(("listener", "what"), SAID)
def test_strangers_over_zeromq_that_speak_without_end_leave_the_neighbour_its_turn(
    attacked_at: Callable[[str], Attacked], listener: str, what: str, figures: Figures, is_full: bool
) -> None:
    count, seconds = 100, 10.0 if is_full else 1.0
    attack = figures.attack(f"ZeroMQ: strangers at the listener of {listener}, {what}", f"{count} links, {seconds:g} s")
    endure(attacked_at(listener), attack, count, seconds, OPENING, SAID[listener, what])


def test_strangers_by_tls_that_change_their_keys_without_end_leave_the_neighbour_its_turn(
    attacked_at: Callable[[str], Attacked], figures: Figures, is_full: bool
) -> None:
    count, seconds = 20, 10.0 if is_full else 1.0
    attack = figures.attack("TLS: strangers, KeyUpdates", f"{count} links, {seconds:g} s")
    endure(attacked_at("TLS"), attack, count, seconds)


def test_strangers_by_tls_that_speak_on_behind_the_nodes_goodbye_leave_the_neighbour_its_turn(
    attacked_at: Callable[[str], Attacked], figures: Figures, is_full: bool
) -> None:
    count, seconds = 20, 10.0 if is_full else 1.0
    attack = figures.attack("TLS: strangers that were told goodbye, KeyUpdates", f"{count} links, {seconds:g} s")
    endure(attacked_at("TLS"), attack, count, seconds, b"garbage!")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("half a ClientHello", record_of(client_hello(bytes(32), 15_000))[:-1000]),
        ("a ClientHello that is to be very large", record_of(b"\x01" + (120_000).to_bytes(3) + bytes(16_000))),
    ],
    ids=["half", "large"],
)
def test_strangers_by_tls_that_begin_a_handshake_and_leave_it_take_bounded_memory(
    attacked_at: Callable[[str], Attacked], what: str, said: bytes, figures: Figures, is_full: bool
) -> None:
    attacked, count, each_max = attacked_at("TLS"), 1_000 if is_full else 200, 100 * KIB
    with neighbour(attacked.address, token=attacked.token) as felt, ExitStack() as held:
        forget_peak(attacked.pid)
        before = resident_size(attacked.pid)
        for _ in range(count):
            stranger = held.enter_context(socket.create_connection(("127.0.0.1", attacked.attacked_port), 10))
            stranger.sendall(said)
        heard = len(felt.trips_ms) + 20
        while len(felt.trips_ms) < heard:
            time.sleep(0.01)
        growth = resident_size_peak(attacked.pid) - before
    attack = figures.attack(f"TLS: strangers, {what}", f"{count:,} links")
    attack.record("growth, each", growth / count / KIB, "KiB", f"at most {each_max // KIB} KiB")
    attack.record_felt(felt)
    assert growth < count * each_max
