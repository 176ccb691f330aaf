"""The hands of the journal: threads that write, keep and read its files, so that the loop never waits for a disk.

    writer   groups, each synced before it is answered
    keeper   segments made ahead and removed, checkpoints, index files: what may take long and must not hold up a group
    reader   bytes for historical flow

Each thread carries out its orders one by one, in their order. What an order has to wait for in another thread, the
log waits for before it gives it. What a disk cannot do is an answer. Any other failure ends the thread, and is told:
its orders will never be answered, so whoever gave them must end too.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread, current_thread
from typing import Any, TypeAlias, TypeVar, cast

from veredus.journal.beginning import KEPT
from veredus.journal.checkpoint import CHECKPOINT_NAME, CLOSED_NAME, COPY_NAME
from veredus.journal.exchange import (
    BytesFailed,
    BytesRead,
    CreateSegment,
    DiskEvent,
    FileFailed,
    FileWritten,
    GroupFailed,
    GroupWritten,
    HeldBack,
    HoldBack,
    ReadBytes,
    RemoveSegment,
    SegmentCreated,
    SegmentFailed,
    WriteFile,
    WriteGroup,
)
from veredus.journal.layout import NEWEST_NAME, index_name, segment_name
from veredus.journal.recovery import recover
from veredus.journal.settings import HELD_BACK_SIZE, LogSettings, Recovered
from veredus.journal.steps import Answer, ClearFile, Found, MoveAside, ReadFile, RemoveFile, SetAside, SyncFile
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused, Unavailable, VeredusError, ending_of
from veredus.kernel.octets import Octets

from .ballast import allocate, hold, with_ballast
from .directory import Directory, read_at, replace_file, sync_data, sync_directory, write_at
from .failures import code_of, reason_of

T = TypeVar("T")
DiskOrder: TypeAlias = WriteGroup | CreateSegment | WriteFile | HoldBack | RemoveSegment | ReadBytes
Post = Callable[[Sequence[DiskEvent]], None]
"""Takes answers from any of the threads; hands them to the loop, once for all of them."""
Fail = Callable[[str], None]
"""Hears from any of the threads why it has ended, and hands that to the loop."""
Reading = Callable[[str, int], None]
"""Hears of a read before it begins: the name of the file, and how many bytes."""
_CHECKPOINT_NAMES = (CHECKPOINT_NAME, COPY_NAME, CLOSED_NAME)
TELL_AGAIN_S = 0.1
"""A thread that has ended and lacks the memory to tell so tries again after so long."""
_ANSWERS_MAX = 64
_AT_ONCE_SIZE_MAX = 64 << 10
_SYNCED_AT_ONCE_SIZE_MAX = 4 << 10
_SYNCED_AT_ONCE_NS_MAX = 500_000
"""Up to which a small group is synced by the loop itself: to wake a thread, and to be woken by it, takes as long."""
_PACE_SHARE = 8
"""A sync that was quicker than those before counts for such a part; a slower one counts alone."""
_ANSWERS_SIZE_MAX = 4 << 20
_BLOCK_SIZE = 1 << 20


class Disk:
    """Owns the threads and the open files of one journal; `close` ends both once all orders are carried out."""

    def __init__(self, path: Path, post: Post, fail: Fail, held_back_size: int = HELD_BACK_SIZE) -> None:
        """Work in the directory `path`, which is locked for us; answers go to `post`, from several threads.

        `fail` is called when a thread has ended by what is no failure of a disk.

        `held_back_size` bytes are held back from the first segment on, until a `HoldBack` says otherwise.
        """
        self._path = path
        self._held_back_size = held_back_size
        self._post = post
        self._fail = fail
        self._groups: SimpleQueue[WriteGroup | None] = SimpleQueue()
        self._upkeep: SimpleQueue[CreateSegment | WriteFile | HoldBack | RemoveSegment | None] = SimpleQueue()
        self._reads: SimpleQueue[ReadBytes | None] = SimpleQueue()
        self._made: dict[int, int] = {}
        self._written_segment = 0
        self._written_descriptor = -1
        self._sync_ns = _SYNCED_AT_ONCE_NS_MAX + 1
        """How long a group is expected to take that is synced; kept by whoever writes one."""
        works = (("writer", self._write), ("keeper", self._keep), ("reader", self._read))
        self._threads = [
            Thread(target=self._work, args=(work,), name=f"veredus-{name}", daemon=True) for name, work in works
        ]
        for thread in self._threads:
            thread.start()

    def carry_out(self, order: DiskOrder) -> None:
        """Have the order carried out; waits for no disk, or for one that has been quick of late.

        A small group that only goes to the operating system's memory, or to such a disk, takes less than to wake the
        writer, who is idle then, since one group is under way at a time.
        """
        if isinstance(order, WriteGroup):
            if self._is_at_once(order):
                self._post((self._answer(order),))
            else:
                self._groups.put(order)
        elif isinstance(order, ReadBytes):
            self._reads.put(order)
        else:
            self._upkeep.put(order)

    def close(self) -> None:
        """Carry out what was ordered, then end. Waits for that."""
        for queue in (self._groups, self._upkeep, self._reads):
            queue.put(None)
        for thread in self._threads:
            thread.join()
        self._close_written()
        while self._made:
            os.close(self._made.popitem()[1])

    def _work(self, work: Callable[[], None]) -> None:
        reason = ""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 whatever it is, what waits behind it is answered by nobody
            ending = ending_of(error)
            said = ending.message if isinstance(ending, VeredusError) else repr(error)
            reason = f"the thread {current_thread().name} failed: {said}"
        # Here, where the error and the memory that its order took are let go of.
        while reason:
            try:
                self._fail(reason)
                return
            except MemoryError:
                time.sleep(TELL_AGAIN_S)

    def _is_at_once(self, order: WriteGroup) -> bool:
        size = sum(map(len, order.buffers))
        if not order.is_synced:
            return size <= _AT_ONCE_SIZE_MAX
        return size <= _SYNCED_AT_ONCE_SIZE_MAX and self._sync_ns <= _SYNCED_AT_ONCE_NS_MAX

    # ── writer ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        while (order := self._groups.get()) is not None:
            self._post((self._answer(order),))

    def _answer(self, order: WriteGroup) -> DiskEvent:
        try:
            self._write_group(order)
        except OSError as error:
            return GroupFailed(order.token, code_of(error), reason_of(error))
        return GroupWritten(order.token)

    def _write_group(self, order: WriteGroup) -> None:
        start_ns = time.monotonic_ns()
        if self._written_segment != order.segment:
            self._close_written()
            made = self._made.pop(order.segment, -1)
            file = self._path / segment_name(order.segment)
            self._written_descriptor = made if made >= 0 else os.open(file, os.O_WRONLY)
            self._written_segment = order.segment
        if order.buffers:
            write_at(self._written_descriptor, order.offset, list(order.buffers))
        if order.is_synced:
            sync_data(self._written_descriptor)
            self._learn_pace(time.monotonic_ns() - start_ns)

    def _learn_pace(self, took_ns: int) -> None:
        self._sync_ns = max(took_ns, self._sync_ns + (took_ns - self._sync_ns) // _PACE_SHARE)

    def _close_written(self) -> None:
        descriptor, self._written_descriptor, self._written_segment = self._written_descriptor, -1, 0
        if descriptor >= 0:
            os.close(descriptor)

    # ── keeper ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep(self) -> None:
        while (order := self._upkeep.get()) is not None:
            if isinstance(order, CreateSegment):
                self._post((self._create(order),))
            elif isinstance(order, WriteFile):
                self._post((self._replace(order),))
            elif isinstance(order, HoldBack):
                self._post((self._hold_back(order),))
            else:
                self._remove(order)

    def _create(self, order: CreateSegment) -> DiskEvent:
        try:
            # First, so that no segment is made of the space that lets another one go.
            hold(self._path, self._held_back_size)
            descriptor = create_segment(self._path, order)
        except OSError as error:
            return SegmentFailed(order.token, code_of(error), reason_of(error))
        # Kept open for the writer: a limit on descriptors must not fail the log when it turns to this segment.
        former = self._made.pop(order.segment, -1)
        self._made[order.segment] = descriptor
        if former >= 0:
            os.close(former)
        return SegmentCreated(order.token)

    def _replace(self, order: WriteFile) -> DiskEvent:
        def replace() -> None:
            replace_file(self._path, order.name, order.data)

        try:
            if order.name in _CHECKPOINT_NAMES:
                with_ballast(self._path, replace)
            else:
                # It can wait for space, and must not take what a checkpoint needs.
                replace()
        except OSError as error:
            return FileFailed(order.token, reason_of(error))
        finally:
            # What is left of it, until the log knows how much it has to be: others write to the same disk.
            with suppress(OSError):
                hold(self._path, self._held_back_size)
        return FileWritten(order.token)

    def _hold_back(self, order: HoldBack) -> DiskEvent:
        self._held_back_size = order.size
        try:
            hold(self._path, order.size)
        except OSError as error:
            return HeldBack(order.token, code_of(error), reason_of(error))
        return HeldBack(order.token)

    def _remove(self, order: RemoveSegment) -> None:
        try:
            remove_segment(self._path, order.segment)
        except OSError:
            # It is named by no checkpoint any more: the next start finds it and removes it.
            return

    # ── reader ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        while (first := self._reads.get()) is not None:
            orders, is_ending = self._waiting_reads(first)
            opened: dict[str, int] = {}
            answers: list[DiskEvent] = []
            size = 0
            for order in orders:
                try:
                    answers.append(BytesRead(order.token, self._read_bytes(order, opened)))
                except OSError as error:
                    answers.append(BytesFailed(order.token, reason_of(error), code_of(error)))
                except MemoryError:
                    # For one read, however large: what else the process does need not end.
                    said = f"there is no memory to read {order.size} bytes"
                    answers.append(BytesFailed(order.token, said, "out-of-memory"))
                size += order.size
                if size >= _ANSWERS_SIZE_MAX:
                    self._post(answers)
                    answers, size = [], 0
            # Files are not kept open: a name may mean another file once the log has let a segment go.
            for descriptor in opened.values():
                os.close(descriptor)
            if answers:
                self._post(answers)
            if is_ending:
                return

    def _waiting_reads(self, first: ReadBytes) -> tuple[list[ReadBytes], bool]:
        """The orders that wait, beginning with `first`, and whether the end was ordered behind them."""
        orders = [first]
        while len(orders) < _ANSWERS_MAX:
            try:
                order = self._reads.get_nowait()
            except Empty:
                break
            if order is None:
                return orders, True
            orders.append(order)
        return orders, False

    def _read_bytes(self, order: ReadBytes, opened: dict[str, int]) -> memoryview:
        name = index_name(order.segment) if order.is_index else segment_name(order.segment)
        if name not in opened:
            opened[name] = os.open(self._path / name, os.O_RDONLY)
        return read_at(opened[name], order.offset, order.size)


def create_segment(path: Path, order: CreateSegment) -> int:
    """Make a segment's file; after a crash it is there under its name with its header, or as good as not at all.

    Returns a descriptor, open for writing. Raises `OSError`, and has then freed what space it took.
    """
    target = path / segment_name(order.segment)
    source = target if order.recycles is None else path / segment_name(order.recycles)
    is_recycled = source != target and source.exists() and not target.exists()
    file = source if is_recycled else target
    is_new = not file.exists()
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        allocate(descriptor, order.size)
        write_at(descriptor, 0, [order.header])
        os.fsync(descriptor)
        # Behind the header's sync, for a file that is shorter than its header says was cut by others.
        os.ftruncate(descriptor, order.size)
        if is_recycled:
            assert order.recycles is not None
            (path / index_name(order.recycles)).unlink(missing_ok=True)
            source.rename(target)
        with_ballast(path, lambda: replace_file(path, NEWEST_NAME, (order.header,)))
    except OSError:
        os.close(descriptor)
        if is_new:
            target.unlink()
        raise
    return descriptor


def remove_segment(path: Path, number: int) -> None:
    """Remove a segment's file and its index, durably. Raises `OSError`."""
    (path / segment_name(number)).unlink(missing_ok=True)
    (path / index_name(number)).unlink(missing_ok=True)
    sync_directory(path)


def drive_recovery(
    directory: Directory,
    settings: LogSettings,
    new_journal_id: bytes,
    take: Callable[[Found], None],
    reading: Reading | None = None,
) -> Recovered:
    """Carry out what recovery orders in a directory that is ours; hand what it finds to `take`, in order.

    `reading` hears, before each read, of which file, and of how many bytes. Raises what `drive_steps` raises for
    `veredus.journal.recovery.recover`.
    """
    if directory.access is not None:
        take(directory.access)
    recovered = drive_steps(directory, recover(directory.listing(), settings, new_journal_id), take, reading)
    for reason in _hindrances(directory.path):
        take(Note("error", "checkpoint-not-writable", {"reason": reason}))
    return recovered


def _hindrances(path: Path) -> Iterator[str]:
    """Why the next checkpoint could not be written, as far as that is known without doing so."""
    if not os.access(path, os.W_OK | os.X_OK):
        yield f"no file may be made or replaced in {str(path)!r}"
    for name in (CHECKPOINT_NAME, COPY_NAME):
        try:
            os.close(os.open(path / name, os.O_WRONLY))
        except OSError as error:
            # One that we may not write is replaced all the same; one that nobody may change is not.
            if error.errno == errno.EPERM:
                yield reason_of(error)


def drive_steps(
    directory: Directory,
    steps: Generator[Any, Answer, T],
    take: Callable[[Any], None],
    reading: Reading | None = None,
) -> T:
    """Carry out what a generator of recovery or verification orders; hand the rest to `take`; return what it
    returns.

    Raises what it raises, with the directory's path, and what the disk refuses, in words: `Refused` with
    `journal-unreadable` or `journal-directory`, `Unavailable("disk-full")`.
    """
    answer: Answer = None
    while True:
        try:
            order = steps.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        except Refused as refused:
            where = str(directory.path)
            said, details = f"the journal in {where!r}: {refused.message}", {**refused.details, "path": where}
            raise Refused(refused.code, said, **details) from None
        answer = None
        if isinstance(order, ReadFile):
            if reading is not None:
                reading(order.name, order.size)
            answer = _read(directory, order)
        elif isinstance(order, SyncFile | SetAside | MoveAside | ClearFile | RemoveFile):
            try:
                _carry_out(directory, order)
            except OSError as error:
                raise _in_words(directory, order.name, error) from error
        else:
            take(order)


def _carry_out(directory: Directory, order: SyncFile | SetAside | MoveAside | ClearFile | RemoveFile) -> None:
    match order:
        case SyncFile(name):
            directory.sync(name)
        case SetAside(name, offset, size):
            _keep_aside(directory, name, offset, size)
        case MoveAside(name):
            with_ballast(directory.path, lambda: directory.move_aside(name))
        case ClearFile(name, offset, size):
            _clear(directory.path / name, offset, size)
        case RemoveFile(name):
            directory.remove(name)


def _in_words(directory: Directory, name: str, error: OSError) -> VeredusError:
    """What kept recovery from repairing a file."""
    where = str(directory.path)
    said = f"{str(directory.path / name)!r} cannot be repaired: {reason_of(error)}"
    if code_of(error) == "disk-full":
        return Unavailable("disk-full", f"{said}; make room, and start again", path=where)
    if error.errno == errno.EIO:
        # It may pass: whoever watches over the process starts it again after this, and not after what is refused.
        return Unavailable("io-error", f"{said}; nothing is lost by that: check the disk, and start again", path=where)
    return Refused("journal-directory", f"{said}; nothing is lost by that: put it right, and start again", path=where)


def _clear(path: Path, offset: int, size: int) -> None:
    """Write zeros over a part of a file, durably: its size and its space stay."""
    block: Octets = bytes(min(size, _BLOCK_SIZE))
    descriptor = os.open(path, os.O_WRONLY)
    try:
        write_at(descriptor, offset, [block] * (size // len(block)) + [block[: size % len(block)]])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _keep_aside(directory: Directory, name: str, offset: int, size: int) -> None:
    """Copy what will be cut off, or is damaged. Raises `OSError`, and `Unavailable` where there is no room for it."""
    data, kept_as = directory.read(name, offset, size), f"{name}.{offset}"
    try:
        with_ballast(directory.path, lambda: directory.set_aside(kept_as, data))
    except OSError as error:
        if code_of(error) != "disk-full":
            raise
        where = str(directory.path)
        message = f"before {name} in {where!r} is repaired, {size} bytes of it must be copied aside: {reason_of(error)}"
        raise Unavailable("disk-full", f"{message}; make room for that, and start again", path=where) from None


def _read(directory: Directory, order: ReadFile) -> memoryview | None:
    try:
        return directory.read(order.name, order.offset, order.size)
    except (OSError, MemoryError) as error:
        if not order.is_needed:
            return None
        why = error.strerror if isinstance(error, OSError) else f"there is no memory for {order.size} bytes of it"
        said = f"{str(directory.path / order.name)!r} cannot be read ({why}): {KEPT}; put that right, and start again"
        raise Refused("journal-unreadable", said, path=str(directory.path)) from error
