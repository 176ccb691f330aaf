"""The end of a program: what is to be done then is done once, in its order, whatever fails of it."""

import sys

from tests.processes import ended

PROGRAM = """
import veredus
from veredus.kernel import last

def fail():
    raise ValueError("odd")

last.act_last(lambda: print("first"))
last.act_last(fail)
last.act_last(lambda: print("last", last.is_over()))
{ends}
"""


def test_what_was_asked_for_is_done_once_the_newest_first_and_all_of_it_where_some_fails() -> None:
    done = ended([sys.executable, "-c", PROGRAM.replace("{ends}", "")], life_s=10.0)
    assert (done.returncode, done.stdout) == (0, "last True\nfirst\n")
    assert done.stderr.splitlines()[-1] == "ValueError: odd"


def test_an_end_that_comes_again_does_nothing() -> None:
    ends = "try:\n    last.end()\nexcept ValueError:\n    print('failed')"
    done = ended([sys.executable, "-c", PROGRAM.replace("{ends}", ends)], life_s=10.0)
    assert (done.returncode, done.stdout, done.stderr) == (0, "last True\nfirst\nfailed\n", "")
