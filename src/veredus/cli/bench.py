"""`veredus bench`: what a node does here and now, through the client: throughput end to end, then single latencies."""

from __future__ import annotations

import multiprocessing
import secrets
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe

import click

from veredus.cli.link import Target, node_options
from veredus.cli.terminal import FiniteRange, note, output_option, progress, write_one
from veredus.client.blocking import Node

BODY_SIZE_MIN = 1
POLL_S = 0.2
PATIENCE_S = 30


@click.command()
@click.option("--seconds", type=FiniteRange(0.1, 600), default=5.0, show_default=True, help="Seconds to publish.")
@click.option(
    "--size", type=click.IntRange(BODY_SIZE_MIN), default=100, show_default=True, help="The size of a body in bytes."
)
@click.option(
    "--latencies",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="The number of round trips to measure.",
)
@click.option("--rate", type=click.IntRange(1), default=1_000, show_default=True, help="Round trips a second.")
@output_option
@node_options
def bench(seconds: float, size: int, latencies: int, rate: int, target: Target, output: str) -> None:
    """Measure a node: throughput from a publishing to a receiving process, then latency, one publication at a time.

    The publisher waits for its receipts, and the subscriber settles what it receives. Publications are as durable as
    the settings of the node say.
    """
    stream = f"veredus.bench.{secrets.token_hex(4)}"
    with target.connect() as node:
        with _made(node, stream):
            throughput = _throughput(target, stream, seconds, size)
        with _made(node, f"{stream}.latency"):
            waits_ms = _latencies(target, f"{stream}.latency", latencies, rate, size)
    cuts = statistics.quantiles(waits_ms, n=100, method="inclusive") if len(waits_ms) > 1 else waits_ms * 99
    write_one(
        throughput
        | {
            "latency_ms_p50": round(cuts[49], 3),
            "latency_ms_p99": round(cuts[98], 3),
            "latency_ms_max": round(max(waits_ms), 3),
        },
        output,
    )


@contextmanager
def _made(node: Node, stream: str) -> Iterator[None]:
    """A stream that is gone afterwards, also where the command was interrupted."""
    node.streams.create(stream)
    try:
        yield
    finally:
        node.streams.delete(stream)


def _throughput(target: Target, stream: str, seconds: float, size: int) -> dict[str, object]:
    body = b"." * size
    here, there = multiprocessing.Pipe()
    receiving = multiprocessing.get_context("spawn").Process(target=_receive, args=(target, stream, there), daemon=True)
    receiving.start()
    try:
        _expect(here, "receiving did not start")
        with target.connect() as node, node.publisher(stream, source="bench") as publisher, progress() as bar:
            task = bar.add_task("throughput", total=seconds, figures="")
            publish, began, number = publisher.publish, time.monotonic(), 0
            while (elapsed := time.monotonic() - began) < seconds:
                for _ in range(10_000):
                    number = publish("bench", body)
                bar.update(task, completed=elapsed, figures=f"{number / max(elapsed, 1e-9):,.0f}/s")
            publisher.flush()
            published_s = time.monotonic() - began
            here.send(number)
        received_at = _expect(here, "not everything was received")
    finally:
        receiving.terminate()
        receiving.join()
    received_s = received_at - began
    return {
        "publications": number,
        "body_size": size,
        "acknowledged_per_second": round(number / published_s),
        "received_per_second": round(number / received_s),
        "received_mb_per_second": round(number * size / received_s / 1e6, 1),
    }


def _expect(pipe: Pipe, otherwise: str) -> float:
    if not pipe.poll(PATIENCE_S):
        raise click.ClickException(f"{otherwise} in {PATIENCE_S} s")
    return float(pipe.recv())


def _receive(target: Target, stream: str, pipe: Pipe) -> None:
    """In a process of its own: count what comes until the number that the pipe says, then say when it was there."""
    # A terminal interrupts this process too, but whoever began it ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    count, wanted = 0, 0
    with target.connect() as node, node.subscribe(stream, subscriber="bench", name="main") as subscription:
        pipe.send(0.0)
        while not wanted or count < wanted:
            batch = subscription.next_batch(timeout_s=POLL_S)
            if batch is not None:
                count += sum(1 for _ in batch)
                batch.settle()
            if not wanted and pipe.poll():
                wanted = pipe.recv()
        pipe.send(time.monotonic())


def _latencies(target: Target, stream: str, count: int, rate: int, size: int) -> list[float]:
    body = b"." * size
    waits_ms = []
    with (
        target.connect() as node,
        node.publisher(stream, source="bench") as publisher,
        node.subscribe(stream) as subscription,
    ):
        began = time.monotonic()
        for index in range(count):
            due = began + index / rate
            if (ahead_s := due - time.monotonic()) > 0:
                time.sleep(ahead_s)
            published = time.perf_counter_ns()
            publisher.publish("bench", body)
            if subscription.next_batch(timeout_s=PATIENCE_S) is None:
                note("a publication did not arrive")
                break
            waits_ms.append((time.perf_counter_ns() - published) / 1e6)
    return waits_ms
