"""What a client gets from one server comes in order, also where credit is given back while more is on its way up."""

from __future__ import annotations

from tests.node.test_topics_door import Node, put
from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics.exchange import Answer
from veredus.protocols.topics.messages import Get, Put, Status, Subscribe, decode_message

SIZE = 6_000
"""Ten of them leave some credit, and eleven do not."""


def test_messages_come_in_order_where_one_write_gives_back_credit_and_brings_two_more() -> None:
    node = Node()
    node.say(Subscribe("alice", "s"))
    node.say(Put("carol", "other", 1, b"x"))
    for number in range(1, 11):
        node.say(put(number, b"%02d" % number + bytes(SIZE)))
    last, bodies = "-1", []
    for _ in range(6):
        given = node.say(Get("alice", "s", last))
        last = given.message_id
        bodies.append(int(given.body[:2]))
    # While this one is written, a settlement that gives back credit and two more messages gather for the next write.
    node.ask(1, Put("carol", "other", 2, b"x"))
    node.tell(DeadlineReached())
    node.ask(2, put(11, b"11" + bytes(SIZE)))
    node.ask(3, put(12, b"12" + bytes(SIZE)))
    node.ask(4, Get("alice", "s", last))
    node.sync()
    (given,) = [decode_message(answer.data) for answer in node.take(Answer) if answer.peer == 4]
    while isinstance(given, Status) and given.status == "OK":
        bodies.append(int(given.body[:2]))
        last, given = given.message_id, node.say(Get("alice", "s", given.message_id))
    assert (bodies, given.status) == ([*range(1, 13)], "NO_MESSAGES")
