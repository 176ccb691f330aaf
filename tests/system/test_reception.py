"""The library's receiver of a multicast stream, behind a network that loses, doubles and reorders, and lies."""

from __future__ import annotations

import gc
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import veredus
from tests.client.tears import torn
from tests.interop.multicast_by_hand import opened
from tests.processes import free_port
from tests.system.serving import ServedNode
from veredus.client.blocking import Node, connect
from veredus.client.reception import Message, Reception
from veredus.client.wanting import Gap, Wanted

pytestmark = pytest.mark.slow

GROUP, FAR_GROUP = "239.195.7.2", "239.195.7.3"
COUNT = 4_000
TIMEOUT_S = 20.0


def body_of(number: int) -> bytes:
    """Some are larger than any datagram of the node's."""
    return b"%d:" % number + bytes(5_000 if number % 500 == 0 else 20)


class Network(threading.Thread):
    """Carries datagrams from the node's group to another one, as badly as it is told to."""

    def __init__(self, port: int, far_port: int) -> None:
        super().__init__(daemon=True)
        self.loss = self.doubling = self.delay = 0.0
        self.carried: list[bytes] = []
        self._dice = random.Random(7)
        self._far = FAR_GROUP, far_port
        self._is_over = False
        self._in, self._out = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self._in.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._in.bind((GROUP, port))
        joined = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
        self._in.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        self._in.settimeout(0.05)
        self._out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        self.start()

    def run(self) -> None:
        late: list[bytes] = []
        while not self._is_over:
            try:
                datagram = self._in.recv(1 << 16)
            except TimeoutError:
                continue
            if self._dice.random() < self.delay:
                late.append(datagram)
                continue
            for octets in (datagram, *late):
                if self._dice.random() >= self.loss:
                    self.carry(octets)
                if self._dice.random() < self.doubling:
                    self.carry(octets)
            late.clear()

    def carry(self, octets: bytes) -> None:
        self.carried.append(octets)
        self._out.sendto(octets, self._far)

    def end(self) -> None:
        self._is_over = True
        self.join()
        self._in.close()
        self._out.close()


class Scene:
    """A node whose stream `prices` goes to a group, and a network behind it."""

    def __init__(self, directory: Path) -> None:
        port, self.far_port = free_port(), free_port()
        settings = {
            "MULTICAST_GROUP": f"{GROUP}:{port}",
            "MULTICAST_STREAMS": "prices",
            "MULTICAST_ANNOUNCE_INTERVAL": "50ms",
        }
        self.served = ServedNode(directory, settings)
        self.node = self.served.start()
        self.network = Network(port, self.far_port)
        self.published = 0

    @property
    def group(self) -> str:
        return f"{FAR_GROUP}:{self.far_port}"

    def publish(self, count: int, node: Node | None = None) -> None:
        with (node or self.node).publisher("prices", source="s") as publisher:
            for number in range(self.published + 1, self.published + count + 1):
                publisher.publish(f"k.{number % 7}", body_of(number))
                if number % 50 == 0:
                    publisher.wait(number)
            publisher.flush()
        self.published += count

    def end(self) -> None:
        self.network.end()
        self.node.close()
        self.served.kill()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "journal")
    yield scene
    scene.end()


def taken(reception: Reception, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        some = reception.next_messages(count - len(messages), TIMEOUT_S)
        assert some, f"silence behind {len(messages)} messages"
        messages += some
    return messages


def expected(first: int, last: int) -> list[Message]:
    return [Message(number, b"k.%d" % (number % 7), body_of(number)) for number in range(first, last + 1)]


@pytest.mark.parametrize(("loss", "doubling", "delay"), [(0.0, 0.0, 0.0), (0.2, 0.2, 0.2), (0.9, 0.0, 0.0)])
def test_history_and_what_is_live_come_once_and_in_order_whatever_the_network_does(
    scene: Scene, loss: float, doubling: float, delay: float
) -> None:
    scene.network.loss, scene.network.doubling, scene.network.delay = loss, doubling, delay
    scene.publish(1_000)
    with scene.node.receive("prices", scene.group) as reception:
        publishing = threading.Thread(target=scene.publish, args=(COUNT,))
        publishing.start()
        assert taken(reception, 1_000 + COUNT) == expected(1, 1_000 + COUNT)
        publishing.join()
        assert reception.mended_count >= 1_000
        assert reception.next_message(0.2) is None
        assert reception.position == 1_001 + COUNT


def test_what_is_live_needs_no_journal_where_no_datagram_is_lost(scene: Scene) -> None:
    scene.publish(1)
    with scene.node.receive("prices", scene.group, start=veredus.head(), silence_s=TIMEOUT_S) as reception:
        assert reception.next_message(0.2) is None
        scene.publish(100)
        assert taken(reception, 100) == expected(2, 101)
        assert reception.mended_count == 0
        assert reception.datagram_count > 0


def test_who_hears_no_datagram_gets_everything_from_the_journal(scene: Scene) -> None:
    scene.network.loss = 1.0
    with scene.node.receive("prices", scene.group, silence_s=0.05) as reception:
        scene.publish(120)
        assert taken(reception, 120) == expected(1, 120)
        assert reception.datagram_count == 0


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_is_torn_out_of_a_reception_by_a_signal_gets_all_once_and_in_order(scene: Scene) -> None:
    scene.network.loss = 0.3
    files = frozenset(("reception.py", "ends.py", "feed.py", "publication.py", "loops.py"))
    with scene.node.receive("prices", scene.group, silence_s=0.05) as reception:
        messages: list[Message] = []
        for place in range(1, 151):
            scene.publish(3)
            with torn(files, place):
                messages += reception.next_messages(1, TIMEOUT_S)
                while len(messages) < scene.published:
                    messages += reception.next_messages(None, TIMEOUT_S)
            messages += taken(reception, scene.published - len(messages))
        assert messages == expected(1, scene.published)
        assert reception.datagram_count > 0 < reception.mended_count
    # What was torn before it was begun is told of here, where that is expected.
    gc.collect()


def test_keys_choose_among_datagrams_as_in_the_journal(scene: Scene) -> None:
    scene.publish(70)
    with scene.node.receive("prices", scene.group, keys=["literal:k.3", "prefix:k.5"]) as reception:
        wanted = [message for message in expected(1, 140) if message.key in (b"k.3", b"k.5")]
        assert taken(reception, 20) == wanted[:20]
        scene.publish(70)
        assert taken(reception, 20) == wanted[20:]


def test_a_receiver_goes_on_after_a_kill_of_the_node(scene: Scene) -> None:
    with scene.node.receive("prices", scene.group, silence_s=0.1) as reception:
        scene.publish(100)
        assert taken(reception, 100) == expected(1, 100)
        scene.served.kill()
        assert reception.next_message(0.3) is None
        again = scene.served.start()
        scene.publish(100, again)
        assert taken(reception, 100) == expected(101, 200)
        again.close()


def test_what_was_trimmed_before_it_came_is_told_as_a_gap(scene: Scene) -> None:
    scene.network.loss = 1.0
    gaps: list[Gap] = []
    with (
        scene.node.receive("prices", scene.group, silence_s=0.05, on_gap=gaps.append) as teller,
        scene.node.receive("prices", scene.group, silence_s=0.05) as raiser,
    ):
        scene.publish(200)
        scene.node.streams.trim("prices", 151)
        floor = scene.node.streams.show("prices")["floor"]
        assert 1 < floor <= 151
        assert taken(teller, 201 - floor) == expected(floor, 200)
        assert gaps == [Gap(1, floor, "trimmed")]
        with pytest.raises(veredus.Unavailable, match="trimmed") as told:
            raiser.next_message(TIMEOUT_S)
        assert told.value.details["next_sequence"] == floor
        assert taken(raiser, 201 - floor) == expected(floor, 200)


def test_a_stream_that_was_made_again_is_another_stream(scene: Scene) -> None:
    with scene.node.receive("prices", scene.group, silence_s=0.2) as reception:
        scene.publish(10)
        assert taken(reception, 10) == expected(1, 10)
        scene.node.streams.delete("prices")
        scene.published = 0
        scene.publish(20)
        with pytest.raises(veredus.Refused) as told:
            taken(reception, 1)
        assert told.value.code == "stream-replaced"


def test_nothing_is_believed_that_only_a_datagram_says_there_is(scene: Scene) -> None:
    with scene.node.receive("prices", scene.group, silence_s=0.2) as reception:
        scene.publish(10)
        assert taken(reception, 10) == expected(1, 10)
        true = opened(scene.network.carried[-1])
        name = bytes([6]) + b"prices"
        for forged in (
            b"",
            b"VMC1",
            b"garbage" * 100,
            b"VMC1" + true.incarnation + struct.pack(">QQ", true.term, 1 << 62) + name,
            b"VMC1"
            + bytes(16)
            + struct.pack(">QQ", 9, 12)
            + name
            + b"\xaa\xa5\x07"
            + bytes(7)
            + b"\x0b\x01k"
            + bytes(4),
            b"VMC1" + true.incarnation + struct.pack(">QQ", true.term, 11) + name + b"\xaa\xa5\x07",
        ):
            scene.network.carry(forged)
        assert reception.next_message(0.5) is None
        scene.publish(10)
        assert taken(reception, 10) == expected(11, 20)


def test_datagrams_that_the_node_refutes_make_it_be_asked_once_in_a_while(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.node.receive("prices", scene.group, silence_s=30) as reception:
        scene.publish(10)
        assert taken(reception, 10) == expected(1, 10)
        asked: list[Wanted] = []
        subscribe = reception._subscribe_to
        monkeypatch.setattr(reception, "_subscribe_to", lambda wanted: (asked.append(wanted), subscribe(wanted))[1])
        true = opened(scene.network.carried[-1])
        for claimed in range(1 << 40, (1 << 40) + 100):
            head = b"VMC1" + true.incarnation + struct.pack(">QQ", true.term, claimed)
            scene.network.carry(head + bytes([6]) + b"prices")
        assert reception.next_message(0.5) is None
        assert len(asked) == 1
        scene.publish(10)
        assert taken(reception, 10) == expected(11, 20)


def test_the_command_line_prints_what_comes_by_multicast(scene: Scene) -> None:
    scene.publish(3)
    command = [sys.executable, "-m", "veredus", "sub", "prices", "--address", scene.served.address]
    multicast = [*command, "--multicast", scene.group, "--count", "4", "--format", "json"]
    with subprocess.Popen(multicast, stdout=subprocess.PIPE, text=True) as printing:
        assert printing.stdout is not None
        first = printing.stdout.readline()
        scene.publish(1)
        lines = [first, *printing.stdout]
    assert printing.returncode == 0
    assert [line.split(",")[0] for line in lines] == [f'{{"sequence":{number}' for number in (1, 2, 3, 4)]
    wrong = subprocess.run([*multicast, "--where", "a > 1"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "--multicast goes with" in wrong.stderr


@pytest.mark.parametrize(
    ("group", "interface"),
    [("10.0.0.1:7074", "127.0.0.1"), ("239.1.2.3", "127.0.0.1"), ("239.1.2.3:7074", "eth0"), ("", "127.0.0.1")],
)
def test_what_is_no_group_or_no_interface_is_a_misuse(tmp_path: Path, group: str, interface: str) -> None:
    with veredus.embedded(tmp_path / "journal") as node, pytest.raises(veredus.Misuse) as told:
        node.receive("prices", group, interface=interface)
    assert told.value.code == "bad-argument"


def test_a_receiver_that_is_not_used_for_a_while_misses_nothing(scene: Scene) -> None:
    """More comes than its socket has room for: the rest is mended."""
    other = connect(scene.served.address)
    with other.receive("prices", scene.group) as reception:
        scene.publish(30_000)
        assert taken(reception, 30_000) == expected(1, 30_000)
    other.close()
