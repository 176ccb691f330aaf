"""What a world leans to, so that things meet in it that are rare by themselves; most worlds lean to nothing.

full       segments are small, disks fill often and are slow to say so, publications are parked and rows committed
weak       the journal is synced late or never, and the power goes
misread    memory is short, so nearly everything is read from the disk, which now and then gives one wrong bit
tidy       segments are small, floors move along the edges of batches, and what nobody wants goes with a checkpoint
slow       syncs are slow, so what is said twice meets what is still on its way; sources replay from their tokens
tastes     subscribers change what they want all the time, and count their attempts
rotten     publications are damaged on the disk beside everything else that the journal remembers
vanish     a stream is deleted again and again, while its subscribers are away
overtaken  what was sent over links that were given up comes behind what is sent over later ones
retries    subscribers settle little, and give nearly everything back to be tried again, while the node dies
Source: swarm testing (Groce et al., ISSTA 2012): worlds that can do less at once do it more often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from msgspec import structs

from veredus.journal.exchange import SyncMode
from veredus.streams.exchange import SettleMode, Start

from .dice import Die
from .disk import DiskTemper
from .machine import MachineSettings
from .sources import SourceTemper
from .subscribers import SubscriberTemper
from .world import MICROSECOND, MILLISECOND

SEGMENT_SIZE_MIN = 16 << 10


class Leaning:
    """Nothing: everything is as it was drawn."""

    faults: tuple[str, ...] = ()
    """Faults that are struck for sure, and more often than others."""
    least: Mapping[str, int] = MappingProxyType({})
    """How many of a kind are there at least."""
    seconds_min = 0.0
    """For how long faults are struck at least."""

    def set_node(self, die: Die, settings: MachineSettings) -> MachineSettings:
        """How the node is set, out of what was drawn for it."""
        return settings

    def set_disk(self, die: Die, temper: DiskTemper) -> None:
        """How the disk is."""

    def set_source(self, die: Die, temper: SourceTemper) -> None:
        """How a source is."""

    def set_subscriber(self, die: Die, temper: SubscriberTemper) -> None:
        """How a subscriber is."""


class Full(Leaning):
    """Disks fill."""

    faults = ("full", "full", "full", "cut", "crash", "crash", "power", "sever")
    least = MappingProxyType({"sinks": 2, "subscribers": 3})
    seconds_min = 2.0

    def set_node(self, die: Die, settings: MachineSettings) -> MachineSettings:
        """Nearly every group may want a new segment."""
        log = replace(
            settings.log, segment_size=SEGMENT_SIZE_MIN, free_count_max=0, group_size_max=die.spread(1 << 10, 8 << 10),
            retry_ns=die.spread(MILLISECOND, 100 * MILLISECOND),
        )  # fmt: skip
        return replace(settings, log=log)

    def set_disk(self, die: Die, temper: DiskTemper) -> None:
        """It takes a while to say that it is full, so that more comes meanwhile."""
        temper.step_max_ns = die.spread(MILLISECOND, 50 * MILLISECOND)
        temper.file_fault = die.uniform(0.0, 0.3)

    def set_subscriber(self, die: Die, temper: SubscriberTemper) -> None:
        """It parks."""
        temper.attempts_max, temper.settles = die.between(1, 2), die.uniform(0.0, 0.2)


class Weak(Leaning):
    """The journal is not synced in time."""

    faults = ("power", "power", "relapse", "all")
    seconds_min = 1.0

    def set_node(self, die: Die, settings: MachineSettings) -> MachineSettings:
        """Late, or never."""
        sync = (SyncMode.INTERVAL, SyncMode.NONE)[die.between(0, 1)]
        log = replace(
            settings.log, sync=sync, interval_ns=die.spread(MILLISECOND, 300 * MILLISECOND),
            segment_size=die.spread(SEGMENT_SIZE_MIN, 4 * SEGMENT_SIZE_MIN) // 4096 * 4096,
            checkpoint_interval_size=die.spread(4 << 10, 64 << 10),
        )  # fmt: skip
        return replace(settings, log=log)


class Misread(Leaning):
    """What is read is wrong, once."""

    faults = ("rot",)
    least = MappingProxyType({"subscribers": 3})
    seconds_min = 2.0

    def set_node(self, die: Die, settings: MachineSettings) -> MachineSettings:
        """Nothing stays in memory, so that it is read again and again."""
        log = replace(settings.log, segment_size=SEGMENT_SIZE_MIN, rows_cache_size_max=64)
        return replace(settings, log=log, limits=structs.replace(settings.limits, tail_size_max=1))

    def set_disk(self, die: Die, temper: DiskTemper) -> None:
        """Errors and old sectors would excuse what a single wrong bit does not."""
        temper.misread = die.uniform(0.1, 0.8)
        temper.read_fault = temper.stale_read = 0.0


class Tidy(Leaning):
    """What nobody wants goes."""

    faults = ("kill", "kill", "relapse", "power")
    least = MappingProxyType({"streams": 2, "sources": 2, "subscribers": 1, "trimmers": 1, "clients": 2})
    seconds_min = 3.0

    def set_node(self, die: Die, settings: MachineSettings) -> MachineSettings:
        """Small segments, and checkpoints all the time."""
        log = replace(
            settings.log, segment_size=12 << 10, checkpoint_interval_size=die.spread(2 << 10, 16 << 10),
            group_size_max=die.spread(1 << 10, 4 << 10),
        )  # fmt: skip
        return replace(settings, log=log)

    def set_source(self, die: Die, temper: SourceTemper) -> None:
        """It fills many segments, or leaves a little in each."""
        if die.chance(0.5):
            temper.total, temper.pause_max_ns = die.spread(200, 800), 10 * MILLISECOND
        else:
            temper.total, temper.pause_max_ns = die.spread(20, 80), 300 * MILLISECOND
            temper.burst_max = 3

    def set_disk(self, die: Die, temper: DiskTemper) -> None:
        """A kill finds files half made, and some are never made."""
        temper.step_max_ns = die.spread(100 * MICROSECOND, 20 * MILLISECOND)
        temper.file_fault = die.uniform(0.0, 0.4)


class Slow(Leaning):
    """Answers take long."""

    faults = ("cut", "careless", "zombie", "crash", "crash", "crash", "kill", "full")
    least = MappingProxyType({"sources": 2})
    seconds_min = 2.0

    def set_disk(self, die: Die, temper: DiskTemper) -> None:
        """A sync takes longer than it takes to connect anew."""
        temper.sync_min_ns = die.spread(10 * MILLISECOND, 100 * MILLISECOND)
        temper.sync_max_ns = 4 * temper.sync_min_ns

    def set_source(self, die: Die, temper: SourceTemper) -> None:
        """What was published since the last token is published again, in other batches, so that these straddle."""
        temper.uses_tokens, temper.total, temper.pause_max_ns = True, die.spread(100, 400), 300 * MILLISECOND


class Tastes(Leaning):
    """Filters change."""

    faults = ("cut", "kill", "crash", "crash", "zombie")
    least = MappingProxyType({"subscribers": 2})
    seconds_min = 2.0

    def set_disk(self, die: Die, temper: DiskTemper) -> None:
        """A change takes a while to be in the journal."""
        temper.sync_max_ns = temper.sync_min_ns + die.spread(MILLISECOND, 100 * MILLISECOND)

    def set_subscriber(self, die: Die, temper: SubscriberTemper) -> None:
        """It wants something else after every few pushes."""
        temper.changes_taste = die.uniform(0.1, 0.7)
        temper.attempts_max = die.between(0, 2)
        temper.credit, temper.settles = die.spread(64, 4 << 10), die.uniform(0.0, 0.5)


class Rotten(Leaning):
    """Disks forget."""

    faults = ("rot", "rot", "kill", "zombie", "crash")
    least = MappingProxyType({"subscribers": 2})
    seconds_min = 2.0

    def set_node(self, die: Die, settings: MachineSettings) -> MachineSettings:
        """Nothing stays in memory, and no checkpoint keeps what a segment says."""
        log = replace(
            settings.log, sync=SyncMode.GROUP, rows_cache_size_max=64, checkpoint_interval_size=1 << 20,
            segment_size=die.spread(SEGMENT_SIZE_MIN, 4 * SEGMENT_SIZE_MIN) // 4096 * 4096,
        )  # fmt: skip
        return replace(settings, log=log, limits=structs.replace(settings.limits, tail_size_max=1))

    def set_disk(self, die: Die, temper: DiskTemper) -> None:
        """Groups are large, and errors do not excuse what is damaged."""
        temper.sync_min_ns = die.spread(MILLISECOND, 20 * MILLISECOND)
        temper.sync_max_ns = 2 * temper.sync_min_ns
        temper.read_fault = temper.stale_read = 0.0


class Vanish(Leaning):
    """Streams go and come."""

    faults = ("cut", "cut", "kill", "stop", "partition")
    least = MappingProxyType({"reapers": 1})
    seconds_min = 3.0

    def set_node(self, die: Die, settings: MachineSettings) -> MachineSettings:
        """A start knows from a checkpoint what was deleted."""
        return replace(settings, log=replace(settings.log, checkpoint_interval_size=die.spread(1 << 10, 16 << 10)))


class Overtaken(Leaning):
    """Packets are late."""

    faults = ("late", "late", "late", "late", "crash")
    least = MappingProxyType({"sources": 2, "subscribers": 2})
    seconds_min = 3.0

    def set_source(self, die: Die, temper: SourceTemper) -> None:
        """It publishes for as long as faults are struck."""
        temper.total, temper.pause_max_ns = die.spread(100, 400), die.spread(30 * MILLISECOND, 300 * MILLISECOND)
        temper.burst_max = 8


class Retries(Leaning):
    """What is pushed is tried again and again."""

    faults = ("kill", "kill", "power", "relapse", "crash", "startle")
    least = MappingProxyType({"sources": 1, "subscribers": 3})
    seconds_min = 3.0

    def set_node(self, die: Die, settings: MachineSettings) -> MachineSettings:
        """Nothing is forgotten, and no checkpoint keeps what a fact says."""
        log = replace(settings.log, sync=SyncMode.GROUP, checkpoint_interval_size=1 << 20)
        return replace(settings, log=log)

    def set_subscriber(self, die: Die, temper: SubscriberTemper) -> None:
        """It always wants the same."""
        temper.mode, temper.start, temper.changes_taste = SettleMode.INDIVIDUAL, Start(), 0.0
        temper.attempts_max, temper.gives_back, temper.settles = die.between(2, 4), 0.9, die.uniform(0.0, 0.2)
        temper.credit, temper.work_max_ns = die.spread(1 << 10, 64 << 10), 20 * MILLISECOND


LEANINGS = (Full, Weak, Misread, Tidy, Slow, Tastes, Rotten, Vanish, Overtaken)


def drawn_leaning(die: Die) -> Leaning:
    """What a world leans to."""
    if die.chance(0.4):
        return LEANINGS[die.between(0, len(LEANINGS) - 1)]()
    # These came last: what the others lean to stays as it was.
    return Retries() if die.chance(0.1) else Leaning()
