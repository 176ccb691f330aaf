"""What the handlers of `atexit` do with what a program has opened works as anywhere else, or is refused in words."""

import sys
from pathlib import Path

import pytest

from tests.processes import ended
from veredus.client.embedded import Embedded

LIFE_S = 15.0


def said_by(program: str, *arguments: object) -> tuple[int, str, str]:
    """How a program ended, and what it said."""
    done = ended([sys.executable, "-c", program, *map(str, arguments)], life_s=LIFE_S)
    return done.returncode, done.stdout, done.stderr


TOPICS_CLOSED = """
import asyncio, atexit, sys
from veredus import topics

where = {"proxies": ["localhost:9"], "directory": sys.argv[1]}
client = topics.Client("alice", **where).open()
atexit.register(lambda: client.close() or print("closed"))

async def open_and_close():
    async with topics.AsyncClient("bob", **where):
        print("opened")

atexit.register(lambda: asyncio.run(open_and_close()))
"""


def test_clients_of_topics_are_opened_and_closed_in_a_handler(tmp_path: Path) -> None:
    assert said_by(TOPICS_CLOSED, tmp_path) == (0, "opened\nclosed\n", "")


EMBEDDED_CLOSED = """
import atexit, veredus
node = veredus.embedded()
publisher = node.publisher("s", source="a")
def goodbye():
    number = publisher.publish("k", b"x")
    print(number, publisher.wait(number).sequence)
    node.close()
    print("closed")
atexit.register(goodbye)
"""


def test_an_embedded_node_is_used_and_closed_in_a_handler() -> None:
    assert said_by(EMBEDDED_CLOSED) == (0, "1 1\nclosed\n", "")


CONNECTED_FIRST = """
import asyncio, atexit, sys, veredus
@atexit.register
def goodbye():
    {connects}
    print("published")
"""
BLOCKING = """
    with veredus.connect(sys.argv[1]) as node, node.publisher(sys.argv[2]) as publisher:
        publisher.publish("k", b"x")
"""
ASYNCIO = """
    async def main():
        async with veredus.connect_async(sys.argv[1]) as node, node.publisher(sys.argv[2]) as publisher:
            await publisher.publish("k", b"x")
    asyncio.run(main())
"""


@pytest.mark.parametrize("connects", [BLOCKING, ASYNCIO], ids=["blocking", "asyncio"])
def test_a_handler_may_be_the_first_to_connect(node: Embedded, stream: str, connects: str) -> None:
    node.streams.create(stream)
    program = CONNECTED_FIRST.format(connects=connects)
    assert said_by(program, node.served.address, stream) == (0, "published\n", "")
    assert node.streams.show(stream)["head"] == 1


BY_NAME = """
import atexit, veredus
@atexit.register
def goodbye():
    try:
        veredus.connect("localhost:9", refused_s=0.1)
    except veredus.Unavailable as error:
        print(error.code)
"""


def test_a_handler_may_name_a_host() -> None:
    assert said_by(BY_NAME) == (0, "unreachable\n", "")
