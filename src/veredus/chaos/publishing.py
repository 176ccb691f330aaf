"""Sources and sinks of a run: what they are about to do is written down before, and what the node said of it after."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import veredus
from veredus.kernel.errors import UNSTORED
from veredus.recording import Recording

from .content import body_of, key_of
from .either import TIMEOUT_S, either
from .layout import Layout
from .plan import Member

STAGE_COUNT, STAGE_ROW_COUNT = 2, 10
COMMIT_ROW_COUNT = STAGE_COUNT * STAGE_ROW_COUNT
"""A commit always has so many rows, so that the last commit's id says which row is next."""
TOKEN_SHARE = 0.1
UNWITNESSED_MAX = 2_000
"""So many publications may be on their way before a source waits for their receipts."""


async def run_source(layout: Layout, member: Member, node: Any, recording: Recording) -> None:
    """Publish until no more is wanted, then wait until the stream has everything."""
    resume = "token" if member.has_token else "number"
    publisher = await either(node.publisher(member.stream, source=member.name, resume=resume))
    layout.attached_as(member.name, os.getpid()).touch()
    witness = _Witness(member, publisher, recording)
    dice = Random()
    while not layout.no_more.exists():
        first = publisher.number + 1
        numbers = range(first, first + dice.randint(1, member.burst_max))
        keys = [key_of(member.name, number) for number in numbers]
        bodies = [body_of(member.name, number) for number in numbers]
        recording.offered(member.stream, member.name, first, keys, bodies)
        await either(publisher.publish_many(keys, bodies))
        if member.has_token:
            # Mostly without a token: a new life publishes again what came behind the last one.
            token = str(numbers[-1]).encode() if dice.random() < TOKEN_SHARE else b""
            await either(publisher.flush(token, wait=False))
        if numbers[-1] - witness.number > UNWITNESSED_MAX:
            await either(publisher.wait(numbers[-1], timeout_s=TIMEOUT_S))
        await witness.write_down()
        await asyncio.sleep(member.pause_ms / 1_000)
    last_token = str(publisher.number).encode() if member.has_token else b""
    await either(publisher.flush(last_token, timeout_s=TIMEOUT_S))
    await witness.write_down()
    await either(publisher.close())


class _Witness:
    """Writes down what a source's receipts say, in ranges whose sequences have no hole."""

    def __init__(self, member: Member, publisher: Any, recording: Recording) -> None:
        self.number = publisher.last_number
        self._member = member
        self._publisher = publisher
        self._recording = recording
        if self.number:
            # Attaching says it of all that former lives published.
            recording.acknowledged(member.stream, member.name, 1, self.number)

    async def write_down(self) -> None:
        first, first_sequence, following = self.number + 1, 0, 0
        for number in range(first, self._publisher.taken_number + 1):
            sequence = (await either(self._publisher.wait(number))).sequence or 0
            if number > first and sequence != following:
                self._say(first, number - 1, first_sequence)
                first = number
            if number == first:
                first_sequence = sequence
            following = sequence + 1 if sequence else 0
            self.number = number
        if first <= self.number:
            self._say(first, self.number, first_sequence)

    def _say(self, first: int, last: int, sequence: int) -> None:
        self._recording.acknowledged(self._member.stream, self._member.name, first, last, sequence)


async def run_sink(layout: Layout, member: Member, node: Any, recording: Recording) -> None:
    """Stage and commit until no more is wanted; every commit is brought to its end."""
    sink = node.sink(member.name)
    run = await either(sink.open_run())
    layout.attached_as(member.name, os.getpid()).touch()
    commit_id = run.commit_id
    if commit_id >= 0:
        recording.acknowledged(member.stream, member.name, 1, (commit_id + 1) * COMMIT_ROW_COUNT)
    while not layout.no_more.exists():
        commit_id += 1
        first = commit_id * COMMIT_ROW_COUNT + 1
        try:
            stages = [
                await _staged(member, run, recording, first + index * STAGE_ROW_COUNT) for index in range(STAGE_COUNT)
            ]
        except veredus.Refused as refused:
            # A newer run drops what older ones left open: joining says whether that is why.
            if refused.code == "stage-closed":
                await either(sink.join_run(run.epoch))
            raise
        committed = await _committed(run, commit_id, stages)
        ((_, sequence, count),) = committed.streams
        recording.acknowledged(member.stream, member.name, first, first + count - 1, sequence)
        await asyncio.sleep(member.pause_ms / 1_000)
    await either(run.close())


async def _staged(member: Member, run: Any, recording: Recording, first: int) -> Any:
    numbers = range(first, first + STAGE_ROW_COUNT)
    keys = [key_of(member.name, number) for number in numbers]
    bodies = [body_of(member.name, number) for number in numbers]
    recording.offered(member.stream, member.name, first, keys, bodies)
    stage = await either(run.stage(member.stream))
    await either(stage.publish_many(keys, bodies))
    await either(stage.close(TIMEOUT_S))
    return stage


async def _committed(run: Any, commit_id: int, stages: list[Any]) -> Any:
    while True:
        try:
            return await either(run.commit(commit_id, stages))
        except veredus.Unavailable as error:
            # It may have been done, or could not be stored: asked again, it is done once.
            if error.code not in UNSTORED | {"in-doubt"}:
                raise
