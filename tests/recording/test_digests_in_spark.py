"""Python and the JVM give one publication one digest."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import xxhash64

from veredus.recording import digest_of

pytestmark = pytest.mark.spark


def test_digests_are_those_of_spark_also_for_nulls_and_empty_values(spark: SparkSession) -> None:
    values = [None, b"", b"k", b"body", bytes(range(256)), *(b"x" * size for size in (3, 4, 7, 8, 31, 32, 33, 64, 100))]
    pairs = [(key, body) for key in values for body in values]
    frame = spark.createDataFrame(pairs, "key binary, body binary")
    digests = [row[0] for row in frame.select(xxhash64("key", "body")).collect()]
    assert digests == [digest_of(key, body) for key, body in pairs]


def test_text_has_the_digest_of_its_octets(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("ключ", "тело")], "key string, body string")
    assert frame.select(xxhash64("key", "body")).first() == (digest_of("ключ", "тело"),)
