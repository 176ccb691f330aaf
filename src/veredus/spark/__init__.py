"""Veredus as a data source of Spark: `format("veredus")`, batch and streaming, reading and writing.

Spark finds it by itself where the package is installed. `register(spark)` makes it known to one session in any case,
must have been called before several streaming queries of a session are started at once, and lets a thread write that
did not make the session.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from threading import Lock

from veredus.kernel.extras import without_spark

try:
    import pyspark  # noqa: F401 asked first, so that who lacks it is told what to install
except ModuleNotFoundError:
    raise without_spark("veredus.spark") from None

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from .progress import lag_of, read_to_of
from .source import VeredusDataSource

__all__ = ["VeredusDataSource", "lag_of", "read_to_of", "register"]

_PUT_BY_SPARK = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""What Spark's PythonStreamingSourceRunner puts into its source's environment whenever a query starts."""
_registering = Lock()
"""Held while the environment of the context is another one than its users'."""
_FINDS_VEREDUS = "import importlib.util, sys; sys.exit(importlib.util.find_spec('veredus') is None)"


def register(spark: SparkSession) -> None:
    """Make the format `veredus` known to this session, and the session the active one of the calling thread.

    To write, Spark looks for a data source in the active session of the calling thread, and in that alone: a thread
    that did not make the session finds none until it has called this.

    All queries of a data source share one map of its environment, and each query's thread puts variables into it
    without a lock: two that insert the same one at once leave a map that says it holds more than it does, and no task
    of any query can be read from then on (`OptionalDataException`). Here they are in the map from the beginning, so
    that a query only gives them their values.

    Warns where the Python that Spark's workers run does not find Veredus on this machine.
    """
    if is_remote():
        spark.dataSource.register(VeredusDataSource)
        return
    _check_python(spark.sparkContext.pythonExec)
    with _registering:
        environment = spark.sparkContext.environment
        before = dict(environment)
        environment.update(dict.fromkeys(_PUT_BY_SPARK, ""))
        try:
            spark.dataSource.register(VeredusDataSource)
        finally:
            environment.clear()
            environment.update(before)
    # As `createDataFrame` does; PySpark offers it by no name of its own.
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def _check_python(python: str) -> None:
    """Warn where Spark's workers are another Python than this one, and one without Veredus.

    No error: what workers import may also be sent to them (`addPyFile`), and those of a cluster have their own files.
    """
    found = shutil.which(python)
    if found is None or Path(found).parent == Path(sys.executable).parent:
        return
    if subprocess.run([found, "-c", _FINDS_VEREDUS], check=False, stderr=subprocess.DEVNULL).returncode:
        message = (
            f"Spark starts its Python workers as {found}, which has no package veredus; this is {sys.executable}."
            f" Activate its environment, or set PYSPARK_PYTHON={sys.executable}, before the session is made"
        )
        warnings.warn(message, stacklevel=3)
