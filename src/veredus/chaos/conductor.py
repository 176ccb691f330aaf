"""One run: its plan is written down and carried out, everything is healed, and all must come to its end.

written ─► node and members live, strikes fall ─► healed ─► sources leave ─► subscribers have all ─► evidence

Each wait is bounded. Who does not come to an end in time is stuck: that is a violation, and says who waits for what.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import veredus
from veredus.client.node import AsyncNode
from veredus.recording import Recording

from .disks import MountedDisk, mounted
from .evidence import gather, unexplained_gaps
from .layout import Layout
from .lives import Life, Lives, Ports
from .plan import NODE, PROXY, SUBSCRIBERS, Member, Plan, encoded
from .striking import Striker
from .subscribing import NAME

START_S = 30.0
END_S = 90.0
"""How long everything may take to come to its end once it is healed."""
FENCED_S = 20.0
POLL_S = 0.1


@dataclass(slots=True)
class Outcome:
    """What became of a run, before the audit."""

    plan: Plan
    strikes: dict[str, int] = field(default_factory=dict)
    """How often each fault was carried out."""
    not_done: dict[str, str] = field(default_factory=dict)
    """Faults that were asked for and cannot be had here, and why."""
    life_count: int = 0
    publication_count: int = 0
    """What the journal holds in the end."""
    stuck: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    """Whoever ended by itself, or would not end; and reports of damage that nobody had done."""
    seconds: float = 0.0


async def run(plan: Plan, layout: Layout, tell: Callable[[str], None]) -> Outcome:
    """Carry out a plan in a directory that is empty, and gather the evidence; `tell` takes a line at a time."""
    began = time.monotonic()
    layout.make()
    # Whoever makes this file has the directory: of two runs that begin at once, one.
    with layout.plan.open("xb") as file:
        file.write(encoded(plan))
    outcome = Outcome(plan)
    disk = mounted(layout.disk, layout.filler) if "full" in plan.faults and plan.seed % 2 else None
    lives = Lives(layout, plan.members, _free_ports(plan))
    recording = Recording(layout.recordings, "striker")
    striker = Striker(plan, lives, disk, recording, tell)
    has_failed = True
    try:
        await lives.open_proxies()
        await _live_through(plan, lives, striker)
        await _come_to_an_end(lives, striker, outcome, tell)
        outcome.surprises += lives.surprises
        outcome.publication_count = await asyncio.to_thread(_gather, plan, layout, lives.node_address)
        outcome.surprises += unexplained_gaps(layout, striker.struck)
        has_failed = bool(outcome.stuck or outcome.surprises)
    finally:
        recording.close()
        outcome.strikes = dict(striker.done)
        outcome.life_count = lives.life_count
        await lives.end()
        if disk is not None:
            _unmount(disk, layout, has_failed)
        outcome.seconds = time.monotonic() - began
    return outcome


def _unmount(disk: MountedDisk, layout: Layout, is_kept: bool) -> None:
    disk.end(layout.root / "disk-kept" if is_kept else None)


def _free_ports(plan: Plan) -> Ports:
    port = _free_port(20_000)
    zeromq = _free_port(port + 1) if any(member.door == "zeromq" for member in plan.members) else 0
    if not any(member.role == PROXY for member in plan.members):
        return Ports(port, zeromq)
    topics = _free_port(max(port, zeromq) + 1)
    return Ports(port, zeromq, topics, _free_port(topics + 1))


def _free_port(least: int) -> int:
    # Not one of those that the system gives to connections: another's could have it while the node is down.
    for port in range(least + time.time_ns() % (8_000 if least == 20_000 else 1), 32_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no port between 20000 and 32000 is free on 127.0.0.1")


async def _live_through(plan: Plan, lives: Lives, striker: Striker) -> None:
    lives.begin(NODE)
    try:
        async with veredus.connect_async(lives.node_address, timeout_s=START_S, refused_s=START_S) as node:
            for stream in plan.streams:
                await node.streams.create(stream)
    except veredus.Unavailable as error:
        raise veredus.Unavailable("unreachable", _why_no_node(lives.running[NODE], error)) from error
    await _begin(plan, lives)
    await lives.wait_begun(START_S)
    began = time.monotonic()
    waiting = list(plan.strikes)
    striking: list[asyncio.Task[None]] = []
    while (elapsed_s := time.monotonic() - began) < plan.seconds:
        while waiting and waiting[0].at_ms <= elapsed_s * 1_000:
            striking.append(asyncio.create_task(striker.strike(waiting.pop(0))))
        lives.look()
        await asyncio.sleep(0.02)
    await asyncio.gather(*striking)


async def _begin(plan: Plan, lives: Lives) -> None:
    """Begin all members: whoever gets a topic's messages is subscribed before the first is put."""
    getting = [member.name for member in plan.members if member.role == "topic-subscriber"]
    first = [member.name for member in plan.members if member.role == PROXY] + getting
    for name in first:
        lives.begin(name)
    for name in getting:
        if not await lives.wait_attached(name, START_S):
            said = lives.running[name].said() or "it said nothing"
            raise veredus.Unavailable("unreachable", f"{name} is not subscribed after {START_S:g} s: {said}")
    for member in plan.members:
        if member.name not in first:
            lives.begin(member.name)


def _why_no_node(node: Life, error: veredus.Unavailable) -> str:
    if node.exit_code is None:
        return f"the node does not answer, its log is {node.log}: {error.message}"
    said = node.said() or "it said nothing, is there space?"
    return f"the node ended with {node.exit_code} before anything had happened, its log is {node.log}: {said}"


async def _come_to_an_end(lives: Lives, striker: Striker, outcome: Outcome, tell: Callable[[str], None]) -> None:
    striker.heal()
    tell("healed: what was published must be delivered now")
    outcome.surprises += await lives.end_zombies(FENCED_S)
    lives.layout.no_more.touch()
    left = await lives.wait_over(("source", "sink", "page-source", "topic-source"), END_S)
    outcome.stuck += [f"{name} still waits for the node: {lives.running[name].said()}" for name in left]
    async with veredus.connect_async(lives.node_address, timeout_s=START_S, refused_s=START_S) as node:
        outcome.stuck += await _wait_settled(lives, node)
        streams = {member.stream for member in lives.members.values() if member.role == "page-subscriber"}
        lives.layout.keep_heads({stream: (await node.streams.show(stream))["head"] for stream in streams})
    lives.layout.all_done.touch()
    left = await lives.wait_over(SUBSCRIBERS, END_S)
    outcome.stuck += [f"{name} does not leave: {lives.running[name].said()}" for name in left]


async def _wait_settled(lives: Lives, node: AsyncNode) -> list[str]:
    """Wait until every subscription has settled all of its stream; what is to be said of those that have not."""
    until = time.monotonic() + END_S
    while True:
        lives.look()
        rows = [await _shown(node, member) for member in lives.members.values() if member.role == "subscriber"]
        behind = [row for row in rows if row["lag"] or row["unsettled"]]
        if not behind:
            return []
        if time.monotonic() > until:
            return [_waits(row) for row in behind]
        await asyncio.sleep(POLL_S)


async def _shown(node: AsyncNode, member: Member) -> dict[str, Any]:
    try:
        return await node.subscriptions.show(member.stream, member.name, NAME)
    except veredus.Refused as refused:
        # It never came so far as to subscribe.
        return {"stream": member.stream, "subscriber": member.name, "lag": -1, "unsettled": 0, "why": refused.message}


def _waits(row: dict[str, Any]) -> str:
    return f"{row['subscriber']} on {row['stream']} has not settled everything: {row}"


def _gather(plan: Plan, layout: Layout, address: str) -> int:
    with veredus.connect(address, timeout_s=START_S, refused_s=START_S) as node:
        return gather(plan, layout, node)
