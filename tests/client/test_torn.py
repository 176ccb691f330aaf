"""What a signal's handler raises, as Ctrl-C does in a notebook, tears no call in two: the program that goes on loses
nothing, and gets nothing twice.
"""

import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Literal

import pytest

from tests.client.tears import torn
from tests.processes import ended
from veredus.client.embedded import Embedded
from veredus.client.ends import Publisher, Subscription
from veredus.client.publication import Batch, Publication
from veredus.client.temporary import TemporaryDirectory
from veredus.runtime.directory import open_directory

TAKING = frozenset(("loops.py", "ends.py", "feed.py", "publication.py", "<string>"))
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PUTTING = frozenset(("loops.py", "ends.py", "intake.py", "given.py", "cutting.py", "turns.py"))


Taken = Batch | Publication


def by_batches(subscription: Subscription) -> Iterator[Taken]:
    while (batch := subscription.next_batch(5.0)) is not None:
        yield batch


def by_publications(subscription: Subscription) -> Iterator[Taken]:
    yield from subscription


def by_turns(subscription: Subscription) -> Iterator[Taken]:
    for publication in subscription:
        yield publication
        break
    yield from by_batches(subscription)


def sequences_of(taken: Taken) -> list[int]:
    return taken.sequences.tolist() if isinstance(taken, Batch) else [taken.sequence]


@pytest.mark.parametrize("taking", [by_batches, by_publications, by_turns])
@pytest.mark.parametrize("attempts_max", [0, 3])
def test_who_is_torn_out_of_taking_takes_the_same_next(
    node: Embedded, stream: str, taking: Callable[[Subscription], Iterator[Taken]], attempts_max: int
) -> None:
    node.streams.create(stream)
    node.streams.create(stream + ".letters")
    with node.publisher(stream) as publisher:
        for _ in range(3):
            publisher.publish_many(["key"] * 3, ["body"] * 3)
            publisher.flush()
    at, where = 0, "never"
    while where:
        at += 1
        taken: list[Taken] = []
        counted = {"mode": "individual", "attempts_max": attempts_max, "parked_to": stream + ".letters"}
        name = {"subscriber": "torn", "name": f"at-{at}", **counted} if attempts_max else {}
        with node.subscribe(stream, until=10, **name) as subscription:
            with torn(TAKING, at) as tear:
                taken.extend(taking(subscription))
            where = tear.where
            taken.extend(taking(subscription))
        sequences = [sequence for one in taken for sequence in sequences_of(one)]
        assert sequences == list(range(1, 10)), f"torn at place {at}, {where}"
    assert at > 20


@pytest.mark.parametrize("taking", [by_batches, by_publications])
@pytest.mark.parametrize("attempts_max", [0, 5])
def test_who_is_torn_out_of_taking_what_comes_again_takes_it_next(
    node: Embedded, stream: str, taking: Callable[[Subscription], Iterator[Taken]], attempts_max: int
) -> None:
    node.streams.create(stream)
    node.streams.create(stream + ".letters")
    with node.publisher(stream) as publisher:
        publisher.publish_many(["key"] * 3, ["body"] * 3)
        publisher.flush()
    at, where = 0, "never"
    while where:
        at += 1
        counted = {"attempts_max": attempts_max, "parked_to": stream + ".letters"} if attempts_max else {}
        with node.subscribe(
            stream, subscriber="torn", name=f"at-{at}", until=4, mode="individual", **counted
        ) as subscription:
            for _, publication in zip(range(3), subscription, strict=False):
                publication.retry()
            taken: list[Taken] = []
            with torn(TAKING, at) as tear:
                taken.extend(islice(taking(subscription), 3))
            where = tear.where
            taken.extend(islice(taking(subscription), 3 - len(taken)))
        sequences = [sequence for one in taken for sequence in sequences_of(one)]
        assert sorted(sequences) == [1, 2, 3], f"torn at place {at}, {where}"
    assert at > 20


def test_what_a_handler_raises_is_handed_on_also_where_it_is_a_timeout(node: Embedded, stream: str) -> None:
    where = "never"
    with (
        node.publisher(stream, source="torn", resume="token") as publisher,
        node.publisher(stream) as other,
    ):
        at = 0
        while where:
            at += 1
            publisher.publish("key", "body")
            with torn(PUTTING, at, TimeoutError("mine")) as tear:
                publisher.flush(b"%d" % at, timeout_s=10)
                other.wait(other.publish("key", "body"), timeout_s=10)
            where = tear.where
    assert at > 20


def put_plain(publisher: Publisher, index: int) -> None:
    publisher.publish(str(index), str(index))


def put_text_and_whole(publisher: Publisher, index: int) -> None:
    publisher.publish(str(index), str(index), {"index": index})


def put_of_changing_names(publisher: Publisher, index: int) -> None:
    publisher.publish(str(index), str(index), {"index": index, f"other-{index % 3}": True} if index % 2 else None)


def put_timed(publisher: Publisher, index: int) -> None:
    publisher.publish(str(index), str(index), None if index % 3 else {"index": index}, EPOCH + timedelta(seconds=index))


def put_together(publisher: Publisher, index: int) -> None:
    publisher.publish_many([str(index)] * 1, [str(index)] * 1, [{"index": index}])


@pytest.mark.parametrize("put", [put_plain, put_text_and_whole, put_of_changing_names, put_timed, put_together])
@pytest.mark.parametrize(("resume", "batch_size"), [("number", 100), ("token", 100), ("number", 4096)])
def test_who_is_torn_out_of_publishing_has_published_it_or_not(
    node: Embedded,
    stream: str,
    put: Callable[[Publisher, int], None],
    resume: Literal["number", "token"],
    batch_size: int,
) -> None:
    at, where = 0, "never"
    while where:
        at += 1
        own = f"{stream}.{at}"
        node.streams.create(own)
        published: list[int] = []
        with node.publisher(own, source="torn", resume=resume, batch_size=batch_size) as publisher:
            number = 0
            for step in range(3):
                with torn(PUTTING, at if step == 1 else 0) as tear:
                    for index in range(step * 10, step * 10 + 5):
                        published.append(index)
                        put(publisher, index)
                        number += 1
                if tear.where:
                    where = tear.where
                    if publisher.number == number:
                        published.pop()
                    else:
                        number += 1
                elif step == 1:
                    where = ""
            assert publisher.number == number, f"torn at place {at}, {where}"
            publisher.flush(b"token" if resume == "token" else b"")
            assert publisher.taken_number == number
        with node.subscribe(own, until=number + 1) as subscription:
            got = list(subscription)
        assert [int(each.body) for each in got] == published, f"torn at place {at}, {where}"
        for each in got:
            index = int(each.body)
            assert int(each.key) == index, f"torn at place {at}, {where}"
            assert each.attributes.get("index", index) == index, f"torn at place {at}, {where}"
            assert put is not put_timed or each.event_time == EPOCH + timedelta(seconds=index)
        node.streams.delete(own)
    assert at > 10


EMBEDDED = """
import os
import sys
import tempfile
import threading
import time
import veredus
from tests.client.tears import torn
from veredus.client import loops

def left():
    return len(os.listdir(tempfile.gettempdir())), len(os.listdir("/proc/self/fd"))

veredus.embedded(sys.argv[1]).close()
before, where, at = left(), "never", 0
while where:
    at, node = at + 1, None
    with torn(frozenset(("loops.py", "embedded.py", "unbroken.py", "threading.py")), at, KeyboardInterrupt()) as tear:
        with veredus.embedded(sys.argv[1]) as node, node.publisher("s") as publisher:
            publisher.publish("key", b"body")
    where = tear.where
    # Who is torn out as the end of the block begins has closed nothing.
    if node is not None:
        node.close()
    with veredus.embedded(sys.argv[1]) as node:
        assert len(node.streams.list()) <= 1
end_s = time.monotonic() + 20
while left() != before and time.monotonic() < end_s:
    time.sleep(0.05)
assert left() == before
print(at, len(loops._running), [thread.name for thread in threading.enumerate() if not thread.daemon])
"""


@pytest.mark.timeout(300)
def test_who_is_torn_out_of_an_embedded_nodes_start_or_end_can_begin_it_again_and_it_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    done = ended([sys.executable, "-W", "ignore", "-c", EMBEDDED, str(tmp_path / "journal")], life_s=240)
    assert done.returncode == 0, done.stderr
    # Coroutines that nobody began are told of, and are nothing to tell: the program was torn out of there.
    assert "RuntimeError" not in done.stderr
    place_count, loop_count, left = done.stdout.split(maxsplit=2)
    assert int(place_count) > 40
    assert int(loop_count) < 20
    assert left == "['MainThread']\n"


def test_who_is_torn_out_of_closing_a_subscription_can_close_it_again(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="p") as publisher:
        publisher.publish_many(["key"] * 200, ["body"] * 200)
    where, at = "never", 0
    while where:
        at += 1
        subscription = node.subscribe(stream, subscriber="torn")
        publication = next(iter(subscription))
        publication.settle()
        with torn(TAKING, at) as tear:
            subscription.close()
        where = tear.where
        subscription.close()
        shown = node.subscriptions.show(stream, "torn")
        assert (shown["is_attached"], shown["floor"]) == (False, publication.sequence), f"torn at place {at}, {where}"
    assert at > 10


def test_who_is_torn_out_of_closing_a_publisher_can_close_it_again(node: Embedded, stream: str) -> None:
    where, at = "never", 0
    while where:
        at += 1
        publisher = node.publisher(stream, source="p")
        publisher.publish("key", "body")
        with torn(PUTTING, at) as tear:
            publisher.close()
        where = tear.where
        publisher.close()
        (shown,) = node.streams.show(stream)["source_list"]
        assert (shown["is_attached"], shown["last_number"]) == (False, at), f"torn at place {at}, {where}"
    assert at > 10


def opened_temporary(_path: Path) -> Callable[[], None]:
    return TemporaryDirectory().remove


def opened_journal(path: Path) -> Callable[[], None]:
    return open_directory(path).close


@pytest.mark.parametrize("opened", [opened_temporary, opened_journal])
def test_who_is_torn_out_of_letting_go_of_a_directory_closes_no_file_of_its_own_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[Path], Callable[[], None]]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    where, at = "never", 0
    while where:
        at += 1
        let_go = opened(tmp_path / f"journal-{at}")
        with torn(frozenset(("temporary.py", "directory.py")), at) as tear:
            let_go()
        where = tear.where
        own = [os.open(tmp_path, os.O_RDONLY) for _ in range(3)]
        let_go()
        for descriptor in own:
            os.close(descriptor)
    assert at > 2
