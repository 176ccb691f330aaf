"""pyarrow imports pandas, where that is installed, when some of its functions are first called: half a second in which
a node serves nobody, and a publisher's first publications wait. Neither calls one of them.
"""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tests.processes import ended

SCRIPT = """
import sys
import veredus

with veredus.embedded(journal={"sync": "none"}) as node:
    node.streams.create("dead")
    with node.publisher("s", source="a") as publisher:
        for number in range(300):
            publisher.publish(f"k.{number % 3}", b"body", {"n": number, "f": 0.5, "t": f"x{number}", "b": bool(number)})
        publisher.flush()
        publisher.publish_many([b"k.2"] * 300, [b"x"] * 300, [{"t": t} for t in ("x1", "x7", None)] * 100)
        publisher.publish_many([b"k.1"] * 5, [b"x"] * 5, [{"n": 1}, {}, {"n": None}, {"n": 4}, {"n": 5}])
    wheres = [
        None,
        "n > 3 and f < 0.75",
        "t like 'x1%' or t = 'x7'",
        "t in ('x2', 'x3')",
        "$source = 'a' and $sequence > 3",
        "$event_time is not null and $append_time is not null and t like '%1' and b",
        "$key like 'k.%'",
    ]
    for keys in (None, ["prefix:k."], ["k.1", "k.2"], ["tokens:k.*"], ["regex:k.[01]"]):
        for where in wheres:
            with node.subscribe("s", keys=keys, where=where, start=veredus.beginning(), until=606) as subscription:
                for publication in subscription:
                    publication.attributes, publication.key, publication.body, publication.event_time
    for count in (1, 0):
        options = {"mode": "individual", "attempts_max": 1, "parked_to": "dead", "until": 606}
        with node.subscribe("s", subscriber="x", **options) as pushed:
            assert len([publication for _, publication in zip(range(count), pushed)]) == count
    with node.subscribe("dead", start=veredus.beginning(), until=2) as subscription:
        assert next(iter(subscription)).attributes["veredus.stream"] == "s"
print([name for name in ("pandas",) if name in sys.modules])
"""


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_neither_a_node_nor_its_clients_ever_import_pandas() -> None:
    assert ended([sys.executable, "-c", SCRIPT]).stdout.strip() == "[]"
