"""Whom a client's certificate names, by which of its names, and whether a list says that it was revoked."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.runtime.authority import Authority
from veredus.kernel.errors import Refused
from veredus.runtime.certificates import Certificate, certificate_of, revoked_in


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def shown(authority: Authority, files: tuple[str, str], principal_from: str) -> Certificate:
    """What a server keeps of the certificate of a client that has shaken hands, over memory."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.sign("node", "/CN=localhost"))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(authority.certificate)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(authority.certificate)
    client.load_cert_chain(*files)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = certificate_of(ends[1], principal_from)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("principal_from", "principal"),
    [("common-name", "desk-1"), ("uri", "spiffe://veredus/desk"), ("dns", "desk.example.org"), ("email", "desk@x.org")],
)
def test_a_certificate_names_its_principal_by_the_name_that_is_chosen(
    authority: Authority, principal_from: str, principal: str
) -> None:
    names = "URI:spiffe://veredus/desk,DNS:desk.example.org,email:desk@x.org"
    found = shown(authority, authority.sign("desk", "/CN=desk-1", names), principal_from)
    assert (found.principal, found.fault) == (principal, "")


@pytest.mark.parametrize(
    ("subject", "names", "principal_from"),
    [
        ("/CN=desk-1/CN=desk-2", "", "common-name"),
        ("/O=nameless", "", "common-name"),
        ("/CN=desk-1", "URI:a://1,URI:a://2", "uri"),
        ("/CN=desk-1", "DNS:desk.example.org", "uri"),
        ("/CN=local", "", "common-name"),
        ("/CN=anonymous", "", "common-name"),
        ("/CN=unix:root", "", "common-name"),
        ("/CN=desk-*", "", "common-name"),
    ],
)
def test_a_certificate_that_names_nobody_or_several_proves_nothing_and_says_why(
    authority: Authority, subject: str, names: str, principal_from: str
) -> None:
    found = shown(authority, authority.sign("odd", subject, names), principal_from)
    assert found.principal == ""
    assert found.fault


def test_a_list_names_what_was_revoked_by_issuer_and_serial_number(authority: Authority) -> None:
    kept, gone = authority.sign("kept", "/CN=kept"), authority.sign("gone", "/CN=gone")
    assert revoked_in(authority.revoke()) == set()
    listed = revoked_in(authority.revoke("gone"))
    of_gone, of_kept = (shown(authority, files, "common-name") for files in (gone, kept))
    assert listed == {(of_gone.issuer, of_gone.serial)}
    assert (of_kept.issuer, of_kept.serial) not in listed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no list",
        "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----",
        "-----BEGIN X509 CRL-----\n\n-----END X509 CRL-----",
    ],
)
def test_what_is_no_list_of_revoked_certificates_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "revoked.pem"
    file.write_text(text)
    with pytest.raises(Refused, match=r"revoked\.pem") as caught:
        revoked_in(file)
    assert caught.value.code == "bad-certificate"
