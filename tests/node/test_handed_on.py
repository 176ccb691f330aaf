"""What is on its way of each who asks: one who is greedy leaves room for others, and for its own other links."""

from hypothesis import given
from hypothesis import strategies as st

from veredus.node.handed_on import LOOKED_MAX, HandedOn


def take_all(handed: HandedOn[str, int], payer: str, link: int) -> int:
    """Take all that there is room for; how much."""
    count = 0
    while room := handed.room(payer, link):
        for _ in range(room):
            handed.take(payer, link)
            count += 1
        handed.check()
    handed.wait(payer, link)
    return count


def test_who_is_greedy_leaves_as_much_as_it_has_to_another_link_of_its_own_and_more_to_others() -> None:
    handed: HandedOn[str, int] = HandedOn(90)
    assert take_all(handed, "greedy", 1) == 30
    assert handed.room("greedy", 2) == 10, "thirty would be left to it alone"
    assert handed.room("other", 3) == 20
    assert take_all(handed, "other", 3) >= 15


def test_who_has_nothing_on_its_way_may_always_ask() -> None:
    handed: HandedOn[str, int] = HandedOn(8)
    for number in range(100):
        assert handed.room(f"payer-{number}", number) > 0
        handed.take(f"payer-{number}", number)
    assert handed.room("payer-1", 1) == 0


def test_who_waits_is_ready_once_something_was_answered_payers_in_turn() -> None:
    handed: HandedOn[str, int] = HandedOn(9)
    counts = {payer: take_all(handed, payer, link) for link, payer in enumerate(["a", "b"])}
    assert list(handed.ready()) == [], "nothing was answered"
    for _ in range(counts["a"]):
        assert handed.answer("a", 0)
    assert list(handed.ready()) == [0, 1], "there is more room for both"
    handed.check()


def test_a_link_that_is_gone_waits_no_more_and_what_it_asked_counts_until_it_is_answered() -> None:
    handed: HandedOn[str, int] = HandedOn(9)
    count = take_all(handed, "a", 1)
    handed.forget(1)
    assert take_all(handed, "a", 2) < count
    for left in range(count, 0, -1):
        assert handed.answer("a", 1) == (left > 0)
    assert list(handed.ready()) == [2]
    handed.forget(2)


def test_of_very_many_links_that_wait_each_has_its_turn() -> None:
    handed: HandedOn[str, int] = HandedOn(4)
    links = range(4 * LOOKED_MAX)
    handed.take("a", -1)
    for link in links:
        handed.take("a", link)
        handed.wait("a", link)
    had: set[int] = set()
    for link in (-1, *links):
        handed.answer("a", link)
        for ready in handed.ready():
            had.add(ready)
            handed.take("a", ready)
            handed.answer("a", ready)
        handed.check()
    for _ in range(8):
        had.update(handed.ready())
    assert had == set(links)


@given(st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=200))
def test_whoever_waits_goes_on_in_the_end(steps: list[tuple[int, bool]]) -> None:
    handed: HandedOn[str, int] = HandedOn(12)
    on_way: list[tuple[str, int]] = []
    for link, is_asking in steps:
        payer = f"payer-{link // 3}"
        if is_asking and handed.room(payer, link):
            handed.take(payer, link)
            on_way.append((payer, link))
        elif is_asking:
            handed.wait(payer, link)
        elif on_way:
            handed.answer(*on_way.pop(0))
            list(handed.ready())
        handed.check()
    while on_way:
        handed.answer(*on_way.pop())
        list(handed.ready())
    assert list(handed.ready()) == []
    handed.check()
    assert not handed._waiting, "nothing is on its way, and so nobody waits"
