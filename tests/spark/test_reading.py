"""A stream is a table: its rows, in the columns asked for, from where to where was said."""

import time
from datetime import UTC, datetime

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as f

from .conftest import Rig

pytestmark = pytest.mark.spark


def bodies(rows: object) -> list[str]:
    return [row["body"] for row in rows.select("body").collect()]  # type: ignore[attr-defined]


def test_a_stream_is_read_with_its_seven_columns_in_order(rig: Rig) -> None:
    began = datetime.now(UTC)
    rig.publish(1000)
    rows = rig.read()
    assert rows.columns == ["sequence", "source", "number", "key", "body", "event_time", "append_time"]
    found = rows.collect()
    assert [(row.sequence, row.number, row.source) for row in found] == [(n, n, "desk") for n in range(1, 1001)]
    assert [bytes(row.body) for row in found] == [b"%d" % index for index in range(1000)]
    assert bytes(found[7].key) == b"k7"
    times = rows.select(f.min("event_time").cast("double"), f.max("append_time").cast("double")).first()
    assert times is not None
    assert began.timestamp() - 1 <= times[0] <= times[1] <= time.time() + 1


def test_a_schema_is_a_projection_with_typed_attributes(rig: Rig) -> None:
    rig.publish(3, quote=[1.5, None, 3.5], venue=["XETR", "XNYS", None], size=[1, 2, 3], firm=[True, False, None])
    rows = rig.read("venue string, key string, size bigint, quote double, firm boolean, absent timestamp")
    assert [tuple(row) for row in rows.collect()] == [
        ("XETR", "k0", 1, 1.5, True, None),
        ("XNYS", "k1", 2, None, False, None),
        (None, "k2", 3, 3.5, None, None),
    ]


def test_attributes_can_be_added_to_the_seven_columns(rig: Rig) -> None:
    rig.publish(2, quote=[1.5, 2.5])
    rows = rig.read(attributes="quote double")
    assert rows.columns[-2:] == ["append_time", "quote"]
    assert rows.agg(f.sum("quote")).first() == (4.0,)


def test_a_range_of_sequences_takes_its_start_and_leaves_out_its_end(rig: Rig) -> None:
    rig.publish(100)
    assert bodies(rig.read("body string", startingSequence=40, endingSequence=43)) == ["39", "40", "41"]
    assert bodies(rig.read("body string", startingSequence=99)) == ["98", "99"]
    assert bodies(rig.read("body string", endingSequence=3)) == ["0", "1"]
    assert bodies(rig.read("body string", startingSequence=50, endingSequence=50)) == []
    with pytest.raises(AnalysisException, match="a batch read ends there"):
        bodies(rig.read("body string", startingSequence="latest"))


def test_a_range_of_times_is_by_append_time(rig: Rig) -> None:
    rig.publish(10)
    time.sleep(0.01)
    between = datetime.now(UTC)
    time.sleep(0.01)
    rig.publish(10, source="other", first=10)
    ten = [str(n) for n in range(10)]
    assert bodies(rig.read("body string", endingTimestamp=between.isoformat())) == ten
    assert bodies(rig.read("body string", startingTimestamp=between.isoformat())) == [str(n) for n in range(10, 20)]


def test_keys_and_predicates_are_evaluated_at_the_node(rig: Rig) -> None:
    rig.publish(100, size=list(range(100)))
    assert bodies(rig.read("body string", keys="literal:k3", where="size > 50")) == ["53", "63", "73", "83", "93"]
    assert rig.read(keys="literal:k3\nliteral:k4").count() == 20


def test_blocks_are_read_by_tasks_of_their_own(rig: Rig) -> None:
    rig.publish(5000)
    rows = rig.read(rowsPerPartition=1024, startingSequence=1000)
    parts = rows.groupBy(f.spark_partition_id()).agg(f.min("sequence"), f.max("sequence"), f.count("*"))
    assert sorted(tuple(row)[1:] for row in parts.collect()) == [
        (1000, 1024, 25),
        (1025, 2048, 1024),
        (2049, 3072, 1024),
        (3073, 4096, 1024),
        (4097, 5000, 904),
    ]


def test_a_read_is_a_snapshot_of_when_it_was_planned(rig: Rig) -> None:
    rig.publish(10)
    rows = rig.read()
    assert rows.count() == 10
    rig.publish(10, source="later")
    assert rows.count() == 10
    assert rig.read().count() == 20


def test_an_empty_stream_has_no_rows_and_its_columns(rig: Rig) -> None:
    rig.node.streams.create(rig.stream)
    assert rig.read().count() == 0


def test_a_limit_lets_go_of_the_rest(rig: Rig) -> None:
    rig.publish(20_000)
    assert len(rig.read(rowsPerPartition=1024).limit(3).collect()) == 3
    assert rig.read().count() == 20_000


def test_a_temporary_view_keeps_the_options(rig: Rig) -> None:
    rig.publish(10)
    rig.read("key string, body string").createOrReplaceTempView("trades")
    assert rig.spark.sql("select count(*) from trades where key = 'k1'").first() == (1,)


def test_rows_of_a_sink_have_neither_source_nor_number(rig: Rig) -> None:
    rig.write(rig.spark.range(5).selectExpr("cast(id as string) as body"))
    assert rig.read("source string, number bigint").distinct().collect() == [(None, None)]


def test_a_start_that_is_no_longer_kept_is_refused_or_passed_over(rig: Rig) -> None:
    rig.publish(100)
    rig.node.streams.trim(rig.stream, 60)
    assert rig.read().count() == 41
    with pytest.raises(AnalysisException, match="no longer holds sequences 50 to 59"):
        rig.read(startingSequence=50).count()
    assert rig.read(startingSequence=50, failOnDataLoss="false").count() == 41


def test_rows_that_are_trimmed_between_plan_and_read_are_missed_by_name(rig: Rig) -> None:
    rig.publish(100)
    strict, lenient = rig.read(), rig.read(failOnDataLoss="false")
    assert (strict.count(), lenient.count()) == (100, 100)
    rig.node.streams.trim(rig.stream, 60)
    with pytest.raises(PythonException, match="no longer holds sequences 1 to 59"):
        strict.count()
    assert lenient.count() == 41


def test_a_stream_that_was_made_again_is_not_mistaken_for_the_one_that_was_planned(rig: Rig) -> None:
    rig.publish(10)
    rows = rig.read()
    assert rows.count() == 10
    rig.node.streams.delete(rig.stream)
    rig.publish(10)
    with pytest.raises(PythonException, match="deleted and created again"):
        rows.count()


def test_an_attribute_of_another_type_fails_by_name_or_is_null(rig: Rig) -> None:
    rig.publish(2, quote=["high", "low"])
    with pytest.raises(PythonException, match="column quote: the batch of source 'desk' at sequence 1 has string"):
        rig.read("quote double").collect()
    assert rig.read("quote double", onMismatch="null").collect() == [(None,), (None,)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingSequnce": 3}, "did you mean 'startingSequence'"),
        ({"where": "size >"}, "expected a value"),
        ({"stream": "no-such-stream"}, "there is no stream 'no-such-stream'"),
        ({"startingSequence": 500}, "`startingSequence` is 500"),
        ({"subscriber": "risk"}, "for streaming queries"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(rig: Rig, options: dict[str, object], words: str) -> None:
    rig.publish(1)
    with pytest.raises((AnalysisException, PythonException), match=words):
        rig.read(**options).count()


def test_columns_are_the_same_where_a_timestamp_has_no_time_zone(rig: Rig) -> None:
    rig.publish(1)
    rig.spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        rows = rig.read()
        assert dict(rows.dtypes)["append_time"] == "timestamp"
        assert rows.count() == 1
    finally:
        rig.spark.conf.unset("spark.sql.timestampType")
