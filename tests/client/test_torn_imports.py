"""A broken import of numpy can never be made up for: what a signal's handler raises ends the wait for it alone."""

from __future__ import annotations

import sys

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
