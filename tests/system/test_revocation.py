"""Who is proved no more, or may no more, is ended where he is: a running node takes up what has changed."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import veredus
from tests.certificates import CERTIFICATES
from tests.runtime.authority import Authority
from tests.system.secured import Secured, ended_code, reload_by_command
from veredus.runtime.security import add_token, client_context, remove_token

pytestmark = [pytest.mark.slow, pytest.mark.attack]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    secured = Secured(tmp_path)
    yield secured
    secured.served.kill()


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[Secured]:
    authority = Authority(tmp_path / "authority")
    authority.sign("node", "/CN=localhost", "IP:127.0.0.1")
    secured = Secured(tmp_path, authority)
    yield secured
    secured.served.kill()


def test_a_token_that_is_removed_ends_its_open_connections_and_no_others(secured: Secured) -> None:
    (gone, line), (kept, _) = (add_token(secured.tokens, name) for name in ("desk-1", "desk-2"))
    secured.start()
    with secured.by_token(gone) as one, secured.by_token(kept) as two:
        with one.publisher("s", source="p") as publisher:
            publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
            remove_token(secured.tokens, line.id)
            assert ended_code(one) == "revoked"
        assert len(two.streams.list()) == 1
    said = secured.wait_said("principal-revoked")
    assert (said["principal"], said["code"], said["listener"]) == ("desk-1", "revoked", "tcp")


def test_a_token_that_expires_ends_its_open_connections(secured: Secured) -> None:
    secured.start()
    token, _ = add_token(secured.tokens, "desk-1", timedelta(seconds=3))
    with secured.by_token(token) as node:
        assert ended_code(node) == "unauthenticated"


def test_rules_that_change_end_the_sessions_whose_right_is_gone_and_no_others(secured: Secured) -> None:
    token, _ = add_token(secured.tokens, "desk-1")
    secured.start()
    with secured.by_token(token) as node:
        kept, gone = node.publisher("kept", source="p"), node.publisher("gone", source="p")
        for publisher in (kept, gone):
            publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
        with node.subscribe("gone") as subscription:
            batch = subscription.next_batch(timeout_s=20)
            assert batch is not None
            secured.write((("desk-1", "kept"),))
            secured.reload()
            with pytest.raises(veredus.Refused) as caught:
                subscription.next_batch(timeout_s=20)
            assert caught.value.code == "forbidden"
        with pytest.raises(veredus.Refused) as caught:
            gone.wait(gone.publish("k", b"2"), timeout_s=20)
        assert caught.value.code == "forbidden"
        kept.wait(kept.publish("k", b"2"), timeout_s=20)
        kept.close()


def test_settings_that_are_not_right_change_nothing_and_those_that_need_a_restart_are_named(secured: Secured) -> None:
    token, _ = add_token(secured.tokens, "desk-1")
    secured.start()
    with secured.by_token(token) as node:
        secured.settings.write_text("[security]\ntokens = 7\n")
        reloaded = secured.said("settings-reloaded")
        refused = reload_by_command(secured)
        assert (refused.returncode, "security.tokens" in refused.stderr) == (2, True), refused.stderr
        assert secured.said("settings-reloaded") == reloaded
        assert "tokens" in str(secured.wait_said("settings-not-read")["reason"])
        node.streams.create("s")
        secured.write((("*", ">"),), '[node]\nname = "other"\n')
        done = reload_by_command(secured)
        assert (done.returncode, "node.name" in done.stderr) == (0, True), done.stderr
        assert secured.wait_said("settings-need-restart")["settings"] == ["node.name"]
        node.streams.create("t")
    assert secured.served.stop() == 0
    nobody = reload_by_command(secured)
    assert (nobody.returncode, "[no-node]" in nobody.stderr) == (3, True)


def test_a_certificate_that_is_revoked_ends_its_open_connections_and_opens_none(certified: Secured) -> None:
    authority = certified.authority
    assert authority is not None
    gone, kept = authority.sign("gone", "/CN=desk-1"), authority.sign("kept", "/CN=desk-2")
    listed = authority.revoke()
    certified.write((("*", ">"),))
    text = certified.settings.read_text()
    certified.settings.write_text(text.replace("[tls]", f'[tls]\nrevoked = "{listed}"'))
    certified.start()
    with certified.by_certificate(*gone) as one, certified.by_certificate(*kept) as two:
        one.streams.create("s")
        authority.revoke("gone")
        certified.reload()
        assert ended_code(one) == "revoked"
        assert len(two.streams.list()) == 1
    with pytest.raises(veredus.Refused, match="refuses this client's certificate: it is revoked") as caught:
        certified.by_certificate(*gone, timeout_s=60)
    assert caught.value.code == "revoked"
    certified.by_certificate(*kept).close()


def test_who_shows_no_certificate_or_one_that_is_not_valid_is_told_so_at_once(certified: Secured) -> None:
    authority = certified.authority
    assert authority is not None
    certified.write((("*", ">"),))
    required = '[tls]\nclient_certificates = "required"'
    certified.settings.write_text(certified.settings.read_text().replace("[tls]", required))
    certified.start()
    strange = str(CERTIFICATES / "desk-1.pem"), str(CERTIFICATES / "desk-1.key")
    for shown, why in ((("", ""), "the node requires one"), (strange, "does not know the authority that signed it")):
        with pytest.raises(veredus.Refused, match=why) as caught:
            certified.by_certificate(*shown, timeout_s=60)
        assert caught.value.code == "unauthenticated"


def test_a_certificate_that_is_revoked_ends_a_connection_that_has_shown_a_token_as_well(certified: Secured) -> None:
    authority = certified.authority
    assert authority is not None
    gone, kept = authority.sign("gone", "/CN=laptop-1"), authority.sign("kept", "/CN=laptop-2")
    token, _ = add_token(certified.tokens, "desk-1")
    listed = authority.revoke()
    certified.write((("*", ">"),))
    more = f'[tls]\nrevoked = "{listed}"\nclient_certificates = "required"'
    certified.settings.write_text(certified.settings.read_text().replace("[tls]", more))
    certified.start()
    with certified.by_certificate(*gone, token=token) as one, certified.by_certificate(*kept, token=token) as two:
        one.streams.create("s")
        authority.revoke("gone")
        certified.reload()
        assert ended_code(one) == "revoked"
        assert len(two.streams.list()) == 1


def test_the_nodes_own_certificate_is_renewed_and_a_bad_one_changes_nothing(certified: Secured) -> None:
    authority = certified.authority
    assert authority is not None
    desk = authority.sign("desk", "/CN=desk-1")
    certified.start()
    with certified.by_certificate(*desk) as node:
        (authority.directory / "node.pem").write_text("no certificate")
        refused = reload_by_command(certified)
        assert (refused.returncode, "node.pem" in refused.stderr) == (3, True), refused.stderr
        assert "node.pem" in str(certified.wait_said("certificates-not-taken")["reason"])
        certified.by_certificate(*desk).close()
        authority.sign("node", "/CN=renewed", "IP:127.0.0.1,DNS:renewed.example.org")
        renewed = reload_by_command(certified)
        assert renewed.stderr.endswith("applied: tls.certificate, tls.key\n"), renewed.stderr
        assert reload_by_command(certified).stderr.endswith("applied: no change\n")
        node.streams.create("s")
    assert "renewed.example.org" in shown_names(certified.tls_port, str(authority.certificate))


def test_a_pipe_in_the_place_of_a_file_that_a_reload_reads_changes_nothing_and_is_not_waited_for(
    certified: Secured,
) -> None:
    authority = certified.authority
    assert authority is not None
    desk, place = authority.sign("desk", "/CN=desk-1"), authority.directory
    certified.start()
    files = (place / "authority.pem", place / "node.pem", place / "node.key", certified.settings)
    with certified.by_certificate(*desk) as node:
        for file in files:
            kept = file.rename(file.with_name("kept"))
            os.mkfifo(file, 0o600)
            refused = reload_by_command(certified)
            assert f"{file}: cannot be read: there is a FIFO in place of a regular file" in refused.stderr
            assert node.streams.list() == []
            kept.replace(file)
        assert reload_by_command(certified).returncode == 0
        certified.by_certificate(*desk).close()


def test_a_file_of_tokens_that_is_not_there_is_no_start_and_no_reload(secured: Secured) -> None:
    add_token(secured.tokens, "desk-1")
    secured.start()
    text = secured.settings.read_text()
    secured.settings.write_text(text.replace(str(secured.tokens), str(secured.tokens) + ".wrong"))
    refused = reload_by_command(secured)
    assert (refused.returncode, "tokens.wrong: there is no such file" in refused.stderr) == (3, True), refused.stderr
    assert secured.served.stop() == 0


def test_a_file_of_tokens_that_cannot_be_read_any_more_costs_nobody_his_connection_and_tells_no_peer_of_it(
    secured: Secured,
) -> None:
    (token, line), (other, _) = (add_token(secured.tokens, name) for name in ("desk-1", "desk-2"))
    secured.start()
    kept = secured.tokens.read_bytes()
    with secured.by_token(token) as node:
        secured.tokens.unlink()
        secured.tokens.symlink_to(secured.tokens)
        assert "tokens" in str(secured.wait_said("tokens-not-read")["reason"])
        for known in (token, other):
            secured.by_token(known).close()
        with pytest.raises(veredus.Refused) as caught:
            secured.by_token("veredus_784ec62e_wrong").close()
        assert (caught.value.code, str(secured.tokens) in str(caught.value)) == ("unauthenticated", False)
        assert node.streams.list() == []
        refused = reload_by_command(secured)
        assert (refused.returncode, "tokens: not a readable token file" in refused.stderr) == (3, True), refused.stderr
        # Once it can be read again it is watched as before.
        secured.tokens.unlink()
        secured.tokens.touch(0o600)
        secured.tokens.write_bytes(kept)
        remove_token(secured.tokens, line.id)
        assert ended_code(node) == "revoked"


def shown_names(port: int, authority: str) -> str:
    """The names of the certificate that the node shows."""
    context = client_context(authority)
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as wrapped:
        return str(wrapped.getpeercert())
