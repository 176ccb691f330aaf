"""Writes that are killed before their commit, as plain writes of Spark are: what they leave is bounded, and goes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour, resident_size, resident_size_peak
from tests.interop import native_by_hand as hand
from tests.system.serving import ServedNode
from veredus.client.blocking import Node

OPEN_RUN, RUN_OPENED, OPEN_STAGE, STAGE_OPENED = 0x30, 0x31, 0x32, 0x33
PER_LINK = 20
"""Writes that one process has begun when it is killed."""


def begin_writes(port: int, count: int) -> None:
    """Begin plain writes as Spark's tasks do: a nameless sink each, rows staged, nothing committed; then be gone."""
    writer = hand.Client("127.0.0.1", port)
    runs, stages = range(1, 2 * count, 2), range(2, 2 * count + 1, 2)
    sinks = [f"spark-batch/daily/{uuid4()}" for _ in runs]
    for run, sink in zip(runs, sinks, strict=True):
        writer.ask(run, OPEN_RUN, sink=sink, incarnation=uuid4().bytes, ephemeral=True)
    epochs = [msgspec.msgpack.decode(writer.hear(run, RUN_OPENED))["epoch"] for run in runs]
    for stage, sink, epoch in zip(stages, sinks, epochs, strict=True):
        writer.ask(stage, OPEN_STAGE, sink=sink, run_epoch=epoch, stream="daily", key=uuid4().bytes)
    granted = [msgspec.msgpack.decode(writer.hear(stage, STAGE_OPENED)) for stage in stages]
    for stage, grant in zip(stages, granted, strict=True):
        ids = {"stream_id": grant["stream_id"], "source_id": 0, "epoch": 0}
        writer.say(stage, hand.OFFER, hand.record(ids, 1, [b"k"] * 3, [b"unseen"] * 3))
    for stage in stages:
        writer.hear(stage, hand.RECEIPT)
    writer.close()


def open_there(node: Node) -> tuple[int, int]:
    """How many stages are open, and how many sinks are known."""
    return len(node.sinks.stages()), len(node.sinks.list())


@pytest.mark.slow
def test_killed_plain_writes_leave_a_bounded_number_of_stages_and_in_the_end_none(
    tmp_path: Path, figures: Figures, is_full: bool
) -> None:
    count, most, lease_s = (10_000, 2_000, 15) if is_full else (200, 40, 2)
    limits = {"STAGE_LEASE": f"{lease_s}s"}
    limits |= dict.fromkeys(("STAGES_PER_PRINCIPAL_MAX", "SINKS_PER_PRINCIPAL_MAX"), str(most))
    served = ServedNode(tmp_path / "journal", {f"LIMITS_{name}": value for name, value in limits.items()}, life_s=300)
    stages, sinks = 0, 0
    with ExitStack() as ending:
        ending.callback(served.kill)
        node = ending.enter_context(served.start())
        felt = ending.enter_context(neighbour(served.address))
        assert served.process is not None
        before = resident_size(served.process.pid)
        for number in range(0, count, PER_LINK):
            begin_writes(served.port, PER_LINK)
            if number % (count // 10) == 0:
                stages, sinks = map(max, open_there(node), (stages, sinks))
        left_s = time.monotonic()
        with node.sink("named").open_run() as run, run.stage("daily") as stage:
            stage.publish("k", "seen")
            stage.flush()
            assert run.commit(1, [stage]).streams == (("daily", 1, 1),)
        while open_there(node) != (0, 1):
            assert time.monotonic() < left_s + 60, open_there(node)
            time.sleep(0.05)
        lasted_s = time.monotonic() - left_s
        growth = (resident_size_peak(served.process.pid) - before) / 2**20
    attack = figures.attack("plain writes killed before their commit", f"{count:,}, with a lease of {lease_s} s")
    attack.record("stages open at once", stages, bound=f"{most:,}, stages_per_principal_max")
    attack.record("sinks known at once", sinks, bound=f"{most:,}, sinks_per_principal_max")
    attack.record("until none was left", lasted_s, "s")
    attack.record("growth", growth, "MiB")
    attack.record_felt(felt)
    assert 0 < stages <= most
    assert 0 < sinks <= most
