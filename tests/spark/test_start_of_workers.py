"""Spark gives the process of a streaming source ten seconds to connect: no part of that is ours."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


def test_the_process_of_a_streaming_source_loads_nothing_of_veredus_before_it_connects() -> None:
    loaded = f"import {RUNNER}, sys; print([name for name in sys.modules if 'veredus' in name])"
    said = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True, timeout=120)
    assert said.stdout.strip() == "[]"
