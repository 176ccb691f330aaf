"""Files of a journal that others have made larger than any memory: no more of them is read than was written."""

import sys
from pathlib import Path

import pytest

from tests.journal.rig import batch_entry
from tests.processes import ended
from tests.runtime.test_disk import SMALL, Life
from veredus.journal.layout import index_name, segment_name
from veredus.journal.verify import dump, verify
from veredus.kernel.effects import Note
from veredus.runtime.directory import open_directory
from veredus.runtime.disk import drive_steps

HUGE = 300 << 30
COUNT = 60
OPEN = 4
"""The segment in which the journal ends."""


@pytest.fixture(params=[False, True], ids=["killed", "stopped"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A journal of several segments with a checkpoint, which ends behind it or with it."""
    life = Life(tmp_path)
    for sequence in range(1, COUNT):
        life.append(batch_entry(1, sequence, size=3000))
    life.checkpoint()
    life.append(batch_entry(1, COUNT, size=3000))
    assert life.log.position.segment == OPEN
    life.end(is_final=request.param)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["checkpoint", "checkpoint.copy", "newest", "closed", index_name(1), segment_name(1), segment_name(OPEN)]
)
def test_a_file_that_has_grown_past_all_memory_is_read_as_far_as_it_was_written(journal: Path, name: str) -> None:
    with (journal / name).open("ab") as file:
        file.truncate(HUGE)
    directory, said = open_directory(journal), list[object]()
    report = drive_steps(directory, verify(directory.listing(), SMALL), said.append)
    assert report.is_sound
    drive_steps(directory, dump(directory.listing()), said.append)
    directory.close()
    life = Life(journal)
    told = [found.fields["file"] for found in life.found if isinstance(found, Note)]
    assert told == ([name] if name.startswith("checkpoint") or name.endswith(".segment") else [])
    assert life.read(1) == list(range(1, COUNT + 1))
    life.append(batch_entry(1, COUNT + 1, size=3000))
    life.end(is_final=True)
    life = Life(journal)
    assert life.read(1) == list(range(1, COUNT + 2))
    life.end()


def test_checkpoints_that_are_damaged_and_have_grown_are_kept_aside_in_no_time(journal: Path) -> None:
    for name in ("checkpoint", "checkpoint.copy"):
        with (journal / name).open("r+b") as file:
            file.write(b"?")
            file.truncate(HUGE)
    life = Life(journal)
    assert life.read(1) == list(range(1, COUNT + 1))
    life.end()
    assert {path.name: path.stat().st_size for path in (journal / "aside").iterdir()} == {
        "checkpoint": HUGE,
        "checkpoint.copy": HUGE,
    }


def test_a_segment_that_memory_cannot_hold_is_refused_in_words(journal: Path) -> None:
    with (journal / segment_name(OPEN)).open("r+b") as file:
        file.write(bytes(4096))
        file.truncate(HUGE)
    (journal / "closed").unlink(missing_ok=True)
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from tests.runtime.test_disk import Life\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "Life(Path(sys.argv[1]))\n"
    )
    run = ended([sys.executable, "-c", script, str(journal)])
    told = (
        f"'{journal / segment_name(OPEN)}' cannot be read (there is no memory for {1 << 32} bytes of it): nothing was"
    )
    assert told in run.stderr.splitlines()[-1], run.stderr
