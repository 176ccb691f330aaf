"""Counts the publications of a stream, by source, as they come: `counts.py STREAM CHECKPOINT`.

The node is that of VEREDUS_ADDRESS. Kill it, or this, and start it again: the counts stay right.
"""

import os
import sys

from pyspark.sql import SparkSession

stream, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
publications = (
    spark.readStream.format("veredus")
    .option("address", os.environ["VEREDUS_ADDRESS"])
    .option("streams", stream)  # a pattern: the stream may be made later
    .load()
)
counts = publications.groupBy("source").count()
query = counts.writeStream.outputMode("complete").format("console").option("checkpointLocation", checkpoint).start()
query.awaitTermination()
