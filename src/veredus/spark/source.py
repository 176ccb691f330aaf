"""The data source `veredus`: where Spark asks for readers and writers.

Spark pickles it, and the readers and writers that it gives, into several processes: they hold options, no connection.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .options import (
    check_append,
    check_batch_write,
    check_stream_write,
    check_streaming,
    check_whole_batch,
    read_options,
    write_options,
)
from .plainly import plainly
from .reader import BlockReader, BlockStreamReader
from .schema import FIXED_DDL, check_written, projection_of
from .writer import StageStreamWriter, StageWriter


class VeredusDataSource(DataSource):
    """Streams of a Veredus node as a data source, batch and streaming, reading and writing.

    Options: docs/how-to/spark.md. Every method raises `Refused` for options or a schema that cannot be right.
    """

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "veredus"

    @plainly
    def schema(self) -> str:
        """The columns of a stream for a user who names none: the fixed ones, and those of option `attributes`."""
        options = read_options(self.options)
        columns = ["stream string"] * bool(options.streams) + [FIXED_DDL]
        return ", ".join([*columns, *filter(None, [options.attributes.strip()])])

    @plainly
    def reader(self, schema: StructType) -> BlockReader:
        """Reads a stream as it is now, once."""
        options = read_options(self.options)
        check_whole_batch(options)
        return BlockReader(options, projection_of(schema, options.is_mismatch_null, options.attribute_names))

    @plainly
    def streamReader(self, schema: StructType) -> BlockStreamReader:  # noqa: N802 - Spark's name
        """Reads a stream on and on, micro-batch by micro-batch."""
        options = read_options(self.options)
        check_streaming(options)
        return BlockStreamReader(options, projection_of(schema, options.is_mismatch_null, options.attribute_names))

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> StageWriter:
        """Writes a DataFrame, all of it at once."""
        options = write_options(self.options)
        check_append(overwrite)
        check_batch_write(options)
        check_written(schema, bool(options.node.stream))
        return StageWriter.opened(options)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> StageStreamWriter:  # noqa: N802 - Spark's name
        """Writes a streaming query's micro-batches, each once."""
        options = write_options(self.options)
        check_append(overwrite)
        check_stream_write(options)
        check_written(schema, bool(options.node.stream))
        return StageStreamWriter(options)
