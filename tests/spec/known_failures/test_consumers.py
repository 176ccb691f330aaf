"""Those who read: zombies, sleepers, the slow, the poisoned, and those whose stream is not the one that it was."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import veredus
from tests.processes import Child
from tests.streams.rig import Rig
from tests.system.serving import ServedNode
from veredus.client.blocking import Node
from veredus.streams import exchange as x

YEAR_NS = 365 * 86_400 * 1_000_000_000
READER = """
import sys, veredus
with veredus.connect(sys.argv[1]) as node:
    with node.subscribe("orders", subscriber="desk", until=int(sys.argv[2]) + 1, window_size=4096) as subscription:
        for publication in subscription:
            print(publication.sequence, flush=True)
            subscription.settle(publication)
"""


def published(node: Node, count: int, stream: str = "orders") -> None:
    """Publications 1 to `count`, each a batch of its own."""
    with node.publisher(stream, source="till") as publisher:
        for number in range(1, count + 1):
            publisher.publish("k", b"%d" % number)
            publisher.flush(timeout_s=20)


def settle_now(subscription: veredus.Subscription, what: veredus.Publication | int) -> None:
    """Settle, and wait until the node has it in its journal."""
    subscription.settle(what)
    subscription.wait_settled(timeout_s=20)


def test_a_consumer_that_was_replaced_while_it_slept_moves_nothing_of_its_successors_cursor() -> None:
    """A consumer that had lost its partition woke up and committed its offset over that of the new owner.

    Seen in: Kafka, whose KIP-1251, 2025, https://kafka-options-explorer.conduktor.io/kip/1251, closes a window in which
    a stale member of a group overwrites the offsets of its successor.
    Here: an owner is replaced, and settles afterwards whatever it holds, over its link, and again after a restart of
    the node. It is fenced each time, and its successor gets all that is not settled.
    """
    with veredus.embedded() as node, veredus.connect(node.served.address) as elsewhere:
        published(node, 20)
        sleeper = elsewhere.subscribe("orders", subscriber="desk")
        held = [publication for _, publication in zip(range(20), sleeper, strict=False)]
        settle_now(sleeper, held[4])
        with node.subscribe("orders", subscriber="desk", until=21) as successor:
            assert next(iter(successor)).sequence == 6
            with pytest.raises(veredus.Fenced):
                settle_now(sleeper, held[19])
            assert node.subscriptions.show("orders", "desk")["floor"] == 5
            settle_now(successor, 6)
        node.served.stop()
        node.served.start()
        with pytest.raises(veredus.Fenced):
            settle_now(sleeper, held[19])
        with node.subscribe("orders", subscriber="desk", until=21) as again:
            assert [publication.sequence for publication in again] == list(range(7, 21))


@pytest.mark.slow
def test_a_node_that_was_stopped_and_goes_on_serves_whoever_waited_for_it(tmp_path: Path) -> None:
    """After a pause of a broker, consumers were stuck for good, or producers were, in a cluster that was healthy again.

    Seen in: Bufstream 0.1.0, stuck consumers and producers: Jepsen, "Bufstream 0.1.0", 2024,
    https://jepsen.io/analyses/bufstream-0.1.0; Redpanda under `--nemesis pause`: Jepsen, "Redpanda 21.10.1", 2022.
    Here: the node gets SIGSTOP until a publication is in doubt, then SIGCONT, three times, under a publisher and a
    subscriber that have no other node. Both go on by themselves.
    """
    served = ServedNode(tmp_path / "journal")
    try:
        with (
            served.start() as node,
            node.publisher("orders", source="till") as publisher,
            node.subscribe("orders", subscriber="desk") as subscription,
        ):
            assert served.process is not None
            rows = iter(subscription)
            for number in range(1, 4):
                served.process.send_signal(signal.SIGSTOP)
                publisher.publish("k", b"%d" % number)
                with pytest.raises(veredus.Unavailable) as doubt:
                    publisher.wait(number, timeout_s=0.3)
                assert doubt.value.code == "in-doubt"
                served.process.send_signal(signal.SIGCONT)
                assert publisher.wait(number, timeout_s=20).sequence == number
                assert next(rows).body == b"%d" % number
    finally:
        served.kill()


@pytest.mark.slow
def test_a_consumer_whose_session_expired_while_it_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    """A consumer slept, the broker forgot its session, and when it woke up it polled for ever and got nothing.

    Seen in: Bufstream 0.1.0: Jepsen, "Bufstream 0.1.0", 2024, https://jepsen.io/analyses/bufstream-0.1.0; Redpanda, a
    consumer stuck in its fetch over a restart of a node: redpanda-data/redpanda#6399.
    Here: a consumer is stopped until the node has given its link up as silent. Woken, it connects anew by itself,
    keeps its epoch, and reads to the end.
    """
    count = 500
    served = ServedNode(tmp_path / "journal", {"LIMITS_HEARTBEAT_INTERVAL": "100ms", "LIMITS_SILENCE_MAX": "500ms"})
    try:
        with served.start() as node, node.publisher("orders", source="till") as publisher:
            publisher.publish_many([b"k"] * count, [bytes(100)] * count)
            publisher.flush(timeout_s=20)
            with Child([sys.executable, "-c", READER, served.address, str(count)], stdout=-1) as reader:
                assert reader.stdout is not None
                seen = [int(reader.stdout.readline())]
                reader.send_signal(signal.SIGSTOP)
                while node.subscriptions.show("orders", "desk")["is_attached"]:
                    pass
                reader.send_signal(signal.SIGCONT)
                seen += [int(line) for line in reader.stdout]
                assert reader.wait(20) == 0
            assert seen == list(range(1, count + 1))
    finally:
        served.kill()


def test_a_cursor_that_nobody_used_for_a_year_stands_where_it_stood() -> None:
    """A consumer group was away for longer than offsets are kept; its place was forgotten, and it began at the head, so
    that what came between was lost, or at the beginning, so that everything came again.

    Seen in: Kafka, KAFKA-4682 and KIP-211, 2017, https://kafka-options-explorer.conduktor.io/kip/211; a reset to the
    beginning though the group was there: KAFKA-19902, 2025,
    https://www.mail-archive.com/dev@kafka.apache.org/msg152954.html.
    Here: a subscriber settles some, also out of order, and is away for a year of checkpoints and restarts.
    """
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 100)
    rig.subscribe(5, "desk", mode=x.SettleMode.INDIVIDUAL)
    rig.settle(5, (1, 50), (60, 69), (80, 80))
    for week in range(52):
        rig.time_ns += YEAR_NS // 52
        if week % 13 == 0:
            rig.checkpoint()
            rig.restart()
            rig.publish(rig.attach(1, epoch=grant.epoch), 101 + week // 13)
    rig.subscribe(6, "desk", who=2, mode=x.SettleMode.INDIVIDUAL)
    assert rig.pushed(6) == [*range(51, 60), *range(70, 80), *range(81, 105)]


def test_what_an_application_took_and_had_not_done_when_it_died_comes_again() -> None:
    """A consumer's position was committed by a timer while its work was not done; it died, and the work was lost.

    Seen in: Kafka's consumers with automatic commits, as documentation of theirs warns; what of it holds is discussed
    in Jepsen, "Bufstream 0.1.0", 2024, https://jepsen.io/analyses/bufstream-0.1.0 ("Updates").
    Here: an application takes everything, finishes some, and goes without a word; the node is stopped and started.
    Taking settles nothing: the rest comes again, and is marked.
    """
    with veredus.embedded() as node:
        published(node, 30)
        with veredus.connect(node.served.address) as far:
            taken = far.subscribe("orders", subscriber="desk")
            got = [publication for _, publication in zip(range(30), taken, strict=False)]
            settle_now(taken, got[9])
        node.served.stop()
        node.served.start()
        with node.subscribe("orders", subscriber="desk", until=31) as again:
            rest = list(again)
        assert [publication.sequence for publication in rest] == list(range(11, 31))
        assert all(publication.is_redelivered for publication in rest)


@pytest.mark.parametrize("it_dies", [False, True])
def test_a_poisonous_publication_halts_nobody_for_good(it_dies: bool) -> None:
    """One message that cannot be processed was tried again for ever, and nothing behind it was reached.

    Seen in: Kafka's consumers: "Can Your Kafka Consumers Handle a Poison Pill?", Confluent,
    https://www.confluent.io/blog/spring-kafka-can-your-kafka-consumers-handle-a-poison-pill/.
    Here: an application fails at the fifth of twenty in each of its lives. One that goes on behind it does those in its
    first life; one that dies of it, and takes one at a time for that, does them in its fourth. After three lives the
    poison is set aside, where it can be looked at, and another application has noticed nothing.
    """
    window_size = 1 if it_dies else 1 << 20
    with veredus.embedded() as node:
        node.streams.create("poison")
        published(node, 20)
        lives = []
        for _ in range(4):
            taken: list[int] = []
            with node.subscribe(
                "orders", subscriber="desk", until=21, mode="individual", window_size=window_size, attempts_max=3,
                parked_to="poison",
            ) as subscription:  # fmt: skip
                for publication in subscription:
                    taken.append(publication.sequence)
                    if publication.body != b"5":
                        subscription.settle(publication)
                    elif it_dies:
                        break
            lives.append(taken)
        first, last = (range(1, 6), range(6, 21)) if it_dies else (range(1, 21), range(0))
        assert lives == [[*first], [5], [5], [*last]]
        with node.subscribe("poison", until=2) as poison:
            (parked,) = poison
        assert (parked.body, parked.attributes["veredus.sequence"]) == (b"5", 5)
        with node.subscribe("orders", subscriber="other", until=21) as other:
            assert [publication.sequence for publication in other] == list(range(1, 21))


def test_a_consumer_slower_than_any_buffer_loses_nothing_and_costs_the_others_nothing() -> None:
    """A subscriber fell behind, and the broker dropped what it had for it, or dropped the subscriber.

    Seen in: ZeroMQ's PUB sockets above the high-water mark ("Slow Subscriber Detection", the ZeroMQ guide,
    http://zguide.zeromq.org/php:chapter5#toc4); core NATS, https://docs.nats.io/nats-server/nats_admin/slow_consumers;
    Redis pub/sub above `client-output-buffer-limit`, 32 MB by default,
    https://bitsfolio.com/redis-pubsub-dropped-messages-high-throughput/.
    Here: 48 MiB go by a subscriber that takes nothing, through a node that keeps 64 KiB of it in memory, to one that
    reads along. Then the slow one reads, and gets all of it.
    """
    count = 1_500
    with veredus.embedded(journal={"sync": "none"}, limits={"tail_size_max": 64 << 10}) as node:
        slow = node.subscribe("orders", window_size=64 << 10)
        with node.subscribe("orders", until=count + 1) as brisk, node.publisher("orders", source="till") as publisher:
            for _ in range(count):
                publisher.publish("k", bytes(32 << 10))
            assert sum(len(batch) for batch in brisk.batches()) == count
        assert [p.sequence for _, p in zip(range(count), slow, strict=False)] == list(range(1, count + 1))
        slow.close()


def test_nobodys_place_in_a_deleted_stream_counts_in_the_one_made_under_its_name() -> None:
    """A topic was deleted and made again; who had known the old one went on at its old offset, and missed what was new,
    or wrote and read as if nothing had happened.

    Seen in: Kafka before topics had ids: KIP-516, 2019, https://kafka-options-explorer.conduktor.io/kip/516; NATS
    JetStream, streams fed by one that was made anew: nats-io/nats-server#6206.
    Here: a subscriber with a cursor at 50, one that is attached, and a publisher in the middle of its work. A stream
    of the same name comes with 20 others in it. The cursor begins anew, the other two are told.
    """
    with veredus.embedded() as node:
        with node.publisher("orders", source="till") as publisher:
            publisher.publish_many(["k"] * 50, [b"old"] * 50)
        with node.subscribe("orders", subscriber="desk", until=51) as subscription:
            subscription.settle(list(subscription)[-1])
        attached = node.subscribe("orders", start=veredus.head())
        working = node.publisher("orders", source="till")
        assert working.wait(working.publish("k", b"old"), timeout_s=20).sequence == 51
        node.streams.delete("orders")
        with node.publisher("orders", source="other") as publisher:
            publisher.publish_many(["k"] * 20, [b"new"] * 20)
        assert [publication.body for publication in attached.next_batch(timeout_s=20) or []] == [b"old"]
        with pytest.raises(veredus.Refused) as told:
            attached.next_batch(timeout_s=20)
        assert told.value.code in ("stream-deleted", "stream-replaced")
        with pytest.raises(veredus.Refused) as told:
            working.wait(working.publish("k", b"old"), timeout_s=20)
        assert told.value.code in ("stream-deleted", "stream-replaced")
        with node.subscribe("orders", subscriber="desk", until=21) as subscription:
            assert [(p.sequence, p.body) for p in subscription] == [(n, b"new") for n in range(1, 21)]
        with node.publisher("orders", source="till") as anew:
            assert (anew.last_number, anew.wait(anew.publish("k", b"new")).sequence) == (0, 21)
