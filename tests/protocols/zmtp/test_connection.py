"""A connection's bounds, and that nothing depends on how its octets are cut."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.zmtp.by_hand import (
    BOUNDS,
    OPENING,
    command,
    frame,
    greeting,
    message,
    opened,
    ready,
    said,
    server,
    told,
)
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.zmtp.connection import COMMAND_NS, MESSAGES_AT_ONCE_MAX, Bounds, Connection, Phase

CUTS = (1, 2, 3, 5, 8, 13, 64, 65, 1000)
STORIES = {
    "good": OPENING + message(b"a", b"", b"c" * 300) + command(b"PING", bytes(5)) + message(b"d") * 50,
    "bad flags": OPENING + message(b"a") + b"\x80\x00" + message(b"b"),
    "too large": OPENING + message(b"a") + frame(1, b"b" * 600) + frame(0, b"c" * 600),
    "too many": OPENING + frame(1, b"") * 20,
    "wrong socket": greeting() + ready(b"SUB") + message(b"a"),
    "old": b"\xff" + bytes(8) + b"\x7f\x01" + bytes(60),
}


def outcome(connection: Connection, data: bytes, cut: int) -> tuple[object, ...]:
    messages = [m for start in range(0, len(data), cut) for m in told(connection, data[start : start + cut])]
    fault = connection.fault and (connection.fault.code, connection.fault.message)
    return messages, said(connection), connection.phase, fault


@pytest.mark.parametrize("story", STORIES)
def test_octets_may_be_cut_anywhere(story: str) -> None:
    data = STORIES[story]
    whole = outcome(server(), data, len(data))
    for cut in CUTS:
        assert outcome(server(), data, cut) == whole, cut


@given(st.binary(max_size=200), st.sampled_from(["", "greeting", "opening"]), st.integers(1, 50))
def test_garbage_never_raises_and_gives_the_same_in_any_cut(data: bytes, prefix: str, cut: int) -> None:
    before = {"": b"", "greeting": greeting(), "opening": OPENING}[prefix]
    whole = outcome(server(), before + data, 1000)
    assert outcome(server(), before + data, cut) == whole


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=3), max_size=20), st.integers(1, 100))
def test_what_is_said_is_what_is_heard(messages: list[list[bytes]], cut: int) -> None:
    speaker, listener = opened(), opened()
    speaker.send(messages)
    assert outcome(listener, said(speaker), cut)[0] == messages


def test_a_size_that_breaks_a_bound_is_refused_before_its_body_comes() -> None:
    for octets, held in [
        (b"\x02" + struct.pack(">Q", 1001), 0),
        (b"\x02" + struct.pack(">Q", 2**64 - 1), 0),
        (b"\x06" + struct.pack(">Q", BOUNDS.command_size_max + 1), 0),
        (frame(1, b"x" * 900) + b"\x00\x65", 900),
    ]:
        connection = opened()
        assert told(connection, octets[:-1]) == []
        assert connection.fault is None
        assert connection.held_size <= held + 8
        told(connection, octets[-1:])
        assert connection.fault is not None
        assert connection.fault.code == "too-large"
        assert connection.held_size == 0


def test_the_parts_of_a_message_are_counted_and_their_sizes_are_added() -> None:
    assert told(opened(), message(*[b"x" * 125] * 8)) == [[b"x" * 125] * 8]
    for octets in (message(*[b"x" * 126] * 8), message(*[b""] * 9)):
        connection = opened()
        assert told(connection, octets) == []
        assert connection.fault is not None
        assert connection.fault.code == "too-large"


def test_one_message_of_endless_parts_is_refused_with_little_held() -> None:
    connection = opened(Bounds(1 << 20, 64))
    octets = frame(1, b"") * 1000
    held_max = 0
    while connection.fault is None:
        told(connection, octets)
        held_max = max(held_max, connection.held_size)
    assert held_max == 0


def test_a_handshake_is_bounded_as_a_whole() -> None:
    connection = server()
    told(connection, greeting() + b"\x06" + struct.pack(">Q", BOUNDS.handshake_size_max))
    assert connection.fault is not None
    assert connection.fault.code == "too-large"
    assert b"ERROR" in said(connection)


def test_what_is_held_of_a_large_message_is_what_has_come_of_it() -> None:
    connection = opened(Bounds(1 << 30))
    told(connection, b"\x02" + struct.pack(">Q", 1 << 29) + bytes(1000))
    assert connection.held_size == 1009


def test_a_flood_of_small_frames_is_cut_a_few_at_a_time() -> None:
    connection = opened()
    connection.receive(b"\0\0" * 10_000)
    counts = []
    while messages := connection.next_messages():
        counts.append(len(messages))
    assert sum(counts) == 10_000
    assert max(counts) == MESSAGES_AT_ONCE_MAX


@pytest.mark.parametrize("said_again", [command(b"PING", bytes(2)), command(b"x")])
def test_a_flood_of_commands_is_obeyed_a_few_at_a_time(said_again: bytes) -> None:
    connection = opened()
    connection.receive(said_again * 10_000)
    costs = []
    while connection.next_messages() or connection.has_more:
        costs.append(connection.take_cost())
    costs.append(connection.take_cost())
    assert sum(costs) == 10_000 * COMMAND_NS
    assert max(costs) == QUANTUM_NS


@pytest.mark.parametrize("said_again", [command(b"PING", bytes(2)), command(b"x")])
def test_commands_before_another_greeting_are_as_few_as_those_of_a_handshake(said_again: bytes) -> None:
    connection = opened()
    connection.is_greeting = True
    told(connection, said_again * (BOUNDS.handshake_size_max // 64))
    assert connection.fault is not None
    assert connection.fault.code == "too-large"


def test_nothing_is_taken_after_a_fault() -> None:
    connection = opened()
    told(connection, b"\xff")
    assert told(connection, b"\xff" + message(b"late")) == []
    told(connection, message(b"late"))
    assert connection.phase is Phase.CLOSED
    assert connection.held_size == 0
