"""A plain write of Spark whose tasks stage some rows and then wait to be killed: run as a process by test_nameless.

python killed_write.py ADDRESS STREAM
"""

import sys
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Some rows at once, and then nothing for a long time."""
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"body": [str(one) for one in batch["id"].to_pylist()]})
        time.sleep(600)


def main() -> None:
    """Write to the stream, and never come to an end."""
    address, stream = sys.argv[1:]
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    rows = spark.range(0, 1000, 1, 2).mapInArrow(slowly, "body string")
    rows.write.format("veredus").mode("append").options(address=address, stream=stream).save()


if __name__ == "__main__":
    main()
