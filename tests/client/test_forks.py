"""A child of a fork may not use what its parent opened; it is told so at once, and may connect anew."""

import subprocess
import sys

import veredus
from tests.client.cutter import Cutter
from tests.forks import told_by_child
from tests.processes import Child
from veredus.client.embedded import Embedded


def in_child(node: Embedded, stream: str, publisher: veredus.Publisher, subscription: veredus.Subscription) -> object:
    codes = []
    for use in (
        lambda: publisher.publish("k", b"child"),
        lambda: publisher.wait(1),
        publisher.flush,
        lambda: subscription.next_batch(timeout_s=1),
        node.streams.list,
        lambda: node.publisher(stream),
    ):
        try:
            use()
            codes.append("used")
        except veredus.VeredusError as error:
            codes.append(error.code)
    publisher.close()
    subscription.close()
    node.close()
    with veredus.connect(node.served.address) as anew, anew.publisher(stream, source="child") as mine:
        codes.append(str(mine.wait(mine.publish("k", b"anew")).number))
    return codes


def test_what_was_opened_before_a_fork_refuses_in_the_child_and_works_on_in_the_parent(
    node: Embedded, stream: str
) -> None:
    publisher = node.publisher(stream, source="parent")
    publisher.wait(publisher.publish("k", b"before"))
    subscription = node.subscribe(stream)
    codes = told_by_child(lambda: in_child(node, stream, publisher, subscription))
    assert codes == ["forked"] * 6 + ["1"]
    publisher.wait(publisher.publish("k", b"after"))
    publisher.close()
    with subscription:
        got: list[bytes] = []
        while len(got) < 3:
            batch = subscription.next_batch(timeout_s=10)
            assert batch is not None
            got += [publication.body for publication in batch]
    assert sorted(got) == [b"after", b"anew", b"before"]


CLOSING = """
import os, sys, threading, time, veredus
publisher = (node := veredus.connect(sys.argv[1])).publisher(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
publisher.publish("k", b"")
threading.Thread(target=node.close, daemon=True).start()
time.sleep(0.2)
child, began_s = os.fork(), time.monotonic()
if child:
    os.waitpid(child, 0)
    print(time.monotonic() - began_s, flush=True)
    os._exit(0)
"""


def test_what_the_parent_is_closing_is_not_seen_to_in_the_child(node: Embedded, stream: str) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        Cutter(node.served.address) as cutter,
        Child([sys.executable, "-c", CLOSING, cutter.address, stream], **pipes) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        cutter.is_open = False
        cutter.cut()
        said, told = child.communicate(b"\n")
    assert (float(said) < 2.0, told) == (True, b"")
