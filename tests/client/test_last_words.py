"""Behind the end of a program nobody waits for ever, each loss is named on stderr, and each once."""

import signal
import sys
import time

import pytest

from tests.client.cutter import Cutter
from tests.client.without_a_node import LIFE_S, named_in, signalled, told_without_a_node
from tests.processes import Child, ended
from veredus.client.embedded import Embedded

BEGUN = """
import atexit
atexit.register(lambda: goodbye())
import asyncio, sys, threading, time, veredus
from veredus.client import pending
"""


MANY = (
    BEGUN
    + """
pending.FINISH_TIMEOUT_S = 1.0

def goodbye():
    print("ready", flush=True)
    sys.stdin.readline()
    began_s, codes = time.monotonic(), set()
    {each}
    print(time.monotonic() - began_s, codes)

node = veredus.connect(sys.argv[1])
publisher = node.publisher(sys.argv[2], source="a")
subscription = node.subscribe(sys.argv[2], subscriber="s")
publisher.wait(publisher.publish("k", b"first"))
got = next(iter(subscription))
"""
)
PUBLISHED = """
    for _ in range(100):
        try:
            publisher.publish("k", b"")
        except veredus.Unavailable as error:
            codes.add(error.code)
"""
CLOSED = """
    ends = publisher.close, subscription.close, node.close
    for use in lambda: publisher.publish("k", b""), lambda: subscription.settle(got), *ends:
        try:
            use()
        except veredus.Unavailable as error:
            codes.add(error.code)
"""


def test_who_publishes_often_behind_the_end_waits_once_in_all_and_the_loss_is_named_once(
    node: Embedded, stream: str
) -> None:
    said, told = told_without_a_node(node, MANY.format(each=PUBLISHED), stream)
    took_s, codes = said.split(maxsplit=1)
    assert 0.9 < float(took_s) < 2.0
    assert codes == "{'in-doubt'}\n"
    assert len(named_in(told)) == 1
    assert f"not confirmed 100 publications (stream {stream!r}, source 'a', the last number is 101)" in told


def test_so_does_who_settles_and_closes_there(node: Embedded, stream: str) -> None:
    said, told = told_without_a_node(node, MANY.format(each=CLOSED), stream)
    took_s, codes = said.split(maxsplit=1)
    assert 0.9 < float(took_s) < 2.0
    assert codes == "{'in-doubt'}\n"
    assert named_in(told) == []  # each was told to its caller


WAITED = """
import atexit
atexit.register(lambda: goodbye())
import sys, time, veredus
from veredus.client import pending
pending.FINISH_TIMEOUT_S = 0.2

def goodbye():
    for _ in range(100):
        publisher.publish("k", b"")
        time.sleep(0.01)

publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2])
"""


def test_what_the_node_confirms_there_costs_nothing_of_that_time(node: Embedded, stream: str) -> None:
    done = ended([sys.executable, "-c", WAITED, node.served.address, stream], life_s=LIFE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert node.streams.show(stream)["head"] == 100


IN_A_LOOP = """
import atexit
atexit.register(lambda: goodbye())
import asyncio, sys
{early}

async def main():
    global publisher
    node = await veredus.connect_async(sys.argv[1])
    publisher = await node.publisher(sys.argv[2], source="a", resume="token")  # sends nothing by itself
    for _ in range(10):
        publisher.publish_nowait("k", b"x")

def goodbye():
    global loop, veredus
    import veredus
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main())
    {closes}
"""
OF_UVLOOP = "import uvloop; asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())"


@pytest.mark.parametrize("early", ["import veredus", f"import veredus\n{OF_UVLOOP}", "", OF_UVLOOP])
@pytest.mark.parametrize("closes", ["", "loop.close()", "del loop"])
def test_what_a_handler_leaves_in_a_loop_behind_the_end_is_named(
    node: Embedded, stream: str, early: str, closes: str
) -> None:
    program = IN_A_LOOP.format(early=early, closes=closes)
    done = ended([sys.executable, "-c", program, node.served.address, stream], life_s=LIFE_S)
    assert done.returncode == 0
    assert len(named_in(done.stderr)) == 1, done.stderr
    assert f"not confirmed 10 publications (stream {stream!r}, source 'a', the last number is 10)" in done.stderr


TORN = """
import sys, veredus
from veredus.client import endings
node = veredus.connect(sys.argv[1])
publisher = node.publisher(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
publisher.publish_many(["k"] * 3, [b""] * 3)
endings.known_loop().call(lambda: print("closes", flush=True))
node.close()
"""


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_an_interrupted_close_lost_is_named_once_however_often_it_is_interrupted(
    node: Embedded, stream: str, count: int
) -> None:
    began_s = time.monotonic()
    _, told = told_without_a_node(node, TORN, stream, then=signalled(count=count, each_s=0.7), status=-signal.SIGINT)
    assert f"not confirmed 3 publications (stream {stream!r}" in told
    assert len(named_in(told)) == 1, told
    assert count == 1 or time.monotonic() - began_s < 6.0


OTHER_THREAD = """
import atexit
atexit.register(lambda: goodbye())
import sys, threading, veredus

def publish():
    may_go_on.wait()
    for use in lambda: publisher.publish("k", b""), lambda: publisher.publish_many(["k"], [b""]):
        try:
            use()
        except veredus.Misuse as error:
            print(error.code, "only the thread that ends it" in str(error))

def goodbye():
    may_go_on.set()
    thread.join()
    print(publisher.number)

publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2])
publisher.publish("k", b"")
may_go_on, thread = threading.Event(), threading.Thread(target=publish, daemon=True)
thread.start()
"""


def test_what_another_thread_publishes_behind_the_end_is_refused_and_not_published(node: Embedded, stream: str) -> None:
    done = ended([sys.executable, "-c", OTHER_THREAD, node.served.address, stream], life_s=LIFE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed True\nclosed True\n1\n", "")


OPENED_LAST = """
import atexit
atexit.register(lambda: goodbye())
import sys
{early}

def goodbye():
    import veredus
    publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2])
    print(publisher.publish("k", b""), publisher.taken_number)
    print(publisher.publish_many(["k"] * 2, [b""] * 2), publisher.taken_number)
"""


@pytest.mark.parametrize("early", ["import veredus", "import threading"], ids=["imported before", "imported there"])
def test_what_is_opened_behind_the_end_and_not_closed_is_published(node: Embedded, stream: str, early: str) -> None:
    node.streams.create(stream)
    done = ended([sys.executable, "-c", OPENED_LAST.format(early=early), node.served.address, stream], life_s=LIFE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 1\n3 3\n", "")
    assert node.streams.show(stream)["head"] == 3


SPENT = (
    MANY.format(each=PUBLISHED)
    + """
@atexit.register
def earlier():
    print("ready", flush=True)
    sys.stdin.readline()
    publisher.publish("k", b"")
"""
)


def test_what_the_end_has_waited_for_in_vain_its_last_handlers_do_not_wait_for_nor_is_it_named_again(
    node: Embedded, stream: str
) -> None:
    said, told = told_without_a_node(node, SPENT, stream)
    assert float(said.split()[1]) < 0.7
    before, last = named_in(told)
    assert f"not confirmed 1 publication (stream {stream!r}, source 'a', the last number is 2)" in before
    assert f"not confirmed 100 publications (stream {stream!r}, source 'a', the last number is 102)" in last


def test_what_an_interrupted_close_can_still_send_is_sent(node: Embedded, stream: str) -> None:
    def come_back(child: Child, cutter: Cutter) -> None:
        signalled()(child, cutter)
        time.sleep(0.5)
        cutter.is_open = True

    _, told = told_without_a_node(node, TORN, stream, then=come_back, status=-signal.SIGINT)
    assert named_in(told) == []
    assert node.streams.show(stream)["head"] == 3


TORN_AND_CAUGHT = """
import sys, time, veredus
from veredus.client import endings, pending
pending.FINISH_TIMEOUT_S = 1.0
node = veredus.connect(sys.argv[1])
publisher = node.publisher(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
publisher.publish_many(["k"] * 3, [b""] * 3)
endings.known_loop().call(lambda: print("closes", flush=True))
try:
    node.close()
except KeyboardInterrupt:
    time.sleep(2.0)
{then}
"""
CLOSED_AGAIN = """
try:
    node.close()
except veredus.Unavailable as error:
    print(error)
"""


@pytest.mark.parametrize("then", ["", CLOSED_AGAIN], ids=["it ends", "it closes again"])
def test_what_an_interrupted_close_lost_is_named_once_where_the_program_goes_on_for_longer_than_that_takes(
    node: Embedded, stream: str, then: str
) -> None:
    program = TORN_AND_CAUGHT.replace("{then}", then)
    said, told = told_without_a_node(node, program, stream, then=signalled(each_s=0.0))
    (named,) = named_in(said + told)
    assert f"not confirmed 3 publications (stream {stream!r}" in named
    assert named in (said if then else told)


SEVERAL = """
import asyncio, sys, threading, time, veredus
from veredus.client import pending
from veredus.kernel import last
pending.FINISH_TIMEOUT_S = 1.0
last.act_last(lambda: print(time.monotonic() - began_s))

async def publish(source):
    node = await veredus.connect_async(sys.argv[1])
    publisher = await node.publisher(sys.argv[2], source=source, resume="token")
    publisher.publish_nowait("k", b"")

def run(loop):
    asyncio.set_event_loop(loop)
    loop.run_forever()

loops = [asyncio.new_event_loop() for _ in range(4)]
for number, loop in enumerate(loops):
    loop.run_until_complete(publish(f"s{number}"))
for loop in loops[:2]:
    threading.Thread(target=run, args=(loop,), daemon=True).start()
publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="s4", resume="token")
publisher.publish("k", b"")
print("ready", flush=True)
sys.stdin.readline()
began_s = time.monotonic()
"""


def test_several_event_loops_share_the_time_of_the_end(node: Embedded, stream: str) -> None:
    said, told = told_without_a_node(node, SEVERAL, stream)
    assert 0.9 < float(said) < 3.5
    named = named_in(told)
    assert [sum(f"source 's{number}'" in line for line in named) for number in range(5)] == [1] * 5
    assert len(named) == 5


UNHEARD = """
import atexit, os, sys, veredus
{unheard}

@atexit.register
def look():
    os.write(1, b"the end goes on")

with veredus.connect(sys.argv[1]) as node, node.publisher(sys.argv[2], source="a") as publisher:
    print("ready", flush=True)
    sys.stdin.readline()
    publisher.publish("k", b"x")
    {end}
"""


@pytest.mark.parametrize("unheard", ["sys.stderr = None", "sys.stderr.close()"])
@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("raise ValueError", 1)])
def test_who_cannot_say_what_is_lost_ends_as_it_would(
    node: Embedded, stream: str, unheard: str, end: str, status: int
) -> None:
    said, _ = told_without_a_node(node, UNHEARD.format(unheard=unheard, end=end), stream, status=status)
    assert said == "the end goes on"
