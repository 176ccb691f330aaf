"""A broken import of numpy can never be made up for: what a signal's handler raises ends the wait for it alone."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.processes import ended

TORN = """
import sys
from tests.client.tears import torn
from veredus.kernel import lazily

with torn(frozenset(("lazily.py",)), int(sys.argv[1])) as tear:
    lazily.pc.add
print(tear.where, lazily.np.array([1, 2]).sum(), lazily.pc.add(1, 2))
"""


def test_who_is_torn_out_of_the_first_use_of_columns_can_use_them_afterwards() -> None:
    at, where = 0, "never"
    while where:
        at += 1
        done = ended([sys.executable, "-c", TORN, str(at)])
        assert done.returncode == 0, done.stderr
        where, _, rest = done.stdout.partition(" ")
        assert rest == "3 3\n", f"torn at place {at}, {where}"
    assert at > 5


INTERRUPTED = """
import signal, sys
from veredus.kernel import lazily

class Interrupted(Exception): ...

def interrupt(*_):
    raise Interrupted

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
try:
    lazily.np.array
except Interrupted:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
print(lazily.np.array([1, 2]).sum())
"""


def test_numpy_can_be_used_whenever_its_import_is_interrupted() -> None:
    for step in range(1, 15):
        done = ended([sys.executable, "-c", INTERRUPTED, str(step * 0.008)])
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


FIRST_USE = """
import os, signal, sys, time

class Interrupting:
    "Ctrl-C as soon as the module that is named is looked for, whoever imports it."

    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

sys.meta_path.insert(0, Interrupting())
import veredus
from veredus import topics

for module in (veredus, topics):
    try:
        module.connect if module is veredus else module.Client
    except KeyboardInterrupt:
        print("interrupted")
try:
    veredus.connect("veredus://127.0.0.1:9", refused_s=0.1)
except veredus.Unavailable:
    print("usable")
with topics.Client("alice", proxies=["127.0.0.1:9"], directory=sys.argv[2]):
    print("usable")
"""


@pytest.mark.parametrize(
    "module", ["asyncio.base_events", "veredus.streams.exchange", "veredus.delivery.rows", "veredus.topics.blocking"]
)
def test_the_first_use_may_be_interrupted_anywhere_in_its_imports(module: str, tmp_path: Path) -> None:
    done = ended([sys.executable, "-c", FIRST_USE, module, str(tmp_path)])
    assert (done.returncode, done.stdout) == (0, "interrupted\nusable\nusable\n"), done.stderr


COMMAND = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from veredus.__main__ import main
main()
"""


def test_a_command_that_is_interrupted_before_it_has_begun_ends_as_any_other() -> None:
    done = ended([sys.executable, "-c", COMMAND])
    assert (done.returncode, done.stderr) == (130, "")


UNCAUGHT = """
import os, signal, sys, time

class Interrupting:
    "Ctrl-C in the middle of an import that runs small pieces of Python, as that of each named tuple does."

    def find_spec(self, name, path=None, target=None):
        if name == "veredus.streams.exchange":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
            end_s = time.monotonic() + 1
            while time.monotonic() < end_s:
                exec("0")

sys.meta_path.insert(0, Interrupting())
import veredus
veredus.connect
"""


def test_a_program_that_ctrl_c_ends_in_its_first_use_ends_by_that_signal() -> None:
    done = ended([sys.executable, "-c", UNCAUGHT])
    assert done.returncode == -signal.SIGINT, done.stderr
