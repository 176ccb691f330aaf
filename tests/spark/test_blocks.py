"""Small batches are read together, whoever published them, and only the number of record batches tells it."""

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructField, StructType, TimestampType

import veredus
from veredus import Embedded
from veredus.delivery.publication import AttributeValue
from veredus.kernel.errors import Refused, Unavailable
from veredus.spark import blocks
from veredus.spark.blocks import read_block, runs_of
from veredus.spark.connections import StreamView, view_of
from veredus.spark.offsets import Block
from veredus.spark.options import read_options
from veredus.spark.source import VeredusDataSource


def publish(node: Embedded, stream: str, source: str, *values: AttributeValue) -> list[veredus.Receipt]:
    """Publish one batch for each value: the value is its attribute."""
    receipts = []
    with node.publisher(stream, source=source) as publisher:
        for value in values:
            number = publisher.publish("k", str(value), {"value": value})
            publisher.flush()
            receipts.append(publisher.wait(number))
    return receipts


def read(
    node: Embedded, stream: str, options: dict[str, str] | None = None, **columns: DataType
) -> list[pa.RecordBatch]:
    given = {"address": node.served.address, "stream": stream, **(options or {})}
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    reader = VeredusDataSource(given).reader(schema)
    return [batch for partition in reader.partitions() for batch in reader.read(partition)]


def test_batches_of_several_sources_come_as_one(node: Embedded, stream: str) -> None:
    receipts = publish(node, stream, "desk", 10, 11) + publish(node, stream, "", 20) + publish(node, stream, "shop", 30)
    (rows,) = read(
        node, stream, sequence=LongType(), source=StringType(), number=LongType(), body=StringType(), value=LongType()
    )
    assert rows.to_pydict() == {
        "sequence": [1, 2, 3, 4],
        "source": ["desk", "desk", None, "shop"],
        "number": [1, 2, None, 1],
        "body": ["10", "11", "20", "30"],
        "value": [10, 11, 20, 30],
    }
    assert [receipt.sequence for receipt in receipts] == rows["sequence"].to_pylist()


def test_each_row_keeps_the_times_of_its_batch(node: Embedded, stream: str) -> None:
    publish(node, stream, "desk", 1, 2, 3)
    (rows,) = read(node, stream, event_time=TimestampType(), append_time=TimestampType())
    with node.subscribe(stream, start=veredus.beginning(), until=4) as subscription:
        alone = pa.Table.from_batches(batch.to_arrow() for batch in subscription.batches())
    assert rows.to_pydict() == alone.select(["event_time", "append_time"]).to_pydict()
    assert len(set(rows["append_time"].to_pylist())) == 3


def publish_fours(node: Embedded, stream: str, count: int) -> None:
    """Publish 0, 1, 2, ... in batches of four."""
    with node.publisher(stream, source="desk") as publisher:
        for value in range(count):
            publisher.publish("k", str(value), {"value": value})
            if value % 4 == 3:
                publisher.flush()


def test_a_block_begins_and_ends_inside_small_batches(node: Embedded, stream: str) -> None:
    publish_fours(node, stream, 16)
    options = {"startingsequence": "3", "endingsequence": "15"}
    (rows,) = read(node, stream, options, sequence=LongType(), number=LongType(), value=LongType())
    wanted = list(range(3, 15))
    assert rows.to_pydict() == {"sequence": wanted, "number": wanted, "value": [row - 1 for row in wanted]}


def test_a_filter_picks_rows_out_of_small_batches(node: Embedded, stream: str) -> None:
    publish_fours(node, stream, 12)
    options = {"where": "value in (1, 4, 6, 11)"}
    (rows,) = read(node, stream, options, sequence=LongType(), number=LongType(), value=LongType())
    assert rows.to_pydict() == {"sequence": [2, 5, 7, 12], "number": [2, 5, 7, 12], "value": [1, 4, 6, 11]}


def test_columns_are_made_once_for_many_small_batches(node: Embedded, stream: str) -> None:
    publish_fours(node, stream, 40)
    options = read_options({"address": node.served.address, "stream": stream})
    incarnation = node.streams.show(stream)["incarnation"].hex()
    (taken,) = read_block(options, Block(1, 41), incarnation, lambda _: True)
    assert [origin.row_count for origin in taken.origins] == [4] * 10


def test_a_batch_that_is_not_wanted_whole_is_read_alone(node: Embedded, stream: str) -> None:
    publish_fours(node, stream, 16)
    with node.subscribe(stream, start=veredus.beginning(), until=17) as subscription:
        batches = list(subscription.batches())
    batches[0].skip_to(3)
    runs = [[batch.first_sequence for batch in run] for run in runs_of(batches, until=15)]
    assert runs == [[3], [5, 9], [13]]


def test_an_integer_beside_a_float_in_another_batch_stays_one(node: Embedded, stream: str) -> None:
    publish(node, stream, "desk", 1, 2.5, 3)
    integers = pa.Table.from_batches(read(node, stream, {"onmismatch": "null"}, value=LongType()))
    assert integers["value"].to_pylist() == [1, None, 3]


def test_a_mismatch_among_small_batches_is_the_mismatch_of_one(node: Embedded, stream: str) -> None:
    publish(node, stream, "desk", 1, 2.5, "three", 4)
    lenient = {"onmismatch": "null"}
    integers = pa.Table.from_batches(read(node, stream, lenient, value=LongType()))
    assert integers["value"].to_pylist() == [1, None, None, 4]
    floats = pa.Table.from_batches(read(node, stream, lenient, value=DoubleType()))
    assert floats["value"].to_pylist() == [1.0, 2.5, None, 4.0]
    with pytest.raises(Refused, match="column value: the batch of source 'desk' at sequence 2 has double"):
        read(node, stream, value=LongType())


@pytest.mark.parametrize("looks", [1, 2])
def test_a_block_that_is_asked_for_again_counts_what_is_missing_once(
    node: Embedded, stream: str, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    publish(node, stream, "desk", 1, 2, 3, 4)
    options = read_options({"address": node.served.address, "stream": stream, "failondataloss": "false"})
    incarnation = view_of(node, stream).incarnation
    node.streams.trim(stream, 3)
    answers = iter(range(looks))

    def away_at_last(asked: veredus.Node, name: str) -> StreamView:
        if next(answers, None) == looks - 1:
            raise Unavailable("no-answer", "the node is away for a moment")
        return view_of(asked, name)

    monkeypatch.setattr(blocks, "view_of", away_at_last)
    found = [taken.sequences.tolist() for taken in read_block(options, Block(1, 5), incarnation, lambda _: True)]
    assert found == [[3, 4]]
