"""Who cannot prove who they are, or may not do what they ask for, before a node in a process of its own."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import veredus
from tests.processes import free_port
from tests.runtime.test_security import AUTHORITY, DESK, DESK_KEY, NODE, NODE_KEY
from tests.system.serving import ServedNode
from veredus.runtime.security import add_token, client_context, remove_token

pytestmark = [pytest.mark.slow, pytest.mark.attack]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ServedNode]:
    """A node that wants tokens on its plain door; one rule lets desks publish."""
    settings = tmp_path / "veredus.toml"
    settings.write_text(
        f'[security]\ntokens = "{tmp_path / "tokens"}"\n'
        '[[security.rules]]\nprincipal = "desk-*"\nmay = ["publish", "create"]\nstreams = ["trades.>"]\n'
    )
    add_token(tmp_path / "tokens", "somebody")
    served = ServedNode(tmp_path / "journal", {"SETTINGS": str(settings)})
    served.spawn()
    yield served
    served.kill()


def connected(served: ServedNode, token: str | None) -> veredus.Node:
    return veredus.connect(served.address, token=token, timeout_s=20, refused_s=20)


def test_a_bad_token_is_refused_at_once_and_a_good_one_is_let_in(guarded: ServedNode, tmp_path: Path) -> None:
    token, line = add_token(tmp_path / "tokens", "desk-1")
    with connected(guarded, token) as node:
        assert node.principal == "desk-1"
    for wrong in (None, token[:-1] + ("A" if token[-1] != "A" else "B"), "veredus_00000000_x", "x" * 4096):
        with pytest.raises(veredus.Refused) as refused:
            connected(guarded, wrong)
        assert refused.value.code == "unauthenticated"
        assert not wrong or wrong not in guarded.said()
    remove_token(tmp_path / "tokens", line.id)
    with pytest.raises(veredus.Refused):
        connected(guarded, token)


def test_a_token_that_has_expired_opens_no_further_connection(guarded: ServedNode, tmp_path: Path) -> None:
    gone, _ = add_token(tmp_path / "tokens", "desk-1", timedelta(seconds=-1))
    with pytest.raises(veredus.Refused) as refused:
        connected(guarded, gone)
    assert refused.value.code == "unauthenticated"
    short, line = add_token(tmp_path / "tokens", "desk-2", timedelta(seconds=2))
    with connected(guarded, short) as node:
        assert node.principal == "desk-2"
    while not line.is_expired(time.time()):
        time.sleep(0.05)
    with pytest.raises(veredus.Refused):
        connected(guarded, short)


def test_what_no_rule_allows_is_forbidden_by_name(guarded: ServedNode, tmp_path: Path) -> None:
    token, _ = add_token(tmp_path / "tokens", "desk-1")
    with connected(guarded, token) as node:
        with node.publisher("trades.eu", source="p") as publisher:
            publisher.publish("k", b"allowed")
        for forbidden in (lambda: node.publisher("orders"), lambda: node.subscribe("trades.eu")):
            with pytest.raises(veredus.Refused) as refused:
                forbidden()
            assert refused.value.code == "forbidden"
            assert "desk-1" in refused.value.message


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[ServedNode]:
    """A node with a TLS door that wants certificates."""
    settings = tmp_path / "veredus.toml"
    settings.write_text('[[security.rules]]\nprincipal = "desk-*"\nmay = ["*"]\n')
    served = ServedNode(
        tmp_path / "journal",
        {
            "SETTINGS": str(settings),
            "LISTEN_TCP": "",
            "LISTEN_TLS": f"127.0.0.1:{free_port()}",
            "TLS_CERTIFICATE": NODE,
            "TLS_KEY": NODE_KEY,
            "TLS_CLIENT_AUTHORITIES": AUTHORITY,
            "TLS_CLIENT_CERTIFICATES": "required",
        },
    )
    served.address = f"veredus+tls://localhost:{served.setting('LISTEN_TLS').rpartition(':')[2]}"
    served.spawn()
    yield served
    served.kill()


def test_a_bad_certificate_is_turned_away_on_either_side_and_a_good_one_names_its_principal(
    encrypted: ServedNode,
) -> None:
    def attempt(tls: ssl.SSLContext, timeout_s: float) -> str:
        with veredus.connect(encrypted.address, tls=tls, timeout_s=timeout_s, refused_s=timeout_s) as node:
            return node.principal

    assert attempt(client_context(AUTHORITY, DESK, DESK_KEY), 20) == "desk-1"
    with pytest.raises(veredus.Refused) as unknown:
        attempt(client_context(), 60)
    assert unknown.value.code == "bad-certificate"
    assert "certificate verify failed" in unknown.value.message
    with pytest.raises(veredus.Refused) as none:
        attempt(client_context(AUTHORITY), 60)
    assert none.value.code == "unauthenticated"
    assert attempt(client_context(AUTHORITY, DESK, DESK_KEY), 20) == "desk-1"


def test_a_node_with_a_certificate_that_cannot_be_used_does_not_start_and_names_it(tmp_path: Path) -> None:
    settings = {"LISTEN_TCP": "", "LISTEN_TLS": "127.0.0.1:0", "TLS_CERTIFICATE": NODE, "TLS_KEY": DESK_KEY}
    served = ServedNode(tmp_path / "journal", settings)
    assert served.spawn().wait(20) == 2
    assert "[bad-settings]" in served.said()
    assert "desk-1.key" in served.said()
