"""The first publication waits for nothing that later ones do not wait for."""

import sys

from tests.processes import ended

SCRIPT = """
import sys

asked = []


class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            asked.append(name)


sys.meta_path.insert(0, Watch())

import datetime

import veredus

now = datetime.datetime.now(datetime.UTC)
with veredus.embedded() as node:
    node.streams.create("s")
    with node.publisher("s", source="a") as publisher:
        for index in range(600):
            attributes = {"n": index, "x": index / 2, "w": "word", "b": True, "o": b"o", "t": now}
            if index % 5 == 0:
                attributes["w"] = attributes["t"] = None
            publisher.publish(f"k{index % 3}", b"x" * (index % 9), attributes, now)
        publisher.flush()
        publisher.wait(publisher.publish("k", b"x", {"n": None}))
    with node.subscribe("s", until=602) as subscription:
        for batch in subscription.batches():
            assert batch.to_arrow().num_rows == len(batch)
            for publication in batch:
                assert publication.attributes.get("t", now) == now, publication
                assert publication.event_time
print(asked)
"""


def test_publishing_and_subscribing_do_not_import_pandas() -> None:
    assert ended([sys.executable, "-c", SCRIPT]).stdout.strip() == "[]"
