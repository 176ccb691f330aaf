"""Named timers fire once, in order, and the earliest is the deadline."""

from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.deadlines import Deadlines

NAMES = st.sampled_from("abcde")
STEPS = st.lists(
    st.tuples(st.just("set"), NAMES, st.integers(0, 50))
    | st.tuples(st.just("set_earlier"), NAMES, st.integers(0, 50))
    | st.tuples(st.just("clear"), NAMES, st.just(0))
    | st.tuples(st.just("due"), st.just(""), st.integers(0, 50)),
    max_size=60,
)


@given(STEPS)
def test_timers_agree_with_a_plain_table(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    table: dict[str, tuple[int, int]] = {}
    for tie, (step, name, at_ns) in enumerate(steps):
        if step == "set" or (step == "set_earlier" and (name not in table or at_ns < table[name][0])):
            table[name] = (at_ns, tie)
        elif step == "clear":
            table.pop(name, None)
        if step == "set":
            deadlines.set(name, at_ns)
        elif step == "set_earlier":
            deadlines.set_earlier(name, at_ns)
        elif step == "clear":
            deadlines.clear(name)
        else:
            due = sorted((when, name) for name, when in table.items() if when[0] <= at_ns)
            assert deadlines.due(at_ns) == [name for _, name in due]
            table = {name: when for name, when in table.items() if when[0] > at_ns}
        assert deadlines.next_ns() == min((at for at, _ in table.values()), default=None)
        assert [n for n in "abcde" if deadlines.is_set(n)] == sorted(table)


def test_a_name_that_is_set_again_fires_once_at_the_new_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 30)
    assert deadlines.due(20) == []
    assert deadlines.due(30) == ["a"]
    assert deadlines.due(99) == []


def test_timers_of_equal_time_fire_in_the_order_in_which_they_were_set() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for name in "zebra":
        deadlines.set(name, 5)
    assert "".join(deadlines.due(5)) == "zebra"


def test_a_timer_that_is_set_over_and_over_leaves_nothing_behind() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at_ns in range(10_000):
        deadlines.set("a", at_ns)
    assert len(deadlines._heap) < 200
    assert deadlines.due(1 << 62) == ["a"]


def test_a_spurious_wake_up_takes_nothing_out() -> None:
    deadlines: Deadlines[int] = Deadlines()
    deadlines.set(1, 100)
    assert deadlines.due(99) == []
    assert deadlines.next_ns() == 100
