"""A power cut brings back exactly what was synced, and nothing that never was; a kill alone loses nothing."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from veredus.chaos import platter as module
from veredus.chaos.platter import SECTOR_SIZE, Lost, Platter, cut_power


class Disk:
    """A directory whose changes go by a platter."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.log = directory / "undo.log"
        self.kept = directory / "kept"
        self.root.mkdir()
        self.platter = Platter(self.root, self.log, self.kept)

    def open(self, name: str) -> int:
        path = self.root / name
        return self.platter.make(path, lambda: os.open(path, os.O_RDWR | os.O_CREAT, 0o600))

    def write(self, name: str, offset: int, data: bytes) -> None:
        descriptor = self.open(name)
        self.platter.write(descriptor, offset, len(data), lambda: os.pwrite(descriptor, data, offset))
        os.close(descriptor)

    def cut(self, name: str, size: int) -> None:
        descriptor = self.open(name)
        self.platter.resize(descriptor, size, lambda: os.ftruncate(descriptor, size))
        os.close(descriptor)

    def sync(self, name: str) -> None:
        descriptor = self.open(name)
        self.platter.sync(descriptor, lambda: None)
        os.close(descriptor)

    def sync_names(self) -> None:
        self.platter.sync_names(self.root, lambda: None)

    def write_through(self, name: str, data: bytes) -> None:
        self.write(name, 0, data)
        self.sync(name)
        self.sync_names()

    def rename(self, former: str, name: str) -> None:
        self.platter.rename(self.root / former, self.root / name, lambda: (self.root / former).rename(self.root / name))

    def remove(self, name: str) -> None:
        self.platter.remove(self.root / name, (self.root / name).unlink)

    def be_killed(self) -> None:
        """The process ends; the next one goes on with the log."""
        self.platter.close()
        self.platter = Platter(self.root, self.log, self.kept)

    def lose_power(self, survival: float = 0.0, seed: int = 1) -> Lost:
        self.platter.close()
        lost = cut_power(self.root, self.log, self.kept, Random(seed), survival)
        assert list(self.kept.iterdir()) == []
        self.platter = Platter(self.root, self.log, self.kept)
        assert not self.platter.pending_bytes
        assert not self.platter.pending_names
        return lost

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.root.iterdir()}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


class NoNames(Random):
    """Keeps no name that was not synced: the earliest of the prefixes."""

    def randint(self, a: int, b: int) -> int:
        return a


def test_what_was_synced_is_there_and_what_was_written_over_it_is_gone(disk: Disk) -> None:
    old = b"a" * 3_000
    disk.write_through("f", old)
    disk.write("f", 100, b"b" * 1_000)
    assert disk.lose_power().sector_count == 3
    assert disk.contents() == {"f": old}


def test_what_was_synced_after_it_was_written_stays(disk: Disk) -> None:
    disk.write_through("f", b"a" * 3_000)
    disk.write("f", 100, b"b" * 1_000)
    disk.sync("f")
    assert disk.lose_power() == Lost()
    assert disk.contents() == {"f": b"a" * 100 + b"b" * 1_000 + b"a" * 1_900}


def test_sectors_survive_each_by_itself(disk: Disk) -> None:
    disk.write_through("f", bytes(SECTOR_SIZE * 64))
    disk.write("f", 0, b"x" * SECTOR_SIZE * 64)
    disk.lose_power(survival=0.5)
    data = disk.contents()["f"]
    sectors = [data[at : at + SECTOR_SIZE] for at in range(0, len(data), SECTOR_SIZE)]
    assert {*sectors} == {bytes(SECTOR_SIZE), b"x" * SECTOR_SIZE}


def test_a_sector_that_was_written_twice_may_be_any_of_its_versions_and_nothing_else(tmp_path: Path) -> None:
    seen = set()
    for seed in range(40):
        (tmp_path / str(seed)).mkdir()
        disk = Disk(tmp_path / str(seed))
        disk.write_through("f", b"a" * SECTOR_SIZE)
        disk.write("f", 0, b"b" * SECTOR_SIZE)
        disk.write("f", 0, b"c" * SECTOR_SIZE)
        disk.lose_power(survival=0.3, seed=seed)
        seen.add(disk.contents()["f"])
    assert seen == {letter * SECTOR_SIZE for letter in (b"a", b"b", b"c")}


def test_growth_that_was_not_synced_is_gone_and_a_cut_end_is_back(disk: Disk) -> None:
    disk.write_through("grown", b"a" * 700)
    disk.write_through("cut", b"b" * 700)
    disk.write("grown", 700, b"c" * 5_000)
    disk.cut("cut", 10)
    assert disk.lose_power().size_count == 2
    assert disk.contents() == {"grown": b"a" * 700, "cut": b"b" * 700}


def test_names_that_were_not_synced_are_as_they_were(disk: Disk) -> None:
    for name in ("renamed", "replaced", "removed"):
        disk.write_through(name, name.encode())
    disk.write("new", 0, b"new")
    disk.sync("new")
    disk.rename("renamed", "replaced")
    disk.remove("removed")
    disk.platter.close()
    lost = cut_power(disk.root, disk.log, disk.kept, NoNames(1), 0.0)
    assert lost.name_count == 3
    assert disk.contents() == {name: name.encode() for name in ("renamed", "replaced", "removed")}


def test_of_names_that_were_not_synced_a_prefix_survives(tmp_path: Path) -> None:
    seen = set()
    for seed in range(40):
        (tmp_path / str(seed)).mkdir()
        disk = Disk(tmp_path / str(seed))
        for name in "abc":
            disk.write(name, 0, b"")
        disk.lose_power(seed=seed)
        seen.add("".join(sorted(disk.contents())))
    assert seen == {"", "a", "ab", "abc"}


def test_a_file_that_replaced_another_is_there_once_the_names_were_synced(disk: Disk) -> None:
    disk.write_through("checkpoint", b"old")
    disk.write("checkpoint.tmp", 0, b"new")
    disk.sync("checkpoint.tmp")
    disk.rename("checkpoint.tmp", "checkpoint")
    disk.sync_names()
    assert list(disk.kept.iterdir()) == []
    assert disk.lose_power() == Lost()
    assert disk.contents() == {"checkpoint": b"new"}


def test_a_kill_loses_nothing_and_the_next_process_can_still_lose_it(disk: Disk) -> None:
    disk.write_through("f", b"a" * 600)
    disk.write("f", 0, b"b" * 600)
    disk.be_killed()
    assert disk.contents() == {"f": b"b" * 600}
    assert disk.lose_power().sector_count == 2
    assert disk.contents() == {"f": b"a" * 600}


def test_what_a_killed_process_left_the_next_one_can_sync(disk: Disk) -> None:
    disk.write("f", 0, b"b" * 600)
    disk.be_killed()
    disk.sync("f")
    disk.sync_names()
    assert disk.lose_power() == Lost()
    assert disk.contents() == {"f": b"b" * 600}


def test_an_entry_that_a_kill_tore_off_is_as_if_it_was_not_made(disk: Disk) -> None:
    disk.write_through("f", b"a" * 600)
    disk.write("f", 0, b"b" * 600)
    whole = disk.log.read_bytes()
    disk.log.write_bytes(whole[:-1])
    disk.platter.close()
    assert not Platter(disk.root, disk.log, disk.kept).pending_bytes


def test_the_log_stays_small_and_says_the_same(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_SIZE_MAX", 20_000)
    disk.write_through("f", bytes(4_096))
    disk.write("g", 0, b"g" * 600)
    for number in range(200):
        disk.write("f", 0, bytes([number]) * 4_096)
        disk.sync("f")
        assert disk.log.stat().st_size < 40_000
    disk.be_killed()
    assert [entry.size for entry in disk.platter.pending_bytes if isinstance(entry, module.Written)] == [0]
    disk.sync("g")
    assert disk.lose_power(survival=1.0) == Lost()
    assert disk.contents() == {"f": bytes([199]) * 4_096, "g": b"g" * 600}


def test_whatever_is_done_a_cut_without_survivors_gives_versions_that_were_there_since_the_last_sync(
    tmp_path: Path,
) -> None:
    for seed in range(60):
        (tmp_path / str(seed)).mkdir()
        disk, die = Disk(tmp_path / str(seed)), Random(seed)
        disk.write_through("f", bytes(SECTOR_SIZE * 8))
        versions: list[set[bytes]] = [{bytes(SECTOR_SIZE)} for _ in range(8)]
        for number in range(1, die.randint(2, 30)):
            first, count = die.randint(0, 7), die.randint(1, 3)
            sectors = range(first, min(8, first + count))
            fresh = bytes([number]) * SECTOR_SIZE
            disk.write("f", first * SECTOR_SIZE, fresh * len(sectors))
            for sector in sectors:
                versions[sector].add(fresh)
            if die.random() < 0.3:
                disk.sync("f")
                data = disk.contents()["f"]
                versions = [{data[at * SECTOR_SIZE : (at + 1) * SECTOR_SIZE]} for at in range(8)]
            if die.random() < 0.2:
                disk.be_killed()
        disk.lose_power(survival=die.choice((0.0, 0.5, 1.0)), seed=seed)
        data = disk.contents()["f"]
        assert all(data[at * SECTOR_SIZE : (at + 1) * SECTOR_SIZE] in versions[at] for at in range(8)), seed
