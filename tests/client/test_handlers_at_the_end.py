"""What the handlers of `atexit` do with what a program has opened works as anywhere else, or is refused in words."""

import sys
from pathlib import Path

import pytest

import veredus
from tests.client.without_a_node import told_without_a_node
from tests.processes import ended
from veredus.client.embedded import Embedded

LIFE_S = 15.0


def said_by(program: str, *arguments: object) -> tuple[int, str, str]:
    """How a program ended, and what it said."""
    done = ended([sys.executable, "-c", program, *map(str, arguments)], life_s=LIFE_S)
    return done.returncode, done.stdout, done.stderr


TOPICS_CLOSED = """
import asyncio, atexit, sys, veredus
from veredus import topics

where = {"proxies": ["localhost:9"], "directory": sys.argv[1]}
client = topics.Client("alice", **where).open()
atexit.register(lambda: client.close() or print("closed"))

async def open_and_close():
    try:
        async with topics.AsyncClient("bob", **where):
            print("opened")
    except veredus.Misuse as error:
        print(error)

atexit.register(lambda: asyncio.run(open_and_close()))
"""


def test_clients_of_topics_are_opened_and_closed_in_a_handler(tmp_path: Path) -> None:
    code, said, told = said_by(TOPICS_CLOSED, tmp_path)
    assert (code, told) == (0, "")
    # Python 3.12 starts no thread there.
    words = "the main thread has ended: it is too late to open a client of topics, which needs threads [closed]"
    assert said.splitlines() == [words if sys.version_info[:2] == (3, 12) else "opened", "closed"]


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


USED = """
import atexit, sys, veredus

@atexit.register
def goodbye():
    print(publisher.publish("k", b"last"))
    print(publisher.wait(2).sequence, publisher.flush().number)
    subscription.settle(got)
    subscription.close()
    publisher.publish("k", b"not closed")

node = {opened}
publisher = node.publisher(sys.argv[2], source="a")
publisher.wait(publisher.publish("k", b"first"))
subscription = node.subscribe(sys.argv[2], subscriber="s")
got = next(iter(subscription))
"""
FAR = "veredus.connect(sys.argv[1])"
INSIDE = "veredus.embedded(sys.argv[1])"


def test_a_handler_that_was_registered_before_connecting_publishes_waits_settles_and_closes(
    node: Embedded, stream: str
) -> None:
    assert said_by(USED.format(opened=FAR), node.served.address, stream) == (0, "2\n2 2\n", "")
    assert (node.streams.show(stream)["head"], node.subscriptions.show(stream, "s")["floor"]) == (3, 1)


def test_so_does_one_with_an_embedded_node(tmp_path: Path) -> None:
    assert said_by(USED.format(opened=INSIDE), tmp_path, "s") == (0, "2\n2 2\n", "")
    with veredus.embedded(tmp_path) as again:
        assert again.streams.show("s")["head"] == 3


REGISTERED_FIRST = """
import atexit
atexit.register(lambda: goodbye())
import sys, veredus

def goodbye():
    print(publisher.publish("k", b"last"), publisher.publish_many(["k", "k"], [b"", b""]))
    print(publisher.wait(4).number, publisher.flush().number)
    got = next(iter(subscription))
    subscription.settle(got)
    with veredus.connect(sys.argv[1]) as far, far.publisher(sys.argv[2]) as other:
        other.publish("k", b"of another connection")
    publisher.publish("k", b"not closed")

node = veredus.connect(sys.argv[1])
publisher = node.publisher(sys.argv[2], source="a"{options})
publisher.publish("k", b"first")
subscription = node.subscribe(sys.argv[2], subscriber="s")
"""


@pytest.mark.parametrize("options", ["", ', resume="token"'], ids=["numbers", "tokens"])
def test_so_does_one_that_was_registered_before_the_import(node: Embedded, stream: str, options: str) -> None:
    program = REGISTERED_FIRST.format(options=options)
    assert said_by(program, node.served.address, stream) == (0, "2 4\n4 4\n", "")
    assert (node.streams.show(stream)["head"], node.subscriptions.show(stream, "s")["floor"]) == (6, 1)


LOGGING = """
import logging.handlers, sys, veredus

class Publishing(logging.Handler):
    def emit(self, record):
        publisher.publish("log", self.format(record))

publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2])
logging.getLogger().addHandler(logging.handlers.MemoryHandler(100, target=Publishing()))
logging.warning("one")
logging.warning("two")
"""


def test_what_logging_holds_back_until_the_end_is_published(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    assert said_by(LOGGING, node.served.address, stream) == (0, "", "")
    assert node.streams.show(stream)["head"] == 2


TOO_LATE = """
import atexit
atexit.register(lambda: goodbye())
import sys, veredus

def goodbye():
    for use in (
        lambda: publisher.publish("k", b"x"), lambda: publisher.publish_many(["k"], [b""]), node.streams.list,
        lambda: node.publisher("other"), lambda: next(iter(subscription)), veredus.embedded,
    ):
        try:
            print(use())
        except veredus.Misuse as error:
            print(error.code, "too late" if "it is too late" in str(error) else "the program has come" in str(error))
    publisher.close()
    subscription.close()
    node.close()

node = veredus.embedded(sys.argv[1])
publisher = node.publisher("s")
publisher.publish("k", b"first")
subscription = node.subscribe("s", start=veredus.head())
"""


def test_what_hangs_on_an_embedded_node_that_has_ended_says_so_at_once(tmp_path: Path) -> None:
    code, said, told = said_by(TOO_LATE, tmp_path)
    assert (code, told) == (0, "")
    assert said.splitlines() == ["closed True"] * 5 + ["closed too late"]


UNCONFIRMED = """
import atexit
atexit.register(lambda: goodbye())
import sys, veredus
from veredus.client import pending
pending.FINISH_TIMEOUT_S = 0.2
node = veredus.connect(sys.argv[1])
publisher = node.publisher(sys.argv[2], source="a")

def goodbye():
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        publisher.publish("k", b"x")
    except veredus.Unavailable as error:
        print(error)
"""


def test_a_handler_that_runs_behind_the_end_hears_of_what_the_node_does_not_confirm(
    node: Embedded, stream: str
) -> None:
    said, _ = told_without_a_node(node, UNCONFIRMED, stream)
    assert "the program ends, and the node has not confirmed 1 publication (" in said


NO_THREAD = """
import atexit, sys, veredus
from veredus.client import loops

def no_thread(*_):
    raise RuntimeError("can't create new thread at interpreter shutdown")

@atexit.register
def goodbye():
    loops.start_new_thread = no_thread
    node = veredus.connect(sys.argv[1])
    publisher = node.publisher(sys.argv[2])
    print(publisher.wait(publisher.publish("k", b"waited for")).number)
    publisher.publish("k", b"not waited for")
"""


def test_a_handler_may_be_the_first_to_connect_where_it_can_start_no_thread(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    assert said_by(NO_THREAD, node.served.address, stream) == (0, "1\n", "")
    assert node.streams.show(stream)["head"] == 2


NO_THREAD_FOR_A_NODE = """
import atexit, sys, threading, veredus
from veredus.client import loops
from veredus.runtime import disk
from veredus import topics
veredus.embedded

def no_thread(*_):
    raise RuntimeError("can't create new thread at interpreter shutdown")

@atexit.register
def goodbye():
    loops.start_new_thread = no_thread
    disk.Thread.start = no_thread
    for open_ in veredus.embedded, topics.Client("alice", proxies=["localhost:9"], directory=sys.argv[1]).open:
        try:
            open_()
        except veredus.Misuse as error:
            print(error)
"""


def test_what_needs_threads_says_so_where_none_can_be_started(tmp_path: Path) -> None:
    code, said, told = said_by(NO_THREAD_FOR_A_NODE, tmp_path)
    assert (code, told) == (0, "")
    words = "the main thread has ended: it is too late to open"
    opened = "an embedded node", "a client of topics"
    assert said.splitlines() == [f"{words} {what}, which needs threads [closed]" for what in opened]


TOO_LATE_IN_A_LOOP = """
import atexit
atexit.register(lambda: goodbye())
import asyncio, sys, veredus
loop = asyncio.new_event_loop()

async def open_all():
    node = await veredus.connect_async(sys.argv[1])
    return node, await node.publisher(sys.argv[2])

node, publisher = loop.run_until_complete(open_all())

async def publish():
    return await publisher.publish("k", b"x")

def goodbye():
    for use in lambda: publisher.publish_nowait("k", b"x"), lambda: loop.run_until_complete(publish()):
        try:
            print(use())
        except veredus.Misuse as error:
            print(error.code)
    loop.run_until_complete(publisher.close())
    loop.run_until_complete(node.close())
"""


def test_what_hangs_on_a_loop_that_nobody_runs_says_so_behind_the_end(node: Embedded, stream: str) -> None:
    code, said, told = said_by(TOO_LATE_IN_A_LOOP, node.served.address, stream)
    assert (code, told) == (0, "")
    assert said.splitlines() == ["other-loop", "closed"]


EMBEDDED_FIRST = """
import asyncio, atexit{early}
import veredus

def goodbye():
    try:
        {opens}
    except veredus.Misuse as error:
        print(error)
{late}
"""
OPENS = """with veredus.embedded() as node, node.publisher("s") as publisher:
            print(publisher.wait(publisher.publish("k", b"x")).sequence)"""
OPENS_WITH_ASYNCIO = """
        async def main():
            async with veredus.embedded_async() as node, node.publisher("s") as publisher:
                print((await publisher.wait(await publisher.publish("k", b"x"))).sequence)
        asyncio.run(main())"""


@pytest.mark.parametrize("opens", [OPENS, OPENS_WITH_ASYNCIO], ids=["blocking", "asyncio"])
def test_a_handler_may_be_the_first_to_open_an_embedded_node(opens: str) -> None:
    program = EMBEDDED_FIRST.format(early="", opens=opens, late="atexit.register(goodbye)")
    # Python 3.12 starts no thread there.
    words = "the main thread has ended: it is too late to open an embedded node, which needs threads [closed]"
    assert said_by(program) == (0, words + "\n" if sys.version_info[:2] == (3, 12) else "1\n", "")


@pytest.mark.parametrize("opens", [OPENS, OPENS_WITH_ASYNCIO], ids=["blocking", "asyncio"])
def test_one_that_was_registered_before_the_import_is_told_that_it_cannot(opens: str) -> None:
    program = EMBEDDED_FIRST.format(early="; atexit.register(lambda: goodbye())", opens=opens, late="")
    words = "the main thread has ended: it is too late to open an embedded node, which needs threads [closed]"
    assert said_by(program) == (0, words + "\n", "")
