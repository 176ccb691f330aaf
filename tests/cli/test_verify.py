"""A witness sees everything that can go wrong with numbered publications, and no more than went wrong."""

import json
import signal
import subprocess
import time

from hypothesis import given
from hypothesis import strategies as st

from tests.cli.test_pipes import COMMAND
from veredus.cli.exits import Exit
from veredus.cli.verify import Witness
from veredus.client.embedded import Embedded


def witness_of(numbers: list[int]) -> Witness:
    witness = Witness()
    for number in numbers:
        witness.take(number)
    return witness


def test_everything_once_and_in_order_is_right() -> None:
    witness = witness_of([1, 2, 3, 4])
    assert (witness.lost_count(4), witness.doubled_count, witness.reordered_count) == (0, 0, 0)


def test_what_never_came_is_lost_in_the_middle_and_at_the_end() -> None:
    assert witness_of([1, 4]).lost_count(6) == 4


def test_what_came_late_is_out_of_order_and_not_lost() -> None:
    witness = witness_of([1, 3, 2, 4])
    assert (witness.lost_count(4), witness.reordered_count, witness.doubled_count) == (0, 1, 0)


def test_what_came_again_is_doubled_unless_it_says_so() -> None:
    witness = witness_of([1, 2, 2, 1])
    witness.take(2, is_redelivered=True)
    assert (witness.doubled_count, witness.redelivered_count, witness.lost_count(2)) == (2, 1, 0)


@given(st.lists(st.integers(1, 12), max_size=30))
def test_the_counts_agree_with_a_count_by_hand(numbers: list[int]) -> None:
    witness = witness_of(numbers)
    highest = max(numbers, default=0)
    assert witness.lost_count(highest) == len(set(range(1, highest + 1)) - set(numbers))
    assert witness.doubled_count == len(numbers) - len(set(numbers))
    late = [n for index, n in enumerate(numbers) if n not in numbers[:index] and n < max([0, *numbers[:index]])]
    assert witness.reordered_count == len(late)


def test_an_interrupted_run_receives_what_was_published_before_it_judges(node: Embedded) -> None:
    command = [*COMMAND, "verify", "--count", "100000000", "-a", node.served.address, "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while not any(stream["head"] > 1_000 for stream in node.streams.list()):
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=50)
    row = json.loads(out)
    assert (row["lost"], row["received"], child.returncode) == (0, row["published"], Exit.INTERRUPTED), err
    assert node.streams.list() == []
