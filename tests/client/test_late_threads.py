"""Threads that outlive the main one, and are the first to connect: what they publish is sent as of any other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import Child, ended, wait_until
from veredus.client.embedded import Embedded

COUNT = 200
METHODS = ("fork", "forkserver", "spawn")
PUBLISHES = """
def publish():
    time.sleep(0.3)
    import veredus
    publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="a")
    for number in range(int(sys.argv[3])):
        publisher.publish("k", b"%d" % number)
"""
LATE = f"""
import sys, threading, time
{PUBLISHES}
threading.Thread(target=publish).start()
"""
OF_A_CHILD = f"""
import multiprocessing, sys, threading, time
import veredus
{PUBLISHES}
def begin():
    threading.Thread(target=publish).start()

if __name__ == "__main__":
    child = multiprocessing.get_context("{{method}}").Process(target=begin)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.parametrize(
    "program",
    [
        LATE,
        "import veredus\n" + LATE,
        *(OF_A_CHILD.format(method=method) for method in METHODS),
        OF_A_CHILD.format(method="fork").replace("\nimport veredus\n", "\n", 1),
    ],
    ids=["imports", "connects", *METHODS, "a fork that imports"],
)
def test_what_a_thread_publishes_that_outlives_the_main_one_is_sent(
    node: Embedded, program: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    stream = f"late-{request.node.callspec.id.replace(' ', '-')}"
    file = tmp_path / "program.py"
    file.write_text(program)
    done = ended([sys.executable, str(file), node.served.address, stream, str(COUNT)])
    assert (done.returncode, done.stderr) == (0, "")
    assert node.streams.show(stream)["head"] == COUNT


TOGETHER = """
import sys, threading, time
import veredus

def publish(source):
    time.sleep(0.3)
    publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source=source)
    for number in range(100):
        publisher.publish("k", b"%d" % number)
    publisher.wait(100)

def read():
    time.sleep(0.3)
    with veredus.connect(sys.argv[1]).subscribe(sys.argv[2], until=401) as subscription:
        print(sum(len(batch) for batch in subscription.batches()))

for number in range(4):
    threading.Thread(target=publish, args=(f"s{number}",)).start()
threading.Thread(target=read).start()
"""


def test_of_threads_that_outlive_the_main_one_each_may_connect(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    done = ended([sys.executable, "-c", TOGETHER, node.served.address, stream], life_s=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "400\n", "")
    assert node.streams.show(stream)["head"] == 400


SHARED = """
import sys, threading, time, veredus

def open_it():
    time.sleep(0.3)
    global publisher
    publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="a")
    for thread in others:
        is_open.release()

def use_it():
    is_open.acquire()
    for _ in range(50):
        publisher.publish("k", b"")
    assert publisher.wait(publisher.number).number >= 50

is_open = threading.Semaphore(0)
others = [threading.Thread(target=use_it) for _ in range(4)]
for each in [threading.Thread(target=open_it), *others]:
    each.start()
"""


def test_what_one_of_them_has_opened_the_others_may_use(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    done = ended([sys.executable, "-c", SHARED, node.served.address, stream], life_s=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert node.streams.show(stream)["head"] == 200


GOES_ON = """
import sys, threading, time, veredus

def publish():
    time.sleep(0.3)
    publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="a")
    publisher.publish("k", b"waits for nothing")
    print("published", flush=True)
    time.sleep(60)

threading.Thread(target=publish).start()
"""


def test_what_one_of_them_publishes_is_sent_also_while_it_waits_for_nothing(node: Embedded, stream: str) -> None:
    node.streams.create(stream)
    with Child([sys.executable, "-c", GOES_ON, node.served.address, stream], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"published\n"
        wait_until(lambda: node.streams.show(stream)["head"] == 1)


WITH_A_NODE_INSIDE = """
import threading, time, veredus
veredus.embedded

def open_it():
    time.sleep(0.3)
    try:
        with veredus.embedded() as node, node.publisher("s") as publisher:
            print(publisher.publish("k", b""))
    except veredus.Misuse as error:
        print(error)

threading.Thread(target=open_it).start()
"""


def test_one_that_opens_an_embedded_node_is_told_where_python_starts_no_thread_for_it() -> None:
    done = ended([sys.executable, "-c", WITH_A_NODE_INSIDE], life_s=20)
    assert (done.returncode, done.stderr) == (0, "")
    # These start no thread once the main one has ended.
    words = "the main thread has ended: it is too late to open an embedded node, which needs threads [closed]\n"
    assert done.stdout == (words if (3, 12) <= sys.version_info < (3, 12, 2) else "1\n")
