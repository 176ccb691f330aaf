"""Whichever listener somebody comes to, and whichever dialect he speaks: the audit log says what it promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import zmq

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
    try_as,
    wait_for,
)

pytestmark = pytest.mark.slow

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
