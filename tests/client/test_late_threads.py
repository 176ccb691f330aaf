"""Threads that outlive the main one, and are the first to connect: what they publish is sent as of any other."""

import sys
from pathlib import Path

import pytest

from tests.processes import ended
from veredus.client.embedded import Embedded

COUNT = 200
METHODS = ("fork", "forkserver", "spawn")
PUBLISHES = """
def publish():
    time.sleep(0.3)
    import veredus
    publisher = veredus.connect(sys.argv[1]).publisher(sys.argv[2], source="a")
    for number in range(int(sys.argv[3])):
        publisher.publish("k", b"%d" % number)
"""
LATE = f"""
import sys, threading, time
{PUBLISHES}
threading.Thread(target=publish).start()
"""
OF_A_CHILD = f"""
import multiprocessing, sys, threading, time
import veredus
{PUBLISHES}
def begin():
    threading.Thread(target=publish).start()

if __name__ == "__main__":
    child = multiprocessing.get_context("{{method}}").Process(target=begin)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.parametrize(
    "program",
    [
        LATE,
        "import veredus\n" + LATE,
        *(OF_A_CHILD.format(method=method) for method in ("fork", "forkserver", "spawn")),
    ],
    ids=["imports", "connects", "fork", "forkserver", "spawn"],
)
def test_what_a_thread_publishes_that_outlives_the_main_one_is_sent(
    node: Embedded, program: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    stream = f"late-{request.node.callspec.id}"
    file = tmp_path / "program.py"
    file.write_text(program)
    done = ended([sys.executable, str(file), node.served.address, stream, str(COUNT)])
    assert (done.returncode, done.stderr) == (0, "")
    assert node.streams.show(stream)["head"] == COUNT
