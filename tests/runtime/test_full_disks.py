"""What there is no room for on a full disk says which file it is, why, and what to do; with room it is done."""

import asyncio
import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.test_disk import fill
from veredus.kernel.errors import Refused, Unavailable
from veredus.runtime.directory import LOCK_NAME, open_directory
from veredus.runtime.security import add_key, add_token, read_tokens, remove_token
from veredus.topics.states import States


def make_room(path: Path) -> None:
    (path / "filler").unlink()


@pytest.mark.parametrize("left", [(), (LOCK_NAME,)], ids=["fresh", "emptied"])
def test_a_lock_that_finds_no_room_names_the_directory_and_is_made_once_there_is(
    small_disk: Path, left: tuple[str, ...]
) -> None:
    journal = small_disk / "journal"
    journal.mkdir()
    for name in left:
        (journal / name).touch()
    fill(small_disk)
    with pytest.raises(Unavailable, match=r"No space left on device.*: make room there, and start again") as caught:
        open_directory(journal)
    assert (caught.value.code, str(journal) in caught.value.message) == ("disk-full", True)
    make_room(small_disk)
    open_directory(journal).close()


def test_a_directory_that_finds_no_descriptor_names_the_limit(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        with pytest.raises(Unavailable, match=r"Too many open files.*: raise `ulimit -n` or LimitNOFILE") as caught:
            open_directory(tmp_path / "journal")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caught.value.code == "too-many-files"


def test_a_lock_has_its_block_for_good_once_it_was_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    open_directory(tmp_path).close()
    open_directory(tmp_path).close()
    assert synced == [(tmp_path / LOCK_NAME).stat().st_ino]


@pytest.mark.parametrize(
    "change",
    [
        lambda tokens, _id: add_token(tokens, "bob"),
        lambda tokens, _id: add_key(tokens, "carol", bytes(32)),
        remove_token,
    ],
    ids=["add", "add-key", "rm"],
)
def test_a_token_file_that_finds_no_room_is_named_and_stays_as_it_was(
    small_disk: Path, change: Callable[[Path, str], object]
) -> None:
    tokens = small_disk / "tokens"
    _, line = add_token(tokens, "alice")
    fill(small_disk)
    with pytest.raises(Refused, match=r"tokens: the token file cannot be written .No space left on device") as caught:
        change(tokens, line.id)
    assert caught.value.code == "bad-tokens"
    assert read_tokens(tokens) == [line]
    make_room(small_disk)
    change(tokens, line.id)
    assert read_tokens(tokens) != [line]


def test_a_client_of_topics_that_finds_no_room_says_so_when_it_is_opened(small_disk: Path) -> None:
    async def opened_and_closed() -> None:
        states = States(small_disk / "client_alice", "client alice")
        await states.open()
        await states.close()

    (small_disk / "client_alice").mkdir()
    fill(small_disk)
    with pytest.raises(Unavailable) as caught:
        asyncio.run(opened_and_closed())
    assert (caught.value.code, "client_alice" in caught.value.message) == ("disk-full", True)
    make_room(small_disk)
    asyncio.run(opened_and_closed())


def test_a_directory_that_was_lost_while_it_was_read_is_told_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_path: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(Refused, match=f"{tmp_path}.*Input/output error.*: repair it") as caught:
        asyncio.run(States(tmp_path, "client alice").open())
    assert caught.value.code == "journal-directory"
