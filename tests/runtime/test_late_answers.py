"""Large answers are made when there is room for them: a peer that asks for many and reads none takes no memory."""

import socket
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

from tests.protocols.zmtp.by_hand import OPENING, frame
from tests.runtime.answering import answering, asking
from veredus.node.sending import SendLimits
from veredus.protocols.topics.exchange import Asked, LateAnswer
from veredus.protocols.topics.messages import Status
from veredus.runtime.topics_limits import TopicsLimits
from veredus.runtime.zmtp_links import LATE_SIZE_MAX

BODY = bytes(256 << 10)
COUNT = 120
SYSTEM_COUNT = 48
"""So many answers fit into what the system has for a connection, and into what may be unwritten."""
LIMITS = TopicsLimits(send=SendLimits(link_size_max=512 << 10))


class Listening(NamedTuple):
    address: str
    made: list[int]
    close: Callable[[], None]
    in_turns: Callable[[], list[int]]
    """Begins to note how many were made by each turn of the loop."""


@pytest.fixture
def listening() -> Iterator[Listening]:
    """Where each question is answered late with `BODY`; which answers were made, by their peers."""
    made: list[int] = []

    class Counted(LateAnswer):
        @property
        def data(self) -> bytes:
            made.append(self.peer)
            return super().data

    def answer_to(asked: Asked) -> LateAnswer:
        return Counted(asked.peer, Status("127.0.0.1:1", "OK", "s-1"), BODY)

    with answering(answer_to, LIMITS) as there:

        def in_turns() -> list[int]:
            counts: list[int] = []

            def look() -> None:
                counts.append(len(made))
                there.loop.call_soon(look)

            there.loop.call_soon_threadsafe(look)
            return counts

        yield Listening(there.address, made, there.close, in_turns)


def settled_count(made: list[int]) -> int:
    """How many were made once no more are."""
    count = -1
    while count != len(made):
        count = len(made)
        time.sleep(0.3)
    return count


def read_all(peer: socket.socket) -> int:
    """How many bytes come until nothing has for a while, or the other closes."""
    size = 0
    peer.settimeout(1.0)
    try:
        while octets := peer.recv(1 << 20):
            size += len(octets)
    except TimeoutError:
        return size
    return size


def test_an_answer_is_made_only_when_the_peer_has_read_what_was_sent_before(listening: Listening) -> None:
    with asking(listening.address, COUNT) as peer:
        assert 0 < settled_count(listening.made) < SYSTEM_COUNT
        assert read_all(peer) > COUNT * len(BODY)
        assert len(listening.made) == COUNT


def test_a_turn_of_the_loop_makes_no_more_than_it_may_for_a_peer_that_reads(listening: Listening) -> None:
    counts = listening.in_turns()
    with asking(listening.address, COUNT) as peer:
        assert read_all(peer) > COUNT * len(BODY)
    most = max(after - before for before, after in pairwise(counts))
    assert most <= LATE_SIZE_MAX // len(BODY)


def test_a_peer_that_reads_has_its_answers_beside_those_who_do_not(listening: Listening) -> None:
    stuck = [asking(listening.address, COUNT) for _ in range(8)]
    settled_count(listening.made)
    with asking(listening.address, 3) as peer:
        assert read_all(peer) > 3 * len(BODY)
    assert len(listening.made) < 8 * SYSTEM_COUNT
    for one in stuck:
        one.close()


def test_who_is_answered_as_the_socket_closes_gets_all_of_it(listening: Listening) -> None:
    with asking(listening.address, COUNT) as peer:
        settled_count(listening.made)
        listening.close()
        assert read_all(peer) > COUNT * len(BODY)


def test_what_is_late_for_a_peer_that_has_gone_is_never_made(listening: Listening) -> None:
    host, _, port = listening.address.rpartition(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(OPENING + frame(0, b"question") * COUNT)
        settled_count(listening.made)
    count = settled_count(listening.made)
    assert count < COUNT
    with asking(listening.address, 1) as other:
        assert read_all(other) > len(BODY)
    assert len(listening.made) == count + 1
