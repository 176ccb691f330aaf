"""What every subscriber of a topic has got goes at its age, and its space comes back; nothing else goes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

import veredus
from tests.processes import Child, free_port
from tests.system.serving_topics import ANSWER_MS, Said, said

pytestmark = pytest.mark.slow

START_S, LOOKS_S = 20.0, 30.0
"""A node looks every five seconds at what may go."""
BODY, COUNT = bytes(range(256)) * 100, 60
SEGMENT_SIZE = 128 << 10


class Served:
    """A server of `veredus topics serve` in a directory, a client of its native listener, and a socket of clients."""

    def __init__(self, directory: Path, section: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        (directory / "topics.toml").write_text(
            f'[topics]\nproxies = []\n{section}[journal]\nsegment_size = "{SEGMENT_SIZE}"\nfree_segments_max = 0\n'
            'checkpoint_interval_size = "1 MiB"\n'
        )
        self.journal = directory / f"server_{self.address.replace(':', '_')}"
        command = [sys.executable, "-m", "veredus", "topics", "--config", "topics.toml", "serve", self.address]
        self.process = Child(command, cwd=directory, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.node = veredus.connect(f"unix://{self.journal}/native.socket", timeout_s=START_S, refused_s=START_S)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.asking = self.context.socket(zmq.REQ)
        self.asking.connect(f"tcp://{self.address}")

    def end(self) -> None:
        self.context.destroy(linger=0)
        self.node.close()
        self.process.end()

    def ask(self, question: str, body: bytes = b"") -> Said:
        self.asking.send(question.encode() + b"\r\n\r\n" + body)
        assert self.asking.poll(ANSWER_MS), f"no answer to {question}"
        return said(self.asking.recv())

    def put_all(self, topic: str) -> None:
        for counter in range(1, COUNT + 1):
            assert self.ask(f"PUT bob {topic} {counter}", BODY).status == "OK"

    def get_all(self, client: str, topic: str) -> int:
        """How many messages came; the last one is named too."""
        count, last = 0, "-1"
        while (told := self.ask(f"GET {client} {topic} {last}")).status == "OK":
            assert told.body == BODY
            count, last = count + 1, told.message_id
        assert told.status == "NO_MESSAGES", told
        return count

    def kept_count(self, topic: str) -> int:
        """How many messages the journal has."""
        shown = self.node.streams.show(topic)
        return int(shown["head"] - shown["floor"] + 1)

    @property
    def disk_size(self) -> int:
        """Bytes of the disk that the segments take."""
        return sum(path.stat().st_blocks * 512 for path in self.journal.glob("*.segment"))

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LOOKS_S
        while not is_so():
            assert time.monotonic() < deadline, f"not in time: {what}; {self.disk_size} bytes are taken"
            time.sleep(0.1)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Served]]:
    started: list[Served] = []

    def start(section: str) -> Served:
        started.append(Served(tmp_path, section))
        return started[-1]

    yield start
    for served in started:
        served.end()


def test_the_space_of_what_every_subscriber_has_got_comes_back(start: Callable[[str], Served]) -> None:
    served = start('retention_age = "1s"\n')
    for question in ("SUBSCRIBE alice prices", "SUBSCRIBE carol prices", "SUBSCRIBE alice news"):
        assert served.ask(question).status == "OK"
    served.put_all("prices")
    served.put_all("news")
    assert served.get_all("alice", "prices") == served.get_all("alice", "news") == COUNT
    full_size = served.disk_size
    assert full_size > 2 * COUNT * len(BODY)
    # What all have got of one topic is gone: then the other one was looked at, too.
    served.wait_for(lambda: served.kept_count("news") == 0, "all have got the news")
    assert served.kept_count("prices") == COUNT, "carol has got nothing yet"
    assert served.get_all("carol", "prices") == COUNT
    served.wait_for(lambda: served.kept_count("prices") == 0, "all have got the prices")
    served.wait_for(lambda: served.disk_size < full_size // 4, "the segments are gone")
    assert served.ask("PUT bob prices 61", BODY).status == "OK"
    assert served.get_all("carol", "prices") == 1, "the topic goes on"


@pytest.mark.parametrize(
    ("section", "age_s"), [("", 86_400.0), ('retention_age = "36h"\n', 129_600.0), ("retention_age = 0\n", 0)]
)
def test_a_new_topic_is_kept_for_as_long_as_the_settings_say(
    start: Callable[[str], Served], section: str, age_s: float
) -> None:
    served = start(section)
    assert served.ask("PUT bob prices 1", b"x").status == "OK"
    assert served.node.streams.show("prices")["config"].get("retention_age_s", 0) == age_s
