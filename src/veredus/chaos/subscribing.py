"""Subscribers of a run: what comes is written down before it is settled, and a settlement once it is confirmed."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import veredus
from veredus.client.ranges import joined
from veredus.recording import Recording

from .content import identity_in
from .either import TIMEOUT_S, either
from .layout import Layout
from .plan import Member

NAME = "main"
WINDOW_SIZE = 256 << 10
"""Small, so that a slow one is left behind and reads from the journal."""
WITHHELD = 0.2
"""Of what one has that settles individually, so much waits for a later turn."""


async def run_subscriber(layout: Layout, member: Member, node: Any, recording: Recording) -> None:
    """Take and settle until everything was; gaps are written down."""

    def take_gap(gap: veredus.Gap) -> None:
        recording.gap(member.stream, member.name, gap.first_sequence, gap.next_sequence - 1, gap.code)

    subscription = await either(
        node.subscribe(
            member.stream,
            subscriber=member.name,
            name=NAME,
            keys=f"prefix:{member.covers}" if member.covers else None,
            mode="individual" if member.is_individual else "in-order",
            window_size=WINDOW_SIZE,
            on_gap=take_gap,
            start=veredus.beginning(),
        )
    )
    layout.attached_as(member.name, os.getpid()).touch()
    settling: _InOrder | _Individual = (_Individual if member.is_individual else _InOrder)(
        member, subscription, recording
    )
    while not layout.all_done.exists():
        batch = await either(subscription.next_batch(timeout_s=0.2))
        if batch is not None and len(batch):
            write_down(recording, member.stream, member.name, batch)
            await settling.take(batch)
        else:
            await settling.finish()
        if not layout.no_more.exists():
            await asyncio.sleep(member.pause_ms / 1_000)
    await settling.finish()
    await either(subscription.close(TIMEOUT_S))


def write_down(recording: Recording, stream: str, subscription: str, batch: veredus.Batch) -> None:
    """Write down what was pushed. Rows of a sink say whose they are; all others are who the node says they are."""
    publications = list(batch)
    identities = [(p.source, p.number) if p.source else identity_in(p.body) for p in publications]
    recording.pushed(
        stream,
        subscription,
        [publication.sequence for publication in publications],
        [source for source, _ in identities],
        [number for _, number in identities],
        keys=[publication.key for publication in publications],
        bodies=[publication.body for publication in publications],
        redelivered=[publication.is_redelivered for publication in publications],
    )


class _InOrder:
    """Settles batch by batch, and waits for that now and then."""

    def __init__(self, member: Member, subscription: Any, recording: Recording) -> None:
        self._member = member
        self._subscription = subscription
        self._recording = recording
        self._confirmed = self._settled = subscription.position - 1
        self._dice = Random()

    async def take(self, batch: veredus.Batch) -> None:
        """Settle everything up to this batch's end."""
        batch.settle()
        self._settled = batch.last_sequence
        if self._dice.random() < 0.2:
            await self.finish()

    async def finish(self) -> None:
        """Wait until all is confirmed."""
        if self._settled > self._confirmed:
            first, last = self._confirmed + 1, self._settled
            await either(self._subscription.wait_settled(timeout_s=TIMEOUT_S))
            self._recording.settled(self._member.stream, self._member.name, first, last)
            self._confirmed = last


class _Individual:
    """Settles one by one, in no order, and keeps some for later."""

    def __init__(self, member: Member, subscription: Any, recording: Recording) -> None:
        self._member = member
        self._subscription = subscription
        self._recording = recording
        self._held: list[int] = []
        self._dice = Random()

    async def take(self, batch: veredus.Batch) -> None:
        """Settle most of what is there."""
        self._held += batch.sequences.tolist()
        self._dice.shuffle(self._held)
        await self._settle(self._held[int(len(self._held) * WITHHELD) :])

    async def finish(self) -> None:
        """Settle all that was kept."""
        await self._settle(list(self._held))

    async def _settle(self, sequences: list[int]) -> None:
        for sequence in sequences:
            self._subscription.settle(sequence)
        if sequences:
            await either(self._subscription.wait_settled(timeout_s=TIMEOUT_S))
            for first, last in joined([(sequence, sequence) for sequence in sequences]):
                self._recording.settled(self._member.stream, self._member.name, first, last)
        self._held = self._held[: len(self._held) - len(sequences)]
