"""A program that ends without closing what it opened loses nothing in silence."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.client.without_a_node import read_line, signalled, told_without_a_node
from tests.processes import Child, ended
from veredus.client.embedded import Embedded
from veredus.kernel.errors import Unavailable

BLOCKING = """
import veredus
node = veredus.connect({address!r})
publisher = node.publisher({stream!r}{options})
for number in range(1000):
    publisher.publish("k", b"%d" % number)
"""
FORGOTTEN = """
import veredus
veredus.connect({address!r}).publisher({stream!r}).publish_many(["k"] * 1000, [b""] * 1000)
"""
ASYNCIO = """
import asyncio, veredus
async def main():
    node = await veredus.connect_async({address!r})
    publisher = await node.publisher({stream!r})
    for number in range(1000):
        publisher.publish_nowait("k", b"%d" % number)
asyncio.run(main())
"""
FAILED = BLOCKING + "raise SystemExit(3)\n"


def run(program: str, address: str, stream: str, options: str = "") -> "subprocess.CompletedProcess[str]":
    return ended([sys.executable, "-c", program.format(address=address, stream=stream, options=options)])


@pytest.mark.parametrize("program", [BLOCKING, FORGOTTEN, ASYNCIO], ids=["blocking", "forgotten", "asyncio"])
def test_a_program_that_ends_without_closing_has_published_all(node: Embedded, stream: str, program: str) -> None:
    node.streams.create(stream)
    result = run(program, node.served.address, stream)
    assert (result.returncode, result.stderr) == (0, "")
    assert node.streams.show(stream)["head"] == 1000


def test_so_has_one_with_resume_tokens_and_one_that_ends_with_an_error(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    result = run(FAILED, node.served.address, stream, ', source="s", resume="token"')
    assert (result.returncode, result.stderr) == (3, "")
    assert node.streams.show(stream)["head"] == 1000


SPOILED = """
import veredus
from tests.client.unwritable import Unwritable
publisher = veredus.connect({address!r}).publisher({stream!r}{options})
publisher.publish_many(["k"] * 100000, [b"x" * 100] * 100000)
publisher.publish("k", Unwritable())
while True:
    publisher.publish("k", b"never")
"""


def test_one_that_ends_with_a_publication_that_cannot_be_encoded_has_published_all_before_it(
    node: Embedded, stream: str
) -> None:
    node.streams.create(stream)
    result = run(SPOILED, node.served.address, stream)
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 1
    assert "publication 100001 cannot be written" in result.stderr
    assert node.streams.show(stream)["head"] == 100_000


LOST = """
import sys, veredus
from veredus.client import endings, pending
pending.FINISH_TIMEOUT_S = 0.2
node = veredus.connect(sys.argv[1])
publisher = node.publisher(sys.argv[2], source="s")
print("ready", flush=True)
sys.stdin.readline()
publisher.publish_many(["k"] * 3, [b""] * 3)
"""


def test_one_whose_node_is_gone_says_what_it_lost(node: Embedded, stream: str) -> None:
    _, told = told_without_a_node(node, LOST, stream)
    assert f"not confirmed 3 publications (stream '{stream}', source 's', the last number is 3)" in told


INTERRUPTED = """
import sys, veredus
from veredus.client import endings, pending
pending.FINISH_TIMEOUT_S = 60.0
own = veredus.embedded()
publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
publisher.publish_many(["k"] * 3, [b""] * 3)
endings.known_loop().call(lambda: print(own.served.address.removeprefix("unix://"), flush=True))
"""


def test_one_that_is_interrupted_as_it_ends_says_what_it_lost_and_stops_its_nodes(node: Embedded, stream: str) -> None:
    owned: list[Path] = []

    def interrupt(child: Child, _: Cutter) -> None:
        owned.append(Path(read_line(child)))
        assert owned[0].exists()
        time.sleep(0.5)  # the interpreter takes a moment to come to its end from here
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGINT)

    _, told = told_without_a_node(node, INTERRUPTED, stream, then=interrupt)
    assert "not confirmed 3 publications" in told
    assert ("Traceback" in told, owned[0].exists()) == (False, False)


WITHOUT_A_NODE = """
import asyncio, signal, sys, veredus
from veredus.client import endings, pending
pending.FINISH_TIMEOUT_S = 60.0
"""
A_HANDLER_RAISES = (
    WITHOUT_A_NODE
    + """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
publisher.publish_many(["k"] * 3, [b""] * 3)
endings.known_loop().call(lambda: print("ends", flush=True))
"""
)
A_HANDLER_GOES_ON = A_HANDLER_RAISES.replace("sys.exit(0)", 'print("handled", flush=True)').replace("60.0", "1.0")
CLOSED = (
    WITHOUT_A_NODE
    + """
pending.FINISH_TIMEOUT_S = 2.0
node = veredus.connect(sys.argv[1])
publisher = node.publisher(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
publisher.publish_many(["k"] * 3, [b""] * 3)
endings.known_loop().call(lambda: print("ends", flush=True))
node.close()
"""
)
CLOSED_WITH_ASYNCIO = (
    WITHOUT_A_NODE
    + """
async def main():
    async with veredus.connect_async(sys.argv[1]) as node:
        publisher = await node.publisher(sys.argv[2])
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for _ in range(3):
            publisher.publish_nowait("k", b"")
        print("ends", flush=True)
asyncio.run(main())
"""
)


@pytest.mark.parametrize(
    ("program", "number", "count", "status"),
    [
        (A_HANDLER_RAISES, signal.SIGTERM, 1, 0),
        (CLOSED, signal.SIGINT, 1, -2),
        # By the first one asyncio cancels the close, and the connection goes on by itself.
        (CLOSED_WITH_ASYNCIO, signal.SIGINT, 2, -2),
    ],
    ids=["a handler that raises", "a close", "a close with asyncio"],
)
def test_what_a_signal_tears_a_program_out_of_names_what_it_lost(
    node: Embedded, stream: str, program: str, number: signal.Signals, count: int, status: int
) -> None:
    _, told = told_without_a_node(node, program, stream, then=signalled(number, count), status=status)
    assert f"not confirmed 3 publications (stream '{stream}'" in told


MEANWHILE = """
import sys, threading, time, veredus
from veredus.client import endings
errors = []

def publish():
    may_publish.wait()
    try:
        publisher.publish("k", b"as the program ends")
    except veredus.Misuse as error:
        errors.append(error)

def say_lost():
    may_publish.set()
    while not (publisher.number or errors):
        time.sleep(0)
    say_it()

publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="a")
say_it, endings.say_lost = endings.say_lost, say_lost
may_publish = threading.Event()
threading.Thread(target=publish, daemon=True).start()
"""


MANY_GO_ON = """
import atexit

@atexit.register
def goodbye():
    print(publisher.number - max(numbers))

import sys, threading, time, veredus
numbers = [0] * 40

def go_on(place):
    try:
        while True:
            numbers[place] = publisher.publish("k", b"x")
    except veredus.Unavailable as error:
        numbers[place] = error.details["number"]
    except veredus.Misuse:
        pass

publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="a")
for place in range(40):
    threading.Thread(target=go_on, args=(place,), daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.parametrize("turn", range(3))
def test_what_is_refused_as_the_program_ends_is_not_published(node: Embedded, stream: str, turn: int) -> None:
    node.streams.create(stream)
    done = ended([sys.executable, "-c", MANY_GO_ON, node.served.address, stream])
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


A_HANDLER_PUBLISHES = """
import os, signal, sys
import veredus
from veredus.client.loops import LoopThread, Signal

class Interrupted(Signal):
    def wait(self, timeout_s=None):
        os.kill(os.getpid(), signal.SIGTERM)  # the loop's thread is about to end, and no other goes on with it yet
        return super().wait(timeout_s)

def handle(number, frame):
    publisher.publish("k", b"in the handler")
    {then}

signal.signal(signal.SIGTERM, handle)
publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="a")
publisher.publish("k", b"before")
{connection}._over = Interrupted()
"""


@pytest.mark.parametrize("then", ["sys.exit(8)", "pass", "raise ValueError('its own')"])
def test_a_handler_of_a_signal_may_publish_as_the_program_ends(node: Embedded, stream: str, then: str) -> None:
    node.streams.create(stream)
    program = A_HANDLER_PUBLISHES.replace("{then}", then).replace("{connection}", "publisher._thread")
    done = ended([sys.executable, "-c", program, node.served.address, stream])
    assert node.streams.show(stream)["head"] == 2
    assert ("ValueError: its own" in done.stderr) is ("ValueError" in then)
    assert "veredus:" not in done.stderr


A_HELD_THREAD = """
import sys, time
import veredus
publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="a")
publisher.publish("k", b"before")
publisher.flush()
publisher._thread.loop.call_soon_threadsafe(time.sleep, 60)
time.sleep(0.1)
publisher.publish("k", b"behind")
"""


@pytest.mark.slow
def test_a_program_whose_loop_is_held_ends_all_the_same_and_names_what_it_could_not_send(
    node: Embedded, stream: str
) -> None:
    began_s = time.monotonic()
    done = ended([sys.executable, "-c", A_HELD_THREAD, node.served.address, stream])
    assert f"not confirmed 1 publication (stream '{stream}'" in done.stderr
    assert time.monotonic() - began_s < 30


@pytest.mark.parametrize("raised", ["sys.exit(3)", "signal.default_int_handler(2, None)"], ids=["exit", "interrupt"])
def test_a_handler_of_a_signal_that_raises_as_the_program_ends_ends_the_wait_and_nothing_is_said_of_it(
    node: Embedded, stream: str, raised: str
) -> None:
    program = A_HANDLER_RAISES.replace("sys.exit(0)", raised)
    _, told = told_without_a_node(node, program, stream, then=signalled(signal.SIGTERM))
    assert told.count("\n") == 1
    assert f"not confirmed 3 publications (stream '{stream}'" in told


def test_a_handler_that_raises_nothing_is_called_there_and_the_wait_goes_on(node: Embedded, stream: str) -> None:
    began_s = time.monotonic()
    said, told = told_without_a_node(node, A_HANDLER_GOES_ON, stream, then=signalled(signal.SIGTERM, each_s=0.2))
    assert said == "handled\n"
    assert f"not confirmed 3 publications (stream '{stream}'" in told
    assert time.monotonic() - began_s > 1.0


def test_what_another_thread_publishes_as_the_program_ends_is_refused_or_sent_and_not_named(
    node: Embedded, stream: str
) -> None:
    node.streams.create(stream)
    done = ended([sys.executable, "-c", MEANWHILE, node.served.address, stream])
    assert (done.returncode, done.stderr, node.streams.show(stream)["head"]) == (0, "", 0)


def test_a_node_that_is_closed_first_sends_what_its_publishers_hold(node: Embedded, stream: str) -> None:
    with veredus.connect(node.served.address) as far:
        far.publisher(stream).publish_many(["k"] * 1000, [b""] * 1000)
    assert node.streams.show(stream)["head"] == 1000


async def _close_the_node_alone(address: str, stream: str) -> None:
    async with veredus.connect_async(address) as far:
        publisher = await far.publisher(stream)
        await publisher.publish_many(["k"] * 1000, [b""] * 1000)


def test_so_does_one_with_asyncio(node: Embedded, stream: str) -> None:
    asyncio.run(_close_the_node_alone(node.served.address, stream))
    assert node.streams.show(stream)["head"] == 1000


def test_a_node_that_is_closed_and_cannot_send_raises_what_is_in_doubt(
    node: Embedded, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veredus.client.pending.FINISH_TIMEOUT_S", 0.1)
    with Cutter(node.served.address) as cutter:
        far = veredus.connect(cutter.address)
        publisher = far.publisher(stream, source="s")
        cutter.is_open = False
        cutter.cut()
        publisher.publish("k", b"")
        with pytest.raises(Unavailable, match=r"1 publication \(") as caught:
            far.close()
        assert caught.value.code == "in-doubt"
        far.close()


def test_an_embedded_node_may_be_closed_twice() -> None:
    with veredus.embedded() as node:
        node.close()


LATE = """
import atexit, threading
atexit.register(lambda: node.close() or print(said, [t.name for t in threading.enumerate() if "disk" not in t.name]))
import veredus
said = []
node = {opened}
publisher = node.publisher("late", source="s")
publisher.publish_many(["k"] * 1000, [b""] * 1000)
atexit.register(lambda: said.append(publisher.publish("k", b"") and "published"))
"""


def test_no_thread_of_ours_runs_when_the_interpreter_goes_and_what_is_closed_last_of_all_is_closed(
    node: Embedded,
) -> None:
    result = run(LATE.format(opened="veredus.connect({address!r})"), node.served.address, "")
    assert (result.returncode, result.stdout, result.stderr) == (0, "['published'] ['MainThread']\n", "")
    assert node.streams.show("late")["head"] == 1001
