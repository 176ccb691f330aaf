"""The processes of a run: the node and its members, each with as many lives as it takes.

running ── strike ──► down ── begin ──► running ... ── leaves by itself ──► over
   └── ends though nobody struck it ──► surprise, which the run reports
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from .layout import Layout
from .leash import PARENT
from .plan import NODE, PROXY, SUBSCRIBERS, TOPICS, Member
from .proxy import Proxy
from .worker import EXIT_FENCED, TOPICS_PERIOD

POLL_S = 0.05
_SAID_LINES = 4
SEGMENT_SIZE = "256 KiB"
NODE_SETTINGS = {
    "JOURNAL_SEGMENT_SIZE": SEGMENT_SIZE,
    "JOURNAL_CHECKPOINT_INTERVAL_SIZE": "1 MiB",
    "LIMITS_BATCH_SIZE_MAX": "64 KiB",
    "JOURNAL_FREE_SEGMENTS_MAX": "1",
    "LIMITS_HEARTBEAT_INTERVAL": "500ms",
    "LIMITS_SILENCE_MAX": "2s",
    "LIMITS_TAIL_SIZE_MAX": "256 KiB",
    "NODE_DRAIN_TIMEOUT": "1s",
    "TOPICS_PERIOD": TOPICS_PERIOD,
}
"""Small and impatient, so that a short run sees segments end, checkpoints, silence, and flow from the journal."""


class Ports(NamedTuple):
    """Where everybody listens on 127.0.0.1; 0 for what nobody needs."""

    tcp: int
    zeromq: int = 0
    topics: int = 0
    """Of the node, as a server of topics."""
    topics_proxy: int = 0


def _foreign(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith("VEREDUS_")}


class Life:
    """One process, and its log."""

    def __init__(self, name: str, log: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it, in a session of its own: Ctrl-C is the conductor's.

        Of settings it has those in `environment`, and none of whoever runs this.
        """
        self.name = name
        self.log = log
        self.is_stopped = False
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env={**_foreign(os.environ), **environment, PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it lives."""
        return self._process.poll()

    @property
    def pid(self) -> int:
        """What the system calls it."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if self.exit_code is None:
            self._process.send_signal(number)
            if number in (signal.SIGSTOP, signal.SIGCONT):
                self.is_stopped = number == signal.SIGSTOP

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came in time."""
        until = asyncio.get_running_loop().time() + timeout_s
        while self.exit_code is None and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(POLL_S)
        return self.exit_code is not None

    def said(self) -> str:
        """The last that it wrote."""
        lines = self.log.read_text(errors="replace").splitlines()
        return " / ".join(lines[-_SAID_LINES:])


class Lives:
    """Owns all processes of a run, and the proxies before the node."""

    def __init__(self, layout: Layout, members: Sequence[Member], ports: Ports) -> None:
        """Of these members, around a node on those ports; nobody lives yet."""
        self.layout = layout
        self.members = {member.name: member for member in members}
        self.running: dict[str, Life] = {}
        self.proxies: dict[str, Proxy] = {}
        self.zombies: list[Life] = []
        """Former lives that were stopped while the next began: each has to end by being fenced."""
        self.down: set[str] = set()
        """Who was struck, and is not expected to live until it begins again."""
        self.surprises: list[str] = []
        self.node_address = f"veredus://127.0.0.1:{ports.tcp}"
        self._ports = ports
        self._counts: dict[str, int] = {}

    async def open_proxies(self) -> None:
        """Have a proxy for each member that goes by one."""
        for member in self.members.values():
            if member.door == "proxy":
                port = self._ports.topics_proxy if member.role in TOPICS else self._ports.tcp
                self.proxies[member.name] = Proxy("127.0.0.1", port)
                await self.proxies[member.name].start()

    def begin(self, name: str) -> None:
        """Begin a life of the node or of a member."""
        self._counts[name] = self._counts.get(name, 0) + 1
        log = self.layout.logs / f"{name}.log"
        if name == NODE:
            arguments = ["veredus.chaos.served", str(self.layout.root)]
            self.running[name] = Life(name, log, arguments, self._node_environment())
        else:
            member = self.members[name]
            text = msgspec.json.encode(member).decode()
            arguments = ["veredus.chaos.worker", str(self.layout.root), text, self._address_of(member)]
            self.running[name] = Life(name, log, arguments, {})
        self.down.discard(name)

    @property
    def life_count(self) -> int:
        """How many lives there were, the node's among them."""
        return sum(self._counts.values())

    def _node_environment(self) -> dict[str, str]:
        ports = self._ports
        settings = {
            "NODE_DIRECTORY": str(self.layout.journal),
            "LISTEN_TCP": f"127.0.0.1:{ports.tcp}",
            "LISTEN_UNIX": self.layout.socket,
            "LISTEN_ZEROMQ": f"tcp://127.0.0.1:{ports.zeromq}" if ports.zeromq else "",
            "TOPICS_LISTEN": f"127.0.0.1:{ports.topics}" if ports.topics else "",
            "TOPICS_PROXIES": f"127.0.0.1:{ports.topics_proxy}" if ports.topics_proxy else "",
            "LISTEN_METRICS": "",
            "LOG_FORMAT": "json",
            **NODE_SETTINGS,
        }
        return {f"VEREDUS_{name}": value for name, value in settings.items()}

    def _address_of(self, member: Member) -> str:
        match member.door:
            case "proxy":
                return f"veredus://127.0.0.1:{self.proxies[member.name].port}"
            case "unix":
                return f"unix://{self.layout.socket}"
            case "zeromq":
                return f"tcp://127.0.0.1:{self._ports.zeromq}"
            case _:
                is_of_topics = member.role in (PROXY, *TOPICS)
                return f"tcp://127.0.0.1:{self._ports.topics_proxy}" if is_of_topics else self.node_address

    # ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Note who ended though nobody struck it, and let it live again."""
        for name, life in list(self.running.items()):
            code = life.exit_code
            is_over = code == 0 and name != NODE and self._may_leave(name)
            if code is None or name in self.down or is_over:
                continue
            self.surprises.append(f"{name} ended by itself with {code}: {life.said()}")
            self.begin(name)

    def _may_leave(self, name: str) -> bool:
        layout = self.layout
        return (layout.all_done if self.members[name].role in SUBSCRIBERS else layout.no_more).exists()

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until the node's listener is open; if it never opens, that is noticed elsewhere."""
        until = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < until:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._ports.tcp)
            except OSError:
                await asyncio.sleep(POLL_S)
                continue
            writer.close()
            return

    async def wait_attached(self, name: str, timeout_s: float) -> bool:
        """Wait until the member's present life has its name from the node; whether it has, in time."""
        until = asyncio.get_running_loop().time() + timeout_s
        while not self.layout.attached_as(name, self.running[name].pid).exists():
            if asyncio.get_running_loop().time() > until:
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def wait_begun(self, timeout_s: float) -> None:
        """Wait until every member has begun to write down what it does; who never does is seen later."""
        until = asyncio.get_running_loop().time() + timeout_s
        recordings = self.layout.recordings
        while asyncio.get_running_loop().time() < until:
            self.look()
            if all(any(recordings.glob(f"*-{name}-*")) for name in self.members):
                return
            await asyncio.sleep(POLL_S)

    async def wait_over(self, roles: Sequence[str], timeout_s: float) -> list[str]:
        """Wait until all members of these roles have left; the names of those that have not, in time."""
        until = asyncio.get_running_loop().time() + timeout_s
        names = [name for name, member in self.members.items() if member.role in roles]
        while left := [name for name in names if self.running[name].exit_code is None]:
            if asyncio.get_running_loop().time() > until:
                return left
            self.look()
            await asyncio.sleep(POLL_S)
        return []

    async def end_zombies(self, timeout_s: float) -> list[str]:
        """Wait until each zombie was fenced; what is to be said of those that were not."""
        faults = []
        for zombie in self.zombies:
            if not await zombie.wait(timeout_s):
                faults.append(f"a former life of {zombie.name} was not fenced in {timeout_s:g} s")
            elif zombie.exit_code != EXIT_FENCED:
                faults.append(f"a former life of {zombie.name} ended with {zombie.exit_code}: {zombie.said()}")
        return faults

    async def end(self) -> None:
        """End everything, whatever it is doing."""
        for life in (*self.running.values(), *self.zombies):
            life.kill()
        for proxy in self.proxies.values():
            await proxy.close()
        # A killed node leaves its socket behind.
        Path(self.layout.socket).unlink(missing_ok=True)
