"""What hangs on a loop that is closed, stopped, or run by nobody is sent at the end of the program, or named there."""

import asyncio
import gc
import re
import sys
import time
import warnings
from functools import partial

import pytest

from tests.client.cutter import Cutter
from tests.client.without_a_node import named_in, told_without_a_node
from tests.processes import Child, ended
from veredus.client.embedded import Embedded
from veredus.client.loops import Begun

LIFE_S = 15.0
MAIN = """
import asyncio, sys, threading, veredus

async def main(count=1000):
    node = await veredus.connect_async(sys.argv[1])
    publisher = await node.publisher(sys.argv[2], source="a")
    for number in range(count):
        publisher.publish_nowait("k", b"%d" % number)
    return publisher

loop = asyncio.new_event_loop()
"""
NOBODY = MAIN + "publisher = loop.run_until_complete(main())\n"
STOPPED = (
    MAIN
    + """
thread = threading.Thread(target=loop.run_forever)
thread.start()
asyncio.run_coroutine_threadsafe(main(), loop).result()
loop.call_soon_threadsafe(loop.stop)
thread.join()
"""
)
FOREVER = (
    MAIN
    + """
threading.Thread(target=loop.run_forever, daemon=True).start()
publisher = asyncio.run_coroutine_threadsafe(main(), loop).result()
"""
)
STOPPED_AS_IT_ENDS = (
    MAIN
    + """
threading.Thread(target=loop.run_forever, daemon=True).start()
publisher = asyncio.run_coroutine_threadsafe(main(), loop).result()
loop.call_soon_threadsafe(loop.stop)
"""
)
OF_UVLOOP = "import uvloop, asyncio\nasyncio.set_event_loop_policy(uvloop.EventLoopPolicy())\n"
HANDLER = (
    MAIN
    + """
import atexit
publisher = loop.run_until_complete(main(count=999))
@atexit.register
def goodbye():
    async def publish():
        return await publisher.wait(await publisher.publish("k", b"x"))
    assert loop.run_until_complete(publish()).number == 1000
"""
)


@pytest.mark.parametrize(
    "program", [NOBODY, STOPPED, FOREVER, STOPPED_AS_IT_ENDS, OF_UVLOOP + NOBODY, OF_UVLOOP + STOPPED, HANDLER]
)
def test_what_is_pending_in_a_loop_that_was_not_closed_is_sent(node: Embedded, stream: str, program: str) -> None:
    node.streams.create(stream)
    done = ended([sys.executable, "-c", program, node.served.address, stream], life_s=LIFE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert node.streams.show(stream)["head"] == 1000


LOST = (
    MAIN
    + """
from veredus.client import endings, pending
pending.FINISH_TIMEOUT_S = 0.2
{runs}
print("ready", flush=True)
sys.stdin.readline()
{publishes}
"""
)
OF_NOBODY = LOST.format(
    runs="publisher = loop.run_until_complete(main(count=1))",
    publishes="""
async def publish():
    await publisher.publish("k", b"")
loop.run_until_complete(publish())
""",
)
OF_A_THREAD = LOST.format(
    runs="""
threading.Thread(target=loop.run_forever, daemon=True).start()
publisher = asyncio.run_coroutine_threadsafe(main(count=1), loop).result()
""",
    publishes="""
async def publish():
    await publisher.publish("k", b"")
asyncio.run_coroutine_threadsafe(publish(), loop).result()
""",
)


IN_A_THREAD_THAT_CLOSES_IT = """
def run():
    loop.run_forever()
    loop.close()

threading.Thread(target=run, daemon=True).start()
publisher = asyncio.run_coroutine_threadsafe(main(count=1), loop).result()
"""
CLOSED_MEANWHILE = LOST.format(
    runs=IN_A_THREAD_THAT_CLOSES_IT,
    publishes="""
async def publish():
    await publisher.publish("k", b"")
    loop.call_later(0.1, loop.stop)
asyncio.run_coroutine_threadsafe(publish(), loop).result()
""",
)
CLOSED = OF_NOBODY + "loop.close()\n"
DROPPED = CLOSED + "del loop, publisher\nimport gc; gc.collect()\n"
RECONNECTED = CLOSED + "own = veredus.embedded()\n"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (OF_NOBODY, "the program ends"),
        (OF_A_THREAD, "the program ends"),
        (CLOSED_MEANWHILE, "the program ends"),
        (OF_UVLOOP + CLOSED_MEANWHILE, "the program ends"),
        (CLOSED, "the program ends"),
        (OF_UVLOOP + CLOSED, "the program ends"),
        (DROPPED, "the program ends"),
        (RECONNECTED, "an event loop was closed"),
    ],
    ids=["nobody", "thread", "meanwhile", "meanwhile-uvloop", "closed", "uvloop", "dropped", "reconnected"],
)
def test_what_cannot_be_sent_is_named_once(node: Embedded, stream: str, program: str, why: str) -> None:
    _, told = told_without_a_node(node, program, stream)
    (named,) = named_in(told)
    assert re.search(rf"{why}, and the node at unix://\S+ has not confirmed .*, the last number is 2\): ", named)
    assert f"(stream {stream!r}, source 'a', the last number is 2)" in named


@pytest.mark.parametrize("imports", ["", OF_UVLOOP], ids=["asyncio", "uvloop"])
def test_nothing_else_is_told_of_a_loop_that_is_closed_while_what_is_pending_is_sent(
    node: Embedded, stream: str, imports: str
) -> None:
    _, told = told_without_a_node(node, imports + CLOSED_MEANWHILE, stream)
    assert told.splitlines() == named_in(told)


@pytest.mark.parametrize("is_begun", [True, False])
def test_python_tells_of_no_work_that_was_left_in_a_loop_when_that_was_closed(
    caplog: pytest.LogCaptureFixture, is_begun: bool
) -> None:
    ends: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("ended")

    loop = asyncio.new_event_loop()
    begun = Begun(loop, work)
    loop.call_soon(begun.start)
    loop.call_soon(partial(loop.call_soon, loop.stop) if is_begun else loop.stop)
    loop.run_forever()
    loop.close()
    begun.cancel()
    with warnings.catch_warnings(record=True) as warned:
        del begun
        gc.collect()
    assert (ends, caplog.messages, warned) == (["ended"] * is_begun, [], [])


GOES_ON = """
import atexit, time

@atexit.register
def goodbye():
    is_in_time = time.monotonic() - ended_s < 3.0
    time.sleep(0.1) if loop.is_running() else loop.run_until_complete(asyncio.sleep(0.1))
    print(is_in_time, max(numbers) - publisher.taken_number, {str(error) for error in errors})

import asyncio, sys, threading, veredus
loop, numbers, errors, tasks = asyncio.new_event_loop(), [0], [], []

async def go_on():
    while True:
        for _ in range(10):
            try:
                numbers.append(await publisher.publish("k", b"x"))
            except veredus.VeredusError as error:
                errors.append(error)
                return
        await asyncio.sleep(0.001)

async def main():
    global publisher
    publisher = await (await veredus.connect_async(sys.argv[1])).publisher(sys.argv[2], source="a")
    tasks.extend(asyncio.ensure_future(go_on()) for _ in range(2))
    await asyncio.sleep(0.1)

{runs}
ended_s = time.monotonic()
"""
IN_A_DAEMON = """
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(main(), loop).result()
"""


@pytest.mark.parametrize("runs", [IN_A_DAEMON, "loop.run_until_complete(main())"], ids=["daemon", "nobody"])
def test_what_tasks_go_on_publishing_behind_the_end_is_refused_and_all_before_it_is_sent(
    node: Embedded, stream: str, runs: str
) -> None:
    done = ended([sys.executable, "-c", GOES_ON.replace("{runs}", runs), node.served.address, stream], life_s=LIFE_S)
    said = "True 0 {'the program has come to its end, and this was closed [closed]'}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


SETTLES_ON = """
import atexit, time

@atexit.register
def goodbye():
    print(time.monotonic() - ended_s < 3.0, errors)

import asyncio, sys, threading, veredus
loop, errors = asyncio.new_event_loop(), []

async def main():
    global task
    node = await veredus.connect_async(sys.argv[1])
    subscription = await node.subscribe(sys.argv[2], subscriber="s")
    begun = asyncio.Event()
    task = asyncio.ensure_future(settle(subscription, begun))
    await begun.wait()

async def settle(subscription, begun):
    try:
        async for publication in subscription:
            subscription.settle(publication)
            begun.set()
            await asyncio.sleep(0)
    except veredus.VeredusError as error:
        errors.append(error.code)

threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(main(), loop).result()
ended_s = time.monotonic()
"""


def test_what_a_task_goes_on_settling_behind_the_end_is_refused(node: Embedded, stream: str) -> None:
    with node.publisher(stream) as publisher:
        publisher.publish_many(["k"] * 500_000, [b""] * 500_000)
    done = ended([sys.executable, "-c", SETTLES_ON, node.served.address, stream], life_s=LIFE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True ['closed']\n", "")


def come_back(_: Child, cutter: Cutter) -> None:
    time.sleep(1.0)
    cutter.is_open = True


ENDS_THEN = """
import asyncio, sys, threading, veredus
is_ready, has_published = threading.Event(), threading.Event()

async def main():
    global loop, may_go_on
    loop, may_go_on = asyncio.get_running_loop(), asyncio.Event()
    publisher = await (await veredus.connect_async(sys.argv[1])).publisher(sys.argv[2], source="a")
    print("ready", flush=True)
    is_ready.set()
    await may_go_on.wait()
    try:
        while True:
            await publisher.publish("k", b"x")
            has_published.set()
            await asyncio.sleep(0.001)
    except veredus.VeredusError:
        print(publisher.number, flush=True)

threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
is_ready.wait()
sys.stdin.readline()
loop.call_soon_threadsafe(may_go_on.set)
has_published.wait()
"""


def test_what_is_pending_in_a_loop_that_ends_as_it_is_refused_more_is_sent(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    said, told = told_without_a_node(node, ENDS_THEN, stream, then=come_back)
    assert told == ""
    assert node.streams.show(stream)["head"] == int(said) > 0


RUN_TO_ITS_END = """
import asyncio, sys, veredus

async def main():
    node = await veredus.connect_async(sys.argv[1])
    publisher = await node.publisher(sys.argv[2], source="a")
    print("ready", flush=True)
    sys.stdin.readline()
    await publisher.publish_many(["k"] * 1000, [b""] * 1000)

{runs}
"""


@pytest.mark.parametrize(
    "runs", ["asyncio.run(main())", "import uvloop; uvloop.run(main())"], ids=["asyncio", "uvloop"]
)
def test_a_loop_that_ends_while_its_node_is_gone_for_a_moment_sends_what_is_pending(
    node: Embedded, stream: str, runs: str
) -> None:
    node.streams.create(stream)
    _, told = told_without_a_node(node, RUN_TO_ITS_END.replace("{runs}", runs), stream, then=come_back)
    assert told == ""
    assert node.streams.show(stream)["head"] == 1000
