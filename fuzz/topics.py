"""Topics: messages that are read and written again, and a whole server over a real streams floor that is told garbage.

What was read and is written again is read as the same; a server says to whatever comes one whole STATUS or nothing, and
its invariants hold.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import main
from tests.protocols.topics.floor import ServerScene
from veredus.kernel.errors import PeerFault
from veredus.protocols.topics import many
from veredus.protocols.topics import messages as m

TOPIC = "prices"
GIVER = "127.0.0.1:9009"
FRESH_COUNT = 256
"""A server that has heard so many inputs is thrown away: what broke it is found again from few."""
MESSAGES = (
    m.Subscribe("alice", TOPIC),
    m.Subscribe("alice", TOPIC, wish=7, left=6),
    m.Unsubscribe("alice", TOPIC),
    m.Get("alice", TOPIC, "-1"),
    m.GetMany("alice", TOPIC, "-1", 9),
    m.Put("bob", TOPIC, 3, b"body"),
    m.PutMany("bob", TOPIC, 4, many.pack([b"one", b"", b"three"])),
    m.Periodic("127.0.0.1:9101", (TOPIC, "news")),
    m.Merge("127.0.0.1:9101", TOPIC, GIVER),
    m.Transfer(GIVER, TOPIC, (("alice", ("1", "2")), ("carol", ())), (("1", b"a*b"), ("2", b"/c"))),
    m.Status("127.0.0.1:9001", "OK", "5", b"found"),
)
SEEDS = tuple(m.encode_message(message) for message in MESSAGES)


class Heard:
    """The server that hears the inputs: with a topic, a subscriber and two messages, one of them got."""

    def __init__(self) -> None:
        self.count = 0
        self.scene = ServerScene()
        for message in (MESSAGES[0], m.Put("bob", TOPIC, 1, b"x"), m.Put("bob", TOPIC, 2, b"y"), MESSAGES[3]):
            self.scene.say(message)

    def say(self, data: bytes) -> None:
        self.count += 1
        peer = self.scene.ask(data)
        self.scene.sync()
        answers = self.scene.answers()
        assert len(answers) <= 1, answers
        assert all(answered == peer for answered, _ in answers), answers
        self.scene.ended.clear()


heard = Heard()


def target(data: bytes) -> None:
    global heard
    try:
        message = m.decode_message(data)
    except PeerFault:
        pass
    else:
        assert m.decode_message(m.encode_message(message)) == message
    if heard.count == FRESH_COUNT:
        heard = Heard()
    try:
        heard.say(data)
    except BaseException:
        heard = Heard()
        raise


if __name__ == "__main__":
    main("topics", target, SEEDS)
