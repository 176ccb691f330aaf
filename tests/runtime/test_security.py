"""A token is known by its salted hash alone; a certificate that cannot be used is named."""

import os
import re
import resource
import ssl
import stat
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.certificates import CERTIFICATES
from veredus.kernel.errors import Refused
from veredus.node.settings import TlsSection
from veredus.protocols.zmtp.z85 import encode_z85
from veredus.runtime.curve_keys import make_server_key, read_server_key
from veredus.runtime.proofs import Proofs
from veredus.runtime.security import (
    TokenFile,
    add_key,
    add_token,
    client_context,
    read_tokens,
    remove_token,
    server_context,
)

AUTHORITY, NODE, NODE_KEY, DESK, DESK_KEY = (
    str(CERTIFICATES / name) for name in ("authority.pem", "node.pem", "node.key", "desk-1.pem", "desk-1.key")
)


def test_a_token_names_its_principal_at_once_and_again(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    token, _ = add_token(tmp_path / "tokens", "desk-1")
    assert tokens.remembered(token) is None
    assert tokens.principal_of(token) == "desk-1"
    assert tokens.remembered(token) == "desk-1"
    assert tokens.principal_of(token) == "desk-1"


def test_the_file_holds_no_token_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    token, line = add_token(file, "desk-1")
    secret = token.rpartition("_")[2]
    assert secret not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_tokens(file) == [line]


def test_two_tokens_of_one_principal_have_different_salts(tmp_path: Path) -> None:
    (_, first), (_, second) = (add_token(tmp_path / "tokens", "desk-1") for _ in range(2))
    assert first.salt != second.salt
    assert first.id != second.id


@pytest.mark.parametrize("spoil", [lambda t: t[:-1], lambda t: t + "A", lambda t: "", lambda t: "x" * 10_000])
def test_a_token_that_is_not_quite_right_is_nobodys(tmp_path: Path, spoil) -> None:
    token, _ = add_token(tmp_path / "tokens", "desk-1")
    tokens = TokenFile(tmp_path / "tokens")
    assert tokens.principal_of(spoil(token)) is None
    assert tokens.remembered(spoil(token)) is None


def test_a_secret_does_not_open_another_tokens_line(tmp_path: Path) -> None:
    first, line = add_token(tmp_path / "tokens", "desk-1")
    second, _ = add_token(tmp_path / "tokens", "operator")
    crossed = second.rpartition("_")[0].replace(second.split("_")[1], line.id) + "_" + second.split("_", 2)[2]
    assert crossed != first
    assert TokenFile(tmp_path / "tokens").principal_of(crossed) is None


def test_a_removed_token_is_forgotten_by_a_running_node(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens = TokenFile(file)
    token, line = add_token(file, "desk-1")
    other, _ = add_token(file, "desk-2")
    assert (tokens.principal_of(token), tokens.principal_of(other)) == ("desk-1", "desk-2")
    remove_token(file, line.id)
    assert tokens.remembered(token) is None
    assert tokens.principal_of(token) is None
    assert tokens.principal_of(other) == "desk-2"


def test_a_token_that_has_expired_is_refused_and_says_when_though_it_was_proved_before(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens = TokenFile(file)
    lasting, _ = add_token(file, "desk-1", timedelta(days=1))
    expired, line = add_token(file, "desk-2", timedelta(seconds=-1))
    assert tokens.principal_of(lasting) == tokens.remembered(lasting) == "desk-1"
    for _ in range(2):
        assert tokens.remembered(expired) is None
        with pytest.raises(Refused, match=line.expires) as caught:
            tokens.principal_of(expired)
        assert caught.value.code == "unauthenticated"
    assert tokens.principal_of(expired[:-1]) is None


def test_while_the_file_cannot_be_read_what_was_read_before_holds(tmp_path: Path) -> None:
    file = tmp_path / "tokens"

    def loop() -> None:
        file.unlink()
        file.symlink_to(file)

    def gone_behind_a_link() -> None:
        file.symlink_to(tmp_path / "nowhere")

    def pipe() -> None:
        file.unlink()
        os.mkfifo(file, 0o600)

    token, _ = add_token(file, "desk-1")
    text = file.read_text()
    tokens = TokenFile(file)
    assert tokens.principal_of(token) == "desk-1"
    for spoil in (lambda: file.write_text("no token"), file.unlink, gone_behind_a_link, pipe, loop):
        spoil()
        for _ in range(2):
            with pytest.raises(Refused) as caught:
                tokens.refresh()
            assert caught.value.code == "bad-tokens"
        assert (tokens.remembered(token), tokens.principal_of(token)) == ("desk-1", "desk-1")
        assert tokens.principal_of(token[:-1]) is None
    file.unlink()
    file.touch(0o600)
    tokens.refresh()
    assert tokens.principal_of(token) is None
    file.write_text(text)
    assert tokens.principal_of(token) == "desk-1"


def test_a_file_that_could_never_be_read_is_refused_whoever_asks(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.symlink_to(file)
    for ask in (TokenFile(file).has_line, TokenFile(file).remembered, TokenFile(file).principal_of):
        with pytest.raises(Refused) as caught:
            ask("veredus_784ec62e_x")
        assert caught.value.code == "bad-tokens"


def test_a_token_lasts_until_its_time_and_no_longer(tmp_path: Path) -> None:
    _, line = add_token(tmp_path / "tokens", "desk-1", timedelta(hours=1))
    ends_s = datetime.fromisoformat(line.expires).timestamp()
    assert (line.is_expired(ends_s - 1), line.is_expired(ends_s)) == (False, True)
    _, for_ever = add_token(tmp_path / "tokens", "desk-1")
    assert not for_ever.is_expired(1e18)
    assert read_tokens(tmp_path / "tokens") == [line, for_ever]


def test_a_directory_in_the_place_of_the_token_file_takes_no_descriptor_and_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    token, _ = add_token(path, "desk-1")
    file = TokenFile(path)
    assert file.principal_of(token) == "desk-1"
    path.unlink()
    path.mkdir()
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    proofs = Proofs(file, "")
    told = [proofs.fault() for _ in range(3)]
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    assert "there is a directory in place of a regular file" in told[0]
    assert told[1:] == ["", ""]
    assert file.principal_of(token) == "desk-1"


def test_a_line_without_expiry_is_written_as_before(tmp_path: Path) -> None:
    _, line = add_token(tmp_path / "tokens", "desk 1")
    fields = (tmp_path / "tokens").read_text().splitlines()[1].split(" ", 5)
    assert fields[4:] == [line.created, "desk 1"]


def test_a_key_is_a_line_like_a_token_and_is_no_token(tmp_path: Path) -> None:
    path, key = tmp_path / "tokens", bytes(range(32))
    add_token(path, "desk-1")
    line = add_key(path, "desk-2", key, timedelta(days=1))
    file = TokenFile(path)
    assert file.line_of_key(key) == line
    assert file.line_of_key(key[::-1]) is None
    assert file.principal_of(f"veredus_{line.id}_{encode_z85(key)}") is None
    with pytest.raises(Refused, match="has this key already"):
        add_key(path, "desk-3", key)
    assert [kept.principal for kept in read_tokens(path)] == ["desk-1", "desk-2"]
    remove_token(path, line.id)
    assert file.line_of_key(key) is None


def test_a_key_that_has_expired_opens_nothing(tmp_path: Path) -> None:
    path, key = tmp_path / "tokens", bytes(range(32))
    add_key(path, "desk", key, timedelta(seconds=-1))
    with pytest.raises(Refused, match="expired"):
        TokenFile(path).line_of_key(key)


def test_a_nodes_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    made = make_server_key(path)
    assert read_server_key(path).public == made.public
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Refused, match="a file is there already"):
        make_server_key(path)
    path.chmod(0o644)
    with pytest.raises(Refused, match="chmod 600"):
        read_server_key(path)
    path.chmod(0o600)
    for text in ("too short", "a" * 45, "\xe9"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(Refused, match=r"node\.key"):
            read_server_key(path)


def test_a_key_that_there_is_no_room_for_leaves_no_file_and_is_made_once_there_is(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limit[1]))
    try:
        with pytest.raises(Refused, match=re.escape(f"{path}: the key cannot be written there")):
            make_server_key(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    made = make_server_key(path)
    assert read_server_key(path).public == made.public


def test_to_remove_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="has no token") as caught:
        remove_token(tmp_path / "tokens", "cafecafe")
    assert caught.value.code == "unknown-token"


def test_a_file_that_others_may_read_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    token, _ = add_token(file, "desk-1")
    file.chmod(0o640)
    with pytest.raises(Refused, match="chmod 600"):
        TokenFile(file).principal_of(token)


@pytest.mark.parametrize(
    "line",
    [
        "short",
        "cafecafe bcrypt:1:1:1 AA AA 2024-01-01T00:00:00Z desk",
        "cafecafe scrypt:60:8:1 AA AA 2024-01-01T00:00:00Z desk",
        "cafecafe scrypt:12:8:x AA AA 2024-01-01T00:00:00Z desk",
        "cafecafe scrypt:12:8:1 AA AA 2024-01-01T00:00:00Z/soon desk",
        "cafecafe scrypt:12:8:1 AA AA 2024-01-01T00:00:00Z/2025-01-01T00:00:00 desk",
    ],
)
def test_a_damaged_line_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    add_token(file, "desk-1")
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(Refused, match=r"tokens:3: "):
        read_tokens(file)


@pytest.mark.parametrize("principal", ["unix:root", "", "local", "anonymous", "multicast", "desk-*", "a\nb", " a", "ä"])
def test_a_principal_that_would_confuse_is_refused(tmp_path: Path, principal: str) -> None:
    with pytest.raises(Refused) as caught:
        add_token(tmp_path / "tokens", principal)
    assert caught.value.code == "bad-principal"
    assert not (tmp_path / "tokens").exists()


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends


def test_a_client_certificate_proves_its_common_name() -> None:
    server = server_context(TlsSection(certificate=NODE, key=NODE_KEY, client_authorities=AUTHORITY))
    at_server, _ = shake_hands(server, client_context(AUTHORITY, DESK, DESK_KEY))
    assert (("commonName", "desk-1"),) in at_server.getpeercert()["subject"]


def test_a_client_without_certificate_is_let_in_only_where_it_is_optional() -> None:
    optional = TlsSection(certificate=NODE, key=NODE_KEY, client_authorities=AUTHORITY)
    at_server, _ = shake_hands(server_context(optional), client_context(AUTHORITY))
    assert at_server.getpeercert() is None
    required = TlsSection(certificate=NODE, key=NODE_KEY, client_authorities=AUTHORITY, client_certificates="required")
    with pytest.raises(ssl.SSLError):
        shake_hands(server_context(required), client_context(AUTHORITY))


def test_a_client_does_not_believe_an_authority_it_does_not_know() -> None:
    server = server_context(TlsSection(certificate=NODE, key=NODE_KEY))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client_context())


def test_tls_1_3_is_spoken_alone_when_it_is_the_least() -> None:
    server = server_context(TlsSection(certificate=NODE, key=NODE_KEY, version_min="1.3"))
    old = client_context(AUTHORITY)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake_hands(server, old)


@pytest.mark.parametrize(
    ("tls", "named"),
    [
        (TlsSection(certificate="/nowhere.pem"), "/nowhere.pem"),
        (TlsSection(certificate=NODE, key=DESK_KEY), "desk-1.key"),
        (TlsSection(certificate=NODE_KEY), "node.key"),
        (TlsSection(certificate=NODE, key=NODE_KEY, client_authorities=NODE_KEY), "node.key"),
    ],
)
def test_a_bad_certificate_is_named(tls: TlsSection, named: str) -> None:
    with pytest.raises(Refused, match=named) as caught:
        server_context(tls)
    assert caught.value.code == "bad-certificate"
