"""A child that was forked in a thread ends when that thread does in it, and loses nothing in silence."""

import re
import sys

import pytest

from tests.client.without_a_node import told_without_a_node
from tests.processes import ended
from veredus.client.embedded import Embedded

LIFE_S = 15.0
QUIETLY = "-W", "ignore::DeprecationWarning"
"""From 3.12 on Python warns of a fork beside threads."""
FORKED = """
import os, sys, threading, time, veredus
from veredus.client import pending
pending.FINISH_TIMEOUT_S = float(sys.argv[3])
{before}

def in_child():
    publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="child")
    for number in range(1000):
        publisher.publish("k", b"%d" % number)
    {work}

def fork():
    child = os.fork()
    if not child:
        in_child()
        {ends}
        return
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

threading.Thread(target=fork).start()
"""
USED_BEFORE = """
before = veredus.connect(sys.argv[1]).publisher(sys.argv[2])
before.publish("k", b"of the parent")
"""
LEAVES_A_THREAD = """
    def go_on():
        time.sleep(0.5)
        publisher.publish("k", b"1000")
        time.sleep(0.5)
    threading.Thread(target=go_on).start()
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
"""
HAS_AN_EXECUTOR = """
    from concurrent.futures import ThreadPoolExecutor
    global executor
    executor = ThreadPoolExecutor(1)
    executor.submit(lambda: time.sleep(0.5) or publisher.publish("k", b"1000"))
"""
FORKS_AGAIN = """
    again = os.fork()
    if not again:
        mine = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="again")
        mine.publish("k", b"1000")
        return
    os.waitpid(again, 0)
"""


@pytest.mark.parametrize("before", ["", USED_BEFORE], ids=["fresh", "used before"])
@pytest.mark.parametrize("ends", ["", "sys.exit(3)", "raise ValueError"])
def test_it_ends_and_has_published_all(node: Embedded, stream: str, before: str, ends: str) -> None:
    node.streams.create(stream)
    program = FORKED.format(before=before, work="", ends=ends)
    done = ended([sys.executable, *QUIETLY, "-c", program, node.served.address, stream, "5"], life_s=LIFE_S)
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert done.stderr.count("Traceback") == (ends == "raise ValueError")
    assert node.streams.show(stream)["head"] == 1000 + (before != "")


@pytest.mark.parametrize("work", [LEAVES_A_THREAD, HAS_AN_EXECUTOR, FORKS_AGAIN], ids=["thread", "executor", "fork"])
def test_its_own_threads_and_children_end_before(node: Embedded, stream: str, work: str) -> None:
    node.streams.create(stream)
    program = FORKED.format(before="", work=work, ends="")
    done = ended([sys.executable, *QUIETLY, "-c", program, node.served.address, stream, "5"], life_s=LIFE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert node.streams.show(stream)["head"] == 1001


LOSES = """
    publisher.flush()
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    sys.stdin.readline()
    publisher.publish("k", b"never")
"""


def test_what_it_could_not_send_is_named(node: Embedded, stream: str) -> None:
    program = FORKED.format(before="", work=LOSES, ends="")
    said, told = told_without_a_node(node, program, stream, "0.5")
    assert said == "0\n"
    assert len(re.findall(r"the program ends, and the node at \S+ has not confirmed 1 publication \(", told)) == 1
