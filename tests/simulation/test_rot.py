"""A disk that spoils what lies at rest leaves what nobody could do without."""

from veredus.sim.disk import SECTOR_SIZE, DiskTemper, SimDisk, SimFile
from veredus.sim.rot import Rot
from veredus.sim.world import World


class Struck:
    """Who is told."""

    def __init__(self) -> None:
        self.is_rotten = False
        self.rotten: dict[int, list[tuple[int, int]]] = {}


def test_what_is_not_on_the_platter_yet_is_not_spoiled() -> None:
    file = SimFile()
    file.write(0, bytes(2 * SECTOR_SIZE))
    file.sync()
    file.write(SECTOR_SIZE, b"new")
    assert not file.spoil(SECTOR_SIZE + 100, b"x")
    assert file.spoil(SECTOR_SIZE - 1, b"x")
    assert file.data[SECTOR_SIZE - 1 : SECTOR_SIZE + 1] == b"xn"


def test_of_two_copies_of_a_checkpoint_one_is_left() -> None:
    for seed in range(30):
        world = World(seed)
        disk = SimDisk(world, "disk", DiskTemper())
        for name in ("checkpoint", "checkpoint.copy"):
            disk.replace(name, b"state" * 100)
        rot, die = Rot(disk, Struck()), world.dice.die("rot")
        for _ in range(100):
            rot.strike(die)
        sound = [name for name in ("checkpoint", "checkpoint.copy") if disk.files[name].data == b"state" * 100]
        assert len(sound) >= 1


def test_an_empty_disk_has_nothing_to_spoil() -> None:
    world = World(1)
    struck = Struck()
    rot = Rot(SimDisk(world, "disk", DiskTemper()), struck)
    assert [rot.strike(world.dice.die("rot")) for _ in range(20)] == [""] * 20
    assert not struck.is_rotten


def test_an_index_that_was_cut_to_nothing_is_spoiled_no_more() -> None:
    world = World(1)
    disk = SimDisk(world, "disk", DiskTemper())
    disk.replace("0000000000000001.index", b"rows" * 10)
    rot, die = Rot(disk, Struck()), world.dice.die("rot")
    for _ in range(2000):
        rot.strike(die)
    assert not disk.files["0000000000000001.index"].data


def test_a_stale_reading_gives_one_sector_as_it_was_before_its_last_sync() -> None:
    file = SimFile()
    for content in (b"1", b"2", b"3"):
        file.write(0, content * 4 * SECTOR_SIZE)
        file.sync()
    die = World(1).dice.die("disk")
    for _ in range(20):
        data = file.stale(0, 4 * SECTOR_SIZE, die)
        sectors = sorted(data[start : start + SECTOR_SIZE] for start in range(0, len(data), SECTOR_SIZE))
        assert sectors == [b"2" * SECTOR_SIZE, *[b"3" * SECTOR_SIZE] * 3]
    assert file.data == b"3" * 4 * SECTOR_SIZE, "the disk has what was written"


def test_a_file_is_not_cut_where_something_is_not_on_the_platter_yet() -> None:
    file = SimFile()
    file.write(0, bytes(4 * SECTOR_SIZE))
    file.sync()
    file.write(3 * SECTOR_SIZE, b"new")
    assert not file.cut_short(2 * SECTOR_SIZE)
    file.sync()
    assert file.cut_short(2 * SECTOR_SIZE)
    assert len(file.data) == 2 * SECTOR_SIZE
