"""The simulated disk forgets what real ones forget, and nothing else."""

from collections.abc import Callable

import pytest

from veredus.journal.exchange import (
    BytesFailed,
    BytesRead,
    CreateSegment,
    FileFailed,
    FileWritten,
    GroupFailed,
    GroupWritten,
    ReadBytes,
    SegmentCreated,
    SegmentFailed,
    WriteFile,
    WriteGroup,
)
from veredus.journal.layout import NEWEST_NAME, segment_name
from veredus.sim.disk import SECTOR_SIZE, DiskOrder, DiskTemper, SimDisk
from veredus.sim.world import SECOND, World

SIZE = 64 << 10
HEADER = b"header" * 100


class Scene:
    """A disk, and what it answered."""

    def __init__(self, seed: int = 1, temper: DiskTemper | None = None) -> None:
        self.world = World(seed)
        self.disk = SimDisk(self.world, "disk", temper or DiskTemper())
        self.answers: list[object] = []

    def order(self, *orders: DiskOrder, until_ns: int = SECOND) -> list[object]:
        """Have these carried out for a while; what was answered meanwhile."""
        before = len(self.answers)
        for order in orders:
            self.disk.carry_out(order, self.answers.append)
        self.world.run(self.world.now_ns + until_ns)
        return self.answers[before:]


def made(seed: int = 1) -> Scene:
    """A disk with one segment."""
    scene = Scene(seed)
    assert scene.order(CreateSegment(1, 1, SIZE, HEADER)) == [SegmentCreated(1)]
    return scene


def test_what_was_synced_survives_a_power_cut() -> None:
    for seed in range(20):
        scene = made(seed)
        data = bytes(range(256)) * 20
        assert scene.order(WriteGroup(2, 1, 4096, [data], True)) == [GroupWritten(2)]
        scene.disk.cut_power()
        assert scene.disk.read(segment_name(1), 4096, len(data)) == data
        assert scene.disk.read(segment_name(1), 0, len(HEADER)) == HEADER


def test_what_was_not_synced_survives_by_sectors_in_any_order() -> None:
    seen: set[bytes] = set()
    for seed in range(60):
        scene = made(seed)
        scene.order(WriteGroup(2, 1, 0, [b"x" * 4 * SECTOR_SIZE], False))
        scene.disk.cut_power()
        kept = scene.disk.read(segment_name(1), 0, 4 * SECTOR_SIZE)
        sectors = [kept[i : i + SECTOR_SIZE] for i in range(0, len(kept), SECTOR_SIZE)]
        assert all(sector == b"x" * SECTOR_SIZE or b"x" not in sector for sector in sectors)
        seen.add(bytes(b"x" in sector for sector in sectors))
    assert len(seen) > 8, "several of the sixteen ways to lose four sectors"


def test_a_torn_segment_keeps_what_lies_before_its_tear_and_that_once() -> None:
    scene = made()
    for tear in (2 * SECTOR_SIZE, 3 * SECTOR_SIZE):
        scene.order(WriteGroup(2, 1, 0, [b"x" * 4 * SECTOR_SIZE], False))
        scene.disk.tear_at = (1, tear)
        scene.disk.cut_power()
        assert scene.disk.read(segment_name(1), 0, 4 * SECTOR_SIZE).count(b"x") == tear
        assert scene.disk.tear_at is None


def test_a_kill_keeps_what_was_written_and_stops_between_two_steps() -> None:
    lengths: set[int] = set()
    for seed in range(60):
        scene = made(seed)
        answered = scene.order(WriteGroup(2, 1, 0, [b"y" * 2000], True), until_ns=seed * 4_000)
        scene.disk.kill()
        scene.world.run(scene.world.now_ns + SECOND)
        assert answered == [] == scene.answers[1:]
        lengths.add(scene.disk.read(segment_name(1), 0, 2000).count(b"y"))
    assert {0, 2000} < lengths


def test_a_new_name_is_durable_only_once_it_is_answered() -> None:
    outcomes: set[bool] = set()
    for seed in range(60):
        scene = Scene(seed)
        answered = scene.order(CreateSegment(1, 1, SIZE, HEADER), until_ns=seed * 100_000)
        scene.disk.cut_power()
        is_there = segment_name(1) in scene.disk.files
        assert is_there or not answered
        outcomes.add(is_there)
    assert outcomes == {True, False}


def test_a_file_is_replaced_whole_or_not_at_all() -> None:
    outcomes: set[bytes] = set()
    for seed in range(60):
        scene = Scene(seed)
        assert scene.order(WriteFile(1, "checkpoint", [b"old" * 500])) == [FileWritten(1)]
        scene.order(WriteFile(2, "checkpoint", [b"new" * 500]), until_ns=seed * 100_000)
        scene.disk.cut_power()
        assert scene.disk.listing()["checkpoint"] == 1500
        outcomes.add(scene.disk.read("checkpoint", 0, 1500))
    assert outcomes == {b"old" * 500, b"new" * 500}


def test_a_recycled_segment_is_found_under_one_of_its_two_names() -> None:
    for seed in range(60):
        scene = made(seed)
        scene.order(WriteGroup(2, 1, 4096, [b"old"], True))
        scene.order(CreateSegment(3, 2, SIZE, HEADER[::-1], recycles=1), until_ns=seed * 100_000)
        scene.disk.cut_power()
        (name,) = scene.disk.listing().keys() - {NEWEST_NAME}
        assert name in (segment_name(1), segment_name(2))
        assert name == segment_name(2) or scene.disk.read(NEWEST_NAME, 0, SIZE) == HEADER
        assert scene.disk.read(name, 4096, 3) == b"old"


def test_a_full_disk_refuses_what_takes_space_and_nothing_else() -> None:
    scene = made()
    scene.disk.is_full = True
    assert scene.order(CreateSegment(2, 2, SIZE, HEADER)) == [SegmentFailed(2, "disk-full", "No space left on device")]
    assert scene.order(WriteFile(3, "checkpoint", [b"x"])) == [FileFailed(3, "No space left on device")]
    assert scene.order(WriteGroup(4, 1, 4096, [b"z"], True)) == [GroupWritten(4)]
    assert sorted(scene.disk.listing()) == [segment_name(1), NEWEST_NAME]


@pytest.mark.parametrize(
    ("temper", "order", "failed"),
    [
        (DiskTemper(write_fault=1.0), lambda: WriteGroup(2, 1, 0, [b"x"], True), GroupFailed),
        (DiskTemper(read_fault=1.0), lambda: ReadBytes(2, 1, 0, 8), BytesFailed),
        (DiskTemper(file_fault=1.0), lambda: WriteFile(2, "checkpoint", [b"x"]), FileFailed),
    ],
)
def test_a_fault_is_answered_as_one_and_over_when_the_disk_is_calm(
    temper: DiskTemper, order: Callable[[], DiskOrder], failed: type
) -> None:
    scene = made()
    scene.disk.temper = temper
    assert [type(answer) for answer in scene.order(order())] == [failed]
    scene.disk.is_calm = True
    assert failed not in [type(answer) for answer in scene.order(order())]


def test_reads_give_what_was_written_last_and_end_with_the_file() -> None:
    scene = made()
    scene.order(WriteGroup(2, 1, 100, [b"ab", b"cd"], False))
    assert scene.order(ReadBytes(3, 1, 100, 4)) == [BytesRead(3, bytearray(b"abcd"))]
    (answer,) = scene.order(ReadBytes(4, 1, SIZE - 2, 100))
    assert isinstance(answer, BytesRead)
    assert len(answer.data) == 2
