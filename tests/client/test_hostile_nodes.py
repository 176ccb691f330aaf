"""A node that says without end what it likes: what the client keeps of it is bounded, and so is the time it takes."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

import veredus
from veredus.client.subscribing import SubscriptionChannel
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native
from veredus.protocols.zeps.frames import ATTACH_OK
from veredus.protocols.zeps.native import Kind
from veredus.protocols.zeps.parsing import FrameParser

ROUND = 2_000
FLOODS = {
    "progress": (native.encode_message(1, m.Progress(5)) * ROUND, False),
    "ends": (native.encode_message(1, m.End(5, final=False)) * ROUND, False),
    "pings": (native.encode_frame(Kind.PING, 0) * ROUND, False),
    "answers": (native.encode_message(0, m.Reply(77, {})) * ROUND, False),
    "gaps": (native.encode_message(1, m.Gap(1, 2, "damaged")) * ROUND, True),
    "names": (native.encode_message(1, m.Sources(tuple((n, "x") for n in range(ROUND)))), True),
    "unknown channel": (native.encode_message(9, m.Progress(5)) * ROUND, True),
    "a gap that goes back": (native.encode_message(1, m.Gap(100, 50, "damaged")), True),
    "a long code": (native.encode_message(1, m.Gap(1, 2, "x" * 60_000)), True),
    "an answer of empty lists": (native.encode_message(0, m.Reply(77, [()] * 2_000_000)), True),
    "more than was given credit for": (native.HEAD.pack((1 << 30) - 8, Kind.DELIVER, 0, 1) + b"begun", True),
    "a huge answer": (native.HEAD.pack(1 << 29, Kind.REPLY, 0, 0) + b"begun", True),
    "huge settlements": (native.HEAD.pack((8 << 20) + 8, Kind.SETTLED, 0, 1) + b"begun", True),
    "a huge name": (native.encode_message(1, m.Sources(((1, "x" * (33 << 20)),))), True),
}


class HostileNode:
    """Owns a socket that greets whoever connects, grants what is asked, and then says the same for ever."""

    def __init__(self, flood: bytes = b"", *, is_curt: bool = False) -> None:
        self.flood = flood
        self.is_curt = is_curt
        """Whether it closes each link that it has greeted."""
        self.welcome_count = 0
        self.pongs = 0
        self.sent = 0
        self.is_open = True
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen()
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(link,), daemon=True))
                self._threads[-1].start()

    def _serve(self, link: socket.socket) -> None:
        with link, suppress(OSError):
            link.recv(1 << 16)
            link.sendall(ATTACH_OK)
            parser = FrameParser(1 << 20)
            is_granted = False
            while self.is_open and not is_granted:
                for frame in parser.feed(bytes(link.recv(1 << 16))):
                    if frame.kind == Kind.HELLO:
                        self.welcome_count += 1
                        welcome = m.Welcome("n", "", 2, 1 << 30, 100, 30_000, 1 << 20, 1 << 20, 1000, 64, 64)
                        link.sendall(native.encode_message(0, welcome))
                        if self.is_curt:
                            return
                    if frame.kind == Kind.REQUEST:
                        page = {"rows": [{"name": "s"}], "next": ["s"]}
                        link.sendall(native.encode_message(0, m.Reply(native.decode_message(frame).request, page)))
                    if frame.kind == Kind.SUBSCRIBE:
                        link.sendall(native.encode_message(frame.channel, m.Subscribed(1, b"i" * 16, 1, 1, 1, 1, 100)))
                        is_granted = True
            link.settimeout(0.01)
            while self.is_open:
                with suppress(TimeoutError):
                    data = link.recv(1 << 16)
                    self.pongs += sum(frame.kind == Kind.PONG for frame in parser.feed(data))
                link.settimeout(5)
                link.sendall(self.flood)
                link.settimeout(0.001)
                self.sent += 1

    def close(self) -> None:
        self.is_open = False
        self._listening.close()


@pytest.fixture
def hostile(request: pytest.FixtureRequest) -> Iterator[HostileNode]:
    node = HostileNode(FLOODS[request.param][0])
    yield node
    node.close()


@pytest.mark.parametrize(("hostile", "is_ended"), [(name, FLOODS[name][1]) for name in FLOODS], indirect=["hostile"])
def test_what_a_node_says_without_end_is_kept_within_bounds(hostile: HostileNode, is_ended: bool) -> None:
    with veredus.connect(hostile.address) as far:
        subscription = far.subscribe("s", on_gap=lambda _: None)
        channel: SubscriptionChannel = subscription.channel
        begun_s = time.monotonic()
        end_s = begun_s + 20
        longest = 0
        while time.monotonic() < end_s and (hostile.sent < 100 or is_ended) and channel.failure is None:
            longest = max(longest, len(channel.queue))
            time.sleep(0.005)
        assert (channel.failure is not None) == is_ended
        assert longest <= (1 << 16) + 1 if is_ended else longest <= 2
        assert len(channel.sources) <= 1 << 16
        assert hostile.pongs <= 2 + (time.monotonic() - begun_s) or is_ended, "one a second"


def test_what_is_refused_of_settlements_is_not_taken_for_the_answer_to_a_filter() -> None:
    refusal = m.Refusal("disk-full", "the node could not store the settlement: settle again later", final=False)
    node = HostileNode(native.encode_message(1, refusal) + native.encode_message(1, m.FilterChanged(7)))
    with veredus.connect(node.address) as far:
        assert far.subscribe("s", subscriber="bob").change_filter("a") == 7
    node.close()


def test_a_list_whose_pages_have_no_end_is_told_and_not_read_for_ever() -> None:
    node = HostileNode()
    with veredus.connect(node.address) as far, pytest.raises(veredus.Unavailable, match="pages that have no end"):
        far.streams.list()
    node.close()


def test_a_node_that_ends_each_link_that_it_greeted_is_gone_back_to_with_growing_pauses() -> None:
    node = HostileNode(is_curt=True)
    with veredus.connect(node.address):
        time.sleep(3)
        assert 4 <= node.welcome_count < 50
    node.close()
