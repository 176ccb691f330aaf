"""A `with` block that `sys.exit` or a cancellation leaves while the node is gone: what is lost is said, once."""

import pytest

from tests.client.without_a_node import told_without_a_node
from veredus.client.embedded import Embedded

OF_A_NODE = """
import sys, veredus
with veredus.connect(sys.argv[1]) as node:
    publisher = node.publisher(sys.argv[2], source="a")
    print("ready", flush=True)
    sys.stdin.readline()
    publisher.publish_many(["k"] * 3, [b""] * 3)
    sys.exit(3)
"""
OF_A_PUBLISHER = """
import sys, veredus
with veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="a") as publisher:
    print("ready", flush=True)
    sys.stdin.readline()
    publisher.publish_many(["k"] * 3, [b""] * 3)
    sys.exit(3)
"""
IN_A_TASK = """
import asyncio, sys, veredus

async def work(is_published):
    async with await veredus.connect_async(sys.argv[1]) as node:
        publisher = await node.publisher(sys.argv[2], source="a")
        print("ready", flush=True)
        sys.stdin.readline()
        await publisher.publish_many(["k"] * 3, [b""] * 3)
        is_published.set()
        await asyncio.sleep(60)

async def main():
    is_published = asyncio.Event()
    task = asyncio.create_task(work(is_published))
    await is_published.wait()

asyncio.run(main())
sys.exit(3)
"""


@pytest.mark.parametrize("program", [OF_A_NODE, OF_A_PUBLISHER, IN_A_TASK], ids=["node", "publisher", "task"])
def test_what_is_lost_is_said_where_no_traceback_is(node: Embedded, stream: str, program: str) -> None:
    _, told = told_without_a_node(node, program, stream, status=3)
    assert "Traceback" not in told
    assert len([line for line in told.splitlines() if "confirmed" in line or "in doubt" in line]) == 1, told
