"""Carries out the strikes of a plan: each by itself, on one victim at a time."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from veredus.recording import Recording

from . import netem
from .disks import MountedDisk
from .evidence import Range
from .flipping import flip
from .layer import Switches, write_switches
from .lives import Lives
from .plan import NODE, Plan, Strike
from .platter import cut_power
from .proxy import Proxy

STOP_S = 15.0
"""How long a node that is asked to stop may take."""
_RATE_MIN = 2_000


class Striker:
    """Owns the order in which victims are struck, and the counts of what was done."""

    def __init__(
        self,
        plan: Plan,
        lives: Lives,
        mounted: MountedDisk | None,
        recording: Recording,
        tell: Callable[[str], None],
    ) -> None:
        """A striker of these lives; `mounted` is the small disk that the journal lies on, where there is one."""
        self.done: Counter[str] = Counter()
        """How often each fault was carried out."""
        self.struck: list[Range] = []
        """What flips took: nothing else may be reported as damaged."""
        self._plan = plan
        self._lives = lives
        self._mounted = mounted
        self._recording = recording
        self._tell = tell
        self._locks = {name: asyncio.Lock() for name in (NODE, *lives.members)}
        self._switches = Switches()
        self._strikes = {
            "kill": self._kill,
            "pause": self._pause,
            "proxy": self._spoil_connection,
            "netem": self._spoil_packets,
            "full": self._fill,
            "unsynced": self._cut_power,
            "flip": self._flip,
            "zombie": self._make_zombie,
            "clock": self._step_clock,
        }

    async def strike(self, strike: Strike) -> None:
        """Carry out one strike, once what was done to its victim before is over."""
        async with self._locks[strike.on]:
            # A die of its own: what a strike does not depend on which came through before.
            what = await self._strikes[strike.fault](strike, Random(f"{self._plan.seed} {strike.at_ms}"))
        if what is not None:
            self.done[strike.fault] += 1
            self._tell(f"{strike}{'  ' + what if what else ''}")

    # ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _kill(self, strike: Strike, die: Random) -> str:
        lives = self._lives
        if strike.on == NODE:
            await self._slow_syncs(die)
        lives.down.add(strike.on)
        lives.running[strike.on].kill()
        if strike.on == NODE:
            self._switch(sync_ms=0)
        await asyncio.sleep(strike.lasts_ms / 1_000)
        lives.begin(strike.on)
        return ""

    async def _pause(self, strike: Strike, die: Random) -> str:
        life = self._lives.running[strike.on]
        life.signal(signal.SIGSTOP)
        await asyncio.sleep(strike.lasts_ms / 1_000)
        life.signal(signal.SIGCONT)
        return ""

    async def _make_zombie(self, strike: Strike, die: Random) -> str | None:
        lives = self._lives
        # One that attaches only when it goes on is the newest, and fences the other.
        if not await lives.wait_attached(strike.on, STOP_S):
            return None
        former = lives.running[strike.on]
        former.signal(signal.SIGSTOP)
        await asyncio.sleep(strike.lasts_ms / 2_000)
        lives.zombies.append(former)
        lives.begin(strike.on)
        await asyncio.sleep(strike.lasts_ms / 2_000)
        former.signal(signal.SIGCONT)
        return ""

    # ── network ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _spoil_connection(self, strike: Strike, die: Random) -> str:
        proxy = self._lives.proxies[strike.on]
        spoil(proxy, strike.detail, strike.amount)
        await asyncio.sleep(strike.lasts_ms / 1_000)
        proxy.heal()
        return f"{strike.amount}"

    async def _spoil_packets(self, strike: Strike, die: Random) -> str | None:
        if not netem.is_inside():
            return None
        netem.begin(strike.detail, strike.amount)
        await asyncio.sleep(strike.lasts_ms / 1_000)
        netem.end()
        return f"{strike.amount}"

    # ── disk ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _fill(self, strike: Strike, die: Random) -> str:
        # A node that recovers needs space where it has a torn end to set aside: it is full once it serves.
        await self._lives.wait_ready(STOP_S)
        if self._mounted is not None:
            self._mounted.fill()
            await asyncio.sleep(strike.lasts_ms / 1_000)
            self._mounted.free()
            return "mounted"
        self._switch(space=0)
        await asyncio.sleep(strike.lasts_ms / 1_000)
        self._switch(space=None)
        return "by allowance"

    async def _cut_power(self, strike: Strike, die: Random) -> str:
        lives, layout = self._lives, self._lives.layout
        await self._slow_syncs(die)
        lives.down.add(NODE)
        lives.running[NODE].kill()
        self._switch(sync_ms=0)
        lost = cut_power(layout.journal, layout.undo_log, layout.kept, die, strike.amount / 100)
        await asyncio.sleep(strike.lasts_ms / 1_000)
        lives.begin(NODE)
        return f"{lost.sector_count} sectors, {lost.size_count} sizes, {lost.name_count} names lost"

    async def _slow_syncs(self, die: Random) -> None:
        """Have the node written and not synced: most of the time hardly anything is in doubt, or could be lost."""
        self._switch(sync_ms=die.randint(20, 400))
        await asyncio.sleep(die.uniform(0.05, 0.5))

    async def _flip(self, strike: Strike, die: Random) -> str | None:
        lives = self._lives
        lives.down.add(NODE)
        node = lives.running[NODE]
        node.signal(signal.SIGTERM)
        has_ended = await node.wait(STOP_S)
        # It ends by the signal where it had hardly begun to live.
        if not has_ended or node.exit_code not in (0, -signal.SIGTERM):
            lives.surprises.append(f"the node was asked to stop, and did not end well: {node.said()}")
            node.kill()
        # A node that does not end well has no checkpoint behind what would be flipped.
        struck = flip(lives.layout.journal, die) if node.exit_code == 0 else None
        lives.begin(NODE)
        if struck is None:
            return None
        # The journal held it at that sequence: so the audit knows what a report of damage speaks of.
        # An attachment of a source without a name has the member's name in front of its own.
        stream = lives.members[struck.source.partition(".")[0]].stream
        last_sequence = struck.first_sequence + struck.last_number - struck.first_number
        self.struck.append(Range(stream, struck.first_sequence, last_sequence))
        self._recording.acknowledged(
            stream, struck.source, struck.first_number, struck.last_number, struck.first_sequence
        )
        return f"{struck.where}: {struck.source} {struck.first_number} to {struck.last_number}"

    # ── switches of the layer ────────────────────────────────────────────────────────────────────────────────────────

    async def _step_clock(self, strike: Strike, die: Random) -> str:
        self._switch(clock_ms=strike.amount)
        await asyncio.sleep(strike.lasts_ms / 1_000)
        self._switch(clock_ms=0)
        return f"{strike.amount // 1_000:+} s"

    def _switch(self, **changed: int | None) -> None:
        self._switches = msgspec.structs.replace(self._switches, **changed)
        write_switches(self._lives.layout.switches, self._switches)

    def heal(self) -> None:
        """Fair weather for everybody, for good."""
        self._switch(space=None, clock_ms=0, sync_ms=0)
        if self._mounted is not None:
            self._mounted.free()
        for proxy in self._lives.proxies.values():
            proxy.heal()
        for life in (*self._lives.running.values(), *self._lives.zombies):
            if life.is_stopped:
                life.signal(signal.SIGCONT)


def spoil(proxy: Proxy, weather: str, amount: int) -> None:
    """Spoil a member's connections as the plan's `weather` says; `amount` counts bytes, or milliseconds."""
    match weather:
        case "delay":
            proxy.delay(amount % 300 / 1_000)
        case "throttle":
            proxy.throttle(_RATE_MIN + 10 * amount)
        case "cut":
            proxy.cut_after(amount)
        case "reset":
            proxy.reset()
        case "half-open":
            proxy.leave_half_open()
        case "one-way":
            proxy.hold("up" if amount % 2 else "down")
        case "black-hole":
            proxy.hold("up", "down")
