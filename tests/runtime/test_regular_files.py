"""What is named by its path and is no file, or too large, is refused at once by every reader, with what to do."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from tests.runtime.test_security import AUTHORITY, DESK, DESK_KEY, NODE, NODE_KEY
from veredus.cli.link import _token_in
from veredus.kernel.errors import Refused
from veredus.node.settings import AuditSection, ListenSection, NodeSettings, TlsSection, TopicsSection
from veredus.runtime.audit import AuditFile
from veredus.runtime.certificates import revoked_in
from veredus.runtime.configuration import read_configuration
from veredus.runtime.curve_keys import read_server_key
from veredus.runtime.directory import open_directory, replace_file
from veredus.runtime.files import file_faults
from veredus.runtime.regular_files import FILE_SIZE_MAX, LIST_SIZE_MAX, check_regular, read_regular
from veredus.runtime.security import client_context, load_authorities, read_tokens, server_context
from veredus.runtime.topics_credentials import read_credentials


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        held = os.open(path.parent, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{held}/{path.name}")
        os.close(held)


def too_large(path: Path) -> None:
    path.touch(0o600)
    os.truncate(path, 8 << 30)


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a directory": (Path.mkdir, "there is a directory in place of a regular file"),
    "a FIFO": (os.mkfifo, "there is a FIFO in place of a regular file"),
    "a socket": (a_socket, "there is a socket, or .* in place of a regular file"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "there is a device in place of a regular file"),
    "8 GiB": (too_large, "it has 8589934592 bytes, and may have at most"),
}

READERS: dict[str, tuple[Callable[[Path], object], int]] = {
    "settings": (read_configuration, FILE_SIZE_MAX),
    "tokens": (read_tokens, LIST_SIZE_MAX),
    "a server's key": (read_server_key, FILE_SIZE_MAX),
    "a token of topics": (lambda path: read_credentials(TopicsSection(token=str(path))), FILE_SIZE_MAX),
    "a key of topics": (lambda path: read_credentials(TopicsSection(key=str(path))), FILE_SIZE_MAX),
    "a certificate": (lambda path: server_context(TlsSection(certificate=str(path), key=NODE_KEY)), FILE_SIZE_MAX),
    "a certificate's key": (lambda path: server_context(TlsSection(certificate=NODE, key=str(path))), FILE_SIZE_MAX),
    "authorities": (
        lambda path: server_context(TlsSection(certificate=NODE, key=NODE_KEY, client_authorities=str(path))),
        LIST_SIZE_MAX,
    ),
    "lists of revoked certificates": (revoked_in, LIST_SIZE_MAX),
    "lists of revoked certificates for a handshake": (
        lambda path: load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), str(path)),
        LIST_SIZE_MAX,
    ),
    "a client's authorities": (lambda path: client_context(str(path)), LIST_SIZE_MAX),
    "a client's certificate": (lambda path: client_context(AUTHORITY, str(path), DESK_KEY), FILE_SIZE_MAX),
    "a client's key": (lambda path: client_context(AUTHORITY, DESK, str(path)), FILE_SIZE_MAX),
    "a token of the command line": (_token_in, FILE_SIZE_MAX),
}


@pytest.fixture(autouse=True)
def _at_once() -> Iterator[None]:
    """Who waits for a pipe is interrupted."""

    def late(*_: object) -> None:
        raise AssertionError("it was waited for")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_or_too_large_is_refused_at_once_with_what_to_do(
    tmp_path: Path, reader: str, kind: str
) -> None:
    path, (make, said) = tmp_path / "file", KINDS[kind]
    make(path)
    count = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises((Refused, click.BadParameter), match=f"{path}.*{said}.*: put the right file there, or name"):
        READERS[reader][0](path)
    assert len(list(Path("/proc/self/fd").iterdir())) == count


@pytest.mark.parametrize("reader", READERS)
def test_a_file_may_be_as_large_as_its_kind_allows_and_one_byte_more_is_refused(tmp_path: Path, reader: str) -> None:
    path, (read, size_max) = tmp_path / "file", READERS[reader]
    path.write_text("this is not it\n")
    path.chmod(0o600)
    os.truncate(path, size_max + 1)
    said = f"has {size_max + 1} bytes, and may have at most {size_max}"
    with pytest.raises((Refused, click.BadParameter), match=said):
        read(path)
    os.truncate(path, size_max)
    with pytest.raises((Refused, click.BadParameter)) as caught:
        read(path)
    assert "may have at most" not in str(caught.value), "it is read, and is not what it should be"


OWN: dict[str, tuple[str, Callable[[Path], object]]] = {
    "settings": ("", read_configuration),
    "tokens": ("", read_tokens),
    "a server's key": ("0" * 40, read_server_key),
    "a token of topics": ("0" * 40, lambda path: read_credentials(TopicsSection(token=str(path)))),
    "a key of topics": ("0" * 40, lambda path: read_credentials(TopicsSection(key=str(path), server_key="0" * 40))),
    "a certificate's key": (
        Path(NODE_KEY).read_text(),
        lambda path: server_context(TlsSection(certificate=NODE, key=str(path))),
    ),
    "a certificate with its key": (
        Path(NODE).read_text() + Path(NODE_KEY).read_text(),
        lambda path: server_context(TlsSection(certificate=str(path))),
    ),
    "a client's key": (Path(DESK_KEY).read_text(), lambda path: client_context(AUTHORITY, DESK, str(path))),
    "authorities": (
        Path(AUTHORITY).read_text(),
        lambda path: server_context(TlsSection(certificate=NODE, key=NODE_KEY, client_authorities=str(path))),
    ),
    "a token of the command line": ("0" * 40, _token_in),
}


@pytest.mark.parametrize("reader", OWN)
def test_what_decides_is_refused_of_another_user_with_whose_it_is_and_what_to_do_and_one_of_root_is_read(
    tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, (content, read) = tmp_path / "file", OWN[reader]
    path.write_text(content)
    path.chmod(0o600)
    read(path)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if path.stat().st_uid == 0:
        read(path)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        os.chown(path, 12345, -1)
    said = rf"it belongs to user \S+, and must belong to user \S+.*: `chown [0-9a-z]+ {path}`, or run this as its owner"
    with pytest.raises((Refused, click.BadParameter), match=said):
        read(path)


def test_a_start_names_each_setting_whose_file_is_none(tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe, 0o600)
    tls = TlsSection(certificate=pipe, key=NODE_KEY, client_authorities=pipe, revoked=pipe)
    topics = TopicsSection(token=pipe, key=pipe)
    faults = list(file_faults(NodeSettings(listen=ListenSection(tls="127.0.0.1:0"), tls=tls, topics=topics)))
    assert [fault.path for fault in faults] == [
        "topics.token",
        "topics.key",
        "tls.certificate",
        "tls.client_authorities",
        "tls.revoked",
    ]
    assert all("there is a FIFO in place of a regular file" in fault.sentence for fault in faults)


WRITERS: dict[str, Callable[[Path], object]] = {
    "the audit log": lambda path: AuditFile(path, 1 << 20, 1, is_synced=True).write(b"one\n"),
    "a file of a journal": lambda path: replace_file(path.parent, path.name.removesuffix(".tmp"), (b"one",)),
    "the lock of a journal": lambda path: open_directory(path.parent),
}
WRITTEN = {"the audit log": "audit.jsonl", "a file of a journal": "newest.tmp", "the lock of a journal": "lock"}


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a symbolic link", "a directory"])
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_but_a_regular_file_is_written_to_and_nothing_else_is_waited_for(
    tmp_path: Path, writer: str, kind: str, is_read: bool
) -> None:
    path, elsewhere = tmp_path / WRITTEN[writer], tmp_path / "elsewhere"
    elsewhere.touch()
    make = {"a symbolic link": lambda place: place.symlink_to(elsewhere)} | {
        name: way for name, (way, _) in KINDS.items()
    }
    make[kind](path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if is_read and kind == "a FIFO" else -1
    count = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises((OSError, Refused), match=f"there is {kind} in place of a regular file"):
        WRITERS[writer](path)
    assert len(list(Path("/proc/self/fd").iterdir())) == count
    assert elsewhere.read_bytes() == b""
    if reader >= 0:
        os.close(reader)


@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a symbolic link", "a directory", "a device"])
def test_a_start_names_the_audit_log_that_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "audit.jsonl"
    if kind == "a device":
        path = Path("/dev/full")
    elif kind == "a symbolic link":
        path.symlink_to("nowhere")
    else:
        KINDS[kind][0](path)
    (fault,) = file_faults(NodeSettings(audit=AuditSection(file=str(path))))
    assert fault.path == "audit.file"
    assert f"there is {kind} in place of a regular file" in fault.sentence


def test_a_start_says_nothing_of_an_audit_log_that_can_be_made_later(tmp_path: Path) -> None:
    (tmp_path / "in the way").touch()
    for place in ("audit.jsonl", "no/directory/audit.jsonl", "in the way", "in the way/audit.jsonl"):
        assert not list(file_faults(NodeSettings(audit=AuditSection(file=str(tmp_path / place)))))


def test_a_file_without_a_size_is_read_as_far_as_it_may_be_large() -> None:
    place = Path("/proc/self/status")
    assert place.stat().st_size == 0
    assert read_regular(place, 1 << 16).startswith(b"Name:")
    with pytest.raises(OSError, match="it has more than 10 bytes, and may have at most 10"):
        read_regular(place, 10)


def test_what_a_library_is_to_read_is_looked_at_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        check_regular(path, 10)
    path.write_bytes(bytes(10))
    check_regular(path, 10)
    link = tmp_path / "link"
    link.symlink_to(path)
    check_regular(link, 10)
    assert read_regular(link, 10) == bytes(10)
