"""Whose a journal's directory is: one process at a time has it, also if somebody removes its lock file."""

import fcntl
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.runtime.test_disk import Life
from veredus.cli.journal import looked_at
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused
from veredus.runtime import directory as module
from veredus.runtime.directory import LOCK_NAME, open_directory
from veredus.runtime.security import add_token


def test_a_directory_whose_lock_file_was_removed_is_still_in_use(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    (tmp_path / "newest").touch()
    for _ in range(2):
        (tmp_path / LOCK_NAME).unlink(missing_ok=True)
        with pytest.raises(Refused, match=f"in use by a process that .* not name .`fuser -v {tmp_path}`") as caught:
            open_directory(tmp_path)
        assert (caught.value.code, caught.value.details["pid"]) == ("journal-locked", 0)
        with pytest.raises(Refused, match="a process that its lock file does not name"), looked_at(tmp_path):
            pass
    directory.close()
    open_directory(tmp_path).close()


def test_who_has_a_directory_is_named_by_its_lock_file(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    with pytest.raises(Refused, match=f"in use by process {os.getpid()}:"):
        open_directory(tmp_path)
    directory.close()


@pytest.mark.parametrize("kind", [fcntl.LOCK_SH, fcntl.LOCK_EX])
def test_who_holds_a_directory_and_not_its_lock_file_is_not_taken_for_the_node_that_was_there(
    tmp_path: Path, kind: int
) -> None:
    open_directory(tmp_path).close()
    assert int((tmp_path / LOCK_NAME).read_text()) == os.getpid()
    stranger = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(stranger, kind)
    with pytest.raises(Refused, match=f"not name .`fuser -v {tmp_path}`, as root, does.: stop that process") as caught:
        open_directory(tmp_path)
    assert (caught.value.code, caught.value.details["pid"]) == ("journal-locked", 0)
    os.close(stranger)
    open_directory(tmp_path).close()


def test_who_only_looks_at_a_journal_is_not_taken_for_the_node_that_was_there(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    (tmp_path / "newest").touch()
    with looked_at(tmp_path), pytest.raises(Refused, match="does not name"):
        open_directory(tmp_path)


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o711), (0o2770, 0o2710), (0o777, 0o711)])
def test_others_can_neither_list_nor_change_the_directory_of_a_node_that_has_started_and_its_log_says_so(
    tmp_path: Path, before: int, after: int
) -> None:
    tmp_path.chmod(before)
    for said in ([f"only its owner can list and change it now: mode {after:04o}, was {before:04o}"], []):
        life = Life(tmp_path)
        life.end(is_final=True)
        assert stat.S_IMODE(tmp_path.stat().st_mode) == after
        notes = [found for found in life.found if isinstance(found, Note)]
        assert [note.fields["access"] for note in notes if note.event == "journal-directory-restricted"] == said


def test_a_directory_that_somebody_holds_already_is_closed_to_others_before_it_is_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    stranger = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(stranger, fcntl.LOCK_SH)
    with pytest.raises(Refused, match=r"stop that process, .*; only its owner can list and change it now: mode 0711"):
        open_directory(tmp_path)
    os.close(stranger)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o711


def test_a_directory_that_users_share_stays_as_it_is_and_the_log_warns_of_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    directory = open_directory(tmp_path)
    directory.close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
    assert directory.access is not None
    assert (directory.access.level, directory.access.event) == ("warning", "journal-directory-open")
    assert "all users can write to it (mode 1777)" in str(directory.access.fields["access"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory to another user")
def test_a_directory_of_another_user_stays_as_it_is(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    for mode, event in ((0o2775, None), (0o777, "journal-directory-open")):
        tmp_path.chmod(mode)
        directory = open_directory(tmp_path)
        directory.close()
        assert (directory.access and directory.access.event) == event
        assert stat.S_IMODE(tmp_path.stat().st_mode) == mode


def test_what_was_removed_or_replaced_under_a_process_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    directory = open_directory(path)
    assert directory.displaced() == ""
    (path / LOCK_NAME).unlink()
    assert directory.displaced() == f"the lock file '{path}/lock' was removed or replaced"
    (path / LOCK_NAME).touch()
    assert directory.displaced() == f"the lock file '{path}/lock' was removed or replaced"
    shutil.rmtree(path)
    assert directory.displaced() == f"the journal's directory '{path}' was removed or replaced"
    path.mkdir()
    assert directory.displaced() == f"the journal's directory '{path}' was removed or replaced"
    directory.close()


def test_tokens_in_the_directory_of_a_running_node_can_be_changed(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    assert add_token(tmp_path / "tokens", "alice")[1].principal == "alice"
    directory.close()


def test_a_large_file_is_synced_every_few_mebibytes_and_is_there_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(module, "sync_data", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    data = [bytes([number]) * (1 << 20) for number in range(1, 21)]
    module.replace_file(tmp_path, "checkpoint", data)
    assert sizes == [8 << 20, 16 << 20]
    assert (tmp_path / "checkpoint").read_bytes() == b"".join(data)


def test_a_small_file_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sync_data", lambda _: pytest.fail("it is synced when all of it is there"))
    module.replace_file(tmp_path, "newest", (b"a", b"b"))
    module.replace_file(tmp_path, "closed", ())
    assert [(tmp_path / name).read_bytes() for name in ("newest", "closed")] == [b"ab", b""]
