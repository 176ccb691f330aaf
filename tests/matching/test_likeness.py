"""LIKE on long texts, and conditions on few rows, some at a time: the answers are the same."""

import time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.reference import Cell, is_like, steps_of
from tests.matching.strategies import CONDITIONS, batches
from veredus.matching import compile_predicate, likeness
from veredus.matching.evaluation import Piecemeal, evaluate
from veredus.matching.likeness import Search
from veredus.matching.syntax import Condition


@pytest.fixture(autouse=True)
def tiny_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search goes on by so few octets that every seam is met."""
    monkeypatch.setattr(likeness, "_WINDOW_SIZE", 3)


@settings(max_examples=600)
@given(st.text("ab%_é", max_size=7), st.text("abé€", max_size=14))
def test_a_search_in_windows_finds_what_the_plain_interpreter_finds(pattern: str, text: str) -> None:
    search = Search(pattern, None)
    answer = None
    while answer is None:
        answer, _ = search.go_on(memoryview(text.encode()), 0)
    assert answer is is_like(text, steps_of(pattern, None))


@settings(max_examples=150)
@given(CONDITIONS, batches())
def test_a_condition_tried_term_by_term_has_the_same_answer(
    condition: Condition, batch: tuple[dict[str, pa.Array], list[dict[str, Cell]]]
) -> None:
    columns, rows = batch
    piecemeal, answer = Piecemeal(condition), None
    while answer is None:
        answer, _ = piecemeal.go_on(columns, len(rows), 0)
    assert answer.tolist() == evaluate(condition, columns, len(rows)).true.tolist()


def test_no_step_of_a_condition_on_a_long_text_looks_at_more_than_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "_WINDOW_SIZE", 64 << 10)
    text = "ab" * (512 << 10)
    piecemeal = Piecemeal(compile_predicate(f"a like '%a{'_' * 200}c%' or a like '%a%b%c%'").condition)
    answer, steps, most_ns = None, 0, 0
    while answer is None:
        answer, spent_ns = piecemeal.go_on({"a": pa.array([text])}, 1, 2_000_000)
        steps, most_ns = steps + 1, max(most_ns, spent_ns)
    assert answer.tolist() == [False]
    assert steps >= 16
    assert most_ns < 40_000_000


def test_the_worst_pattern_takes_a_time_that_is_linear_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "_WINDOW_SIZE", 64 << 10)
    for pattern in (f"%a{'_' * 200}c%", "%a" * 100 + "%b%", f"%{'a' * 200}b%"):
        search, text = Search(pattern, None), memoryview(b"a" * (4 << 20))
        began = time.process_time()
        answer, _ = search.go_on(text, 1 << 60)
        assert answer is False
        assert time.process_time() - began < 20, "RE2 takes minutes for the first"
