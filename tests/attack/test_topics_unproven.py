"""Peers that want to be heard by a listener of topics without a proof, where it asks for one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.figures import Figures
from tests.interop.serving_topics_secured import CURVE, SecuredService
from tests.protocols.zmtp.by_hand import command, greeting, message, metadata, ready

pytestmark = pytest.mark.slow

PUT = b"PUT alice attacked 1\r\n\r\nforged"
META = metadata(Socket_Type=b"DEALER", Identity=b"")
SAID = {
    "NULL": greeting(b"NULL") + ready() + message(b"", PUT),
    "NULL that claims to be the server": greeting(b"NULL", as_server=1) + ready() + message(b"", PUT),
    "PLAIN, and READY at once": greeting(b"PLAIN") + ready() + message(b"", PUT),
    "PLAIN, and INITIATE at once": greeting(b"PLAIN") + command(b"INITIATE", META) + message(b"", PUT),
    "PLAIN without a password": greeting(b"PLAIN") + command(b"HELLO", b"\x05alice\x00") + message(b"", PUT),
    "PLAIN, and messages before the answer": greeting(b"PLAIN")
    + command(b"HELLO", b"\x05alice\x2cveredus_00000000_aaaaaaaaaaaaaaaaaaaaaaaaaaa")
    + command(b"INITIATE", META)
    + message(b"", PUT),
    "CURVE, and READY at once": greeting(b"CURVE") + ready() + message(b"", PUT),
    "CURVE, and an empty HELLO": greeting(b"CURVE") + command(b"HELLO", bytes(194)) + message(b"", PUT),
    "GSSAPI": greeting(b"GSSAPI") + ready() + message(b"", PUT),
    "ZMTP 1.0": b"\x01\x00" + message(b"", PUT),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredService]:
    service = SecuredService(tmp_path_factory.mktemp("attacked"), CURVE)
    try:
        service.start()
        yield service
    finally:
        service.end()


def heard_from(address: str, said: bytes) -> bytes:
    """All that is answered until the connection is closed."""
    host, port = address.split(":")
    heard = b""
    with socket.create_connection((host, int(port)), 20) as attacker:
        attacker.sendall(said)
        try:
            while more := attacker.recv(65_536):
                heard += more
        except ConnectionResetError:
            return heard
    return heard


@pytest.mark.parametrize("place", ["proxy", "server"])
@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_nobody_is_answered_who_has_proved_nothing(service: SecuredService, said: bytes, place: str) -> None:
    address = service.proxy.address if place == "proxy" else service.servers[0]
    assert b"STATUS" not in heard_from(address, said)
    assert b"\x05READY" not in heard_from(address, said)


def test_peers_that_prove_nothing_keep_nobody_else_from_being_answered(
    service: SecuredService, figures: Figures, is_full: bool, tmp_path: Path
) -> None:
    attackers_count = 500 if is_full else 50
    host, port = service.proxy.address.split(":")
    attackers = [socket.create_connection((host, int(port)), 20) for _ in range(attackers_count)]
    try:
        for attacker in attackers:
            attacker.sendall(SAID["NULL"])
        assert service.ask("SUBSCRIBE bob attacked", who="bob").status == "OK"
        assert service.ask("PUT alice attacked 1", b"hers").status == "OK"
        assert service.ask("GET bob attacked -1", who="bob").body == b"hers"
        answered = sum(b"STATUS" in heard_of(attacker) for attacker in attackers)
    finally:
        for attacker in attackers:
            attacker.close()
    figures.attack("topics: peers without a proof", f"{attackers_count}").record("answered", answered, bound="none")
    assert answered == 0


def heard_of(attacker: socket.socket) -> bytes:
    heard = b""
    try:
        while more := attacker.recv(65_536):
            heard += more
    except ConnectionResetError:
        return heard
    return heard
