"""A node on a machine whose power, disk and clock fail when a test says so: the real engines, over simulated hardware.

The oracles of the simulator watch, and raise where anything that was promised does not hold; what a test asserts
beside that is the anomaly itself.
"""

from __future__ import annotations

from collections.abc import Callable

from veredus.delivery.outbox import OutboxSettings
from veredus.journal.exchange import SyncMode
from veredus.journal.settings import LogSettings
from veredus.kernel.events import LinkOpened
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.orders import LinkLimits
from veredus.sim.content import Identity
from veredus.sim.disk import DiskTemper, SimDisk
from veredus.sim.machine import Machine, MachineSettings
from veredus.sim.network import Network, NetworkTemper
from veredus.sim.oracles import Oracles
from veredus.sim.sources import Source, SourceTemper
from veredus.sim.subscribers import Subscriber, SubscriberTemper
from veredus.sim.workloads import Auditor
from veredus.sim.world import MILLISECOND, SECOND, Clock, World
from veredus.streams.exchange import SettleMode, Start
from veredus.streams.facts import StreamConfig
from veredus.streams.tables import StreamsLimits

NODE = "node-1"
STREAM = "orders"
LONG_NS = 300 * SECOND
"""Within this simulated time whatever was begun must be done."""


class Scene:
    """One node, its hardware, and whoever publishes and subscribes there."""

    def __init__(
        self,
        seed: int,
        sync: SyncMode = SyncMode.GROUP,
        config: StreamConfig | None = None,
        checkpoint_interval_size: int = 16 << 10,
    ) -> None:
        """A node that is up; the seed draws how long each thing takes, and what a power cut leaves."""
        self.world = World(seed)
        self.world.is_forgetful = sync is not SyncMode.GROUP
        self.network = Network(self.world, NetworkTemper(half_open=0.0))
        self.oracles = Oracles(self.world)
        self.disk = SimDisk(self.world, NODE, DiskTemper())
        self.clock = Clock(self.world, 0.0, 0)
        log = LogSettings(segment_size=64 << 10, checkpoint_interval_size=checkpoint_interval_size, sync=sync)
        settings = MachineSettings(log, StreamsLimits(config=config or StreamConfig()))
        self.machine = Machine(self.world, self.network, NODE, self.disk, self.clock, settings, _door, self.oracles)
        self.start()

    # ── the node ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start the node's process, and let it recover."""
        self.machine.start()
        self.wait(lambda: self.machine.engine is not None)

    def cut_power(self) -> None:
        """Power is gone at this instant, and comes back."""
        self.machine.kill("in a power cut", with_power=True)
        self.start()

    def kill_before_the_next_sync(self, with_power: bool) -> None:
        """The process, or the power, is gone when the next group is written and not synced; and comes back."""
        self.disk.on_written = lambda: self.machine.kill("between write and sync", with_power)
        self.wait(lambda: not self.machine.is_running)
        self.start()

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Let the world go on until this is so."""
        assert is_done() or self.world.run(self.world.now_ns + LONG_NS, is_done), "it did not come to an end"

    def pass_ns(self, time_ns: int) -> None:
        """Let this much time pass."""
        self.world.run(self.world.now_ns + time_ns)

    # ── who is there ─────────────────────────────────────────────────────────────────────────────────────────────────

    def source(self, total: int, name: str = "till") -> Source:
        """Somebody who publishes numbers 1 to `total`, some at a time, and goes on where the node says."""
        settings = OutboxSettings(batch_count=8, window_size=2 << 10, linger_ns=MILLISECOND)
        temper = SourceTemper(total, 8, 5 * MILLISECOND, False, settings)
        source = Source(self.world, self.network, name, STREAM, NODE, temper)
        source.start()
        return source

    def subscriber(self, name: str = "desk") -> Subscriber:
        """Somebody who settles durably what it has worked on."""
        temper = SubscriberTemper(0, SettleMode.IN_ORDER, Start(), 64 << 10, MILLISECOND, 0.5, True, 0.0, 0, False)
        subscriber = Subscriber(self.world, self.network, name, STREAM, NODE, temper, is_durable=True)
        subscriber.start()
        return subscriber

    # ── what is there ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def head(self) -> int:
        """The newest durable sequence, 0 where the stream is not there."""
        assert self.machine.engine is not None
        stream = self.machine.engine.floor.tables.streams.get(STREAM)
        return 0 if stream is None else stream.head_durable

    def read(self) -> list[Identity]:
        """What stands in the stream, in order: read anew, and judged by the oracles with all that was seen."""
        auditor = Auditor(self.world, self.network, NODE, (STREAM,))
        auditor.start()
        self.wait(lambda: auditor.is_done)
        auditor.stop("has read all")
        self.oracles.judge()
        rows = self.oracles.current[STREAM].rows
        return [rows[sequence].identity for sequence in sorted(rows)]


def _door(opened: LinkOpened) -> NodeLink:
    return NodeLink(opened.link, LinkLimits())


def numbered(name: str, count: int) -> list[Identity]:
    """Publications 1 to `count` of a source."""
    return [Identity(name, number) for number in range(1, count + 1)]
