"""The threads that carry out a log's orders on real files."""

import errno
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.journal.rig import JOURNAL_ID, batch_entry
from tests.processes import Child, ended
from veredus.journal.exchange import (
    Appended,
    AppendFailed,
    AppendRequested,
    BytesFailed,
    BytesRead,
    CheckpointFailed,
    CheckpointRequested,
    CreateSegment,
    DiskEvent,
    Entry,
    FileFailed,
    FileWritten,
    GroupFailed,
    GroupWritten,
    HoldBack,
    ReadBytes,
    ReadRequested,
    RecordsRead,
    RemoveSegment,
    SegmentCreated,
    SegmentFailed,
    SpaceReturned,
    WriteFile,
    WriteGroup,
)
from veredus.journal.layout import NEWEST_NAME, index_name, segment_name
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.journal.steps import CheckpointLoaded, Replayed
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused, Unavailable
from veredus.kernel.events import DeadlineReached
from veredus.kernel.gathered import Gathered
from veredus.runtime.ballast import BALLAST_NAME
from veredus.runtime.directory import Directory, open_directory
from veredus.runtime.disk import Disk, create_segment, drive_recovery

ORDERS = (WriteGroup, CreateSegment, ReadBytes, WriteFile, HoldBack, RemoveSegment)
SMALL = LogSettings(segment_size=64 << 10, checkpoint_interval_size=1 << 30, held_back_size=64 << 10)


class Life:
    """A log on a real disk, from recovery to the end of its process; time passes as the test says."""

    def __init__(self, path: Path, settings: LogSettings = SMALL) -> None:
        self.directory = open_directory(path)
        self.found: list[object] = []
        try:
            recovered = drive_recovery(self.directory, settings, JOURNAL_ID, self.found.append)
        except BaseException:
            self.directory.close()
            raise
        self.was_clean = recovered.is_clean
        self.log = Log(settings, recovered)
        self.answers: SimpleQueue[Sequence[DiskEvent]] = SimpleQueue()
        self.disk = Disk(path, self.answers.put, pytest.fail, settings.held_back_size)
        self.said: list[object] = []
        self.time_ns = 1_000_000_000
        self.last_token = 0
        self.waiting_count = 0

    def tell(self, *events: object) -> None:
        for event in events:
            for effect in self.log.handle(event, Now(self.time_ns, self.time_ns)):  # type: ignore[arg-type]
                if isinstance(effect, ORDERS):
                    self.disk.carry_out(effect)
                    self.waiting_count += not isinstance(effect, RemoveSegment)
                else:
                    self.said.append(effect)

    def settle(self) -> None:
        while True:
            while (at := self.log.deadline()) is not None and at <= self.time_ns:
                self.tell(DeadlineReached())
            if not self.waiting_count:
                return
            events = self.answers.get(timeout=20)
            self.waiting_count -= len(events)
            self.tell(*events)

    def append(self, *entries: Entry) -> object:
        self.last_token += 1
        self.tell(AppendRequested(self.last_token, entries))
        self.settle()
        return self.answer()

    def answer(self) -> object:
        """What was said to the last request."""
        return next(said for said in reversed(self.said) if getattr(said, "token", 0) == self.last_token)

    def read(self, stream_id: int, first: int = 1) -> list[int]:
        sequences: list[int] = []
        while True:
            self.last_token += 1
            self.tell(ReadRequested(self.last_token, stream_id, first, 10_000))
            self.settle()
            answer = self.answer()
            assert isinstance(answer, RecordsRead)
            if not answer.records:
                return sequences
            sequences += [record.first_sequence for record in answer.records]
            first = answer.next_sequence

    def checkpoint(self, is_final: bool = False) -> None:
        self.tell(CheckpointRequested(Gathered(b"tables"), is_final))
        self.settle()

    def end(self, is_final: bool = False) -> None:
        if is_final:
            self.checkpoint(is_final=True)
        self.disk.close()
        self.directory.close()


@pytest.fixture
def posted() -> SimpleQueue[Sequence[DiskEvent]]:
    return SimpleQueue()


@pytest.fixture
def disk(tmp_path: Path, posted: SimpleQueue[Sequence[DiskEvent]]) -> Iterator[Disk]:
    disk = Disk(tmp_path, posted.put, pytest.fail)
    yield disk
    disk.close()


def header(fill: bytes = b"h") -> bytes:
    return fill * 4096


def test_a_journal_survives_its_process_and_goes_on(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for sequence in range(1, 101):
        assert isinstance(life.append(batch_entry(1, sequence, size=3000)), Appended)
    assert life.read(1) == list(range(1, 101))
    life.end()
    life = Life(tmp_path)
    replayed = [found.view.envelope.first_sequence for found in life.found if isinstance(found, Replayed)]
    assert replayed == list(range(1, 101))
    life.append(batch_entry(1, 101))
    life.end(is_final=True)
    life = Life(tmp_path)
    assert life.found == [CheckpointLoaded(b"tables")]
    assert life.read(1) == list(range(1, 102))
    life.end()


def test_a_group_of_very_many_buffers_is_written_whole(disk: Disk, posted: SimpleQueue, tmp_path: Path) -> None:
    disk.carry_out(CreateSegment(1, 7, 1 << 20, header()))
    assert posted.get(timeout=20) == (SegmentCreated(1),)
    for token, size in ((2, 3), (3, 5000)):
        buffers = [bytes([i % 251]) * size for i in range(3000 if size == 3 else 100)]
        disk.carry_out(WriteGroup(token, 7, 8192, buffers, is_synced=True))
        assert posted.get(timeout=20) == (GroupWritten(token),)
        written = (tmp_path / segment_name(7)).read_bytes()
        data = b"".join(buffers)
        assert written[8192 : 8192 + len(data)] == data
        assert len(written) == 1 << 20


def test_a_recycled_segment_has_a_new_name_and_header_and_its_index_is_gone(tmp_path: Path) -> None:
    os.close(create_segment(tmp_path, CreateSegment(1, 3, 65536, header(b"a"))))
    (tmp_path / index_name(3)).write_bytes(b"index")
    os.close(create_segment(tmp_path, CreateSegment(2, 9, 65536, header(b"b"), recycles=3)))
    assert sorted(path.name for path in tmp_path.iterdir()) == [segment_name(9), NEWEST_NAME]
    assert (tmp_path / NEWEST_NAME).read_bytes() == header(b"b")
    assert (tmp_path / segment_name(9)).read_bytes()[:4096] == header(b"b")
    os.close(create_segment(tmp_path, CreateSegment(3, 10, 65536, header(b"c"), recycles=3)))
    assert (tmp_path / segment_name(10)).stat().st_size == 65536, "what is to be recycled is gone: a fresh one"


def test_a_segment_that_exists_is_grown_and_kept(tmp_path: Path) -> None:
    os.close(create_segment(tmp_path, CreateSegment(1, 3, 65536, header(b"a"))))
    os.close(create_segment(tmp_path, CreateSegment(2, 4, 65536, header(b"b"))))
    os.close(create_segment(tmp_path, CreateSegment(3, 4, 1 << 20, header(b"c"), recycles=3)))
    assert (tmp_path / segment_name(3)).exists()
    assert (tmp_path / segment_name(4)).stat().st_size == 1 << 20


def test_reads_end_where_the_file_does_and_fail_where_there_is_none(
    disk: Disk, posted: SimpleQueue, tmp_path: Path
) -> None:
    (tmp_path / segment_name(1)).write_bytes(b"0123456789")
    disk.carry_out(ReadBytes(1, 1, 4, 100))
    disk.carry_out(ReadBytes(2, 2, 0, 10))
    answers = [event for _ in range(2) if not posted.empty() or True for event in ()]
    while len(answers) < 2:
        answers += posted.get(timeout=20)
    assert answers == [
        BytesRead(1, bytearray(b"456789")),
        BytesFailed(2, f"No such file or directory ({segment_name(2)})"),
    ]


def test_a_file_is_replaced_at_once_and_a_failure_leaves_the_old_one(
    disk: Disk, posted: SimpleQueue, tmp_path: Path
) -> None:
    disk.carry_out(WriteFile(1, "checkpoint", (b"old", b"!")))
    assert posted.get(timeout=20) == (FileWritten(1),)
    (tmp_path / "checkpoint.tmp").mkdir()
    disk.carry_out(WriteFile(2, "checkpoint", (b"new",)))
    (failed,) = posted.get(timeout=20)
    assert isinstance(failed, FileFailed)
    assert (tmp_path / "checkpoint").read_bytes() == b"old!"


def test_a_write_to_a_segment_that_is_not_there_fails_the_group(disk: Disk, posted: SimpleQueue) -> None:
    disk.carry_out(WriteGroup(1, 5, 0, (b"x",), is_synced=True))
    (failed,) = posted.get(timeout=20)
    assert isinstance(failed, GroupFailed)
    assert failed.code == "io-error"


def test_removing_a_segment_takes_its_index_along(tmp_path: Path) -> None:
    posted: SimpleQueue = SimpleQueue()
    disk = Disk(tmp_path, posted.put, pytest.fail)
    for number in (1, 2):
        (tmp_path / segment_name(number)).write_bytes(b"s")
        (tmp_path / index_name(number)).write_bytes(b"i")
    disk.carry_out(RemoveSegment(1))
    disk.carry_out(RemoveSegment(3))
    disk.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [index_name(2), segment_name(2)]
    assert posted.empty()


def test_a_limit_on_file_size_is_a_full_disk_and_leaves_no_remains(tmp_path: Path) -> None:
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from veredus.journal.exchange import CreateSegment\n"
        "from veredus.runtime.disk import create_segment\n"
        "from veredus.runtime.failures import code_of, reason_of\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try: create_segment(Path(sys.argv[1]), CreateSegment(1, 1, 1 << 21, bytes(4096)))\n"
        "except OSError as error: sys.stdout.write(f'{code_of(error)}: {reason_of(error)}')\n"
    )
    run = ended([sys.executable, "-c", script, str(tmp_path)])
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("disk-full: a limit lets this process write files of at most 1048576 bytes")
    assert "ulimit -f" in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_on_a_full_disk_publishers_are_refused_readers_go_on_and_service_returns(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(200 << 10))
    life = Life(small_disk)
    count = 0
    while isinstance(answer := life.append(batch_entry(1, count + 1, size=3000)), Appended):
        count += 1
    assert isinstance(answer, AppendFailed)
    assert answer.code == "disk-full"
    assert count > 20
    assert life.read(1) == list(range(1, count + 1))
    filler.unlink()
    life.time_ns += SMALL.retry_ns
    life.settle()
    assert SpaceReturned() in life.said
    assert isinstance(life.append(batch_entry(1, count + 1, size=3000)), Appended)
    life.end()
    life = Life(small_disk)
    assert life.read(1) == list(range(1, count + 2))
    life.end()


def torn(path: Path) -> None:
    """A journal whose last group was written in part."""
    life = Life(path)
    for sequence in range(1, 6):
        assert isinstance(life.append(batch_entry(1, sequence, size=3000)), Appended)
    life.end()
    segment = path / segment_name(1)
    data = bytearray(segment.read_bytes())
    data[len(data.rstrip(b"\0")) - 20] ^= 1
    segment.write_bytes(data)


def fill(path: Path) -> None:
    """Leave no byte of the file system."""
    with (path / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))


def test_a_torn_journal_on_a_full_disk_starts_with_the_space_that_was_held_back(small_disk: Path) -> None:
    torn(small_disk)
    (small_disk / BALLAST_NAME).write_bytes(bytes(64 << 10))
    fill(small_disk)
    life = Life(small_disk)
    assert life.read(1) == [1, 2, 3, 4]
    life.end()
    assert len(list((small_disk / "aside").iterdir())) == 1


def test_a_torn_journal_on_a_disk_without_any_space_says_what_it_needs_and_changes_nothing(small_disk: Path) -> None:
    torn(small_disk)
    (small_disk / BALLAST_NAME).unlink(missing_ok=True)
    fill(small_disk)
    before = (small_disk / segment_name(1)).read_bytes()
    directory, found = open_directory(small_disk), list[object]()
    with pytest.raises(Unavailable, match=r"bytes of it must be copied aside: .*; make room for that") as caught:
        drive_recovery(directory, SMALL, JOURNAL_ID, found.append)
    directory.close()
    assert caught.value.code == "disk-full"
    assert (small_disk / segment_name(1)).read_bytes() == before


def test_the_space_on_the_disk_of_a_journal_shrinks_as_it_fills_and_is_unknown_where_it_has_gone(
    small_disk: Path,
) -> None:
    directory = open_directory(small_disk)
    before = directory.free_size()
    fill(small_disk)
    assert before > 0 == directory.free_size()
    directory.path = small_disk / "gone"
    assert math.isnan(directory.free_size())
    directory.close()


def test_a_second_node_is_refused_and_told_who_has_the_journal(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from veredus.runtime.directory import open_directory\n"
        "open_directory(Path(sys.argv[1])); sys.stdout.write('held\\n'); sys.stdout.flush(); sys.stdin.read()\n"
    )
    with Child([sys.executable, "-c", script, str(tmp_path)], stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Refused) as caught:
            open_directory(tmp_path)
        assert caught.value.code == "journal-locked"
        assert caught.value.details["pid"] == holder.pid
        assert str(holder.pid) in str(caught.value)
    open_directory(tmp_path).close()


def test_a_directory_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Refused) as caught:
        open_directory(tmp_path / "file")
    assert caught.value.code == "journal-directory"
    assert "a file is in its place" in str(caught.value)


def test_opening_removes_what_unfinished_writes_left_and_nothing_else(tmp_path: Path) -> None:
    for name in ("checkpoint", "checkpoint.tmp", segment_name(1)):
        (tmp_path / name).write_bytes(b"x")
    directory = open_directory(tmp_path)
    assert directory.listing().keys() == {"checkpoint", "lock", segment_name(1)}
    directory.close()


@pytest.mark.parametrize("name", ["0000000000000001.segment", "checkpoint", "checkpoint.copy"])
def test_a_journal_in_which_a_segment_or_checkpoint_is_no_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    directory = open_directory(tmp_path)
    for make in (Path.mkdir, os.mkfifo, lambda path: path.symlink_to(tmp_path / "elsewhere")):
        make(tmp_path / name)
        with pytest.raises(Refused, match=name) as refused:
            directory.listing()
        assert refused.value.code == "journal-directory"
        (tmp_path / name).rename(tmp_path / "moved") if (tmp_path / name).is_dir() else (tmp_path / name).unlink()
    assert set(directory.listing()) == {"lock"}
    directory.close()


def test_what_is_set_aside_twice_is_kept_twice(tmp_path: Path) -> None:
    directory: Directory = open_directory(tmp_path)
    kept = [directory.set_aside("a.100", data) for data in (b"one", b"two")]
    assert [(tmp_path / name).read_bytes() for name in kept] == [b"one", b"two"]
    directory.close()


def test_a_torn_tail_on_a_real_disk_is_kept_aside_and_cut(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for sequence in range(1, 6):
        life.append(batch_entry(1, sequence, size=1000))
    end = life.log.position.offset
    life.end()
    with (tmp_path / segment_name(1)).open("r+b") as file:
        file.seek(end - 500)
        file.write(bytes(400))
    life = Life(tmp_path)
    assert life.read(1) == [1, 2, 3, 4]
    (aside,) = (tmp_path / "aside").iterdir()
    assert b"1:5:0" in aside.read_bytes()
    life.end()


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint.copy", "."])
def test_a_checkpoint_that_could_not_be_replaced_is_told_at_the_start(
    tmp_path: Path, name: str, untouchable: Callable[[Path], None]
) -> None:
    life = Life(tmp_path)
    life.append(batch_entry(1, 1))
    life.end(is_final=True)
    (tmp_path / "closed").unlink()
    untouchable(tmp_path / name)
    life = Life(tmp_path)
    told = [found.fields for found in life.found if isinstance(found, Note)]
    is_file = name != "."
    reason = f"Operation not permitted ({name})" if is_file else f"no file may be made or replaced in '{tmp_path}'"
    assert told == [{"reason": reason}]
    assert life.read(1) == [1]
    life.checkpoint(is_final=True)
    (failed,) = (said for said in life.said if isinstance(said, CheckpointFailed))
    assert failed.reason.startswith("Operation not permitted (checkpoint")
    life.end()


def test_a_checkpoint_that_may_be_replaced_though_not_written_is_nothing_to_tell(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.append(batch_entry(1, 1))
    life.end(is_final=True)
    (tmp_path / "checkpoint").chmod(0o400)
    life = Life(tmp_path)
    life.end(is_final=True)
    assert [found for found in life.found if isinstance(found, Note)] == []


def test_a_disk_failure_of_any_kind_has_a_stable_code() -> None:
    from veredus.runtime.disk import code_of

    codes: Callable[[int], str] = lambda number: code_of(OSError(number, os.strerror(number)))  # noqa: E731
    assert codes(errno.ENOSPC) == codes(errno.EDQUOT) == "disk-full"
    assert codes(errno.EMFILE) == "too-many-files"
    assert codes(errno.EIO) == "io-error"


def test_a_read_for_which_there_is_no_memory_fails_alone(disk: Disk, posted: SimpleQueue, tmp_path: Path) -> None:
    (tmp_path / segment_name(4)).write_bytes(b"abcd")
    for order in (ReadBytes(1, 4, 0, 1 << 62), ReadBytes(2, 4, 1, 2)):
        disk.carry_out(order)
    answers = [*posted.get(timeout=20)]
    while len(answers) < 2:
        answers += posted.get(timeout=20)
    assert answers[0] == BytesFailed(1, f"there is no memory to read {1 << 62} bytes", "out-of-memory")
    assert bytes(answers[1].data) == b"bc"


def test_a_segment_that_cannot_be_made_is_answered_so(disk: Disk, posted: SimpleQueue, tmp_path: Path) -> None:
    (tmp_path / segment_name(4)).mkdir()
    disk.carry_out(CreateSegment(1, 4, 65536, header()))
    (failed,) = posted.get(timeout=20)
    assert isinstance(failed, SegmentFailed)


def test_a_checkpoint_is_written_also_when_the_disk_is_full(small_disk: Path) -> None:
    posted: SimpleQueue = SimpleQueue()
    disk = Disk(small_disk, posted.put, pytest.fail)
    (small_disk / BALLAST_NAME).write_bytes(bytes(100 << 10))
    with pytest.raises(OSError, match="space"):
        (small_disk / "rest").write_bytes(bytes(1 << 20))
    disk.carry_out(WriteFile(1, "checkpoint", (bytes(50 << 10),)))
    assert posted.get(timeout=20) == (FileWritten(1),)
    disk.carry_out(WriteFile(2, "checkpoint", (bytes(400 << 10),)))
    (failed,) = posted.get(timeout=20)
    assert isinstance(failed, FileFailed)
    disk.close()
    assert (small_disk / "checkpoint").stat().st_size == 50 << 10


def test_a_small_group_that_is_not_synced_is_written_before_the_order_returns(tmp_path: Path) -> None:
    (tmp_path / segment_name(1)).write_bytes(bytes(64))
    answers: SimpleQueue[Sequence[DiskEvent]] = SimpleQueue()
    disk = Disk(tmp_path, answers.put, pytest.fail)
    disk.carry_out(WriteGroup(1, 1, 8, (b"abc", b"de"), is_synced=False))
    assert answers.get_nowait() == (GroupWritten(1),)
    assert (tmp_path / segment_name(1)).read_bytes()[8:13] == b"abcde"
    disk.carry_out(WriteGroup(2, 1, 13, (b"f",), is_synced=True))
    assert answers.get(timeout=10) == (GroupWritten(2),)
    disk.close()


def test_a_small_group_that_cannot_be_written_is_answered_with_the_reason(tmp_path: Path) -> None:
    answers_here: list[DiskEvent] = []
    disk = Disk(tmp_path, answers_here.extend, pytest.fail)
    disk.carry_out(WriteGroup(1, 1, 8, (b"abc",), is_synced=False))
    disk.close()
    assert [type(answer) for answer in answers_here] == [GroupFailed]
