"""What stands in a journal's directory where a file of it should: it is named, with what to do, and nothing hangs."""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journal.rig import batch_entry
from tests.runtime.test_disk import Life
from veredus.journal.layout import index_name, segment_name
from veredus.kernel.errors import Refused

OWN = [
    "checkpoint",
    "checkpoint.copy",
    "closed",
    "newest",
    segment_name(1),
    index_name(1),
    "restored",
    "checkpoint.tmp",
    "restored.tmp",
]


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        # A name may be too long for a socket, a directory's may not.
        held = os.open(path.parent, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{held}/{path.name}")
        os.close(held)


KINDS: dict[str, Callable[[Path], None]] = {
    "a directory": Path.mkdir,
    "a FIFO": os.mkfifo,
    "a socket": a_socket,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Path]:
    life = Life(tmp_path)
    for sequence in range(1, 40):
        life.append(batch_entry(1, sequence, size=3000))
    life.end(is_final=True)
    yield tmp_path
    life = Life(tmp_path)
    assert life.read(1) == list(range(1, 40)), "what was refused has changed nothing"
    life.end()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OWN)
def test_what_is_no_file_in_the_place_of_one_is_refused_by_name_with_what_to_do(
    journal: Path, name: str, kind: str
) -> None:
    place, kept = journal / name, journal.with_name("kept")
    if place.exists():
        place.rename(kept)
    KINDS[kind](place)
    if name.endswith(".tmp") and kind != "a directory":
        # What an unfinished write may have left goes.
        Life(journal).end()
        assert not os.path.lexists(place)
        return
    with pytest.raises(Refused, match=f"'{place}' is no file, .*: nothing was changed; .*start again") as refused:
        Life(journal)
    assert refused.value.code == "journal-directory"
    place.rmdir() if kind == "a directory" else place.unlink()
    if kept.exists():
        kept.rename(place)


@pytest.mark.parametrize("name", ["0.tmp", "mine", "mine.segments"])
def test_what_belongs_to_others_is_left_alone(journal: Path, name: str) -> None:
    (journal / name).mkdir()
    Life(journal).end()
    assert (journal / name).is_dir()


def test_a_place_for_what_is_set_aside_that_is_no_directory_is_refused_by_name(journal: Path) -> None:
    (journal / "aside").write_bytes(b"mine")
    with pytest.raises(Refused, match=r"aside' is no directory: .* move it away"):
        Life(journal)
    (journal / "aside").unlink()


def test_a_segment_that_cannot_be_read_is_refused_by_its_path_with_the_reason(journal: Path) -> None:
    (journal / "closed").unlink()
    last = max(journal.glob("*.segment"))
    kept = journal.with_name("kept")
    last.rename(kept)
    # The kernel itself answers reads at its beginning with EIO.
    last.symlink_to("/proc/self/mem")
    with pytest.raises(
        Refused, match=f"'{last}' cannot be read \\({os.strerror(errno.EIO)}\\): nothing was"
    ) as refused:
        Life(journal)
    assert refused.value.code == "journal-unreadable"
    last.unlink()
    kept.rename(last)


def test_a_refusal_to_begin_names_the_directory(tmp_path: Path) -> None:
    (tmp_path / segment_name(2)).write_bytes(bytes(4096))
    with pytest.raises(Refused, match=f"'{tmp_path}'") as refused:
        Life(tmp_path)
    assert refused.value.code == "journal-damaged"
    assert refused.value.details["path"] == str(tmp_path)
