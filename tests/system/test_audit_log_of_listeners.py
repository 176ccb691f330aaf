"""Whichever listener somebody comes to, and whichever dialect he speaks: the audit log says what it promises."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import zmq

from tests.processes import free_port
from tests.protocols.zmtp.by_hand import OPENING, frame, greeting
from tests.system.auditing import (
    AuditedPlace,
    Holder,
    NativeTcp,
    NativeTls,
    NativeUnix,
    ProxyCurve,
    ProxyPlain,
    Records,
    Topics,
    TopicsCurve,
    TopicsPlain,
    Visitor,
    Zeps1Curve,
    Zeps1Null,
    Zeps1Plain,
    Zeps1Tcp,
    Zeps1Tls,
    greet_badly,
    try_as,
    wait_for,
)
from tests.system.serving import ServedNode
from tests.system.serving_topics import QUICK, ServedProxy
from veredus.runtime.logs import PEER_LINES_MAX

pytestmark = [pytest.mark.slow, pytest.mark.attack]

ATTACH = b"\xaa\xa5\x01\x04ZEPS\x00\x01\x06trades"
STRANGER = Holder("stranger", "veredus_00000000_" + "x" * 43, "", "", ())
REVOCABLE = [
    NativeTcp, NativeTls, NativeUnix, Zeps1Plain, Zeps1Curve, TopicsPlain, TopicsCurve, ProxyPlain, ProxyCurve,
]  # fmt: skip
PROVING = [*REVOCABLE, Zeps1Tls]
ALL = [*PROVING, Zeps1Tcp, Zeps1Null]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedPlace]:
    place = AuditedPlace(tmp_path_factory.mktemp("audited"))
    try:
        place.start()
        yield place
    finally:
        place.end()


def records_of(place: AuditedPlace, way: type[Visitor]) -> Records:
    return place.at_proxy if way in (ProxyPlain, ProxyCurve) else place.at_node


def is_from_here(record: dict[str, object]) -> bool:
    return record["listener"] == "unix" or str(record["peer"]).startswith("127.0.0.1:")


@pytest.mark.parametrize("way", ALL)
def test_who_shows_nothing_or_the_wrong_thing_is_recorded_as_refused(place: AuditedPlace, way: type[Visitor]) -> None:
    records = records_of(place, way)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    before = len(records.all("peer-refused", listener=way.listener))
    try_as(way, place, STRANGER._replace(public=public, secret=secret))
    wait_for(lambda: len(records.all("peer-refused", listener=way.listener)) > before, records.file.read_text)
    told = records.all("peer-refused", listener=way.listener)[before:]
    assert {one["note"] for one in told} == {"peer-unauthenticated"}
    assert all(is_from_here(one) for one in told)
    for secret_thing in (STRANGER.token, secret, public):
        assert secret_thing not in records.file.read_text()


@pytest.mark.parametrize("way", PROVING)
def test_who_comes_goes_and_asks_for_what_he_may_not_is_recorded(place: AuditedPlace, way: type[Visitor]) -> None:
    records = records_of(place, way)
    holder = place.hold(f"desk-{way.__name__}")
    with closing(way(place, holder)) as visitor:
        visitor.publish("payroll")
    opened = records.wait("connection-opened", principal=holder.name)
    assert (opened["listener"], opened["protocol"], is_from_here(opened)) == (way.listener, way.protocol, True)
    refused = place.at_node.wait("request-refused", principal=holder.name)
    assert (refused["verb"], refused["on"], refused["name"]) == ("publish", "stream", "payroll")
    assert (refused["listener"], is_from_here(refused)) == (way.listener, True)
    if records is place.at_node:
        assert (refused["link"], refused["peer"]) == (opened["link"], opened["peer"])
    else:
        by_proxy = place.at_node.wait("connection-opened", principal="proxy")
        assert (refused["link"], refused["peer"]) == (by_proxy["link"], by_proxy["peer"])
    closed = records.wait("connection-closed", principal=holder.name)
    assert (closed["link"], closed["peer"]) == (opened["link"], opened["peer"])
    assert len(records.all("connection-opened", principal=holder.name)) == 1
    for secret in (holder.token, holder.secret):
        assert secret not in records.file.read_text()


@pytest.mark.parametrize("way", REVOCABLE)
def test_whose_token_or_key_is_withdrawn_is_recorded_as_revoked(place: AuditedPlace, way: type[Visitor]) -> None:
    records = records_of(place, way)
    holder = place.hold(f"gone-{way.__name__}")
    with closing(way(place, holder)):
        opened = records.wait("connection-opened", principal=holder.name)
        place.take_away(holder)
        revoked = records.wait("principal-revoked", principal=holder.name)
    assert (revoked["code"], revoked["listener"]) == ("revoked", way.listener)
    assert (revoked["link"], revoked["peer"]) == (opened["link"], opened["peer"])
    records.wait("connection-closed", principal=holder.name)


@pytest.mark.parametrize("way", [TopicsPlain, ProxyPlain])
def test_who_is_no_member_and_asks_for_what_members_may_is_recorded(place: AuditedPlace, way: type[Topics]) -> None:
    records = records_of(place, way)
    holder = place.hold(f"pretender-{way.__name__}")
    question, wanted = {
        TopicsPlain: (b"MERGE pretender trades 127.0.0.1:1\r\n\r\n", ("merge", "topic", "trades")),
        ProxyPlain: (b"PERIODIC 127.0.0.1:1\r\n\r\ntrades", ("announce", "server", "127.0.0.1:1")),
    }[way]
    with closing(way(place, holder)) as visitor:
        assert b" REFUSED" in visitor.ask(question)
    refused = records.wait("request-refused", principal=holder.name)
    assert (refused["verb"], refused["on"], refused["name"]) == wanted
    assert (refused["listener"], is_from_here(refused)) == ("topics", True)


@pytest.mark.parametrize("place_name", ["zeromq", "topics", "proxy"])
@pytest.mark.parametrize("how", ["http", "another mechanism"])
def test_whose_handshake_fails_is_recorded_as_refused(place: AuditedPlace, place_name: str, how: str) -> None:
    address = place.proxy.address if place_name == "proxy" else getattr(place, place_name)
    records = place.at_proxy if place_name == "proxy" else place.at_node
    listener = "zeromq" if place_name == "zeromq" else "topics"
    before = len(records.all("connection-refused", listener=listener))
    if how == "http":
        greet_badly(address, 1)
    else:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as peer:
            peer.sendall(greeting(b"GSSAPI"))
            while peer.recv(4096):
                pass
    wait_for(lambda: len(records.all("connection-refused", listener=listener)) > before, records.file.read_text)
    refused = records.all("connection-refused", listener=listener)[before:]
    assert all(is_from_here(one) and one["note"] == "handshake-failed" for one in refused)


@pytest.mark.parametrize("listener", ["tcp", "zeromq", "topics", "proxy"])
def test_who_finds_no_place_at_a_listener_is_recorded_as_refused(tmp_path: Path, listener: str) -> None:
    records = Records(tmp_path / "audit.jsonl")
    settings = {"LIMITS_CONNECTIONS_PER_LISTENER_MAX": "1", "AUDIT_FILE": str(records.file)}
    zeromq, topics = (f"127.0.0.1:{free_port()}" for _ in range(2))
    listening = {"LISTEN_ZEROMQ": f"tcp://{zeromq}", "TOPICS_LISTEN": topics}
    node = ServedNode(tmp_path / "journal", {**settings, **listening})
    given = [f"{name.lower().replace('_', '.', 1)}={value}" for name, value in settings.items()]
    proxy = ServedProxy(tmp_path, *QUICK, *(word for one in given for word in ("--set", one)))
    address = {"tcp": f"127.0.0.1:{node.port}", "zeromq": zeromq, "topics": topics, "proxy": proxy.address}[listener]
    host, _, port = address.rpartition(":")
    try:
        if listener == "proxy":
            proxy.start()
        else:
            node.spawn()
            wait_for(lambda: '"node-ready"' in node.said(), node.said)
        at = host, int(port)
        with socket.create_connection(at, 10) as first:
            first.sendall({"tcp": ATTACH, "zeromq": OPENING + frame(0, ATTACH)}.get(listener, OPENING))
            records.wait("connection-opened")
            with suppress(ConnectionError), socket.create_connection(at, 10) as second:
                second.recv(1)
            refused = records.wait("connection-refused")
    finally:
        proxy.end()
        if node.process is not None:
            node.kill()
    assert (refused["listener"], is_from_here(refused)) == ("topics" if listener == "proxy" else listener, True)
    assert (refused["note"], refused["reason"]) == ("connection-refused", "too many connections")


@pytest.mark.parametrize("listener", ["zeromq", "topics", "proxy"])
def test_bad_greetings_of_one_address_give_no_more_lines_than_over_tcp(tmp_path: Path, listener: str) -> None:
    zeromq, topics = (f"127.0.0.1:{free_port()}" for _ in range(2))
    node = ServedNode(tmp_path / "journal", {"LISTEN_ZEROMQ": f"tcp://{zeromq}", "TOPICS_LISTEN": topics})
    proxy = ServedProxy(tmp_path, *QUICK)
    address = {"zeromq": zeromq, "topics": topics, "proxy": proxy.address}[listener]

    def warned_by(lines: list[dict[str, object]]) -> int:
        return sum(line["level"] == "warning" and str(line.get("peer")).startswith("127.0.0.1") for line in lines)

    def said() -> list[dict[str, object]]:
        return [json.loads(line) for line in node.said().splitlines()]

    try:
        node.spawn()
        wait_for(lambda: '"node-ready"' in node.said(), node.said)
        proxy.start()
        greet_badly(f"127.0.0.1:{node.port}", 10)
        wait_for(lambda: warned_by(said()) >= PEER_LINES_MAX, node.said)
        over_tcp = len(said())
        before = len(proxy.said()) if listener == "proxy" else over_tcp
        greet_badly(address, 10)
        time.sleep(0.3)
        lines = (proxy.said() if listener == "proxy" else said())[before:]
    finally:
        proxy.end()
        node.kill()
    assert len([line for line in lines if line["level"] == "warning"]) == PEER_LINES_MAX, lines
    assert warned_by(lines) == PEER_LINES_MAX
