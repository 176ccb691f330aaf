"""Links that carry messages themselves: who reads what waits for it is not silent, who reads nothing of it is."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.protocols.zmtp.by_hand import frame
from tests.runtime.answering import answering, asking
from veredus.protocols.topics.exchange import Answer
from veredus.protocols.zmtp.link import Timing
from veredus.runtime.topics_limits import TopicsLimits

ANSWER = bytes(64 << 10)
MS = 1_000_000
LIMITS = TopicsLimits(timing=Timing(5_000 * MS, 500 * MS, 2_000 * MS))


@pytest.fixture
def address() -> Iterator[str]:
    """Where each question is answered with `ANSWER`."""
    with answering(lambda asked: Answer(asked.peer, ANSWER), LIMITS) as there:
        yield there.address


def rest_of(peer: socket.socket) -> int:
    """How much comes until the other ends the link, or says nothing more."""
    size = 0
    peer.settimeout(0.5)
    try:
        while octets := peer.recv(1 << 20):
            size += len(octets)
    except OSError:
        return size
    return size


def has_ended(peer: socket.socket) -> bool:
    """Whether the other has closed: to speak once may go unnoticed."""
    try:
        for _ in range(2):
            peer.sendall(frame(0, b"question"))
            time.sleep(0.1)
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize("count", [24, 128], ids=["what the system holds", "more than is written"])
def test_a_peer_that_reads_slowly_stays_and_one_that_reads_nothing_is_let_go(address: str, count: int) -> None:
    with asking(address, count) as slow, asking(address, count) as stuck:
        size = 0
        for _ in range(60):
            size += len(slow.recv(8_000))
            time.sleep(0.1)
        assert not has_ended(slow)
        size += rest_of(slow)
        assert size >= count * len(ANSWER)
        rest_of(stuck)
        assert has_ended(stuck)
