"""The lock of the file of tokens keeps changes apart, is for its owner alone, and is not waited for without end."""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from veredus.kernel.errors import Refused
from veredus.runtime import token_lock
from veredus.runtime.security import add_token, read_tokens, remove_token

LOCK = ".tokens.lock"


@pytest.fixture
def held(tmp_path: Path) -> Iterator[int]:
    """A descriptor by which somebody holds the lock, who could open its file once."""
    add_token(tmp_path / "tokens", "desk-1")
    descriptor = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    yield descriptor
    os.close(descriptor)


def test_nobody_but_its_owner_may_open_the_lock_file_also_one_that_was_there(tmp_path: Path) -> None:
    lock = tmp_path / LOCK
    before = os.umask(0)
    try:
        _, line = add_token(tmp_path / "tokens", "desk-1")
    finally:
        os.umask(before)
    assert lock.stat().st_mode & 0o777 == 0o600
    lock.chmod(0o644)
    remove_token(tmp_path / "tokens", line.id)
    assert lock.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("held")
def test_a_lock_that_is_not_let_go_refuses_a_removal_in_time_and_says_how_to_find_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert token_lock.WAIT_S == 10
    monkeypatch.setattr(token_lock, "WAIT_S", 0.2)
    path = tmp_path / "tokens"
    (line,) = read_tokens(path)
    began_s = time.monotonic()
    with pytest.raises(Refused, match=re.escape(f"`fuser -v {tmp_path / LOCK}`, as root")) as caught:
        remove_token(path, line.id)
    assert time.monotonic() - began_s < 10
    assert caught.value.code == "tokens-locked"
    assert read_tokens(path) == [line]


def test_a_lock_that_is_let_go_in_time_is_waited_for(tmp_path: Path, held: int) -> None:
    path = tmp_path / "tokens"
    (line,) = read_tokens(path)
    threading.Timer(0.2, fcntl.flock, (held, fcntl.LOCK_UN)).start()
    remove_token(path, line.id)
    assert read_tokens(path) == []


def test_a_pipe_in_the_place_of_the_lock_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK, 0o600)
    add_token(tmp_path / "tokens", "desk-1")
    assert len(read_tokens(tmp_path / "tokens")) == 1
