"""What threads and tasks publish while something is being closed is confirmed, refused at once, or named."""

import asyncio
import re
import threading

import pytest

import veredus
from tests.client.cutter import Cutter
from tests.client.without_a_node import cut_off, told_without_a_node
from tests.processes import beside
from veredus.client.embedded import Embedded


class Publishing:
    """A thread's publications, until one is refused."""

    def __init__(self, publisher: veredus.Publisher) -> None:
        self.publisher = publisher
        self.numbers: list[int] = []
        self.code = ""
        self.has_begun = threading.Event()

    def run(self) -> None:
        try:
            while True:
                self.numbers.append(self.publisher.publish("k", b""))
                if len(self.numbers) == 100:
                    self.has_begun.set()
        except veredus.VeredusError as error:
            self.code = error.code


@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize("closes", ["publisher", "node"])
def test_what_was_published_while_another_thread_closed_is_in_the_stream(
    node: Embedded, stream: str, closes: str, turn: int
) -> None:
    node.streams.create(stream)
    far = veredus.connect(node.served.address)
    publishing = Publishing(far.publisher(stream, source="a", outbox_size_max=1 << 20))
    with beside(publishing.run):
        publishing.has_begun.wait(10)
        (publishing.publisher if closes == "publisher" else far).close()
    far.close()
    assert publishing.code == "closed"
    assert node.streams.show(stream)["head"] == publishing.numbers[-1] > 100
    assert publishing.publisher.taken_number == publishing.numbers[-1]


@pytest.mark.parametrize("closes", ["close", "leave"])
def test_who_closes_in_vain_is_told_of_all_that_was_published_meanwhile(
    node: Embedded, stream: str, closes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veredus.client.ends.ABORT_TIMEOUT_S", 0.3)
    with Cutter(node.served.address) as cutter:
        far = veredus.connect(cutter.address)
        publishing = Publishing(far.publisher(stream, source="a"))
        with beside(publishing.run):
            publishing.has_begun.wait(10)
            cut_off(cutter)
            told = _told_by(publishing.publisher, closes)
        assert publishing.code == "closed"
        taken, last = publishing.publisher.taken_number, publishing.numbers[-1]
        assert told == f"{taken + 1} to {last}"
        far.close()


def _told_by(publisher: veredus.Publisher, closes: str) -> str:
    """Which numbers are in doubt."""
    if closes == "close":
        with pytest.raises(veredus.Unavailable) as caught:
            publisher.close(timeout_s=0.3)
        told = caught.value.message
    else:
        with pytest.raises(ValueError, match="its own") as ended, publisher:
            raise ValueError("its own")
        (told,) = ended.value.__notes__
    return re.findall(r"numbers (\d+ to \d+) are in doubt", told)[0]


async def _close_in_vain_beside_a_task(cutter: Cutter, stream: str) -> tuple[str, str]:
    far = await veredus.connect_async(cutter.address)
    publisher = await far.publisher(stream, source="a")

    async def publish() -> None:
        while True:
            publisher.publish_nowait("k", b"")
            await asyncio.sleep(0)

    publishing = asyncio.ensure_future(publish())
    await asyncio.sleep(0.05)
    cut_off(cutter)
    with pytest.raises(veredus.Unavailable) as caught:
        await publisher.close(timeout_s=0.3)
    with pytest.raises(veredus.Misuse, match="closed"):
        await publishing
    await far.close()
    return caught.value.message, f"numbers {publisher.taken_number + 1} to {publisher.number} are in doubt"


def test_so_is_who_closes_in_vain_beside_a_task(node: Embedded, stream: str) -> None:
    with Cutter(node.served.address) as cutter:
        told, wanted = asyncio.run(_close_in_vain_beside_a_task(cutter, stream))
    assert told.startswith(wanted)


async def _close_beside_a_task(address: str, stream: str, closes: str) -> int:
    async with veredus.connect_async(address) as far:
        publisher = await far.publisher(stream, source="a")
        number = 0

        async def publish() -> None:
            nonlocal number
            while True:
                number = publisher.publish_nowait("k", b"")
                await asyncio.sleep(0)

        publishing = asyncio.ensure_future(publish())
        await asyncio.sleep(0.05)
        await (publisher if closes == "publisher" else far).close()
        with pytest.raises(veredus.Misuse, match="closed"):
            await publishing
    return number


@pytest.mark.parametrize("closes", ["publisher", "node"])
def test_so_is_what_another_task_published(node: Embedded, stream: str, closes: str) -> None:
    number = asyncio.run(_close_beside_a_task(node.served.address, stream, closes))
    assert 0 < number == node.streams.show(stream)["head"]


BEHIND = """
import atexit
atexit.register(lambda: goodbye())
import asyncio, sys, time, veredus
from veredus.client import pending
pending.FINISH_TIMEOUT_S = 1.0

async def main():
    node = await veredus.connect_async(sys.argv[1])
    publisher = await node.publisher(sys.argv[2], source="a", outbox_size_max=1 << 12)
    subscription = await node.subscribe(sys.argv[2], subscriber="s")
    await publisher.wait(await publisher.publish("k", b""))
    async for got in subscription:
        break
    print("ready", flush=True)
    sys.stdin.readline()
    publisher.publish_nowait("k", b"")
    subscription.settle(got)
    for use in {uses}:
        try:
            await use()
        except veredus.Unavailable as error:
            codes.append(error.code)

def goodbye():
    global codes
    began_s, codes = time.monotonic(), []
    {goodbye}
    print(time.monotonic() - began_s, codes)
"""
ASYNCIO = BEHIND.replace("{goodbye}", "asyncio.run(main())")
BLOCKING = """
import atexit
atexit.register(lambda: goodbye())
import sys, time, veredus
from veredus.client import pending
pending.FINISH_TIMEOUT_S = 1.0

def goodbye():
    node = veredus.connect(sys.argv[1])
    publisher = node.publisher(sys.argv[2], source="a", outbox_size_max=1 << 12)
    subscription = node.subscribe(sys.argv[2], subscriber="s")
    number = publisher.publish("k", b"")
    got = next(iter(subscription))
    print("ready", flush=True)
    sys.stdin.readline()
    began_s, codes = time.monotonic(), []
    for use in [lambda: publisher.publish("k", b""), lambda: subscription.settle(got), *{uses}]:
        try:
            use()
        except veredus.Unavailable as error:
            codes.append(error.code)
    print(time.monotonic() - began_s, codes)
"""
USES = {
    "close": ("publisher.close", "publisher.close"),
    "wait": ("lambda: publisher.wait(2)",) * 2,
    "flush": ("publisher.flush", "publisher.flush"),
    "room": ('lambda: publisher.publish_many(["k"] * 100, [b"x" * 1000] * 100)',) * 3,
    "settled": ("subscription.wait_settled", "subscription.close"),
    "all": ("publisher.flush", "publisher.close", "subscription.wait_settled", "subscription.close", "node.close"),
}


@pytest.mark.parametrize("uses", USES.values(), ids=USES)
@pytest.mark.parametrize("program", [ASYNCIO, BLOCKING], ids=["asyncio", "blocking"])
def test_behind_the_end_all_that_waits_shares_the_time_of_the_end(
    node: Embedded, stream: str, program: str, uses: tuple[str, ...]
) -> None:
    program = program.replace("{uses}", f"[{', '.join(uses)}]")
    said, _ = told_without_a_node(node, program, stream)
    took_s, codes = said.split(maxsplit=1)
    assert 0.9 < float(took_s) < 2.5
    assert "in-doubt" in codes
