"""Whoever reads an error in Spark soon comes to the sentence that says what to do: no calls of ours stand before it."""

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import lit

from tests.spark.conftest import SparkEnd as Rig

FRAME_COUNT = 3
"""At most so many calls, those of Spark's workers included."""


def read_of_no_stream(rig: Rig) -> None:
    rig.read().count()


def read_with_a_wrong_option(rig: Rig) -> None:
    rig.read(rowsPerPartition="x")


def read_of_another_type(rig: Rig) -> None:
    with rig.node.publisher(rig.stream) as publisher:
        publisher.publish("k", b"", {"n": "text"})
    rig.read(attributes="n bigint").collect()


def write_of_nulls(rig: Rig) -> None:
    rig.spark.range(3).select(lit("k").alias("key"), lit(None).cast("binary").alias("body")).write.format(
        "veredus"
    ).options(**rig.options()).mode("append").save()


def query_of_no_stream(rig: Rig) -> None:
    rig.run(rig.read_stream())


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (read_of_no_stream, "unknown-stream"),
        (read_with_a_wrong_option, "bad-option"),
        (read_of_another_type, "type-mismatch"),
        (write_of_nulls, "null-column"),
        (query_of_no_stream, "unknown-stream"),
    ],
)
def test_few_calls_stand_before_the_sentence(rig: Rig, act: Callable[[Rig], None], code: str) -> None:
    with pytest.raises(PySparkException) as raised:
        act(rig)
    before, sentence = str(raised.value).split("veredus.kernel.errors.Refused: ", 1)
    assert f"[{code}]" in sentence.splitlines()[0]
    assert before.count('  File "') <= FRAME_COUNT, before
