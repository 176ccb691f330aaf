"""A child of `multiprocessing` that ends without closing what it opened loses nothing in silence."""

import sys
from pathlib import Path

import pytest

from tests.client.without_a_node import named_in, told_without_a_node
from tests.processes import ended
from veredus.client.embedded import Embedded

LIFE_S = 20.0
CHILD = """
import atexit, multiprocessing, sys, threading, time
from concurrent.futures import ProcessPoolExecutor
import veredus

address, stream, method, work = sys.argv[1:]
publisher = None

def publish(count=1000):
    global publisher
    if publisher is None:
        publisher = veredus.connect(address).publisher(stream)
    for number in range(count):
        publisher.publish("k", b"%d" % number)
    return publisher.number

def publish_at_exit():
    publish(1)
    atexit.register(publish, 999)  # runs in the children that spawn makes, and in no other

def publish_in_thread():
    publish(1)
    threading.Thread(target=lambda: time.sleep(0.3) or publish(9)).start()

def publish_often():
    publish(1)
    threading.Thread(target=publish_timed).start()

def publish_timed():
    time.sleep(0.3)
    began_s = time.monotonic()
    publish(300)
    print(time.monotonic() - began_s < 1.0)

def publish_inside():
    node = veredus.embedded()
    print(node.served.directory.parent)
    node.publisher("s").publish("k", b"")

if __name__ == "__main__":
    context = multiprocessing.get_context(method)
    if work == "pool":
        with ProcessPoolExecutor(1, context) as pool:
            print(list(pool.map(publish, [500, 500])))
    else:
        child = context.Process(target=globals()[work])
        child.start()
        child.join()
        print(child.exitcode)
"""


def said_by(directory: Path, *arguments: str) -> tuple[int, str, str]:
    """How a program ended that has such a child, and what both have said."""
    program = directory / "program.py"
    program.write_text(CHILD)
    done = ended([sys.executable, str(program), *arguments], life_s=LIFE_S)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_it_has_published_all(node: Embedded, stream: str, tmp_path: Path, method: str) -> None:
    node.streams.create(stream)
    assert said_by(tmp_path, node.served.address, stream, method, "publish") == (0, "0\n", "")
    assert node.streams.show(stream)["head"] == 1000


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_so_has_a_worker_of_a_pool(node: Embedded, stream: str, tmp_path: Path, method: str) -> None:
    node.streams.create(stream)
    assert said_by(tmp_path, node.served.address, stream, method, "pool") == (0, "[500, 1000]\n", "")
    assert node.streams.show(stream)["head"] == 1000


def test_so_have_its_handlers_of_atexit_where_python_runs_them(node: Embedded, stream: str, tmp_path: Path) -> None:
    node.streams.create(stream)
    assert said_by(tmp_path, node.served.address, stream, "spawn", "publish_at_exit") == (0, "0\n", "")
    assert node.streams.show(stream)["head"] == 1000


def test_so_has_a_thread_that_it_leaves_running(node: Embedded, stream: str, tmp_path: Path) -> None:
    node.streams.create(stream)
    assert said_by(tmp_path, node.served.address, stream, "fork", "publish_in_thread") == (0, "0\n", "")
    assert node.streams.show(stream)["head"] == 10


def test_what_such_a_thread_publishes_costs_no_more_than_before(node: Embedded, stream: str, tmp_path: Path) -> None:
    node.streams.create(stream)
    assert said_by(tmp_path, node.served.address, stream, "fork", "publish_often") == (0, "True\n0\n", "")
    assert node.streams.show(stream)["head"] == 301


INTERRUPTED = """
import multiprocessing, os, signal, sys, threading, time, veredus
from concurrent.futures import ThreadPoolExecutor

def publish(lines):
    node = veredus.connect(sys.argv[1])
    publisher = node.publisher(sys.argv[2], source="a")
    lines.put("ready")
    sys.stdin.readline()
    publisher.publish("k", b"")
    lines.put("published")
    threading.Event().wait(60)

def work(lines, begin, connects_before):
    if connects_before:
        veredus.connect(sys.argv[1])
    sys.stdin = open(0, closefd=False)
    begins = lambda: begin.wait() and publish(lines)
    if sys.argv[4] == "thread":
        threading.Thread(target=begins).start()
    else:
        ThreadPoolExecutor().submit(begins)

context = multiprocessing.get_context("fork")
lines, begin = context.SimpleQueue(), context.Event()
child = context.Process(target=work, args=(lines, begin, sys.argv[3] == "before"))
child.start()
time.sleep(0.5)  # the child's main thread has come to wait for the other one
begin.set()
print(lines.get(), flush=True)
lines.get()
os.kill(child.pid, signal.SIGINT)
child.join()
print(child.exitcode)
"""


@pytest.mark.parametrize("connects", ["before", "late"])
@pytest.mark.parametrize("of", ["thread", "executor"])
def test_where_it_is_interrupted_as_it_waits_for_such_a_thread_it_names_what_it_lost(
    node: Embedded, stream: str, connects: str, of: str
) -> None:
    said, told = told_without_a_node(node, INTERRUPTED, stream, connects, of)
    (named,) = named_in(told)
    assert f"not confirmed 1 publication (stream {stream!r}, source 'a', the last number is 1)" in named
    if sys.version_info < (3, 13):  # there Python says that it was interrupted, and goes on
        assert (said, told.count("\n")) == ("1\n", 1)


def test_its_embedded_node_is_stopped(tmp_path: Path) -> None:
    code, said, told = said_by(tmp_path, "", "", "fork", "publish_inside")
    directory, exitcode = said.splitlines()
    assert (code, exitcode, told) == (0, "0", "")
    assert not Path(directory).exists()
