"""`veredus verify`: publish to a node, subscribe, and prove that nothing is lost, doubled or out of order.

It may run while the node is killed and started again: client and node see to it that nothing is missing at the end.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from veredus.cli.exits import Ended, Exit
from veredus.cli.interrupts import Interrupts
from veredus.cli.link import Target, node_options, seconds_of
from veredus.cli.terminal import note, output_option, progress, write_one

if TYPE_CHECKING:
    from veredus.client.blocking import Node

BODY_SIZE_MIN = 32


@dataclass(slots=True)
class Witness:
    """What was received of one source: publications 1, 2, 3 … each once and in order, or what was wrong with them."""

    next_number: int = 1
    missing: set[int] = field(default_factory=set)
    received_count: int = 0
    doubled_count: int = 0
    reordered_count: int = 0
    redelivered_count: int = 0

    def take(self, number: int, is_redelivered: bool = False) -> None:
        """One publication came. It may come again only if it is marked as redelivered."""
        self.received_count += 1
        if number == self.next_number:
            self.next_number += 1
        elif number > self.next_number:
            self.missing.update(range(self.next_number, number))
            self.next_number = number + 1
        elif number in self.missing:
            self.missing.remove(number)
            self.reordered_count += 1
        elif is_redelivered:
            self.redelivered_count += 1
        else:
            self.doubled_count += 1

    def lost_count(self, published_count: int) -> int:
        """How many of the first `published_count` never came."""
        return len(self.missing) + max(0, published_count - (self.next_number - 1))


@dataclass(slots=True)
class _Published:
    """What the publishing thread has done so far; it alone writes."""

    count: int = 0
    acknowledged_count: int = 0
    is_over: bool = False
    must_stop: bool = False
    error: Exception | None = None


@click.command()
@click.option(
    "--sources",
    "source_count",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="The number of sources that publish at the same time.",
)
@click.option(
    "--count", type=click.IntRange(1), default=100_000, show_default=True, help="Publications of all sources together."
)
@click.option(
    "--size", type=click.IntRange(BODY_SIZE_MIN), default=100, show_default=True, help="The size of a body in bytes."
)
@click.option("--rate", type=click.IntRange(1), help="Publications a second. The default is as fast as possible.")
@click.option(
    "--patience",
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="How long to wait for the next publication.",
)
@click.option("--keep", is_flag=True, help="Keep the test stream.")
@output_option
@node_options
def verify(
    source_count: int,
    count: int,
    size: int,
    rate: int | None,
    patience: str,
    keep: bool,
    target: Target,
    output: str,
) -> None:
    """Verify that a node causes no loss, duplicates or reordering: publish to a test stream and receive it back.

    The exit code is 9 if a guarantee was violated, and 8 if a publication was not acknowledged.
    """
    stream = f"veredus.verify.{secrets.token_hex(4)}"
    witnesses = [Witness() for _ in range(source_count)]
    published = _Published()
    began = time.monotonic()
    patience_s = seconds_of(patience, "--patience")
    with Interrupts() as interrupts, ExitStack() as opened:
        with interrupts.waiting():
            node = opened.enter_context(target.connect())
        node.streams.create(stream)
        try:
            publishing = threading.Thread(
                target=_publish, args=(node, stream, published, source_count, count, size, rate), daemon=True
            )
            publishing.start()
            _receive(node, stream, published, witnesses, count, patience_s, interrupts)
            was_interrupted, published.must_stop = published.must_stop, True
            publishing.join(patience_s)
        finally:
            if not keep:
                node.streams.delete(stream)
    _judge(published, witnesses, time.monotonic() - began, output)
    if was_interrupted:
        raise Ended(Exit.INTERRUPTED)


def _publish(
    node: Node, stream: str, published: _Published, source_count: int, count: int, size: int, rate: int | None
) -> None:
    padding = b"." * size
    began = time.monotonic()
    publishers = [node.publisher(stream, source=f"verify-{index}") for index in range(source_count)]
    try:
        for index in range(count):
            if published.must_stop:
                break
            number, source = divmod(index, source_count)
            body = b"%d:%d:" % (source, number + 1)
            publishers[source].publish(f"source.{source}", body + padding[len(body) :])
            published.count = index + 1
            if rate is not None and (ahead_s := published.count / rate - (time.monotonic() - began)) > 0.005:
                time.sleep(ahead_s)
        for publisher in publishers:
            publisher.flush()
    except Exception as error:  # noqa: BLE001 - told in the main thread
        published.error = error
    finally:
        published.acknowledged_count = sum(publisher.taken_number for publisher in publishers)
        published.is_over = True
        for publisher in publishers:
            publisher.close()


def _receive(
    node: Node,
    stream: str,
    published: _Published,
    witnesses: list[Witness],
    count: int,
    patience_s: float,
    interrupts: Interrupts,
) -> None:
    received_count, last = 0, time.monotonic()
    with node.subscribe(stream, subscriber="verify", name="main") as subscription, progress() as bar:
        task = bar.add_task("verifying", total=count, figures="")
        while received_count < (published.count if published.is_over else count):
            if interrupts.is_asked and not published.must_stop:
                note("interrupted: receiving and checking what was published so far")
                published.must_stop = True
            batch = subscription.next_batch(timeout_s=0.5)
            if batch is None:
                if time.monotonic() - last > patience_s:
                    note(f"no publication arrived for {patience_s:g} s")
                    return
                continue
            last = time.monotonic()
            for publication in batch:
                source, number, _ = publication.body.split(b":", 2)
                witnesses[int(source)].take(int(number), publication.is_redelivered)
            batch.settle()
            received_count = sum(w.received_count - w.doubled_count - w.redelivered_count for w in witnesses)
            bar.update(task, completed=received_count, figures=f"{received_count:,} of {count:,}")


def _judge(published: _Published, witnesses: list[Witness], seconds: float, output: str) -> None:
    sources = len(witnesses)
    per_source = [(published.count + sources - 1 - index) // sources for index in range(sources)]
    lost = sum(witness.lost_count(of) for witness, of in zip(witnesses, per_source, strict=True))
    doubled = sum(witness.doubled_count for witness in witnesses)
    reordered = sum(witness.reordered_count for witness in witnesses)
    in_doubt = published.count - published.acknowledged_count
    row = {
        "published": published.count,
        "acknowledged": published.acknowledged_count,
        "received": sum(witness.received_count for witness in witnesses),
        "lost": lost if in_doubt == 0 else max(0, lost - in_doubt),
        "doubled": doubled,
        "out_of_order": reordered,
        "redelivered": sum(witness.redelivered_count for witness in witnesses),
        "seconds": round(seconds, 2),
    }
    write_one(row, output)
    if published.error is not None:
        note(f"veredus: publishing ended: {published.error}")
    if row["lost"] or doubled or reordered:
        raise Ended(Exit.VIOLATED)
    if in_doubt:
        raise Ended(Exit.IN_DOUBT)
    if published.error is not None:
        raise published.error
