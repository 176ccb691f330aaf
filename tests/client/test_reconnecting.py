"""Links that break at any byte, nodes that stop and start: nothing is lost, nothing comes twice."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.processes import wait_until
from veredus.client.connection import Connection
from veredus.client.embedded import Embedded
from veredus.client.loops import LoopThread
from veredus.delivery.batch import BatchLimits
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native
from veredus.protocols.zeps.frames import ATTACH_OK, encode_invalid
from veredus.protocols.zeps.parsing import FrameParser


@pytest.mark.parametrize("up_max", [3, 20, 100, 300, 5_000, 60_000, 400_000])
def test_a_source_whose_link_is_cut_after_so_many_bytes_loses_and_doubles_nothing(
    node: Embedded, stream: str, up_max: int
) -> None:
    bodies = [b"%d" % index + b"x" * 50 for index in range(10_000)]
    limits = [(up_max + 997 * cut, 1 << 60) for cut in range(4)]
    with (
        Cutter(node.served.address, limits) as cutter,
        veredus.connect(cutter.address) as far,
        far.publisher(stream, source="a", batch_size=8192) as publisher,
    ):
        for body in bodies:
            publisher.publish("k", body)
        receipt = publisher.flush(timeout_s=30)
        assert cutter.connection_count > 1
    assert receipt is not None
    assert receipt.number == len(bodies)
    assert [p.body for p in read(node, stream, len(bodies))] == bodies


@pytest.mark.parametrize(
    "answer",
    [
        encode_invalid("greeting-timeout: no ATTACH arrived within limits.greeting_timeout"),
        b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
        b"220 mail",
    ],
    ids=["too late", "HTTP", "SMTP"],
)
def test_whatever_answers_where_a_node_was_clients_go_on_when_it_is_back(
    node: Embedded, stream: str, answer: bytes
) -> None:
    with (
        Cutter(node.served.address) as cutter,
        veredus.connect(cutter.address) as far,
        far.publisher(stream, source="a") as publisher,
        far.subscribe(stream, subscriber="r") as subscription,
    ):
        publisher.wait(publisher.publish("k", b"before"), timeout_s=30)
        cutter.answers = [answer] * 7
        cutter.cut()
        publisher.wait(publisher.publish("k", b"behind"), timeout_s=30)
        bodies = [next(iter(subscription)).body for _ in range(2)]
        subscription.settle(2)
        subscription.wait_settled(timeout_s=30)
    assert bodies == [b"before", b"behind"]


def test_a_node_that_finds_the_first_greeting_late_is_greeted_again(node: Embedded, stream: str) -> None:
    with Cutter(node.served.address) as cutter:
        cutter.answers = [encode_invalid("greeting-timeout: no ATTACH arrived within limits.greeting_timeout")] * 2
        with veredus.connect(cutter.address) as far:
            assert far.streams.list() is not None


@pytest.mark.parametrize("down_max", [3, 90, 400, 700, 3_000])
def test_a_source_whose_receipts_are_cut_off_offers_again_what_is_in_doubt(
    node: Embedded, stream: str, down_max: int
) -> None:
    limits = [(1 << 60, down_max + 13 * cut) for cut in range(6)]
    with (
        Cutter(node.served.address, limits) as cutter,
        veredus.connect(cutter.address) as far,
        far.publisher(stream, source="a", batch_size=1024) as publisher,
    ):
        numbers = [publisher.publish("k", b"%d" % index) for index in range(5_000)]
        publisher.flush(timeout_s=30)
        assert [publisher.wait(number).number for number in numbers[::500]] == numbers[::500]
    assert [int(p.body) for p in read(node, stream, 5_000)] == list(range(5_000))


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("down_max", [10, 500, 20_000, 300_000])
def test_a_subscriber_whose_link_is_cut_gets_every_publication_once(
    node: Embedded, stream: str, is_durable: bool, down_max: int
) -> None:
    with node.publisher(stream, source="a", batch_size=4096) as publisher:
        publisher.publish_many(["k"] * 5_000, [b"%d" % index + b"x" * 90 for index in range(5_000)])
    limits = [(1 << 60, down_max + 7919 * cut) for cut in range(5)]
    got: list[int] = []
    with (
        Cutter(node.served.address, limits) as cutter,
        veredus.connect(cutter.address) as far,
        far.subscribe(stream, subscriber="s" if is_durable else "", until=5_001, window_size=100_000) as subscription,
    ):
        for publication in subscription:
            got.append(publication.sequence)
            if is_durable and not publication.sequence % 10:
                subscription.settle(publication)
        assert cutter.connection_count > 1
    assert got == list(range(1, 5_001))


def read(node: veredus.Node, stream: str, count: int) -> list[veredus.Publication]:
    with node.subscribe(stream, until=count + 1) as subscription:
        return list(subscription)


def test_a_node_that_stops_and_starts_again_is_found_and_nothing_is_missing() -> None:
    with veredus.embedded() as node:
        served = node.served
        with (
            node.publisher("s", source="a") as publisher,
            node.subscribe("s", subscriber="r") as subscription,
        ):
            rows = iter(subscription)
            for round_ in range(3):
                for index in range(100):
                    publisher.publish("k", b"%d" % (round_ * 100 + index))
                served.stop()
                served.start()
                publisher.flush(timeout_s=20)
                got = [next(rows) for _ in range(100)]
                assert [int(p.body) for p in got] == list(range(round_ * 100, round_ * 100 + 100))
                subscription.settle(got[-1])
            subscription.wait_settled(timeout_s=20)
        assert node.subscriptions.show("s", "r")["floor"] == 300


def test_while_no_node_is_there_the_policy_says_what_publishing_does() -> None:
    with veredus.embedded(journal={"sync": "none"}) as node:
        waiting = node.publisher("s", source="w")
        failing = node.publisher("s", source="f", on_gone="fail")
        dropping = node.publisher("s", source="d", on_gone="drop")
        for publisher in (waiting, failing, dropping):
            publisher.wait(publisher.publish("k", b"0"))
        node.served.stop()
        wait_until_gone(failing)
        assert waiting.publish("k", b"1") == 2
        with pytest.raises(veredus.Unavailable, match="link-lost"):
            failing.publish("k", b"1")
        wait_until_gone(dropping)
        assert dropping.publish("k", b"1") == 0
        assert dropping.dropped_count == 1
        with pytest.raises(veredus.Unavailable) as doubt:
            waiting.wait(2, timeout_s=0)
        assert doubt.value.code == "in-doubt"
        node.served.start()
        assert waiting.wait(2, timeout_s=20).number == 2
        assert dropping.wait(published_again(dropping), timeout_s=20).number == 2
        assert failing.wait(published_again(failing), timeout_s=20).number == 2
        for publisher in (waiting, failing, dropping):
            publisher.close()


def wait_until_gone(publisher: veredus.Publisher) -> None:
    """The stop is told to the client's loop; wait for it there."""
    for _ in itertools.count():
        if publisher._intake.is_gone:
            return
        publisher._thread.run(one_turn)


async def one_turn() -> None:
    """The loop has gone round once."""


def published_again(publisher: veredus.Publisher) -> int:
    """The number of what is published once the policy lets it be."""
    while True:
        try:
            if number := publisher.publish("k", b"2"):
                return number
        except veredus.Unavailable:
            publisher._thread.run(one_turn)


@pytest.mark.parametrize("policy", ["fail", "drop", "wait"])
def test_a_full_outbox_waits_fails_or_drops_as_it_was_told(policy: str) -> None:
    with veredus.embedded(journal={"sync": "none"}) as node:
        publisher = node.publisher("s", source="a", on_full=policy, outbox_size_max=200_000, batch_size=20_000)  # type: ignore[arg-type]
        publisher.wait(publisher.publish("k", b"0"))
        node.served.stop()
        wait_until_gone(publisher)
        published = [0]
        if policy == "wait":
            published += [publisher.publish("k", b"x" * 1000) for _ in range(100)]
            node.served.start()
            published += [publisher.publish("k", b"x" * 1000) for _ in range(1000)]
        elif policy == "fail":
            with pytest.raises(veredus.Unavailable, match="outbox-full"):
                published += [publisher.publish("k", b"x" * 1000) for _ in range(1000)]
            node.served.start()
        else:
            published += [publisher.publish("k", b"x" * 1000) for _ in range(1000)]
            assert publisher.dropped_count == published.count(0) - 1 > 500
            node.served.start()
        receipt = publisher.flush(timeout_s=20)
        assert receipt is not None
        assert receipt.sequence == publisher.number == node.streams.show("s")["head"]
        assert publisher.number < 400 or policy == "wait"
        publisher.close()


def test_any_of_several_addresses_will_do(node: Embedded, stream: str) -> None:
    with (
        veredus.connect("veredus://127.0.0.1:1", "unix:///nowhere/at/all", node.served.address) as far,
        far.publisher(stream, source="a") as publisher,
    ):
        assert publisher.wait(publisher.publish("k", b"x")).sequence == 1


def test_where_nobody_answers_it_is_said_with_the_addresses_that_were_tried() -> None:
    with pytest.raises(veredus.Unavailable, match=r"unix:///nowhere/at/all") as error:
        veredus.connect("unix:///nowhere/at/all", timeout_s=0.05)
    assert error.value.code == "unreachable"


def test_a_request_is_asked_again_after_the_link_was_lost(node: Embedded, stream: str) -> None:
    with (
        Cutter(node.served.address, [(1 << 60, 150), (1 << 60, 151)]) as cutter,
        veredus.connect(cutter.address) as far,
    ):
        assert far.streams.create(stream)["name"] == stream
        assert far.streams.show(stream)["head"] == 0
        assert cutter.connection_count > 1


def test_a_closed_connection_ends_what_hangs_on_it(node: Embedded, stream: str) -> None:
    far = veredus.connect(node.served.address)
    publisher = far.publisher(stream, source="a")
    subscription = far.subscribe(stream)
    connection: Connection = far._node.connection
    far.close()
    far.close()
    with pytest.raises(veredus.Misuse, match="closed"):
        publisher.publish("k", b"x")
    with pytest.raises(veredus.Misuse, match="closed"):
        subscription.next_batch(timeout_s=1)
    with pytest.raises(veredus.Misuse, match="closed"):
        far.streams.list()
    assert connection.failure is not None
    publisher.close()
    subscription.close()


async def _find_fault(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A node that welcomes everybody and then says that what it was sent is wrong."""
    limits = BatchLimits()
    welcome = m.Welcome("node", "local", 2, 1 << 20, 16, 10_000, *limits)
    writer.write(ATTACH_OK + native.encode_message(0, welcome))
    writer.write(native.encode_message(0, m.Goodbye("bad-batch", "this is no batch")))
    await writer.drain()
    writer.close()


def test_a_node_that_finds_fault_each_time_is_given_up_with_its_reason(tmp_path: Path) -> None:
    thread = LoopThread()
    server = thread.run(partial(asyncio.start_unix_server, _find_fault, str(tmp_path / "socket")))
    far = veredus.connect(f"unix://{tmp_path}/socket")
    with pytest.raises(veredus.Refused, match="this is no batch"):
        far.streams.list()
    far.close()
    thread.call(server.close)
    thread.stop()


async def _end_of_a_link_that_was_given_up(path: Path) -> int:
    links: list[asyncio.StreamWriter] = []

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        links.append(writer)
        writer.write(ATTACH_OK + native.encode_message(0, m.Welcome("n", "p", 2, 1 << 24, 16, 10_000, *BatchLimits())))

    async def wait_for(count: int) -> None:
        while len(links) < count:
            await asyncio.sleep(0.01)

    server = await asyncio.start_unix_server(welcome, str(path))
    async with asyncio.timeout(10), veredus.connect_async(f"unix://{path}") as far:
        # More than a socket takes: some of it is still to be written when the link is given up.
        asking = asyncio.create_task(far.connection.ask("stream.show", name="x" * (8 << 20)))
        await asyncio.sleep(0.05)
        links[0].write(native.encode_message(0, m.Goodbye("draining", "the node is stopping")))
        await wait_for(2)
        await asyncio.sleep(0.05)
        links[0].transport.abort()
        await asyncio.sleep(0.3)
        asking.cancel()
    server.close()
    for link in links:
        link.transport.abort()
    await asyncio.sleep(0)
    return len(links)


def test_a_link_that_was_given_up_and_ends_late_does_not_end_the_next_one(tmp_path: Path) -> None:
    assert asyncio.run(_end_of_a_link_that_was_given_up(tmp_path / "socket")) == 2


WELCOME = native.encode_message(0, m.Welcome("n", "p", 2, 1 << 24, 16, 10_000, *BatchLimits()))


class BriefNode:
    """Grants a subscription over the first link and ends it; the next one is welcomed and let go in one breath."""

    def __init__(self) -> None:
        self.count = 0
        self.asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        count = self.count
        await reader.read(1 << 16)
        writer.write(ATTACH_OK)
        if count == 2:
            await reader.read(1 << 16)
            writer.write(WELCOME + native.encode_message(0, m.Goodbye("silent", "the peer was silent")))
            await reader.read()
            writer.close()
            return
        writer.write(WELCOME)
        parser = FrameParser(1 << 20)
        while data := await reader.read(1 << 16):
            if any(frame.kind == native.Kind.SUBSCRIBE for frame in parser.feed(data)):
                break
        if count == 1:
            writer.write(native.encode_message(1, m.Subscribed(1, b"i" * 16, 1, 1, 1, 1, 100)))
            await asyncio.sleep(0.05)
        else:
            self.asked.set()
        writer.close()


async def _be_let_go_with_the_welcome(path: Path) -> None:
    node = BriefNode()
    server = await asyncio.start_unix_server(node.serve, str(path))
    async with asyncio.timeout(10), veredus.connect_async(f"unix://{path}") as far:
        await far.subscribe("s", subscriber="a")
        await node.asked.wait()
    server.close()
    await asyncio.sleep(0.05)


def test_a_client_that_reads_the_welcome_and_the_goodbye_at_once_connects_again(tmp_path: Path) -> None:
    # So it is for a process that was stopped for long just then.
    asyncio.run(_be_let_go_with_the_welcome(tmp_path / "socket"))


async def _have_fewer_channels(path: Path) -> str:
    links: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        links.append(writer)
        await reader.read(1 << 16)
        channel_count_max = 2 if len(links) == 1 else 1
        welcome = m.Welcome("n", "p", 2, 1 << 24, channel_count_max, 10_000, *BatchLimits())
        writer.write(ATTACH_OK + native.encode_message(0, welcome))
        parser = FrameParser(1 << 20)
        while data := await reader.read(1 << 16):
            for frame in parser.feed(data):
                if frame.kind == native.Kind.SUBSCRIBE:
                    writer.write(native.encode_message(frame.channel, m.Subscribed(1, b"i" * 16, 1, 1, 1, 1, 100)))
        writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    async with asyncio.timeout(10), veredus.connect_async(f"unix://{path}") as far:
        first = await far.subscribe("s", subscriber="a")
        second = await far.subscribe("s", subscriber="b")
        with pytest.raises(veredus.Misuse, match="too-many-channels"):
            await far.subscribe("s", subscriber="c")
        links[0].transport.abort()
        with pytest.raises(veredus.Misuse) as told:
            await second.next_batch()
        assert await first.next_batch(timeout_s=0.1) is None
        assert len(links) == 2
    server.close()
    await asyncio.sleep(0.05)
    return told.value.code


def test_what_has_no_channel_at_a_node_that_allows_fewer_is_told_so_and_the_rest_goes_on(tmp_path: Path) -> None:
    assert asyncio.run(_have_fewer_channels(tmp_path / "socket")) == "too-many-channels"


async def _stumble(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stumble(*_: object) -> None:
        raise RuntimeError("this was not thought of")

    monkeypatch.setattr(veredus.client.connection, "open_socket", stumble)
    async with asyncio.timeout(5):
        await veredus.connect_async("veredus://127.0.0.1:1")


def test_what_ends_the_making_of_links_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(veredus.Unavailable, match="this was not thought of"):
        asyncio.run(_stumble(monkeypatch))


@pytest.mark.parametrize("subscriber", ["", "r"])
def test_what_is_appended_before_the_time_to_start_from_does_not_come_over_another_link_either(
    node: Embedded, stream: str, subscriber: str
) -> None:
    def publish(body: bytes) -> None:
        publisher.wait(publisher.publish("k", body), timeout_s=30)

    start = datetime.now(UTC) + timedelta(seconds=3)
    with (
        Cutter(node.served.address) as cutter,
        veredus.connect(cutter.address) as far,
        node.publisher(stream) as publisher,
        far.subscribe(stream, subscriber=subscriber, start=veredus.since(start)) as subscription,
    ):
        publish(b"before")
        assert subscription.next_batch(timeout_s=0.1) is None
        cutter.cut()
        for _ in range(3):
            publish(b"meanwhile")
        assert subscription.next_batch(timeout_s=0.5) is None
        publish(b"again before")
        if datetime.now(UTC) >= start:
            pytest.skip("this machine was too slow for the test")
        wait_until(lambda: datetime.now(UTC) >= start)
        publish(b"behind")
        publication = next(iter(subscription))
        assert (publication.body, publication.sequence) == (b"behind", 6)
        assert publication.append_time >= start
