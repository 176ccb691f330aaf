"""However large the state becomes, a trim frees space on a full disk: as much is held back as its checkpoint needs."""

from pathlib import Path

from tests.journal.rig import batch_entry
from tests.runtime.test_disk import Life, fill
from veredus.journal.exchange import (
    Appended,
    AppendFailed,
    CheckpointDone,
    CheckpointFailed,
    CheckpointRequested,
    SpaceMissing,
    SpaceReturned,
    StreamTrimmed,
    fact_entry,
)
from veredus.journal.settings import LogSettings
from veredus.kernel.gathered import Gathered
from veredus.runtime.ballast import BALLAST_NAME

SMALL = LogSettings(segment_size=64 << 10, checkpoint_interval_size=1 << 30, held_back_size=8 << 10)
FACT_SIZE = 1000


class Grown(Life):
    """A journal on a small disk whose state is as large as all facts that were taken."""

    def __init__(self, path: Path, state: bytes = b"") -> None:
        super().__init__(path, SMALL)
        self.state = state

    def grow(self, count: int) -> None:
        for _ in range(count):
            if isinstance(self.append(fact_entry(bytes(FACT_SIZE), 1)), Appended):
                self.state += bytes(FACT_SIZE)

    def publish_until_refused(self, first: int = 1) -> int:
        sequence = first
        while isinstance(self.append(batch_entry(1, sequence, size=3000)), Appended):
            sequence += 1
        return sequence - 1

    def trim(self, below: int) -> None:
        assert isinstance(self.append(fact_entry(bytes(40), 1)), Appended)
        self.tell(StreamTrimmed(1, below))
        self.settle()

    def checkpoint(self, is_final: bool = False) -> None:
        self.tell(CheckpointRequested(Gathered(self.state), is_final))
        self.settle()

    def wait(self) -> None:
        self.time_ns += SMALL.retry_ns
        self.settle()


def segment_count(path: Path) -> int:
    return len(list(path.glob("*.segment")))


def test_a_trim_frees_a_full_disk_whose_checkpoint_is_larger_than_what_is_held_back_at_first(small_disk: Path) -> None:
    life = Grown(small_disk)
    life.grow(60)
    head = life.publish_until_refused()
    fill(small_disk)
    before = segment_count(small_disk)
    life.trim(head + 1)
    life.checkpoint()
    assert CheckpointDone() in life.said
    assert (small_disk / "checkpoint").stat().st_size > 7 * SMALL.held_back_size
    assert segment_count(small_disk) < before
    life.wait()
    assert SpaceReturned() in life.said
    assert isinstance(life.append(batch_entry(1, head + 1, size=3000)), Appended)
    life.end()


def test_it_does_so_after_a_kill_on_the_full_disk_too(small_disk: Path) -> None:
    life = Grown(small_disk)
    life.grow(60)
    head = life.publish_until_refused()
    fill(small_disk)
    state = life.state
    life.end()
    life = Grown(small_disk, state)
    life.trim(head + 1)
    life.checkpoint()
    assert CheckpointDone() in life.said
    life.wait()
    assert isinstance(life.append(batch_entry(1, head + 1, size=3000)), Appended)
    life.end()


def test_it_does_so_after_a_kill_between_the_two_copies_of_a_checkpoint(small_disk: Path) -> None:
    life = Grown(small_disk)
    life.grow(60)
    head = life.publish_until_refused()
    fill(small_disk)
    life.checkpoint()
    # What a kill leaves while the copy is written: it is the older one still, and the space for it was let go of.
    (small_disk / "checkpoint.copy.tmp").write_bytes(bytes(1000))
    (small_disk / BALLAST_NAME).unlink()
    state = life.state
    life.end()
    life = Grown(small_disk, state)
    life.trim(head + 1)
    life.checkpoint()
    assert CheckpointDone() in life.said
    life.end()


def test_on_a_full_disk_the_state_does_not_outgrow_what_is_held_back_however_much_is_asked_for(
    small_disk: Path,
) -> None:
    life = Grown(small_disk)
    head = life.publish_until_refused()
    fill(small_disk)
    for _ in range(3):
        life.grow(100)
        life.checkpoint()
        life.wait()
    assert not any(isinstance(said, CheckpointFailed) for said in life.said)
    assert len(life.state) <= SMALL.reserve_size
    assert head
    life.end()


def test_publications_are_refused_while_what_the_checkpoint_needs_cannot_be_held_back(small_disk: Path) -> None:
    life = Grown(small_disk)
    assert isinstance(life.append(batch_entry(1, 1, size=100)), Appended)
    fill(small_disk)
    life.grow(50)
    refused = [said for said in life.said if isinstance(said, SpaceMissing)]
    assert [said.code for said in refused] == ["disk-full"]
    assert BALLAST_NAME in refused[0].reason
    answer = life.append(batch_entry(1, 2, size=100))
    assert isinstance(answer, AppendFailed)
    assert answer.code == "disk-full"
    life.checkpoint()
    assert CheckpointDone() in life.said
    (small_disk / "filler").unlink()
    life.wait()
    assert isinstance(life.append(batch_entry(1, 2, size=100)), Appended)
    life.end()


def test_what_is_held_back_is_given_back_once_the_state_is_small_again(small_disk: Path) -> None:
    life = Grown(small_disk)
    life.grow(60)
    life.checkpoint()
    assert (small_disk / BALLAST_NAME).stat().st_size > 60 * FACT_SIZE
    life.state = b""
    life.checkpoint()
    life.settle()
    assert (small_disk / BALLAST_NAME).stat().st_size < 40 << 10
    life.end()
