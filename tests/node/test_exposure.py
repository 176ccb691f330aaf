"""Doors that prove nothing stay shut to other machines unless somebody says that this is meant."""

import msgspec
import pytest

from veredus.kernel.errors import Refused
from veredus.node.exposure import access_of, check_settings, faults_of, is_loopback, mechanisms_of, topics_mechanisms_of
from veredus.node.rules import Rule
from veredus.node.settings import (
    JournalSection,
    LimitsSection,
    ListenSection,
    MulticastSection,
    NodeSettings,
    SecuritySection,
    TlsSection,
    TopicsSection,
)
from veredus.streams.rights import ANONYMOUS, LOCAL, NOBODY, on_stream

RULES = (Rule(principal="desk-*", may=("publish",)),)
SECURED = SecuritySection(tokens="tokens", rules=RULES)
WITH_TLS = TlsSection(certificate="node.pem", key="node.key")


def paths_of(settings: NodeSettings) -> list[str]:
    return [fault.path for fault in faults_of(settings)]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_loopback_is_known_by_its_addresses(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "*", "10.0.0.1", "127.0.0.1.example.org", "localhost.example.org"])
def test_everything_else_is_taken_to_be_outside(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("listen", "path"),
    [
        (ListenSection(tcp="0.0.0.0:7071"), "listen.tcp"),
        (ListenSection(zeromq="tcp://*:7072"), "listen.zeromq"),
        (ListenSection(metrics="10.0.0.1:7073"), "listen.metrics"),
    ],
)
def test_a_plain_door_off_loopback_is_refused_even_with_rules(listen: ListenSection, path: str) -> None:
    assert paths_of(NodeSettings(listen=listen)) == [path]
    assert paths_of(NodeSettings(listen=listen, security=SECURED)) == [path]


def test_a_plain_door_off_loopback_opens_when_it_is_said_to_be_meant() -> None:
    listen = ListenSection(tcp="0.0.0.0:7071", zeromq="tcp://*:7072", metrics="0.0.0.0:7073", metrics_open=True)
    settings = NodeSettings(listen=listen, security=SecuritySection(insecure=True))
    assert faults_of(settings) == []
    assert access_of(settings).unproven == ANONYMOUS


def test_tls_off_loopback_needs_somebody_who_can_prove_who_they_are() -> None:
    listen = ListenSection(tls="0.0.0.0:7074")
    assert paths_of(NodeSettings(listen=listen, tls=WITH_TLS)) == ["listen.tls"]
    assert paths_of(NodeSettings(listen=listen, tls=WITH_TLS, security=SECURED)) == []
    assert paths_of(NodeSettings(listen=listen, security=SECURED)) == ["listen.tls"]


def test_tokens_without_rules_are_refused_since_nobody_could_do_anything() -> None:
    settings = NodeSettings(security=SecuritySection(tokens="tokens"))
    with pytest.raises(Refused, match=r"security\.rules") as caught:
        check_settings(settings)
    assert caught.value.code == "bad-settings"


def test_without_security_a_peer_on_loopback_is_local_and_may_do_all() -> None:
    access = access_of(NodeSettings())
    assert access.unproven == LOCAL
    assert access.may(LOCAL, "delete", on_stream("trades"))


def test_with_security_a_peer_that_proves_nothing_is_nobody() -> None:
    access = access_of(NodeSettings(security=SECURED))
    assert access.unproven == NOBODY
    assert access.may("desk-1", "publish", on_stream("trades"))
    assert not access.may(LOCAL, "publish", on_stream("trades"))


def test_a_peer_that_proves_nothing_is_anonymous_where_a_rule_names_it() -> None:
    named = SecuritySection(tokens="tokens", rules=(*RULES, Rule(principal="anonymous", may=("subscribe",))))
    access = access_of(NodeSettings(security=named))
    assert access.unproven == ANONYMOUS
    assert access.may(ANONYMOUS, "subscribe", on_stream("trades"))
    assert not access.may(ANONYMOUS, "publish", on_stream("trades"))


def test_a_zeromq_listener_that_speaks_curve_may_be_open_and_speaks_nothing_else_there() -> None:
    security = SecuritySection(tokens="tokens", rules=RULES, zeromq_key="key")
    outside = ListenSection(zeromq="tcp://*:7072")
    assert paths_of(NodeSettings(listen=outside, security=security)) == []
    assert paths_of(NodeSettings(listen=outside, security=SecuritySection(rules=RULES, zeromq_key="key"))) == [
        "listen.zeromq"
    ]
    assert mechanisms_of(NodeSettings(listen=outside, security=security)) == ("CURVE",)
    assert mechanisms_of(NodeSettings(security=security)) == ("NULL", "PLAIN", "CURVE")
    assert mechanisms_of(NodeSettings()) == ("NULL",)
    insecure = msgspec.structs.replace(security, insecure=True)
    assert mechanisms_of(NodeSettings(listen=outside, security=insecure)) == ("NULL", "PLAIN", "CURVE")


def test_topics_take_who_proves_nothing_only_where_that_is_somebody() -> None:
    security = SecuritySection(tokens="tokens", rules=RULES, zeromq_key="key")
    outside = NodeSettings(topics=TopicsSection(listen="0.0.0.0:7091"), security=security)
    assert paths_of(outside) == []
    assert topics_mechanisms_of(outside, NOBODY) == ("CURVE",)
    assert topics_mechanisms_of(outside, ANONYMOUS) == ("CURVE",)
    inside = NodeSettings(topics=TopicsSection(listen="127.0.0.1:7091"), security=security)
    assert topics_mechanisms_of(inside, NOBODY) == ("PLAIN", "CURVE")
    assert topics_mechanisms_of(inside, ANONYMOUS) == ("NULL", "PLAIN", "CURVE")
    assert topics_mechanisms_of(NodeSettings(), LOCAL) == ("NULL",)
    rules_alone = NodeSettings(security=SecuritySection(rules=RULES))
    assert topics_mechanisms_of(rules_alone, NOBODY) == ("NULL",), "nobody could come by anything else"


def test_topics_open_to_other_machines_need_keys_of_clients() -> None:
    topics = TopicsSection(listen="0.0.0.0:7091")
    assert paths_of(NodeSettings(topics=topics)) == ["topics.listen"]
    keys_alone = SecuritySection(rules=RULES, zeromq_key="key")
    assert paths_of(NodeSettings(topics=topics, security=keys_alone)) == ["topics.listen"]


@pytest.mark.parametrize(
    ("topics", "path"),
    [
        (TopicsSection(token="t", key="k", server_key="s"), "topics.token"),
        (TopicsSection(id="127.0.0.1:0"), "topics.id"),
        (TopicsSection(key="k"), "topics.server_key"),
        (TopicsSection(server_key="s"), "topics.key"),
        (TopicsSection(listen="127.0.0.1:7091", members="proxy"), "topics.members"),
    ],
)
def test_what_topics_show_and_whom_they_trust_must_go_together(topics: TopicsSection, path: str) -> None:
    assert paths_of(NodeSettings(topics=topics)) == [path]


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        (NodeSettings(limits=LimitsSection(frame_size_max=1 << 20)), "limits.frame_size_max"),
        (NodeSettings(limits=LimitsSection(silence_max_ns=10**9)), "limits.silence_max"),
        (NodeSettings(listen=ListenSection(tcp="", zeromq="")), "listen.tcp"),
        (NodeSettings(tls=TlsSection(client_certificates="required")), "tls.client_certificates"),
        (
            NodeSettings(security=SecuritySection(rules=(Rule(principal="a", may=("fly",)),))),
            "security.rules",
        ),
    ],
)
def test_settings_that_quarrel_with_one_another_are_named(settings: NodeSettings, path: str) -> None:
    assert paths_of(settings) == [path]


def test_settings_are_values_that_cannot_be_changed() -> None:
    settings = NodeSettings()
    with pytest.raises(AttributeError):
        settings.journal.sync = "none"  # type: ignore[misc]
    changed = msgspec.structs.replace(settings, journal=JournalSection(sync="none"))
    assert (settings.journal.sync, changed.journal.sync) == ("group", "none")


@pytest.mark.parametrize(
    ("multicast", "paths"),
    [
        (MulticastSection(), []),
        (MulticastSection(group="239.1.2.3:7074", streams="s"), []),
        (MulticastSection(group="10.0.0.1:7074", streams="s"), ["multicast.group"]),
        (MulticastSection(group="239.1.2.3:7074"), ["multicast.streams"]),
        (MulticastSection(group="239.1.2.3:7074", streams=" , "), ["multicast.streams"]),
        (MulticastSection(group="239.1.2.3:7074", streams="s", interface="10.0.0.1"), ["multicast.interface"]),
        (MulticastSection(group="239.1.2.3:7074", streams="s", interface="eth0"), ["multicast.interface"] * 2),
    ],
)
def test_multicast_needs_a_group_streams_and_an_interface_that_others_do_not_hear(
    multicast: MulticastSection, paths: list[str]
) -> None:
    assert paths_of(NodeSettings(multicast=multicast)) == paths


def test_multicast_by_an_open_interface_is_allowed_where_that_is_meant() -> None:
    multicast = MulticastSection(group="239.1.2.3:7074", streams="s", interface="10.0.0.1")
    assert paths_of(NodeSettings(multicast=multicast, security=SecuritySection(insecure=True))) == []
