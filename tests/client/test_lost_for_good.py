"""What a node will never confirm, as it refused it for good, a program that just ends names on stderr, once."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

import veredus
import veredus.client.pending
from tests.client.cutter import Cutter
from tests.client.test_last_words import LIFE_S, PIPES, named_in
from tests.processes import Child, wait_until
from veredus.client.embedded import Embedded
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.frames import ATTACH_OK
from veredus.protocols.zeps.native import encode_message

BEGUN = """
import asyncio, sys, time, veredus
from tests.client.unwritable import Unwritable

def wait_for(has_ended):
    end_s = time.monotonic() + 10.0
    while not has_ended():
        assert time.monotonic() < end_s
        time.sleep(0.01)

async def wait_in_loop(has_ended):
    while not has_ended():
        await asyncio.sleep(0.01)
"""
BLOCKING = (
    BEGUN
    + """
node = veredus.connect(sys.argv[1])
publisher = node.publisher(sys.argv[2], source="a", resume="token")  # sends nothing by itself
publisher.publish_many(["k"] * 3, [b""] * 3)
print("ready", flush=True)
sys.stdin.readline()
wait_for(lambda: publisher._intake.failure)
"""
)
ASYNCIO = (
    BEGUN
    + """
async def main():
    node = await veredus.connect_async(sys.argv[1])
    publisher = await node.publisher(sys.argv[2], source="a", resume="token")
    await publisher.publish_many(["k"] * 3, [b""] * 3)
    print("ready", flush=True)
    sys.stdin.readline()
    await wait_in_loop(lambda: publisher._intake.failure)
    {ends}

{runs}
"""
)
RUN = "asyncio.run(main())"
LEFT = "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())"
PROGRAMS = {
    "blocking": BLOCKING,
    "asyncio": ASYNCIO.format(ends="", runs=RUN),
    "a loop that is left": ASYNCIO.format(ends="", runs=LEFT),
    "a loop that is closed": ASYNCIO.format(ends="", runs=f"{LEFT}\nloop.close()"),
    "two loops": ASYNCIO.format(ends="", runs=f"{RUN}\nasyncio.run(asyncio.sleep(0))"),
}
LOST = "3 publications (stream {stream!r}, source 'a', the last number is 3)"


def fence(node: Embedded, stream: str) -> None:
    node.publisher(stream, source="a").close()


def delete(node: Embedded, stream: str) -> None:
    node.streams.delete(stream)


def told_by(node: Embedded, stream: str, program: str, end: Callable[[Cutter], object]) -> tuple[int, str]:
    """How a program ends, and what it says, that something ends as soon as it is ready."""
    with (
        Cutter(node.served.address) as cutter,
        Child([sys.executable, "-c", program, cutter.address, stream], life_s=LIFE_S, **PIPES) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        end(cutter)
        told = child.communicate(b"\n")[1].decode()
    return child.returncode, told


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("end", [fence, delete])
def test_what_a_source_that_ended_has_lost_is_named(
    node: Embedded, stream: str, program: str, end: Callable[[Embedded, str], None]
) -> None:
    status, told = told_by(node, stream, program, lambda _: end(node, stream))
    (named,) = named_in(told)
    assert (status, told.count("\n")) == (0, 1)
    assert f"{LOST.format(stream=stream)}, and takes no more of it: " in named


def refuse(cutter: Cutter, code: str) -> None:
    cutter.answers = [ATTACH_OK + encode_message(0, m.Goodbye(code, "go away"))]
    cutter.cut()


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("code", ["revoked", "malformed"])
def test_what_a_connection_that_ended_has_lost_is_named(node: Embedded, stream: str, program: str, code: str) -> None:
    status, told = told_by(node, stream, program, lambda cutter: refuse(cutter, code))
    (named,) = named_in(told)
    assert (status, told.count("\n")) == (0, 1)
    assert f"{LOST.format(stream=stream)}, and takes no more of it: " in named
    assert f"go away [{code}]" in named


SPOILED = (
    BEGUN
    + """
node = veredus.connect(sys.argv[1])
publisher = node.publisher(sys.argv[2], source="a")
publisher.publish("k", b"good")
publisher.flush()
publisher.publish("k", Unwritable())
print("ready", flush=True)
wait_for(lambda: publisher._intake.failure)
"""
)


def test_publications_that_cannot_be_written_are_named(node: Embedded, stream: str) -> None:
    status, told = told_by(node, stream, SPOILED, lambda _: None)
    (named,) = named_in(told)
    assert status == 0
    assert f"1 publication (stream {stream!r}, source 'a', the last number is 2), and takes no more of it" in named


SETTLED = (
    BEGUN
    + """
node = veredus.connect(sys.argv[1])
with node.publisher(sys.argv[2]) as publisher:
    publisher.publish("k", b"")
subscription = node.subscribe(sys.argv[2], subscriber="s")
got = next(iter(subscription))
print("ready", flush=True)
sys.stdin.readline()
wait_for(lambda: not node._node.connection.is_open)
subscription.settle(got)
wait_for(lambda: subscription.channel.failure)
"""
)
SETTLED_IN_A_LOOP = (
    BEGUN
    + """
async def main():
    node = await veredus.connect_async(sys.argv[1])
    async with node.publisher(sys.argv[2]) as publisher:
        await publisher.publish("k", b"")
    subscription = await node.subscribe(sys.argv[2], subscriber="s")
    async for got in subscription:
        break
    print("ready", flush=True)
    sys.stdin.readline()
    await wait_in_loop(lambda: not node.connection.is_open)
    subscription.settle(got)
    await wait_in_loop(lambda: subscription.channel.failure)

asyncio.run(main())
"""
)


@pytest.mark.parametrize("program", [SETTLED, SETTLED_IN_A_LOOP], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("ends_by", ["stream", "connection"])
def test_settlements_of_a_subscription_that_ended_are_named(
    node: Embedded, stream: str, program: str, ends_by: str
) -> None:
    with (
        Cutter(node.served.address) as cutter,
        Child([sys.executable, "-c", program, cutter.address, stream], life_s=LIFE_S, **PIPES) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        cutter.is_open = False
        cutter.cut()
        if ends_by == "stream":
            node.streams.delete(stream)
            node.streams.create(stream)
        child.stdin.write(b"\n")
        child.stdin.flush()
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.5)
        cutter.is_open = True
        if ends_by == "connection":
            refuse(cutter, "revoked")
        told = child.communicate()[1].decode()
    (named,) = named_in(told)
    assert child.returncode == 0
    assert f"settlements (stream {stream!r}, s/main), and takes no more of it: " in named


def test_who_closes_is_told_and_nothing_is_said_on_stderr(
    node: Embedded, stream: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for closes_publisher in (True, False):
        far = veredus.connect(node.served.address)
        publisher = far.publisher(stream, source="a", resume="token")
        publisher.publish_many(["k"] * 3, [b""] * 3)
        with node.publisher(stream, source="a"):
            wait_until(partial(has_ended, publisher))
        if closes_publisher:
            with pytest.raises(veredus.Fenced):
                publisher.close()
        else:
            with pytest.raises(veredus.Unavailable, match=r"3 publications \(.*fenced"):
                far.close()
        far.close()
        assert far._node.connection not in veredus.client.pending.connections
    assert capfd.readouterr().err == ""


def has_ended(publisher: veredus.Publisher) -> bool:
    """Whether the node has ended it, without waiting as a program would."""
    return publisher._intake.failure is not None


def test_who_waits_for_what_is_lost_is_told_and_nobody_is_told_again(node: Embedded, stream: str) -> None:
    with veredus.connect(node.served.address) as far:
        publisher = far.publisher(stream, source="a", resume="token")
        publisher.publish_many(["k"] * 3, [b""] * 3)
        with node.publisher(stream, source="a"), pytest.raises(veredus.Fenced):
            publisher.wait(3, timeout_s=10)


def test_who_closes_a_connection_that_was_refused_is_told_what_is_lost(node: Embedded, stream: str) -> None:
    with Cutter(node.served.address) as cutter:
        far = veredus.connect(cutter.address)
        publisher = far.publisher(stream, source="a", resume="token")
        publisher.publish_many(["k"] * 3, [b""] * 3)
        refuse(cutter, "revoked")
        wait_until(partial(has_ended, publisher))
        with pytest.raises(veredus.Unavailable, match=r"3 publications \(.*go away \[revoked\]"):
            far.close()
        far.close()
