"""What is sent twice stands in the stream once: after time-outs, restarts, torn writes, and any time."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.journal.rig import MemoryDisk
from tests.processes import Child, ended
from tests.spec.known_failures.scenes import Scene, numbered
from tests.streams.rig import Rig
from veredus.journal.exchange import WriteGroup
from veredus.streams import exchange as x

DAY_NS = 86_400 * 1_000_000_000
READ_PROCESS_WRITE = """
import sys, veredus
address, lines = sys.argv[1], int(sys.argv[2])
with veredus.connect(address) as node:
    publisher = node.publisher("orders", source="till", resume="token")
    begin = int(publisher.resume_token or b"0")
    for line in range(begin, lines):
        publisher.publish("k", b"line %d" % line)
        if line % 7 == 0:
            publisher.flush(b"%d" % (line + 1))
            print(line, flush=True)
    publisher.close()
"""

ZOMBIE = """
import itertools, sys, veredus
with veredus.connect(sys.argv[1]) as node:
    publisher = node.publisher("orders", source="till")
    try:
        for number in itertools.count(1):
            publisher.wait(publisher.publish("k", b"old"))
            print(number, flush=True)
    except veredus.Fenced:
        sys.exit(77)
"""


def test_a_producer_that_times_out_and_tries_again_at_a_node_that_was_killed_writes_once() -> None:
    """A record was written, its acknowledgement was lost with the broker, and the producer's retry was written too.

    Seen in: Redpanda up to 21.10.2 with idempotence on, after `kill -9` of a leader: redpanda-data/redpanda#3039 and
    Jepsen, "Redpanda 21.10.1", 2022, https://jepsen.io/analyses/redpanda-21.10.1; librdkafka with Kafka:
    confluentinc/librdkafka#4953.
    Here: the node is killed each time it is about to say that something is taken. Its publisher has heard nothing,
    asks the next process how far it has come, and goes on there.
    """
    unheard_count = 0
    for seed in range(8):
        scene = Scene(seed)
        source = scene.source(total=400)
        for count in range(8):
            scene.wait(lambda source=source, least=count * 30: source.acknowledged > least)
            scene.machine.startled_by = x.ConfirmTaken
            scene.wait(lambda scene=scene: not scene.machine.is_running)
            scene.start()
            unheard_count += scene.head > source.acknowledged
        scene.wait(lambda source=source: source.is_done)
        assert scene.read() == numbered("till", 400)
        assert scene.world.counts["fault.kill"] == 8
    assert unheard_count > 30, "hardly ever was something written of which the publisher had not heard"


@pytest.mark.slow
def test_a_producer_that_is_killed_and_starts_anew_under_its_name_writes_each_line_once() -> None:
    """A producer that was started again got a new producer id, and what it sent again was new to the broker.

    Seen in: Kafka, whose idempotent producers are known by an id and numbers that one life of theirs is given (KIP-98,
    2016, https://kafka-options-explorer.conduktor.io/kip/98); described for Azure Service Bus, which needs ids of the
    application's own for it: https://learn.microsoft.com/en-in/azure/service-bus-messaging/duplicate-detection.
    Here: a process that copies lines and remembers nothing is killed twice. It begins again where its resume
    token says, with whatever it had sent behind that, and each line stands there once.
    """
    with veredus.embedded(listen={"tcp": "127.0.0.1:0"}) as node:
        address = f"veredus://{node.served.addresses['tcp']}"
        command = [sys.executable, "-c", READ_PROCESS_WRITE, address]
        for lines in (200, 400):
            with Child([*command, str(10 * lines)], stdout=-1) as process:
                assert process.stdout is not None
                while int(process.stdout.readline()) < lines:
                    pass
        assert ended([*command, "4000"]).returncode == 0
        with node.subscribe("orders", until=4_001) as subscription:
            assert [publication.body for publication in subscription] == [b"line %d" % n for n in range(4_000)]


@pytest.mark.slow
def test_a_producer_that_slept_while_it_was_replaced_writes_nothing_when_it_wakes() -> None:
    """A producer was paused, thought to be dead, and replaced; it woke up and wrote on, between its successor's lines.

    Seen in: Redpanda, transactions of an older epoch beside the newer one: redpanda-data/redpanda#3247; in Kafka, the
    zombies that its producer epochs are for: KIP-890, 2022,
    https://cwiki.apache.org/confluence/display/KAFKA/KIP-890%3A+Transactions+Server-Side+Defense.
    Here: a publisher gets SIGSTOP in the middle of its work, another process takes its name over, and it gets SIGCONT.
    It learns that it is fenced, and nothing of it stands behind the first publication of the other one.
    """
    with veredus.embedded(listen={"tcp": "127.0.0.1:0"}) as node:
        address = f"veredus://{node.served.addresses['tcp']}"
        with Child([sys.executable, "-c", ZOMBIE, address], stdout=-1) as zombie:
            assert zombie.stdout is not None
            while int(zombie.stdout.readline()) < 10:
                pass
            zombie.send_signal(signal.SIGSTOP)
            with node.publisher("orders", source="till") as successor:
                first = successor.wait(successor.publish("k", b"new"), timeout_s=20).sequence
                zombie.send_signal(signal.SIGCONT)
                assert zombie.wait(20) == 77
                successor.wait(successor.publish("k", b"new"), timeout_s=20)
        assert first is not None
        with node.subscribe("orders", until=first + 2) as subscription:
            bodies = [publication.body for publication in subscription]
        assert bodies == [b"old"] * (first - 1) + [b"new", b"new"]


def test_a_publication_sent_again_a_month_later_is_a_duplicate_though_its_first_copy_is_trimmed() -> None:
    """A message was sent again a little later than the window for duplicates is long, and was taken for a new one.

    Seen in: NATS JetStream, two minutes by default: nats-io/nats-server#7302; Amazon SQS FIFO queues, five minutes:
    https://docs.amazonaws.cn/en_us/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html
    Azure Service Bus, a window too: https://learn.microsoft.com/en-in/azure/service-bus-messaging/duplicate-detection.
    Here: a month goes by, thousands of others publish, what was sent is trimmed from the stream, a checkpoint is all
    that is left of it, and the node starts anew. Each number is still known.
    """
    rig = Rig()
    grant = rig.attach(1, source="till")
    for first in range(1, 101, 10):
        rig.publish(grant, first, 10, who="till")
    for other in range(2_000):
        name = f"other-{other}"
        rig.publish(rig.attach(2, source=name, who=other + 2), 1, who=name)
    rig.time_ns += 30 * DAY_NS
    rig.do(x.AdminRequested(9, 1, "local", "stream.trim", {"name": "s", "floor": 2_000}))
    rig.checkpoint()
    rig.restart()
    head = rig.floor.tables.streams["s"].head_durable
    again = rig.attach(1, source="till", epoch=grant.epoch)
    assert again.last_number == 100
    for first in range(1, 101, 10):
        taken = rig.publish(again, first, 10, who="till")
        assert (taken.is_duplicate, taken.last_number) == (True, first + 9)
    assert rig.floor.tables.streams["s"].head_durable == head
    assert not rig.publish(again, 101, who="till").is_duplicate


def test_a_batch_whose_write_was_torn_is_there_whole_or_not_and_sent_again_in_other_pieces_stands_there_once() -> None:
    """A batch in which some messages were duplicates and some were new was stored whole, or thrown away whole, new ones
    too.

    Seen in: Pulsar, apache/pulsar#6273 (thrown away) and #5476 (stored); a batch of which a part had been proposed when
    the leader changed, in NATS JetStream 2.12: nats-io/nats-server#7321.
    Here: the write of a batch of 40 is torn at forty places, or done and not answered. Whatever the next process knows
    of it, it is sent again in pieces of 16, which match neither that batch nor the one before.
    """
    outcomes = set()
    for part in range(41):
        rig = Rig(disk=MemoryDisk())
        grant = rig.attach(1)
        rig.publish(grant, 1, 8)
        rig.offer(grant, 9, 40)
        rig.wake()
        group = next(order for order in rig.pending if isinstance(order, WriteGroup))
        data = b"".join(group.buffers)
        torn = data[: len(data) * part // 40]
        rig.disk.carry_out(WriteGroup(group.token, group.segment, group.offset, [torn], group.is_synced))
        rig.restart()
        again = rig.attach(1, epoch=grant.epoch)
        outcomes.add(again.last_number)
        assert again.last_number in (8, 48)
        first = 1
        while first <= 48:
            count = min(16, 49 - first)
            said = rig.publish(again, first, count)
            if isinstance(said, x.RefuseBatch):
                assert said.code == "straddles"
                count = said.last_number - first + 1
                assert rig.publish(again, first, count).is_duplicate
            first += count
        rig.subscribe(5)
        assert [identity.number for _, identity in rig.rows(5)] == list(range(1, 49))
    assert outcomes == {8, 48}


@pytest.mark.parametrize("down_max", [150, 400, 900])
def test_a_delivery_broken_off_in_the_middle_is_finished_after_the_restart_and_given_once(
    tmp_path: Path, down_max: int
) -> None:
    """The link broke between the two steps of an exactly-once exchange; after it the first step was taken anew, and the
    message delivered twice.

    Seen in: MQTT QoS 2: eclipse-mosquitto/mosquitto#1751 and #1450, fusesource/mqtt-client#120 (publisher) and #121
    (subscriber, over a restart of the server), emqx/CocoaMQTT#569.
    Here: links to publisher and subscriber break after so many bytes, again and again, and in between the node is
    stopped and started: receipts, pushes and settlements are broken off at any place. Each is given once.
    """
    count = 400
    cuts = [(1 << 60, down_max + 37 * cut) for cut in range(8)]
    with (
        veredus.embedded(tmp_path / "journal") as node,
        Cutter(node.served.address, cuts) as relay,
        veredus.connect(relay.address) as far,
    ):
        bodies = []
        with (
            far.publisher("orders", source="till", batch_size=256) as publisher,
            far.subscribe("orders", subscriber="desk", until=count + 1, window_size=2_000) as subscription,
        ):
            for number in range(1, count + 1):
                publisher.publish("k", b"%d" % number)
            for publication in subscription:
                bodies.append(int(publication.body))
                subscription.settle(publication)
                if publication.sequence in (100, 250):
                    node.served.stop()
                    node.served.start()
            subscription.wait_settled(timeout_s=20)
        assert relay.connection_count > 4
        assert bodies == list(range(1, count + 1))
        assert node.subscriptions.show("orders", "desk")["floor"] == count
