"""A Spark session for an audit that brings none of its own."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from veredus.kernel.errors import Unavailable

_OPTIONS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # The passes work on columns: the larger a batch, the less of their time is Python's.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.shuffle.partitions": "8",
}

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What fails in Spark raises one of these, the second where PySpark does not translate it."""
_CAUSE: Final = re.compile(
    r"^(?:Caused by: |: )?((?:[\w$]+\.)*[\w$]*(?:Error|Exception|Refused|Unavailable)\b.*)$", re.MULTILINE
)


def reason_of(error: Exception) -> str:
    """What has failed in Spark, in one line: of all that it tells, the cause that lies deepest."""
    text = str(error).partition("JVM stacktrace:")[0]
    causes: list[str] = _CAUSE.findall(text)
    return causes[-1].strip() if causes else next(iter(text.strip().splitlines()), type(error).__name__)


@contextmanager
def session(master: str, memory: str) -> Iterator[SparkSession]:
    """A session at `master`, its driver with so much memory, stopped at the end. Raises `Unavailable`."""
    # Where nobody says otherwise, Spark's Python is this one: another one may lack what the passes need.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("veredus audit").config("spark.driver.memory", memory)
    interrupt = signal.getsignal(signal.SIGINT)
    with _set_aside() as said:
        try:
            spark = builder.config(map=_OPTIONS).getOrCreate()
        except (*SPARK_ERRORS, RuntimeError) as error:
            reason = reason_of(error) if isinstance(error, Py4JError) else _first_line(said) or reason_of(error)
            wanted = "it needs Java 17 or newer, a valid master and a valid memory size"
            message = f"Spark does not start at {master}: {reason}; {wanted}"
            raise Unavailable("unreachable", message) from error
    spark.sparkContext.setLogLevel("OFF")
    # PySpark's own handler asks the JVM for something in the middle of another answer, and breaks both.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
    # Errors are raised, and told by whoever catches them: py4j says them to the root logger too.
    if not logging.root.handlers:
        logging.root.addHandler(logging.NullHandler())
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        yield spark
    finally:
        # Whoever was interrupted while it waited for the JVM is not answered any more; that one ends with us.
        with suppress(*SPARK_ERRORS, OSError):
            spark.stop()


@contextmanager
def _set_aside() -> Iterator[IO[bytes]]:
    """Standard error is a file without a name meanwhile: the JVM keeps it, and what it says is no news to people."""
    with tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def _first_line(said: IO[bytes]) -> str:
    """The first that the JVM, or who starts it, said, but for warnings."""
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    return next((line for line in lines if line and not line.startswith("WARNING")), "")
