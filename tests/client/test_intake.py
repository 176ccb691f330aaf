"""The intake by itself: what is put in comes out, in order, once, whoever takes when; and it keeps its bounds."""

import threading
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import beside
from veredus.client.intake import PUBLICATION_SIZE, Intake
from veredus.delivery.batch import BatchLimits
from veredus.delivery.cutting import Listed, Publications, Tabled
from veredus.delivery.payload import columns_of
from veredus.delivery.publication import Rows
from veredus.kernel.errors import Fenced, Misuse, Unavailable


def rows_in(publications: Publications) -> list[tuple[object, object, dict[str, object], int | None]]:
    """Key, body, attributes and event time of each."""
    assert isinstance(publications, Listed)
    count = len(publications)
    assert len(publications.keys) == count
    attributes: list[dict[str, object]] = [{}] * count
    if publications.values is not None:
        width = len(publications.names)
        assert len(publications.values) == count * width
        attributes = [
            dict(zip(publications.names, publications.values[i * width : (i + 1) * width], strict=True))
            for i in range(count)
        ]
    elif publications.mappings is not None:
        assert len(publications.mappings) == count
        attributes = [dict(mapping or {}) for mapping in publications.mappings]
    times = publications.event_times_us or [None] * count
    assert len(times) == count
    return list(zip(publications.keys, publications.bodies, attributes, times, strict=True))


def drained(intake: Intake) -> list[tuple[object, object, dict[str, object], int | None]]:
    rows = []
    while (taken := intake.take(True)) is not None:
        rows += rows_in(taken[0])
    return rows


def fill(intake: Intake, size: int, count: int) -> None:
    for _ in range(count):
        intake.put("k", b"x" * size)


@pytest.fixture
def intake() -> Intake:
    return Intake(1000, 1 << 30, "wait", "wait")


SHAPES = [None, {"a": 1}, {"a": 2, "b": "x"}, {"b": "y", "a": 3}, {}, {"c": None}]


@given(
    puts=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 5]), st.sampled_from([0, 10, 2000]), st.sampled_from([None, 7]), st.booleans()
        ),
        max_size=60,
    ),
    shape_count=st.integers(1, len(SHAPES)),
)
def test_whatever_is_put_in_comes_out_in_order_once(
    puts: list[tuple[int, int, int | None, bool]], shape_count: int
) -> None:
    intake = Intake(1000, 1 << 30, "wait", "wait")
    expected, got = [], []
    for index, (shape, size, when, is_taken) in enumerate(puts):
        attributes = SHAPES[(shape + index) % shape_count]
        body = b"%d" % index + b"x" * size
        assert intake.put("key", body, attributes, when) == index + 1
        expected.append(("key", body, dict(attributes or {}), when))
        if is_taken and (taken := intake.take(True)) is not None:
            got += rows_in(taken[0])
    assert got + drained(intake) == expected


def test_two_threads_lose_nothing_between_them(intake: Intake) -> None:
    count = 30_000
    got: list[object] = []
    is_done = threading.Event()

    def take() -> None:
        while not is_done.is_set() or not intake.is_empty:
            taken = intake.take(True)
            if taken is not None:
                got.extend(row[1] for row in rows_in(taken[0]))

    with beside(take):
        for index in range(count):
            intake.put("k", b"%d" % index, {"n": index} if index % 1000 > 500 else None)
        is_done.set()
    assert [int(body) for body in got] == list(range(count))  # type: ignore[call-overload]


class Interrupting(deque[tuple[Publications, bytes]]):
    """Sealed runs; the loop has its turn just before or just after one is added, as it may between any two steps."""

    def __init__(self, turn: Callable[[], None], is_before: bool) -> None:
        super().__init__()
        self.turn = turn
        self.is_before = is_before

    def append(self, run: tuple[Publications, bytes]) -> None:
        if self.is_before:
            self.turn()
        super().append(run)
        if not self.is_before:
            self.turn()


@pytest.mark.parametrize("is_before", [True, False])
def test_a_loop_that_takes_in_the_middle_of_sealing_takes_nothing_twice_and_nothing_late(
    intake: Intake, is_before: bool
) -> None:
    got: list[object] = []
    intake._sealed = Interrupting(lambda: got.extend(row[1] for row in drained(intake)), is_before)
    for index in range(300):
        intake.put("k", b"%d" % index, {"a": 1} if index % 70 > 35 else None)
    got += [row[1] for row in drained(intake)]
    assert got == [b"%d" % index for index in range(300)]


def test_a_loop_that_is_idle_again_before_put_returns_is_woken_by_the_next_one(intake: Intake) -> None:
    got: list[object] = []

    def wake() -> None:
        intake.is_idle = False
        got.extend(row[1] for row in drained(intake))
        intake.become_idle()

    intake.wake = wake
    intake.become_idle()
    for index in range(100):
        intake.put("k", b"%d" % index)
        assert got[-1] == b"%d" % index


def test_only_full_runs_are_taken_while_others_are_on_their_way(intake: Intake) -> None:
    intake.put("k", b"x" * 600)
    assert intake.take(False) is None
    fill(intake, 60, 40)
    counts = []
    while (taken := intake.take(False)) is not None:
        counts.append(len(taken[0]))
    assert counts
    assert max(counts) <= 1000 // 60
    assert sum(counts) + len(drained(intake)) == 41


def test_with_tokens_the_last_run_waits_for_the_token_that_may_close_it(intake: Intake) -> None:
    intake.keeps_last = True
    fill(intake, 60, 40)
    taken = []
    while (run := intake.take(True)) is not None:
        taken.append(run)
    assert 0 < sum(len(run) for run, _ in taken) < 40
    assert {token for _, token in taken} == {b""}
    intake.close_run(b"token")
    rest = []
    while (run := intake.take(True)) is not None:
        rest.append(run)
    assert [token for _, token in rest] == [b""] * (len(rest) - 1) + [b"token"]
    assert sum(len(run) for run, _ in taken + rest) == 40


def test_a_token_closes_lists_as_well(intake: Intake) -> None:
    intake.keeps_last = True
    intake.put_many(["k"] * 3, [b"1", b"2", b"3"])
    assert intake.is_empty
    intake.close_run(b"three")
    taken = intake.take(True)
    assert taken is not None
    assert (len(taken[0]), taken[1]) == (3, b"three")


def test_the_loop_is_woken_when_it_is_idle_and_when_a_run_is_full(intake: Intake) -> None:
    woken: list[int] = []

    def wake() -> None:
        woken.append(intake.number)
        intake.is_idle = False

    intake.wake = wake
    intake.put("k", b"x")
    assert woken == []
    for attributes in (None, {"a": 1}, {"a": 2}):
        intake.become_idle()
        intake.put("k", b"x", attributes)
        intake.put("k", b"x", attributes)
        assert len(woken) == 1
        woken.clear()
    intake.put("k", b"x" * 1000)
    assert len(woken) == 1


@pytest.mark.parametrize("size", [0, 10, 10_000])
def test_what_it_holds_is_bounded_whatever_the_size_of_bodies(size: int) -> None:
    intake = Intake(1000, 200_000, "fail", "wait")
    with pytest.raises(Unavailable, match="outbox-full"):
        fill(intake, size, 1_000_000)
    assert intake.number * (size + PUBLICATION_SIZE) < 200_000 + 2 * (1000 + size) * (1 + PUBLICATION_SIZE)
    with pytest.raises(Unavailable, match="outbox-full"):
        fill(intake, max(size, 1), 2_000)
    while intake.take(True) is not None:
        pass
    intake.tell_cut(intake.number, held_size=250_000)
    assert not intake.has_room
    intake.tell_cut(intake.number, held_size=0)
    assert intake.put("k", b"x") == intake.number


def test_dropping_is_counted_and_gives_no_number() -> None:
    intake = Intake(1000, 2000, "drop", "wait")
    numbers = [intake.put("k", b"x" * 100) for _ in range(100)]
    accepted = [number for number in numbers if number]
    assert accepted == list(range(1, len(accepted) + 1))
    assert intake.dropped_count == 100 - len(accepted) > 50
    assert len(drained(intake)) == len(accepted)


def test_of_many_that_are_dropped_together_each_is_counted() -> None:
    intake = Intake(1000, 2000, "drop", "wait")
    while intake.put("k", b"x" * 100):
        pass
    assert intake.dropped_count == 1
    assert intake.put_many(["k"] * 7, [b"x"] * 7) == 0
    assert intake.dropped_count == 8


def test_waiting_for_room_is_left_to_the_thread_that_can(intake: Intake) -> None:
    intake = Intake(100, 500, "wait", "wait")

    def wait_room() -> None:
        while intake.take(True) is not None:
            pass
        intake.tell_cut(intake.number, held_size=0)

    intake.wait_room = wait_room
    assert [intake.put("k", b"x" * 50) for _ in range(100)] == list(range(1, 101))


def test_a_failure_is_raised_by_the_next_put_even_in_the_middle_of_a_run(intake: Intake) -> None:
    intake.put("k", b"x")
    intake.failure = Fenced("fenced", "another one took over", epoch=2)
    intake.bar()
    for attributes in (None, {"a": 1}):
        with pytest.raises(Fenced, match="took over"):
            intake.put("k", b"x", attributes)
    with pytest.raises(Fenced):
        intake.put_many(["k"], [b"x"])
    assert len(drained(intake)) == 1


def test_with_attributes_a_failure_is_raised_by_the_next_put_as_well(intake: Intake) -> None:
    for _ in range(3):
        intake.put("k", b"x", {"a": 1})
    intake.failure = Fenced("fenced", "another one took over", epoch=2)
    intake.bar()
    with pytest.raises(Fenced):
        intake.put("k", b"x", {"a": 1})


def test_numbering_begins_behind_what_the_node_has(intake: Intake) -> None:
    intake.start(41, BatchLimits(body_size_max=64, attributes_max=1))
    assert intake.put("k", b"x") == 42
    with pytest.raises(Misuse, match="too-large"):
        intake.put("k", b"x" * 65)
    with pytest.raises(Misuse, match="too-large"):
        intake.put("k", b"x", {"a": 1, "b": 2})
    assert intake.put("k", b"x" * 64) == 43


@pytest.mark.parametrize("name", ["", "n" * 256, "ä" * 128, "\ud800", 7, b"n"])
def test_an_attribute_that_cannot_be_named_so_is_refused_when_it_is_published(intake: Intake, name: object) -> None:
    good = {"n" * 255: 1}
    for attributes in ({"a": 1, name: 2}, {name: 1}):
        intake.put("k", b"x", good)
        with pytest.raises(Misuse, match="bad-attribute"):
            intake.put("k", b"x", attributes)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="bad-attribute"):
            intake.put("k", b"x", attributes, 5)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="bad-attribute"):
            intake.put_many(["k"] * 2, [b"x"] * 2, [good, attributes])  # type: ignore[list-item]
    assert intake.number == 2
    assert [row[2] for row in drained(intake)] == [good] * 2


def test_too_many_attributes_are_refused_in_lists_as_well(intake: Intake) -> None:
    intake.start(0, BatchLimits(attributes_max=1))
    with pytest.raises(Misuse, match="too-large"):
        intake.put_many(["k"] * 2, [b"x"] * 2, [{"a": 1}, {"a": 1, "b": 2}])
    assert intake.number == 0


def test_lists_of_different_lengths_are_refused(intake: Intake) -> None:
    with pytest.raises(Misuse, match="bad-lengths"):
        intake.put_many(["k"], [b"1", b"2"])
    with pytest.raises(Misuse, match="bad-lengths"):
        intake.put_many(["k"], [b"1"], event_times=[1, 2])
    assert intake.put_many([], []) == 0


def test_a_caller_may_change_its_attributes_afterwards(intake: Intake) -> None:
    attributes: dict[str, object] = {"n": 0, "m": 1}
    for index in range(4):
        attributes["n"] = index
        intake.put("k", b"x", attributes)  # type: ignore[arg-type]
        attributes["only"] = index
        intake.put("k", b"x", attributes)  # type: ignore[arg-type]
        del attributes["only"]
    assert [row[2]["n"] for row in drained(intake)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_table_is_cut_into_runs_of_about_the_chunk_size(intake: Intake) -> None:
    columns = columns_of(Rows([b"k"] * 100, [b"x" * 100] * 100))
    assert intake.put_columns(Tabled(columns), 10_000) == 100
    counts = []
    while (taken := intake.take(True)) is not None:
        counts.append(len(taken[0]))
    assert sum(counts) == 100
    assert max(counts) <= 10
