"""A child of a fork may not use what its parent opened; it is told so at once, and may connect anew."""

import os
import pickle
import signal
import traceback

import veredus
from veredus.client.embedded import Embedded

CHILD_LIFE_S = 30


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
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_LIFE_S)  # it has the pipes of the tests' own process, which would wait for it for ever
        try:
            told: object = in_child(node, stream, publisher, subscription)
        except BaseException:  # noqa: BLE001
            told = traceback.format_exc()
        os.write(writing, pickle.dumps(told))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        codes = pickle.loads(pipe.read())
    os.waitpid(child, 0)
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
