"""Publishing through a real node: numbers, receipts, tokens, and every way in which publications are given."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import veredus
from tests.client.unwritable import Unwritable
from veredus.client.embedded import Embedded
from veredus.client.publication import Publication


def taken(node: Embedded, stream: str, count: int) -> list[Publication]:
    """The first `count` publications of a stream."""
    with node.subscribe(stream, until=count + 1) as subscription:
        return list(subscription)


def test_a_number_is_given_at_once_and_its_receipt_says_what_it_bought(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a") as publisher:
        number = publisher.publish("key", b"body")
        assert number == 1
        assert publisher.wait(number) == veredus.Receipt(1, 1, veredus.Durability.NONE, False)
        assert publisher.taken_number == 1


def test_numbers_and_order_hold_over_many_batches(node: Embedded, stream: str) -> None:
    count = 20_000
    with node.publisher(stream, source="a", batch_size=4096) as publisher:
        numbers = [publisher.publish(f"k{index % 7}", b"%d" % index) for index in range(count)]
        receipt = publisher.flush()
    assert numbers == list(range(1, count + 1))
    assert receipt is not None
    assert (receipt.number, receipt.sequence) == (count, count)
    got = taken(node, stream, count)
    assert [publication.body for publication in got] == [b"%d" % index for index in range(count)]
    assert [publication.key for publication in got[:8]] == [b"k%d" % (index % 7) for index in range(8)]
    assert [publication.number for publication in got] == numbers
    assert {publication.source for publication in got} == {"a"}


def test_attributes_and_event_times_arrive_as_they_were_given(node: Embedded, stream: str) -> None:
    when = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
    rows = [
        {"delay": 1.5, "carrier": "UA", "seats": 200, "late": True, "raw": b"\x00", "at": when},
        {"delay": -3.0, "carrier": "AA"},
        None,
        {"other": "shape"},
        {"delay": 2.0, "carrier": "UA", "seats": None},
    ]
    with node.publisher(stream, source="a") as publisher:
        for index in range(200):
            publisher.publish("k", b"%d" % index, attributes=rows[index % 5], event_time=when if index % 2 else None)
    got = taken(node, stream, 200)
    expected = [{} if row is None else {k: v for k, v in row.items() if v is not None} for row in rows]
    assert [publication.attributes for publication in got] == [expected[index % 5] for index in range(200)]
    assert all(publication.event_time == when for publication in got[1::2])
    assert all(publication.event_time > when for publication in got[::2])


def test_text_is_written_as_utf_8_in_keys_and_bodies(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a") as publisher:
        publisher.publish("schlüssel", "grüße")
        for _ in range(100):
            publisher.publish("schlüssel", "grüße")
    assert {(p.key, p.body) for p in taken(node, stream, 101)} == {("schlüssel".encode(), "grüße".encode())}


def test_lists_and_tables_are_published_as_well_as_single_ones(node: Embedded, stream: str) -> None:
    table = pa.table(
        {
            "id": pa.array(["a", "b", "c"] * 40).dictionary_encode(),
            "payload": [b"%d" % index for index in range(120)],
            "when": pa.array([index * 1_000_000 for index in range(120)], pa.timestamp("us", tz="UTC")),
            "price": pa.array([float(index) for index in range(120)], pa.float32()),
        }
    )
    with node.publisher(stream, source="a") as publisher:
        assert publisher.publish("one", b"1") == 1
        assert publisher.publish_many(["x"] * 3, [b"2", b"3", b"4"], attributes=[{"n": 2}, None, {"n": 4}]) == 4
        number = publisher.publish_table(
            table, key="id", body="payload", event_time="when", attributes={"price": "quote"}
        )
        assert number == 124
        assert publisher.publish("last", b"5") == 125
    got = taken(node, stream, 125)
    assert [p.attributes for p in got[1:4]] == [{"n": 2}, {}, {"n": 4}]
    assert [(p.key, p.body) for p in got[4:6]] == [(b"a", b"0"), (b"b", b"1")]
    assert got[6].attributes == {"quote": 2.0}
    assert got[6].event_time == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert got[-1].body == b"5"


def test_a_new_process_of_a_source_goes_on_behind_its_last_number(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a") as publisher:
        publisher.publish_many(["k"] * 10, [b"x"] * 10)
    with node.publisher(stream, source="a") as publisher:
        assert publisher.last_number == 10
        assert publisher.publish("k", b"y") == 11


@pytest.mark.filterwarnings("ignore:source .* behind its last resume token")
def test_a_source_that_publishes_again_from_its_token_doubles_nothing(node: Embedded, stream: str) -> None:
    rows = [b"%d" % index for index in range(300)]
    with node.publisher(stream, source="file", resume="token") as publisher:
        assert publisher.resume_token == b""
        for row in rows[:100]:
            publisher.publish("k", row)
        publisher.flush(resume_token=b"100")
        for row in rows[100:150]:
            publisher.publish("k", row)
        publisher.flush()
    with node.publisher(stream, source="file", resume="token") as publisher:
        assert (publisher.resume_token, publisher.resume_number, publisher.last_number) == (b"100", 100, 150)
        for row in rows[int(publisher.resume_token) :]:
            publisher.publish("k", row)
        receipt = publisher.flush(resume_token=b"300")
    assert receipt == veredus.Receipt(300, 300, veredus.Durability.NONE, False)
    assert [publication.body for publication in taken(node, stream, 300)] == rows


@pytest.mark.filterwarnings("ignore:source .* behind its last resume token")
def test_a_token_closes_what_was_published_since_the_last_one(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a", resume="token") as publisher:
        publisher.publish_many(["k"] * 5, [b"x"] * 5)
        publisher.flush(resume_token=b"five")
        publisher.publish("k", b"x")
    with node.publisher(stream, source="a") as publisher:
        assert (publisher.resume_token, publisher.resume_number) == (b"five", 5)
        with pytest.raises(veredus.Misuse, match="no-tokens"):
            publisher.flush(resume_token=b"t")


def test_an_older_incarnation_of_a_source_is_fenced_once_and_stops(node: Embedded, stream: str) -> None:
    older = node.publisher(stream, source="a")
    older.wait(older.publish("k", b"1"))
    with node.publisher(stream, source="a") as newer:
        newer.wait(newer.publish("k", b"2"))
        with pytest.raises(veredus.Fenced, match="another publisher has taken over source 'a'"):
            older.wait(older.publish("k", b"3"))
        with pytest.raises(veredus.Fenced):
            older.publish("k", b"4")
        older.close()
        newer.wait(newer.publish("k", b"5"))
    assert [publication.body for publication in taken(node, stream, 3)] == [b"1", b"2", b"5"]


def test_an_anonymous_source_has_receipts_and_no_number_to_resume_from(node: Embedded, stream: str) -> None:
    with node.publisher(stream) as publisher:
        assert publisher.wait(publisher.publish("k", b"1")).sequence == 1
    with node.publisher(stream) as publisher:
        assert publisher.last_number == 0
        assert publisher.wait(publisher.publish("k", b"2")).sequence == 2
    assert [publication.source for publication in taken(node, stream, 2)] == ["", ""]


@pytest.mark.parametrize(
    ("key", "body", "attributes", "event_time"),
    [
        ("k" * 256, b"", None, None),
        ("ü" * 128, b"", None, None),
        ("k", b"x" * ((16 << 20) + 1), None, None),
        ("k", b"", {f"a{index}": 1 for index in range(65)}, None),
        ("k", b"", None, datetime(2013, 1, 1)),  # noqa: DTZ001
        ("k", b"", None, 1 << 63),
    ],
)
def test_what_cannot_be_published_is_refused_before_anything_changes(
    node: Embedded, stream: str, key: str, body: bytes, attributes: dict[str, int] | None, event_time: object
) -> None:
    with node.publisher(stream, source="a") as publisher:
        with pytest.raises(veredus.Misuse):
            publisher.publish(key, body, attributes=attributes, event_time=event_time)  # type: ignore[arg-type]
        with pytest.raises(veredus.Misuse):
            publisher.publish("k", None)  # type: ignore[arg-type]
        assert publisher.publish("k" * 255, b"fine") == 1
        assert publisher.wait(1).sequence == 1


def test_a_body_that_cannot_be_written_is_named_and_what_came_before_is_kept(node: Embedded, stream: str) -> None:
    publisher = node.publisher(stream, source="a")
    publisher.wait(publisher.publish("k", b"1"))
    number = publisher.publish("k", Unwritable("2"))
    with pytest.raises(veredus.Misuse, match="publication 2"):
        publisher.wait(number)
    with pytest.raises(veredus.Misuse, match="publication 2"):
        publisher.publish("k", b"3")
    with pytest.raises(veredus.Misuse):
        publisher.flush()
    with pytest.raises(veredus.Misuse):
        publisher.close()
    assert [publication.body for publication in taken(node, stream, 1)] == [b"1"]


def test_a_number_that_was_never_given_cannot_be_waited_for(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a") as publisher:
        with pytest.raises(veredus.Misuse, match="unknown-number"):
            publisher.wait(1)
        assert publisher.flush() is None


def test_numbers_of_an_earlier_publisher_of_the_source_can_be_waited_for(node: Embedded, stream: str) -> None:
    with node.publisher(stream, source="a") as publisher:
        publisher.publish_many(["k"] * 3, [b"1", b"2", b"3"])
    with node.publisher(stream, source="a") as publisher:
        assert [publisher.wait(number).number for number in (1, publisher.last_number)] == [1, 3]
        for number in (0, 4):
            with pytest.raises(veredus.Misuse, match="unknown-number"):
                publisher.wait(number)


def test_a_closed_publisher_says_so(node: Embedded, stream: str) -> None:
    publisher = node.publisher(stream, source="a")
    publisher.publish("k", b"1")
    publisher.close()
    publisher.close()
    with pytest.raises(veredus.Misuse, match="closed"):
        publisher.publish("k", b"2")


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batches_arrive_whole(node: Embedded, stream: str, codec: str) -> None:
    with node.publisher(stream, source="a", compression=codec) as publisher:  # type: ignore[arg-type]
        publisher.publish_many(["k"] * 1000, [b"x" * 100] * 1000)
    shown = node.streams.show(stream)
    assert shown["size"] < 20_000
    assert [publication.body for publication in taken(node, stream, 1000)] == [b"x" * 100] * 1000


def test_bodies_from_empty_to_the_largest_arrive(node: Embedded, stream: str) -> None:
    sizes = [0, 1, 1 << 20, 3 << 20, 16 << 20, 0]
    with node.publisher(stream, source="a") as publisher:
        for size in sizes:
            publisher.publish("k", b"x" * size)
    with node.subscribe(stream, until=len(sizes) + 1) as subscription:
        assert [len(publication.body) for publication in subscription] == sizes


def publish_and_spoil(node: Embedded, stream: str, before: int, after: int) -> None:
    """Publish so many, then what cannot be encoded, then more."""
    with node.publisher(stream, source="a") as publisher:
        publisher.publish_many(["k"] * before, [b"x" * 100] * before)
        publisher.publish("k", Unwritable("bad"))
        for _ in range(after):
            publisher.publish("k", b"x" * 100)


@pytest.mark.parametrize(("before", "after"), [(20_000, 0), (20_000, 20_000), (100_000, 100_000)])
def test_a_publication_that_cannot_be_encoded_ends_its_publisher_alone_behind_all_before_it(
    stream: str, before: int, after: int, caplog: pytest.LogCaptureFixture
) -> None:
    with veredus.embedded() as node, node.publisher("other") as other:
        with pytest.raises(veredus.Misuse, match=f"publication {before + 1} cannot be written"):
            publish_and_spoil(node, stream, before, after)
        assert node.streams.show(stream)["head"] == before
        assert other.wait(other.publish("k", b"fine")).sequence == 1
    assert not [record for record in caplog.records if record.name == "asyncio"]
