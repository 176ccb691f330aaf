"""A TRANSFER is refused by its lengths, before anything that it claims to hold is built."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from veredus.delivery.publication import in_dates
from veredus.kernel.errors import PeerFault, Refused
from veredus.protocols.topics.giving import left_of
from veredus.protocols.topics.messages import Transfer
from veredus.protocols.topics.transfer import (
    HAD_SIZE_MAX,
    STANDINGS_MAX,
    End,
    RowsPart,
    Standing,
    decode_part,
    encode_beyond,
    rows_of,
    staged_record,
)
from veredus.streams.departures import HAD_ORIGINS_MAX, HAD_RANGES_MAX, HAD_RUNS_MAX, LEFT_MAX
from veredus.streams.facts import Had, Origin
from veredus.streams.stream import Left

LIFE = b"g" * 16
BOMBS = {
    "more rows than a part has": [{}] * 900_000,
    "a list as an attribute": [{"a": [[]] * 900_000}],
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_extension_whose_octets_would_become_a_hundredfold_is_refused_before_that(name: str) -> None:
    beyond = msgspec.msgpack.encode({"type": "rows", "incarnation": LIFE, "attributes": BOMBS[name]})
    tracemalloc.start()
    with pytest.raises(PeerFault, match="bad-message"):
        decode_part(Transfer("127.0.0.1:9001", "prices", (), (), beyond))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def part_of_one(key: bytes = b"k", event_time_us: int = 0) -> tuple[Transfer, RowsPart]:
    part = RowsPart(bytes(16), [1], [0], [event_time_us], [key], [None], [""], [0], (0, 0))
    transfer = Transfer("127.0.0.1:9001", "prices", (), (("1", b"body"),), encode_beyond(part))
    decoded = decode_part(transfer)
    assert isinstance(decoded, RowsPart)
    return transfer, decoded


@pytest.mark.parametrize("time_us", [(1 << 64) - 1, (1 << 63) - 1, -(1 << 63), 0])
def test_a_row_whose_event_time_no_calendar_has_is_staged_with_the_nearest_one(time_us: int) -> None:
    transfer, part = part_of_one(event_time_us=time_us)
    _, header = staged_record(list(rows_of(part, transfer)), 1, 1)
    assert header.has_dates_only
    assert header.event_time_min_us == header.event_time_max_us == in_dates(time_us)


def test_a_row_whose_key_is_longer_than_any_is_not_taken() -> None:
    part_of_one(b"k" * 255)
    with pytest.raises(PeerFault, match="255 bytes"):
        part_of_one(b"k" * 256)


@pytest.mark.parametrize(
    "part", [End(LIFE, 1, (0, 0), {"é": Standing(0, 1, 0)}), End(LIFE, 1, (0, 0), {}, {"x" * 256: {"": Left(1, 0)}})]
)
def test_a_subscriber_that_could_never_ask_is_not_taken(part: End) -> None:
    with pytest.raises(Refused, match="bad-name"):
        decode_part(Transfer("127.0.0.1:9001", "prices", (), (), encode_beyond(part)))


def had(ranges: int = 0, origins: int = 0, runs: int = 0) -> Left:
    """Somebody who left and had this."""
    one = Origin(b"l" * 16, 3, tuple((3 * at + 1, 0, 1) for at in range(runs)))
    return Left(5, 1, Had(tuple((3 * at + 1, 3 * at + 1) for at in range(ranges)), (one,) * origins))


def many(count: int, each: int = 1) -> dict[str, dict[str, Left]]:
    """So many subscribers that have left, each for so many principals."""
    return {f"who-{at}": {f"principal-{of}": Left(5) for of in range(each)} for at in range(count)}


def ending(left: dict[str, dict[str, Left]]) -> Transfer:
    return Transfer("127.0.0.1:9001", "prices", (), (), encode_beyond(End(LIFE, 1, (0, 0), {}, left)))


@pytest.mark.parametrize(
    "left",
    [
        {"ada": {"": had(HAD_RANGES_MAX, HAD_ORIGINS_MAX, HAD_RUNS_MAX)}},
        many(LEFT_MAX),
        many(1, LEFT_MAX),
        {"ada": {"": Left(5)}},
    ],
    ids=["all that is remembered of one", "all subscribers", "all principals", "nothing"],
)
def test_who_left_is_taken_as_a_server_remembers_it(left: dict[str, dict[str, Left]]) -> None:
    part = decode_part(ending(left))
    assert type(part) is End
    assert part.left == left


@pytest.mark.parametrize(
    "left",
    [
        {"ada": {"": had(HAD_RANGES_MAX + 1)}},
        {"ada": {"": had(0, HAD_ORIGINS_MAX + 1, 1)}},
        {"ada": {"": had(0, 1, HAD_RUNS_MAX + 1)}},
        many(LEFT_MAX + 1),
        many(1, LEFT_MAX + 1),
        many(2, LEFT_MAX // 2 + 1),
    ],
    ids=["ranges", "origins", "runs", "subscribers", "principals", "both"],
)
def test_more_of_who_left_than_a_server_remembers_is_not_taken(left: dict[str, dict[str, Left]]) -> None:
    with pytest.raises(PeerFault, match="bad-message"):
        decode_part(ending(left))


def test_of_all_that_those_had_who_left_so_much_is_taken_and_no_more_is_read_that_of_the_newest_first() -> None:
    all_of_one = had(HAD_RANGES_MAX, HAD_ORIGINS_MAX, HAD_RUNS_MAX)
    left = {f"who-{at}": {"": all_of_one._replace(removed_us=at)} for at in range(2_000)}
    said = encode_beyond(End(LIFE, 1, (0, 0), {}, left))
    of_one = HAD_SIZE_MAX // (len(said) // len(left))
    part = decode_part(Transfer("127.0.0.1:9001", "prices", (), (), said))
    assert isinstance(part, End)
    known = [one.removed_us for lefts in part.left.values() for one in lefts.values() if one.had != Had()]
    assert of_one <= len(known) <= of_one * 1.1
    assert sorted(known) == list(range(2_000 - len(known), 2_000))
    assert {one.removed_us for lefts in part.left.values() for one in lefts.values()} == set(range(2_000))


def test_more_subscriptions_than_a_topic_has_are_not_taken() -> None:
    standings = {f"who-{at}": Standing(0, 1, 0) for at in range(STANDINGS_MAX + 1)}
    with pytest.raises(PeerFault, match="bad-message"):
        decode_part(Transfer("127.0.0.1:9001", "prices", (), (), encode_beyond(End(LIFE, 1, (0, 0), standings))))


def test_of_more_that_have_left_than_another_server_takes_the_newest_are_sent() -> None:
    listed = [(f"who-{at % 97}", at, 0, f"principal-{at}", Had()) for at in range(LEFT_MAX + 3, 0, -1)]
    sent = left_of(listed)
    part = decode_part(ending(sent))
    assert isinstance(part, End)
    times = sorted(left.removed_us for lefts in part.left.values() for left in lefts.values())
    assert times == list(range(4, LEFT_MAX + 4))


def test_an_array_of_who_left_shorter_than_this_release_sends_is_taken() -> None:
    left = {"ada": {"": [5]}, "bob": {"": [5, 1, [[[1, 2]]]]}, "eve": {"": [5, 1, [[], [[b"l" * 16, 3]]]]}}
    end = {"type": "end", "incarnation": LIFE, "head": 1, "offset_us": (0, 0), "standings": {}, "left": left}
    part = decode_part(Transfer("127.0.0.1:9001", "prices", (), (), msgspec.msgpack.encode(end)))
    assert isinstance(part, End)
    assert part.left["ada"][""] == Left(5)
    assert part.left["bob"][""] == Left(5, 1, Had(((1, 2),)))
    assert part.left["eve"][""] == Left(5, 1, Had((), (Origin(b"l" * 16, 3),)))
