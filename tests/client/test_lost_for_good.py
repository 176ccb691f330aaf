"""What a node will never confirm, as it refused it for good, a program that just ends names on stderr, once."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

import veredus
import veredus.client.pending
from tests.client.cutter import Cutter
from tests.client.without_a_node import cut_off, named_in, told_without_a_node
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


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("end", [fence, delete])
def test_what_a_source_that_ended_has_lost_is_named(
    node: Embedded, stream: str, program: str, end: Callable[[Embedded, str], None]
) -> None:
    _, told = told_without_a_node(node, program, stream, lose=lambda _: end(node, stream))
    (named,) = named_in(told)
    assert told.count("\n") == 1
    assert f"{LOST.format(stream=stream)}, and takes no more of it: " in named


def refuse(cutter: Cutter, code: str) -> None:
    cutter.answers = [ATTACH_OK + encode_message(0, m.Goodbye(code, "go away"))]
    cutter.cut()


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("code", ["revoked", "malformed"])
def test_what_a_connection_that_ended_has_lost_is_named(node: Embedded, stream: str, program: str, code: str) -> None:
    _, told = told_without_a_node(node, program, stream, lose=lambda cutter: refuse(cutter, code))
    (named,) = named_in(told)
    assert told.count("\n") == 1
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
sys.stdin.readline()
wait_for(lambda: publisher._intake.failure)
"""
)


def test_publications_that_cannot_be_written_are_named(node: Embedded, stream: str) -> None:
    _, told = told_without_a_node(node, SPOILED, stream, lose=lambda _: None)
    (named,) = named_in(told)
    assert f"1 publication (stream {stream!r}, source 'a', the last number is 2), and takes no more of it" in named


SPOILED_IN_A_LOOP = (
    BEGUN
    + """
from veredus.client import publishing

async def main():
    node = await veredus.connect_async(sys.argv[1])
    publisher = await node.publisher(sys.argv[2], source="a")
    print("ready", flush=True)
    sys.stdin.readline()
    publishing.SourceChannel._settle = lambda *_: None  # no receipt is heard of any more
    publisher.publish_nowait("k", b"good")
    publisher.publish_nowait("k", Unwritable())
    await wait_in_loop(lambda: publisher._intake.failure)

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""
)


def test_so_are_they_and_why_where_their_loop_was_closed_meanwhile(node: Embedded, stream: str) -> None:
    _, told = told_without_a_node(node, SPOILED_IN_A_LOOP, stream, lose=lambda _: None)
    (named,) = named_in(told)
    words = (
        f"2 publications (stream {stream!r}, source 'a', the last number is 2), and takes no more of it: publication 2"
    )
    assert words in named


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
    def lose(cutter: Cutter) -> None:
        cut_off(cutter)
        if ends_by == "stream":
            node.streams.delete(stream)
            node.streams.create(stream)

    def end(child: Child, cutter: Cutter) -> None:
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.5)
        cutter.is_open = True
        if ends_by == "connection":
            refuse(cutter, "revoked")

    _, told = told_without_a_node(node, program, stream, lose=lose, then=end)
    (named,) = named_in(told)
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


def test_who_waits_for_a_part_of_it_is_told_of_no_more_and_who_closes_is(node: Embedded, stream: str) -> None:
    far = veredus.connect(node.served.address)
    publisher = far.publisher(stream, source="a", resume="token")
    publisher.publish_many(["k"] * 3, [b""] * 3)
    with node.publisher(stream, source="a"), pytest.raises(veredus.Fenced):
        publisher.wait(2, timeout_s=10)
    with pytest.raises(veredus.Unavailable, match=r"3 publications \(.*fenced"):
        far.close()


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
