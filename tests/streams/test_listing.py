"""A page of a list costs what is on it: the rest of the list is neither gathered nor sorted for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.streams.rig import Rig
from veredus.matching import Filter
from veredus.streams import exchange as x
from veredus.streams.administration import PAGED_VERBS
from veredus.streams.listing import LOOKED_AT_MAX, InOrder, first_of, page_of
from veredus.streams.raising import RAISED_MAX
from veredus.streams.stream import Stream

COUNT = 2_000


def pages(rig: Rig, verb: str, **arguments: object) -> list[list[Any]]:
    """All pages of a list."""
    found: list[list[Any]] = []
    after: object = None
    while True:
        (answer,) = rig.do(x.AdminRequested(1, 1, "local", verb, {**arguments, "after": after}))
        found.append(answer.result["rows"])
        after = answer.result["next"]
        if after is None:
            return found


def raised(rig: Rig) -> list[str]:
    """A stream with many sources; their names by id."""
    rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": "s"}))
    names = [f"source-{number * 7 % COUNT}" for number in range(COUNT)]
    for begin in range(0, COUNT, RAISED_MAX):
        sources = [(name, 1, b"") for name in names[begin : begin + RAISED_MAX]]
        rig.do(x.AdminRequested(1, 2, "local", "source.raise", {"stream": "s", "sources": sources}))
    return names


def test_a_request_raises_no_more_sources_than_hold_up_nobody() -> None:
    rig = Rig()
    rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": "s"}))
    sources = [(f"source-{number}", 1, b"") for number in range(RAISED_MAX + 1)]
    (refused,) = rig.do(x.AdminRequested(1, 2, "local", "source.raise", {"stream": "s", "sources": sources}))
    assert (refused.code, "ask several times" in refused.message) == ("too-large", True)
    assert rig.floor.tables.streams["s"].sources == {}


def test_names_come_in_order_whatever_comes_and_goes() -> None:
    table: InOrder[str, int] = InOrder()
    for name in ("b", "d", "a", "b", "c"):
        table[name] = 1
    del table["d"]
    assert table.setdefault("a", 2) == 1
    assert table.setdefault("e", 2) == 2
    assert list(table.keys_from("")) == ["a", "b", "c", "e"]
    assert list(table.keys_from("bb")) == ["c", "e"]
    assert list(table.places_behind(("b",))) == [("c",), ("e",)]
    del table["c"]
    table["c"] = 3
    assert list(table.keys_from("")) == ["a", "b", "c", "e"]
    for name in ("a", "b", "c"):
        del table[name]
    assert list(table.keys_from("")) == ["e"]


def test_a_page_looks_at_no_more_than_it_shows_and_one_more() -> None:
    places = iter([(str(number),) for number in range(10)])
    assert page_of(places, lambda place: place != ("1",), 2, lambda _: 0) == ([("0",), ("2",)], ("2",), True)
    assert next(places) == ("4",)


def test_answers_are_no_longer_than_a_frame_however_long_the_filters_are_in_them() -> None:
    rig = Rig()
    rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": "s"}))
    for number in range(20):
        keys = tuple(f"literal:{number}-{index}-" + "k" * 200 for index in range(255))
        rig.subscribe(5, f"sub-{number:02}", filter=Filter(keys))
        rig.do(x.SessionClosed(5))
    rig.subscribe(5, "short")
    listed = pages(rig, "subscription.list", stream="s", limit=200)
    assert sorted(row["subscriber"] for page in listed for row in page) == [
        "short", *(f"sub-{number:02}" for number in range(20))
    ]  # fmt: skip
    assert max(len(msgspec.msgpack.encode(page)) for page in listed) < 200_000
    (shown,) = rig.do(x.AdminRequested(1, 1, "local", "stream.show", {"name": "s"}))
    assert len(msgspec.msgpack.encode(shown.result)) < 200_000
    assert shown.result["subscriptions"] == 21


def test_every_source_is_listed_once_by_its_id() -> None:
    rig = Rig()
    names = raised(rig)
    rows = [row for page in pages(rig, "source.list", stream="s", limit=150) for row in page]
    assert [row["name"] for row in rows] == names


def test_a_page_of_sources_looks_at_its_own_sources_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    raised(rig)
    looked_at = []
    source_at = Stream.source_at
    monkeypatch.setattr(
        Stream, "source_at", lambda stream, number: looked_at.append(number) or source_at(stream, number)
    )
    (answer,) = rig.do(x.AdminRequested(1, 1, "local", "source.list", {"stream": "s", "limit": 5, "after": ["900"]}))
    assert [row["source_id"] for row in answer.result["rows"]] == [901, 902, 903, 904, 905]
    assert len(looked_at) <= 6


@pytest.mark.parametrize("after", [["x"], ["9" * 5000], ["²"], ["-1"]])
def test_a_list_by_numbers_that_is_to_go_on_behind_none_begins_at_its_beginning(after: list[str]) -> None:
    rig = Rig()
    raised(rig)
    (answer,) = rig.do(x.AdminRequested(1, 1, "local", "source.list", {"stream": "s", "limit": 1, "after": after}))
    assert [row["source_id"] for row in answer.result["rows"]] == [1]


def test_a_page_of_subscriptions_looks_at_no_stream_in_front_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    for number in range(50):
        rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": f"s{number:02}"}))
        rig.do(
            x.SubscribeRequested(
                number << 16 | 1, "local", f"s{number:02}", "me", "main", None, x.Start(), 0, x.SettleMode.IN_ORDER,
                b"i" * 16, 0, 0,
            )
        )  # fmt: skip
    found = pages(rig, "subscription.list", limit=7)
    assert [row["stream"] for page in found for row in page] == [f"s{number:02}" for number in range(50)]
    assert [len(page) for page in found] == [7] * 7 + [1]
    seen = []
    keys_from = InOrder.keys_from
    monkeypatch.setattr(InOrder, "keys_from", lambda table, key: seen.append(key) or keys_from(table, key))
    rig.do(x.AdminRequested(1, 1, "local", "subscription.list", {"limit": 7, "after": ["s41", "me", "main"]}))
    assert [key for key in seen if isinstance(key, str)] == ["s41"]


def test_a_page_of_subscriptions_ends_where_many_streams_have_none_and_the_next_one_goes_on() -> None:
    rig = Rig()
    count = 3 * LOOKED_AT_MAX
    for number in range(count):
        rig.tell(x.AdminRequested(1, 1, "local", "stream.create", {"name": f"s{number:05}"}))
    rig.carry_out()
    for session, stream in ((5, "s00000"), (6, f"s{count - 1:05}")):
        rig.do(x.SubscribeRequested(session, "local", stream, "reader", "main", incarnation=bytes(16)))
    found = pages(rig, "subscription.list", limit=200)
    assert [[row["stream"] for row in page] for page in found] == [["s00000"], [], [], [f"s{count - 1:05}"]]


def test_rows_with_very_many_parts_share_no_page_and_each_is_given() -> None:
    weights = {("a",): 4000, ("b",): 97, ("c",): 9000, ("d",): 1, ("hidden",): 5000, ("z",): 1}
    pages, after = [], 0
    while True:
        places = list(weights)[after:]
        page = page_of(places, lambda place: place != ("hidden",), 200, weights.__getitem__)
        pages.append([name for (name,) in page.seen])
        after = list(weights).index(page.last) + 1
        if not page.is_more:
            break
    assert pages == [["a"], ["b"], ["c"], ["d", "z"]]


def test_of_rows_that_are_given_without_pages_so_many_are_given_as_one_answer_may_have() -> None:
    assert first_of(range(10), 3, lambda _: 0) == [0, 1, 2]
    assert first_of([9000, 1], 3, lambda weight: weight) == [9000]
    assert first_of([4000, 96, 1], 3, lambda weight: weight) == [4000, 96]
    assert first_of([], 3, lambda weight: weight) == []


@pytest.mark.parametrize("after", [["s"], ["s", "me"], ["s", "me", "main", "x"], [], [1], "s", {"s": 1}, b"s" * 40])
@pytest.mark.parametrize("verb", sorted(PAGED_VERBS))
def test_a_place_of_another_number_of_parts_is_refused_in_each_list(verb: str, after: object) -> None:
    rig = Rig()
    rig.do(x.AdminRequested(1, 1, "local", "stream.create", {"name": "s"}))
    rig.subscribe(5, "me")
    arguments = {"stream": "s", "name": "main"} if verb == "subscription.left" else {"stream": "s"}
    parts = {"subscription.list": 3, "subscription.left": 3}.get(verb, 1)
    (answer,) = rig.do(x.AdminRequested(1, 2, "local", verb, {**arguments, "limit": 1, "after": after}))
    is_a_place = isinstance(after, list) and len(after) == parts and after != [1]
    assert isinstance(answer, x.AnswerAdmin if is_a_place else x.Refuse), answer
    if not is_a_place:
        assert answer.code == "bad-request"
