"""A publisher that threads share: each call is whole, and nobody's connection ends."""

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import veredus
from veredus.client.embedded import Embedded
from veredus.client.ends import Publisher
from veredus.client.intake import Intake
from veredus.kernel.errors import Misuse

THREADS, EACH = 4, 3_000


@pytest.fixture
def restless() -> Iterator[None]:
    """The interpreter changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def plain(publisher: Publisher, thread: int, n: int) -> int:
    return publisher.publish(f"{thread}.{n}", b"%d.%d" % (thread, n))


def with_attributes(publisher: Publisher, thread: int, n: int) -> int:
    return publisher.publish(f"{thread}.{n}", b"%d.%d" % (thread, n), {"thread": thread, "n": n})


def of_all_kinds(publisher: Publisher, thread: int, n: int) -> int:
    key, body = f"{thread}.{n}", b"%d.%d" % (thread, n)
    if n % 7 == 0:
        return publisher.publish_many([key], [body], [{"thread": thread, "n": n}])
    if n % 11 == 0:
        return publisher.publish(key, body, {"thread": thread, "n": n, f"x{thread}": 1}, 1_700_000_000_000_000 + n)
    return publisher.publish(key, body, {"thread": thread, "n": n})


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("publish", [plain, with_attributes, of_all_kinds])
def test_what_threads_publish_by_one_publisher_is_there_whole_and_by_its_number(
    node: Embedded, stream: str, publish: Callable[[Publisher, int, int], int]
) -> None:
    numbers: list[list[int]] = [[] for _ in range(THREADS)]
    faults: list[BaseException] = []
    with node.publisher(stream, source="p", batch_size=64 << 10) as publisher:

        def work(thread: int) -> None:
            try:
                numbers[thread] += [publish(publisher, thread, n) for n in range(EACH)]
            except BaseException as error:  # noqa: BLE001  # a thread's own would be lost
                faults.append(error)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        publisher.flush(timeout_s=20)
    assert sorted(number for own in numbers for number in own) == list(range(1, THREADS * EACH + 1))
    with node.subscribe(stream, until=THREADS * EACH + 1) as subscription:
        for publication in subscription:
            thread, n = map(int, publication.key.decode().split("."))
            assert publication.body == publication.key
            assert numbers[thread][n] == publication.number
            if publish is not plain:
                assert (publication.attributes["thread"], publication.attributes["n"]) == (thread, n)


def test_a_signal_handler_that_publishes_in_the_middle_of_a_call_is_told() -> None:
    intake = Intake(1, 1, "wait", "wait")
    told: list[str] = []

    def interrupted() -> None:
        with pytest.raises(Misuse) as caught:
            intake.put(b"k", b"from the handler")
        told.append(caught.value.code)
        intake.tell_cut(intake.number, 0)

    intake.wait_room = interrupted
    for _ in range(200):
        intake.put(b"k", b"b" * 100)
    assert set(told) == {"in-a-call"}


def test_a_call_that_fails_gives_its_turn_away(node: Embedded, stream: str) -> None:
    bad: Any = None
    with node.publisher(stream) as publisher:
        for call in (lambda: publisher.publish("k", bad), lambda: publisher.publish("k" * 300, b"")):
            with pytest.raises(veredus.Misuse):
                call()
        done = threading.Thread(target=publisher.publish, args=("k", b"from another thread"))
        done.start()
        done.join(10)
        assert publisher.number == 1


def test_a_publisher_is_closed_in_time_also_while_another_thread_waits_for_room() -> None:
    with veredus.embedded() as node:
        far = veredus.connect(node.served.address)
        publisher = far.publisher("s", source="a", outbox_size_max=2_000, batch_size=500)
        node.served.stop()

        def fill() -> None:
            for _ in range(100):
                publisher.publish("k", b"x" * 300)

        def filled() -> None:
            with pytest.raises(Misuse, match="closed"):
                fill()

        filling = threading.Thread(target=filled, daemon=True)
        filling.start()
        while publisher._intake.is_free:
            filling.join(0.01)
        closing = threading.Thread(target=closed_in_doubt, args=(publisher,), daemon=True)
        closing.start()
        closing.join(10)
        filling.join(10)
        assert not closing.is_alive()
        assert not filling.is_alive()
        node.served.start()
        far.close()


def closed_in_doubt(publisher: Publisher) -> None:
    """Close, and be told that not all is in the stream."""
    with pytest.raises(veredus.Unavailable, match="in-doubt"):
        publisher.close(timeout_s=0.2)
