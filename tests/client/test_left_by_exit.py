"""A `with` block that `sys.exit` or a cancellation leaves while the node is gone: what is lost is said, once."""

import subprocess
import sys

import pytest

from tests.client.cutter import Cutter
from tests.processes import Child
from veredus.client.embedded import Embedded

PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
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
    with (
        Cutter(node.served.address) as cutter,
        Child([sys.executable, "-c", program, cutter.address, stream], life_s=60, **PIPES) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        cutter.is_open = False
        cutter.cut()
        told = child.communicate(b"\n")[1].decode()
    assert child.returncode == 3, told
    assert "Traceback" not in told
    assert len([line for line in told.splitlines() if "confirmed" in line or "in doubt" in line]) == 1, told
