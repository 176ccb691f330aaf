"""Power that fails: what was acknowledged, or given to anybody, is there afterwards."""

from __future__ import annotations

import pytest

import veredus
from tests.spec.known_failures.scenes import Scene, numbered
from veredus.journal.exchange import SyncMode
from veredus.sim.world import MILLISECOND


def test_acknowledged_publications_survive_a_power_cut_of_every_copy_at_once() -> None:
    """Acknowledged messages were gone after the power of several nodes failed within a short time, up to whole streams.

    Seen in: NATS JetStream 2.12.1, which by default syncs every two minutes and acknowledges before: Jepsen, "NATS
    2.12.1", 2025, https://jepsen.io/analyses/nats-2.12.1; nats-io/nats-server#7564. In the first Kafka with replicas, a
    leader left alone acknowledged what went with it: "Jepsen: Kafka", 2013, https://aphyr.com/posts/293-jepsen-kafka.
    Here: a publisher is never left alone: the power of the only copy there is fails ten times, whatever is on its way.
    """
    for seed in range(8):
        scene = Scene(seed)
        source = scene.source(total=400)
        for cut in range(10):
            scene.wait(lambda source=source, least=cut * 35: source.acknowledged > least)
            scene.pass_ns(seed * cut * MILLISECOND // 7)
            acknowledged = source.acknowledged
            scene.cut_power()
            assert scene.head >= acknowledged
        scene.wait(lambda source=source: source.is_done)
        assert scene.read() == numbered("till", 400)


def test_publications_synced_by_nobody_are_named_in_the_receipt_and_a_power_cut_takes_an_end_and_no_hole() -> None:
    """An acknowledgement sounded durable and was not: the default settings of a store lose what it said it had.

    Seen in: NATS JetStream 2.12.1: Jepsen, "NATS 2.12.1", 2025, https://jepsen.io/analyses/nats-2.12.1; Redis, whose
    append-only file is synced once a second by default: redis/redis#8342 asks how to know that a write is on disk.
    Here: `sync = "none"` says "none" in each receipt; a power cut takes what came last, the rest is whole, and the
    stream is in a new term, so that whoever was ahead of it is told.
    """
    with veredus.embedded(journal={"sync": "none"}) as node, node.publisher("orders", source="till") as publisher:
        assert publisher.wait(publisher.publish("k", b"1")).durability.name == "NONE"
    losses = []
    for seed in range(10):
        scene = Scene(seed, SyncMode.NONE, checkpoint_interval_size=1 << 20)
        source = scene.source(total=200)
        scene.wait(lambda source=source: source.acknowledged == 200)
        scene.cut_power()
        losses.append(200 - scene.head)
        if scene.head:
            assert scene.read() == numbered("till", scene.head)
            assert scene.machine.engine is not None
            assert scene.machine.engine.floor.tables.streams["orders"].term > 1
    assert max(losses) > 0, "no power cut took anything: this test would not see a loss that is not said"
    assert min(losses) < 200, "every power cut took everything: this test would not see a hole"


def test_nothing_is_given_to_a_subscriber_that_a_power_cut_can_still_take() -> None:
    """A consumer was given a message that was not on disk yet; the broker went down, and the message had never been.

    Seen in: RabbitMQ, rabbitmq/rabbitmq-server#2664, which asks about this passage of its documentation of confirms.
    Here: power fails just between write and sync, or the process does, and the power once the next one is up, again
    and again, under a subscriber that is fed from memory. All that it was pushed, and all that was to be read, stays.
    """
    for seed in range(8):
        scene = Scene(seed)
        source, _ = scene.source(total=600), scene.subscriber()
        scene.wait(lambda scene=scene: bool(scene.oracles.subscriptions))
        (subscription,) = scene.oracles.subscriptions.values()
        for cut in range(6):
            scene.wait(lambda source=source, least=cut * 40: source.acknowledged > least)
            scene.kill_before_the_next_sync(with_power=cut % 2 == 0)
            if cut % 2:
                readable = scene.head
                scene.cut_power()
                assert scene.head >= readable
            assert max(subscription.pushed, default=0) <= scene.head
        scene.wait(lambda source=source: source.is_done)
        scene.wait(lambda subscription=subscription: len(subscription.pushed) == 600)
        assert scene.read() == numbered("till", 600)


@pytest.mark.parametrize("seed", range(4))
def test_a_sync_that_failed_is_never_asked_again_for_pages_that_the_kernel_has_given_up(seed: int) -> None:
    """A sync failed, was tried again and succeeded; the kernel had dropped the pages, and what was "synced" was gone.

    Seen in: PostgreSQL before 11.2 ("fsyncgate", https://mydbanotebook.org/posts/the-fsync-issue-and-postgres); LMDB,
    LevelDB, SQLite and Redis: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020,
    https://www.usenix.org/conference/atc20/presentation/rebello; redis/redis#8419.
    Here: syncs fail and the dirty pages are gone with them. The node believes the failure and dies of it, nobody was
    told that what it carried is taken, and the next process has everything that was acknowledged.
    """
    scene = Scene(seed)
    source = scene.source(total=600)
    for least in (20, 60, 120):
        scene.wait(lambda least=least: source.acknowledged > least)
        acknowledged = source.acknowledged
        scene.disk.temper.write_fault = 1.0
        scene.wait(lambda: not scene.machine.is_running)
        scene.disk.cut_power()
        scene.disk.temper.write_fault = 0.0
        scene.start()
        assert scene.head >= acknowledged
    scene.wait(lambda: source.is_done)
    assert scene.world.counts["fault.sync-failed"] + scene.world.counts["fault.write-failed"] == 3
    assert scene.read() == numbered("till", 600)


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_is_killed_and_started_while_its_disk_is_full_has_every_stream(seed: int) -> None:
    """The disk became full, the server was restarted for it, and came back without the stream, or not at all.

    Seen in: NATS JetStream, nats-io/nats-server#5382 and #7654; Graylog's journal, Graylog2/graylog2-server#2613.
    Here: the disk is full while a publisher works; the node is killed and started on the full disk, twice, and serves
    what was acknowledged; with space, the publisher goes on where it stood.
    """
    scene = Scene(seed)
    source = scene.source(total=3_000)
    scene.wait(lambda: source.acknowledged > 100)
    scene.disk.is_full = True
    acknowledged = -1
    while source.acknowledged > acknowledged:
        acknowledged = source.acknowledged
        scene.pass_ns(20_000 * MILLISECOND)
    assert 100 < acknowledged < 3_000, "the disk did not become full in time"
    for _ in range(2):
        scene.machine.kill("by somebody who hopes that it helps")
        scene.start()
        assert scene.read()[:acknowledged] == numbered("till", acknowledged)
    scene.disk.is_full = False
    scene.wait(lambda: source.is_done)
    assert scene.read() == numbered("till", 3_000)
