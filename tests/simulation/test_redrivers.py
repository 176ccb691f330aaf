"""Dead letters are moved back in worlds with kills, each once; and worlds would say so if one were lost or doubled."""

import pytest

from veredus.delivery.redriving import Return
from veredus.sim.content import Identity, Row, body_of, key_of
from veredus.sim.running import Outcome, run_seed
from veredus.sim.views import StreamView

SEED = 107
"""A world in which letters are moved."""


def outcome() -> Outcome:
    return run_seed(SEED)


def test_letters_are_moved_back_once_and_in_order_though_runs_are_killed() -> None:
    ended = outcome()
    assert ended.violation == ""
    assert "redriver-1" in ended.names
    assert ended.counts["redriven"] > 5


def test_a_run_that_forgets_where_the_last_one_stopped_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Return.__init__

    def forget(self: Return, letters: str, stream: str, token: bytes, resume_number: int, last_number: int) -> None:
        begin(self, letters, stream, b"", resume_number, last_number)

    monkeypatch.setattr(Return, "__init__", forget)
    assert outcome().violation.startswith("redriven:")


def test_a_run_that_leaves_a_letter_out_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    is_due = Return.is_due
    monkeypatch.setattr(Return, "is_due", lambda self, sequence: is_due(self, sequence) and self.count != 2)
    assert outcome().violation.startswith("redriven:")


def test_a_letter_that_nobody_could_read_while_the_disk_failed_is_in_doubt_until_it_is_read() -> None:
    view = StreamView("parked-subscriber-1", b"")
    view.unread.append((1, 1))
    assert view.may_hide
    letter = Identity("source-1", 1)
    view.learn(1, Row(letter, 1, key_of(letter), body_of(letter), 1, 111))
    assert not view.may_hide
