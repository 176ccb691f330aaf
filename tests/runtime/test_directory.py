"""Whose a journal's directory is: one process at a time has it, also if somebody removes its lock file."""

import os
import shutil
from pathlib import Path

import pytest

from veredus.cli.journal import looked_at
from veredus.kernel.errors import Refused
from veredus.runtime import directory as module
from veredus.runtime.directory import LOCK_NAME, open_directory
from veredus.runtime.security import add_token


def test_a_directory_whose_lock_file_was_removed_is_still_in_use(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    (tmp_path / "newest").touch()
    for _ in range(2):
        (tmp_path / LOCK_NAME).unlink(missing_ok=True)
        with pytest.raises(Refused, match="in use by a process whose lock file was removed") as caught:
            open_directory(tmp_path)
        assert caught.value.code == "journal-locked"
        with (
            pytest.raises(Refused, match="a process whose lock file was removed uses the journal"),
            looked_at(tmp_path),
        ):
            pass
    directory.close()
    open_directory(tmp_path).close()


def test_who_has_a_directory_is_named_by_its_lock_file(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    with pytest.raises(Refused, match=f"in use by process {os.getpid()}:"):
        open_directory(tmp_path)
    directory.close()


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
