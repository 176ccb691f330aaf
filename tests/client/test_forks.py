"""A child of a fork may not use what its parent opened; it is told so at once, and may connect anew."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import veredus
from tests.client.cutter import Cutter
from tests.forks import told_by_child
from tests.processes import Child, beside, wait_until
from veredus.client.embedded import Embedded
from veredus.topics import Client


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


def codes_of(*uses: Callable[[], object]) -> list[str]:
    """What each raises."""
    codes = []
    for use in uses:
        try:
            use()
            codes.append("used")
        except veredus.VeredusError as error:
            codes.append(error.code)
    return codes


def test_who_would_wait_in_the_child_for_what_only_the_parent_does_is_told_at_once(node: Embedded, stream: str) -> None:
    with node.publisher(stream) as publisher:
        publisher.publish_many(["k"] * 3, [b""] * 3)
    node.streams.create(f"{stream}.letters")
    options = {"mode": "individual", "attempts_max": 3, "parked_to": f"{stream}.letters"}
    with node.subscribe(stream, subscriber="s") as one, node.subscribe(stream, subscriber="t", **options) as other:
        got, tried = next(iter(one)), next(iter(other))
        uses = (
            lambda: one.settle(got),
            lambda: one.wait_settled(timeout_s=10),
            lambda: one.wait_settled(got),
            lambda: one.change_filter("k"),
            lambda: next(iter(one)),
            lambda: other.wait_settled(tried),
            tried.settle,
            lambda: other.next_batch(),
        )
        codes = told_by_child(lambda: codes_of(*uses))
        assert isinstance(codes, list)
        assert set(codes) <= {"forked", "used"}, codes
        assert codes.count("used") <= 2, codes
        other.retry(tried)


def test_who_publishes_in_the_child_is_told_so_also_where_a_thread_of_the_parent_waited_for_room(
    node: Embedded, stream: str
) -> None:
    with Cutter(node.served.address) as cutter, veredus.connect(cutter.address) as far:
        publisher = far.publisher(stream, outbox_size_max=1 << 12)
        cutter.is_open = False
        cutter.cut()
        with beside(publisher.publish_many, ["k"] * 100, [b"x" * 1000] * 100):
            wait_until(lambda: publisher._intake._waiting_thread != 0)
            codes = told_by_child(lambda: codes_of(lambda: publisher.publish("k", b""), publisher.flush))
            cutter.is_open = True
        publisher.close()
    assert codes == ["forked"] * 2


def test_who_uses_a_client_of_topics_in_the_child_is_told_so_also_where_a_thread_of_the_parent_used_it(
    tmp_path: Path,
) -> None:
    with (
        Client("c", proxies=["127.0.0.1:9"], directory=tmp_path, answer_s=5.0, retries_max=0) as client,
        beside(lambda: codes_of(lambda: client.put("t", b""))),
    ):
        wait_until(lambda: "t" in client._hands and client._hands["t"].locked())
        uses = (lambda: client.put("t", b""), lambda: client.put_many("t", [b""]), lambda: client.get("t"))
        codes = told_by_child(lambda: codes_of(*uses, client.close))
    assert codes == ["forked"] * 4


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
