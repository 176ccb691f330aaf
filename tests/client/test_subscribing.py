"""Subscribing through a real node: starts, filters, settling, redelivery, takeover, and Arrow."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import veredus
from tests.processes import beside
from veredus.client.embedded import Embedded


def fill(node: Embedded, stream: str, count: int, source: str = "a") -> None:
    with node.publisher(stream, source=source) as publisher:
        for index in range(count):
            publisher.publish(f"k.{index % 3}", b"%d" % index, attributes={"n": index})


def bodies_of(subscription: veredus.Subscription, count: int) -> list[bytes]:
    rows: Iterator[veredus.Publication] = iter(subscription)
    return [next(rows).body for _ in range(count)]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (None, 1),
        (veredus.beginning(), 1),
        (veredus.at(7), 7),
        (veredus.tail(3), 8),
        (veredus.tail(100), 1),
        (veredus.since(datetime.now(UTC) - timedelta(days=1)), 1),
        (veredus.since(timedelta(days=1)), 1),
        (veredus.after("nobody"), 1),
    ],
)
def test_a_start_is_where_the_first_publication_comes_from(
    node: Embedded, stream: str, start: veredus.Start | None, first: int
) -> None:
    fill(node, stream, 10)
    with node.subscribe(stream, start=start, until=11) as subscription:
        assert subscription.position == first
        assert [publication.sequence for publication in subscription] == list(range(first, 11))
        assert subscription.is_ended


def test_from_the_head_only_what_comes_is_given(node: Embedded, stream: str) -> None:
    fill(node, stream, 10)
    with node.subscribe(stream, start=veredus.head()) as subscription:
        assert subscription.next_batch(timeout_s=0) is None
        fill(node, stream, 2)
        assert [publication.sequence for publication in subscription.batches().__next__()] == [11, 12]


def test_a_reception_that_is_to_begin_at_a_time_to_come_is_refused(node: Embedded, stream: str) -> None:
    start = veredus.since(datetime.now(UTC) + timedelta(minutes=2))
    with pytest.raises(veredus.Refused, match="this machine's clock says") as refusal:
        node.receive(stream, "239.195.0.1:7074", start=start)
    assert refusal.value.code == "start-in-the-future"


def test_a_start_that_is_gone_is_refused_with_the_floor(node: Embedded, stream: str) -> None:
    fill(node, stream, 10)
    node.streams.trim(stream, 5)
    with pytest.raises(veredus.Refused) as refusal:
        node.subscribe(stream, start=veredus.at(2))
    assert refusal.value.code == "below-floor"
    assert refusal.value.details["floor"] == 5


def test_filters_by_key_and_by_attribute_give_what_matches_with_its_numbers(node: Embedded, stream: str) -> None:
    fill(node, stream, 300)
    with node.subscribe(stream, keys="k.1", where="n >= 100", until=301) as subscription:
        got = list(subscription)
    expected = [index for index in range(300) if index % 3 == 1 and index >= 100]
    assert [publication.attributes["n"] for publication in got] == expected
    assert [publication.sequence for publication in got] == [index + 1 for index in expected]
    assert [publication.number for publication in got] == [index + 1 for index in expected]
    assert [publication.body for publication in got] == [b"%d" % index for index in expected]


def test_a_filter_that_does_not_parse_is_refused_with_the_place(node: Embedded, stream: str) -> None:
    fill(node, stream, 1)
    with pytest.raises(veredus.Refused, match="position 7") as refusal:
        node.subscribe(stream, where="quote >")
    assert refusal.value.code == "bad-predicate"


def test_what_was_settled_is_not_pushed_again_and_the_rest_is_marked(node: Embedded, stream: str) -> None:
    fill(node, stream, 10)
    with node.subscribe(stream, subscriber="s") as subscription:
        rows = iter(subscription)
        got = [next(rows) for _ in range(6)]
        assert not any(publication.is_redelivered for publication in got)
        subscription.settle(got[3])
        subscription.wait_settled()
    with node.subscribe(stream, subscriber="s", until=11) as subscription:
        again = list(subscription)
    assert [publication.sequence for publication in again] == [5, 6, 7, 8, 9, 10]
    assert all(publication.is_redelivered for publication in again[:2])


def test_individual_settlement_leaves_what_lies_between(node: Embedded, stream: str) -> None:
    fill(node, stream, 10)
    with node.subscribe(stream, subscriber="s", mode="individual") as subscription:
        rows = iter(subscription)
        got = [next(rows) for _ in range(10)]
        for publication in got:
            if publication.sequence % 3:
                subscription.settle(publication)
        subscription.wait_settled(got[9])
    with node.subscribe(stream, subscriber="s", mode="individual", until=11) as subscription:
        assert [publication.sequence for publication in subscription] == [3, 6, 9]


def test_a_batch_can_be_settled_as_a_whole(node: Embedded, stream: str) -> None:
    fill(node, stream, 10)
    with node.subscribe(stream, subscriber="s") as subscription:
        batch = next(subscription.batches())
        batch.settle()
        subscription.wait_settled(batch)
        last = batch.last_sequence
    assert node.subscriptions.show(stream, "s")["floor"] == last


def test_an_ephemeral_subscription_has_nothing_to_settle(node: Embedded, stream: str) -> None:
    fill(node, stream, 1)
    with node.subscribe(stream, until=2) as subscription:
        (publication,) = subscription
        with pytest.raises(veredus.Refused, match="not-durable"):
            subscription.settle(publication)


def test_a_second_owner_fences_the_first_which_stops(node: Embedded, stream: str) -> None:
    fill(node, stream, 4)
    first = node.subscribe(stream, subscriber="s")
    assert len(bodies_of(first, 2)) == 2
    with node.subscribe(stream, subscriber="s") as second:
        assert bodies_of(second, 1) == [b"0"]
        with pytest.raises(veredus.Fenced):
            list(first)
    first.close()


def test_one_that_waits_gets_what_is_published_later(node: Embedded, stream: str) -> None:
    fill(node, stream, 1)
    with node.subscribe(stream, start=veredus.head()) as subscription, beside(fill, node, stream, 3):
        assert bodies_of(subscription, 3) == [b"0", b"1", b"2"]


def test_iteration_goes_on_where_it_was_left(node: Embedded, stream: str) -> None:
    fill(node, stream, 10)
    with node.subscribe(stream, until=11) as subscription:
        for publication in subscription:
            if publication.sequence == 4:
                break
        assert [publication.sequence for publication in subscription] == [5, 6, 7, 8, 9, 10]


def test_a_small_window_is_filled_again_as_the_subscriber_takes(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a", batch_size=4096) as publisher:
        publisher.publish_many(["k"] * 2000, [b"x" * 1000] * 2000)
    with node.subscribe(stream, window_size=10_000, until=2001) as subscription:
        assert sum(len(batch) for batch in subscription.batches()) == 2000


def test_trimmed_sequences_are_reported_as_a_gap_by_name(node: Embedded, stream: str) -> None:
    fill(node, stream, 10)
    with node.subscribe(stream, subscriber="s", until=2) as subscription:
        subscription.settle(next(iter(subscription)))
        subscription.wait_settled()
    node.streams.trim(stream, 6)
    with node.subscribe(stream, subscriber="s", until=11) as subscription:
        with pytest.raises(veredus.Unavailable) as gap:
            next(iter(subscription))
        assert gap.value.code == "gap"
        assert gap.value.details == {"first_sequence": 2, "next_sequence": 6, "cause": "trimmed"}
        assert [publication.sequence for publication in subscription] == [6, 7, 8, 9, 10]
    gaps: list[veredus.Gap] = []
    with node.subscribe(stream, subscriber="s", until=11, on_gap=gaps.append) as subscription:
        assert [publication.sequence for publication in subscription][-5:] == [6, 7, 8, 9, 10]
    assert gaps in ([], [veredus.Gap(2, 6, "trimmed")])


def test_a_deleted_stream_ends_its_subscriptions(node: Embedded, stream: str) -> None:
    fill(node, stream, 2)
    subscription = node.subscribe(stream)
    assert bodies_of(subscription, 2) == [b"0", b"1"]
    node.streams.delete(stream)
    with pytest.raises(veredus.Refused, match="stream-deleted"):
        subscription.next_batch(timeout_s=5)
    subscription.close()


def test_a_filter_can_be_changed_on_the_way(node: Embedded, stream: str) -> None:
    fill(node, stream, 3)
    with node.subscribe(stream, keys="k.0", start=veredus.head()) as subscription:
        position = subscription.change_filter(keys="k.2")
        assert position == 4
        fill(node, stream, 6, source="b")
        assert bodies_of(subscription, 2) == [b"2", b"5"]


def test_a_batch_becomes_an_arrow_table_with_all_that_is_known(node: Embedded, stream: str) -> None:
    fill(node, stream, 100)
    with node.subscribe(stream, where="n > 10", until=101) as subscription:
        tables = [batch.to_arrow() for batch in subscription.batches()]
    rows = [row for table in tables for row in table.to_pylist()]
    assert [row["n"] for row in rows] == list(range(11, 100))
    assert rows[0].keys() >= {"sequence", "source", "number", "key", "body", "event_time", "append_time"}
    assert (rows[0]["sequence"], rows[0]["number"], rows[0]["source"], rows[0]["key"]) == (12, 12, "a", b"k.2")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"name": "n"}, "no-subscriber"),
        ({"mode": "sideways"}, "bad-mode"),
        ({"window_size": 0}, "bad-window"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_node_is_asked(
    node: Embedded, stream: str, options: dict[str, object], code: str
) -> None:
    with pytest.raises(veredus.Misuse, match=code):
        node.subscribe(stream, **options)  # type: ignore[arg-type]
