"""Who is to receive what after a merge, held against what the words say, one row at a time."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from veredus.protocols.topics.merged import Merged
from veredus.protocols.topics.placing import Side, moves
from veredus.protocols.topics.transfer import Standing
from veredus.streams.exchange import CursorMove, MovedLeft, Place
from veredus.streams.facts import Had, Origin
from veredus.streams.lives import Lives
from veredus.streams.ranges import cursor_of
from veredus.streams.stream import Left

KEEPER, GIVER, THIRD = b"k" * 16, b"g" * 16, b"t" * 16


def all_moves(keeper: Side, giver: Side, merged: Merged) -> list[CursorMove]:
    """Where the subscriptions are to stand that do not stand as they did."""
    return [move for move in moves(1, "topics", keeper, giver, merged) if move is not None]


class Case(NamedTuple):
    """Rows of both servers with the times of one clock; `twins`: the giver's index, the keeper's."""

    keeper_times: list[int]
    giver_times: list[int]
    twins: dict[int, int]
    kept: Standing | None
    given: Standing | None


def standings(times: list[int]) -> st.SearchStrategy[Standing]:
    """A subscription of a server with these rows: it began behind those that were there, and got some."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Standing:
        start = draw(st.integers(1, len(times) + 1))
        low = times[start - 2] if start > 1 else 0
        high = times[start - 1] if start <= len(times) else 40
        opened = draw(st.integers(low, high))
        done = draw(st.integers(start - 1, len(times)))
        more = draw(st.sets(st.integers(start, len(times)), max_size=3)) if start <= len(times) else set()
        floor, settled = cursor_of(done, [(one, one) for one in more])
        return Standing(opened, start, floor, settled)

    return drawn()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    keeper_times = sorted(draw(st.lists(st.integers(0, 40), max_size=8)))
    giver_times = sorted(draw(st.lists(st.integers(0, 40), max_size=8)))
    pairs = draw(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), max_size=3))
    twins: dict[int, int] = {}
    for q, p in pairs:
        if q <= len(giver_times) and p <= len(keeper_times) and p not in twins.values():
            twins[q] = p
    kept = draw(st.none() | standings(keeper_times))
    given_ = draw(st.none() | standings(giver_times))
    return Case(keeper_times, giver_times, twins, kept, given_)


def merged_of(case: Case) -> Merged:
    sequences = [q for q in range(1, len(case.giver_times) + 1) if q not in case.twins]
    return merged_with(case.keeper_times, {q: case.giver_times[q - 1] for q in sequences}, case.twins, case.giver_times)


def merged_with(
    times: list[int],
    staged: dict[int, int],
    twins: dict[int, int],
    giver_times: list[int],
    offset: tuple[int, int] = (0, 0),
) -> Merged:
    merged = Merged(
        Lives.of(KEEPER), Lives.of(GIVER), len(times), len(giver_times), offset, sequences=array("q", staged)
    )
    for sequence, place in sorted(twins.items()):
        merged.note_twin(sequence, place, giver_times[sequence - 1])
    for place, time_us in enumerate(times, 1):
        merged.times.note(place, time_us)
    for row, time_us in enumerate(staged.values()):
        merged.row_times.note(row, time_us)
    return merged


def is_done(sequence: int, standing: Standing) -> bool:
    return sequence <= standing.floor or any(a <= sequence <= b for a, b in standing.settled)


def received(sequence: int, standing: Standing | None) -> bool:
    return standing is not None and sequence >= standing.start and is_done(sequence, standing)


def expected(case: Case) -> set[int]:
    """The wanted sequences of the keeper's stream after the merge: its own rows, and then the stage's."""
    kept, given_ = case.kept, case.given
    opened = min(standing.opened_us for standing in (kept, given_) if standing is not None)

    def is_since_keeper(p: int) -> bool:
        by_order = kept is not None and p >= kept.start
        by_time = given_ is not None and case.keeper_times[p - 1] >= given_.opened_us
        return by_order or by_time

    def is_since_giver(q: int) -> bool:
        by_order = given_ is not None and q >= given_.start
        by_time = kept is not None and case.giver_times[q - 1] >= kept.opened_us
        return by_order or by_time

    assert opened >= 0
    twin_of = {p: q for q, p in case.twins.items()}
    wanted = set()
    for p in range(1, len(case.keeper_times) + 1):
        q = twin_of.get(p)
        is_in = is_since_keeper(p) and (q is None or is_since_giver(q))
        if is_in and not received(p, kept) and not (q is not None and received(q, given_)):
            wanted.add(p)
    staged = [q for q in range(1, len(case.giver_times) + 1) if q not in case.twins]
    for row, q in enumerate(staged):
        if is_since_giver(q) and not received(q, given_):
            wanted.add(len(case.keeper_times) + 1 + row)
    return wanted


def wanted_after(move: CursorMove | None, case: Case) -> set[int]:
    head = len(case.keeper_times)
    count = len(case.giver_times) - len(case.twins)
    places = range(1, head + count + 1)
    kept = case.kept
    if move is None:
        assert kept is not None
        return {p for p in places if not is_done(p, kept)}
    never = (*move.unwanted, *((head + 1 + a, head + 1 + b) for a, b in move.unwanted_rows))
    rows = ((head + 1 + a, head + 1 + b) for a, b in move.settled_rows)
    floor, settled = cursor_of(move.floor, (*move.settled, *rows, *never))
    done = {p for p in places if p <= floor or any(a <= p <= b for a, b in settled)}
    if kept is not None:
        done |= {p for p in places if p >= move.kept_from and received(p, kept)}
    return {p for p in places if p not in done}


BETWEEN = Case([0], [0, 1, 2], {3: 1}, None, Standing(1, 3, 2))
"""Put at the keeper, subscribed at the giver, and a copy of the put came there late."""
LATE_AT_KEEPER = Case([7, 8], [3], {1: 1}, Standing(6, 1, 0), Standing(4, 2, 1))
"""Put at the giver, subscribed there; a copy of the subscription came late to the keeper, and then one of the put."""
LATE_AT_GIVER = Case([3], [7, 8], {1: 1}, Standing(4, 2, 1), Standing(6, 1, 0))
ONLY_AT_KEEPER = Case([7], [3], {1: 1}, Standing(4, 1, 0), None)


@given(cases())
@settings(max_examples=300)
@example(BETWEEN)
@example(LATE_AT_KEEPER)
@example(LATE_AT_GIVER)
@example(ONLY_AT_KEEPER)
def test_everybody_is_to_receive_what_was_put_since_they_subscribed_and_what_they_have_not(case: Case) -> None:
    if case.kept is None and case.given is None:
        return
    kept = {} if case.kept is None else {"bob": case.kept}
    given_ = {} if case.given is None else {"bob": case.given}
    found = all_moves(Side(kept), Side(given_), merged_of(case))
    event(f"kept {bool(kept)} given {bool(given_)} twins {bool(case.twins)} moved {bool(found)}")
    assert wanted_after(found[0] if found else None, case) == expected(case)


@given(cases())
def test_the_message_that_the_giver_gave_last_is_found_by_its_id(case: Case) -> None:
    if case.given is None:
        return
    kept = {} if case.kept is None else {"bob": case.kept}
    (move,) = all_moves(Side(kept), Side({"bob": case.given}), merged_of(case))
    unsettled = [q for q in range(1, len(case.giver_times) + 1) if not is_done(q, case.given)]
    _, following, runs, gone = next(origin for origin in move.origins if origin[0] == GIVER)
    assert gone == ()
    assert following == min(unsettled, default=len(case.giver_times) + 1)
    places = {}
    for first, place, count in runs:
        assert count > 0
        if place == Place():
            assert is_done(first, case.given), "in a woven stream more was received than what lies below the next one"
            continue
        for ahead in range(count):
            moved = Place(row=place.row + ahead) if place.row >= 0 else Place(place.sequence + ahead)
            places[first + ahead] = moved
    assert list(places) == list(range(following, len(case.giver_times) + 1)), "many may have been given at once"
    for sequence, place in places.items():
        if sequence in case.twins:
            assert place == Place(case.twins[sequence])
        else:
            assert place == Place(row=sum(q not in case.twins for q in range(1, sequence)))


def test_clocks_are_compared_within_what_is_known_of_their_difference_and_what_lies_within_it_is_given() -> None:
    merged = merged_with([195, 205], {1: 95, 2: 105}, {}, [95, 105], (100, 110))
    kept = {"ada": Standing(210, 3, 2)}
    given_ = {"bob": Standing(100, 2, 1)}
    ada, bob = all_moves(Side(kept), Side(given_), merged)
    assert ada.unwanted_rows == ((0, 0),)
    assert bob.floor == 1
    assert all_moves(Side({"ada": Standing(205, 3, 2)}), Side({}), merged) == []


def test_what_a_third_server_gave_before_is_known_by_its_ids_still() -> None:
    merged = merged_with([5], {1: 1, 3: 9}, {2: 1}, [1, 5, 9])
    of_before = (
        Origin(THIRD, 7, ((7, 3, 1),)),
        Origin(b"u" * 16, 4, ((4, 1, 3), (8, 3, 1))),
        Origin(b"v" * 16, 9),
    )
    (move,) = all_moves(Side({}), Side({"bob": Standing(0, 1, 0, (), of_before)}), merged)
    assert move.origins[1:] == (
        (THIRD, 7, ((7, Place(row=1), 1),), ()),
        (b"u" * 16, 4, ((4, Place(row=0), 1), (5, Place(1), 1), (6, Place(row=1), 1), (8, Place(row=1), 1)), ()),
        (b"v" * 16, 9, (), ()),
        (KEEPER, 2, (), ()),
    )


def test_who_left_one_server_after_it_had_subscribed_at_the_other_has_left_both() -> None:
    merged = merged_with([195, 205], {1: 95, 2: 105}, {}, [95, 105], (100, 110))
    at_giver = Side(
        {"bob": Standing(50, 1, 0), "eve": Standing(50, 1, 0)}, {"ada": {"": Left(80)}, "dan": {"": Left(20)}}
    )
    at_keeper = Side(
        {"ada": Standing(150, 1, 0), "dan": Standing(150, 1, 0)}, {"bob": {"": Left(200)}, "eve": {"": Left(155)}}
    )
    found = {move.subscriber: move for move in all_moves(at_keeper, at_giver, merged)}
    assert found["ada"].is_removed
    assert found["ada"].opened_us == 180
    assert not found["eve"].is_removed
    assert found["bob"].is_removed, "it left here after it had subscribed there"
    assert not found["dan"].is_removed, "it subscribed here after it had left there"


def test_when_somebody_left_the_giver_is_known_to_the_keeper_for_the_next_merge() -> None:
    merged = merged_with([195, 205], {1: 95, 2: 105}, {}, [95, 105], (100, 110))
    left = {"gone": {"": Left(80)}, "back": {"": Left(40)}, "older": {"": Left(30)}}
    at_giver = Side({"back": Standing(50, 1, 0)}, left)
    at_keeper = Side({"here": Standing(150, 1, 0)}, {"older": {"": Left(140)}})
    found = {move.subscriber: move for move in all_moves(at_keeper, at_giver, merged)}
    assert (found["gone"].is_removed, found["gone"].opened_us) == (True, 180)
    assert (found["back"].is_removed, found["back"].left) == (False, (MovedLeft("", 140),))
    assert set(found) == {"gone", "back"}


def test_who_left_one_server_keeps_what_it_had_received_there_if_it_has_subscribed_at_the_other_since() -> None:
    merged = merged_with([15, 35], {1: 12, 2: 33, 3: 34}, {}, [12, 33, 34])
    at_keeper = Side({"bob": Standing(30, 2, 1)}, {"bob": {"": Left(20)}})
    (move,) = all_moves(at_keeper, Side({"bob": Standing(10, 1, 2)}), merged)
    assert (move.opened_us, move.start, move.kept_from) == (30, 2, 2)
    assert (move.settled_rows, move.unwanted_rows) == (((0, 1),), ())


def test_a_subscription_that_is_asked_for_again_is_not_ended_by_an_older_departure_elsewhere() -> None:
    merged = Merged(Lives.of(KEEPER), Lives.of(GIVER))
    at_keeper = Side({"ada": Standing(50, 1, 0, renewed_us=90)})
    at_giver = Side({"bob": Standing(50, 1, 0, renewed_us=90)}, {"ada": {"": Left(80)}})
    ada, bob = all_moves(at_keeper._replace(left={"bob": {"": Left(80)}}), at_giver, merged)
    assert (ada.is_removed, ada.opened_us, ada.renewed_us) == (False, 50, 90)
    assert (bob.is_removed, bob.opened_us, bob.renewed_us) == (False, 50, 90)


def test_of_wishes_with_numbers_the_higher_one_counts_whatever_clocks_say() -> None:
    merged = Merged(Lives.of(KEEPER), Lives.of(GIVER))
    at_keeper = Side({"ada": Standing(50, 1, 0, wish=7), "bob": Standing(50, 1, 0, wish=7)})
    at_giver = Side({}, {"ada": {"": Left(900, 6)}, "bob": {"": Left(10, 8)}})
    ada, bob = all_moves(at_keeper, at_giver, merged)
    assert (ada.is_removed, ada.wish, ada.left) == (False, 7, (MovedLeft("", 900, 6),))
    assert (bob.is_removed, bob.left[0]) == (True, MovedLeft("", 10, 8))


def test_nobody_leaves_for_another_principal_whatever_number_the_wish_has() -> None:
    merged = Merged(Lives.of(KEEPER), Lives.of(GIVER))
    most = (1 << 63) - 1
    ada = Standing(50, 1, 0, wish=7, owner="desk-ada")
    wishes = {"ada": {"mallory": Left(900, most)}}
    (kept,) = all_moves(Side({"ada": ada}), Side({}, wishes), merged)
    assert (kept.is_removed, kept.wish, kept.left) == (False, 7, (MovedLeft("mallory", 900, most),))
    (given,) = all_moves(Side({}, wishes), Side({"ada": ada}), merged)
    assert (given.is_removed, given.wish, given.owner) == (False, 7, "desk-ada")
    (left,) = all_moves(Side({"ada": ada}), Side({}, {"ada": {"desk-ada": Left(10, 8)}}), merged)
    assert left.is_removed


@pytest.mark.parametrize("who", ["desk-ada", "mallory", ""])
@pytest.mark.parametrize("is_at_giver", [True, False])
def test_what_was_had_by_who_left_counts_for_its_own_principal_alone(is_at_giver: bool, who: str) -> None:
    merged = merged_with([35, 36], {1: 33, 2: 34}, {}, [33, 34])
    had = Had(((1, 1),), (Origin(GIVER if is_at_giver else KEEPER, 2, ((2, 2, 1),)),))
    ada, left = Side({"ada": Standing(30, 1, 0, wish=7, owner="desk-ada")}), Side({}, {"ada": {who: Left(20, 6, had)}})
    (move,) = all_moves(*((ada, left) if is_at_giver else (left, ada)), merged)
    counts = who != "mallory"
    assert (move.settled_rows if is_at_giver else move.settled) == (((0, 0),) if is_at_giver else ((1, 1),)) * counts
    named = Place(row=1) if is_at_giver else Place(2)
    assert ((2, named, 1) in (run for one in move.origins for run in one.runs)) == counts
    assert is_at_giver <= (move.left != ()), "it is remembered for a later merge"


@pytest.mark.parametrize("is_first_at_keeper", [True, False])
def test_a_name_that_two_principals_have_is_whose_was_there_first_with_what_that_one_has_received(
    is_first_at_keeper: bool,
) -> None:
    merged = merged_with([15, 35], {1: 12, 2: 33, 3: 34}, {}, [12, 33, 34])
    first, second = Standing(5, 1, 1, wish=7, owner="desk-ada"), Standing(10, 1, 2, wish=1 << 62, owner="mallory")
    at_keeper, at_giver = (first, second) if is_first_at_keeper else (second, first)
    moved = all_moves(Side({"ada": at_keeper}), Side({"ada": at_giver}), merged)
    if is_first_at_keeper:
        assert [(move.owner, move.wish, move.settled_rows) for move in moved] in ([], [("desk-ada", 7, ())])
        return
    (move,) = moved
    assert (move.is_removed, move.owner, move.wish) == (False, "desk-ada", 7)
    assert (move.settled, move.settled_rows, move.kept_from) == ((), ((0, 0),), merged.head + 1)
