"""What a signal's handler raises, as Ctrl-C does in a notebook, leaves no client of topics half open."""

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.alarms import Interrupted, alarm_set, interrupting
from tests.client.tears import torn
from tests.processes import wait_until
from tests.topics.paper_server import Scene, scene
from veredus.kernel.errors import Refused
from veredus.topics import Client

CALLING = frozenset(("blocking.py", "loops.py"))


@pytest.fixture(scope="module")
def around() -> Iterator[Scene]:
    with scene() as around:
        yield around


@pytest.fixture
def made(around: Scene, tmp_path: Path) -> Callable[..., Client]:
    def make(client_id: str = "alice", **options: Any) -> Client:
        return Client(client_id, proxies=around.addresses, directory=tmp_path, answer_s=1.0, **options)

    return make


def held() -> int:
    """How many descriptors and threads this process has; its proxies close theirs a moment after their clients."""
    return len(list(Path("/proc/self/fd").iterdir())) + len(list(Path("/proc/self/task").iterdir()))


def held_at_rest() -> int:
    """The least of what it has within a while."""
    return min(held() for _ in range(20) if sleep(0.01) is None)


def test_who_is_torn_out_of_closing_a_client_can_close_it_again_and_its_id_is_free(made: Callable[..., Client]) -> None:
    made().open().close()
    before = held_at_rest()
    where, at = "never", 0
    while where:
        at += 1
        client = made().open()
        with torn(CALLING, at) as tear:
            client.close()
        where = tear.where
        client.close()
        wait_until(lambda: held() <= before, partial("torn at place {}, {}".format, at, where))
        made().open().close()
    assert at > 10


def test_who_is_torn_out_of_closing_a_client_can_open_another_one_of_its_id_at_once(
    made: Callable[..., Client],
) -> None:
    where, at = "never", 0
    refusals: list[Refused] = []
    while where:
        at += 1
        client = made().open()
        with torn(CALLING, at) as tear:
            client.close()
        where = tear.where
        try:
            made().open().close()
        except Refused as refused:
            refusals.append(refused)
        client.close()
    # A few were torn before they had begun to close.
    assert len(refusals) < at // 2
    for refused in refusals:
        assert refused.code == "client-in-use"
        assert f"in use by process {os.getpid()}" in refused.message
        assert "it is this process: close it there, or use another id" in refused.message


def test_who_is_torn_out_of_opening_a_client_can_open_another_one_of_its_id_at_once(
    made: Callable[..., Client],
) -> None:
    made().open().close()
    before = held_at_rest()
    where, at = "never", 0
    while where:
        at += 1
        client = made()
        with torn(CALLING, at) as tear:
            client.open()
        where = tear.where
        if where:
            made().open().close()
            client.open()
        client.close()
        wait_until(lambda: held() <= before, partial("torn at place {}, {}".format, at, where))
    assert at > 10


@interrupting
def test_an_interrupted_opening_is_waited_for_by_the_next_one(made: Callable[..., Client]) -> None:
    interrupted_count = 0
    with alarm_set() as alarm:
        for step in islice(cycle(range(1, 41)), 400):
            if interrupted_count > 3 and step == 1:
                break
            client = None
            try:
                alarm.ring_in(step * 0.0002)
                client = made().open()
                alarm.is_armed = False
            except Interrupted:
                interrupted_count += 1
            if client is not None:
                client.close()
            made().open().close()
    assert interrupted_count > 3


def test_many_threads_may_close_a_client(made: Callable[..., Client]) -> None:
    for _ in range(20):
        client = made().open()
        closing = [threading.Thread(target=client.close) for _ in range(4)]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(5)
            assert not thread.is_alive()
