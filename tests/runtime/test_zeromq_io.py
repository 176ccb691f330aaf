"""What is received from a ZeroMQ socket: whole messages, of which no more is kept than anybody waits for."""

from __future__ import annotations

import zmq

from veredus.runtime.zeromq_io import PARTS_MAX, receive


def test_of_a_message_with_endless_parts_the_first_few_are_kept_and_the_next_message_comes_whole() -> None:
    with zmq.Context() as context, context.socket(zmq.PAIR) as hostile, context.socket(zmq.PAIR) as client:
        hostile.linger = client.linger = 0
        hostile.bind("inproc://hostile")
        client.connect("inproc://hostile")
        hostile.send_multipart([b"part"] * 10_000)
        hostile.send_multipart([b"token", b"", b"answer"])
        assert client.poll(10_000)
        assert receive(client) == [b"part"] * PARTS_MAX
        assert receive(client) == [b"token", b"", b"answer"]
        assert receive(client) is None
