"""What waits for a turn is bounded over all links of a principal: the more of it waits, the less is read at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.node.test_begun_frames import MIB, Node
from veredus.kernel.events import LinkClosed, LinkOpened, Received
from veredus.node.backlog import READ_SIZE_MAX, READ_SIZE_MIN, UNPROVEN_READ_SIZE, Backlog
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m

SHARE = 64 * MIB


def test_two_thousand_links_of_one_principal_together_hold_little_more_than_its_share() -> None:
    backlog = Backlog(SHARE, 4 * SHARE)
    for link in range(2_000):
        backlog.note(link, "greedy", backlog.read_size("greedy"))
    backlog.check()
    assert backlog.size <= SHARE + 2_000 * READ_SIZE_MIN
    assert backlog.read_size("modest") == READ_SIZE_MAX, "nobody else is slowed"


def test_very_many_principals_together_hold_little_more_than_the_room_of_all() -> None:
    room, count = 4 * SHARE, 1_000
    backlog = Backlog(SHARE, room)
    for link in range(20 * count):
        backlog.note(link, f"greedy-{link % count}", backlog.read_size(f"greedy-{link % count}"))
    backlog.check()
    assert backlog.size <= room + 20 * count * READ_SIZE_MIN


def test_who_has_the_most_waiting_is_slowed_first_and_a_newcomer_hardly() -> None:
    backlog = Backlog(SHARE, 4 * SHARE)
    for link in range(2_000):
        name = f"greedy-{link % 8}"
        backlog.note(link, name, backlog.read_size(name))
    held = [backlog.read_size(f"greedy-{number}") for number in range(8)]
    assert max(held) < READ_SIZE_MAX // 8
    assert backlog.read_size("modest") == READ_SIZE_MAX


def test_who_has_no_principal_yet_is_read_from_a_greeting_at_a_time() -> None:
    assert Backlog(SHARE, 4 * SHARE).read_size("") == UNPROVEN_READ_SIZE


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "a", "b"]), st.integers(0, 100)), max_size=40))
def test_sums_are_right_whatever_becomes_of_links(steps: list[tuple[int, str, int]]) -> None:
    backlog = Backlog(SHARE, 4 * SHARE)
    for link, principal, size in steps:
        backlog.note(link, principal, size)
        backlog.check()
    for link in range(1, 5):
        backlog.note(link, "", 0)
    assert backlog.size == 0


def test_requests_that_wait_for_their_turn_are_counted_until_they_were_answered_or_their_link_is_gone() -> None:
    node = Node()
    node.greeted(1)
    node.greeted(2)
    requests = native.encode_message(0, m.Request(1, "stream.list")) * 1_000
    node.tell(Received(1, requests))
    node.tell(Received(2, requests))
    assert node.engine.backlog.size == 2 * len(requests)
    node.pass_time(10)
    node.tell(LinkClosed(2, "gone"))
    while node.engine.backlog.size:
        assert node.pass_time(10) != [] or node.engine.deadline() is not None
    node.engine.backlog.check()


def test_commands_of_version_1_that_wait_for_their_turn_are_counted() -> None:
    node = Node()
    node.tell(LinkOpened(1, "tcp", "peer", "local"))
    node.tell(Received(1, frames.encode_attach("s") + frames.PING * 20_000))
    assert node.engine.backlog.size == node.engine.links[1].unread_size > 0
