"""What holds for every test: where Spark finds Java and Python, how Hypothesis searches, what shares a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.processes import Child

ROOT = Path(__file__).parent.parent
SPARK_TIMEOUT_SECONDS = 300

# The set-up points .java at a runtime that Spark can use; a run of plain pytest shall find it as `make test` does.
if (ROOT / ".java" / "bin" / "java").exists():
    os.environ["JAVA_HOME"] = str(ROOT / ".java")
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["SPARK_CONF_DIR"] = str(ROOT / "tests" / "spark" / "conf")
os.environ.pop("SPARK_HOME", None)
# Hundreds of processes import Veredus. Where an image forbids to keep what was compiled, each compiles all of it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell starts what runs in the background with SIGINT ignored, and every process of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test says the same each time it runs; `--hypothesis-profile=search` goes looking for what is new.
settings.register_profile("repeat", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", max_examples=5_000, deadline=None, print_blob=True)
settings.load_profile("repeat")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests with Spark share one worker and its session, first of all, and give them time for a JVM."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_SECONDS))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="module", autouse=True)
def _no_child_is_left() -> Iterator[None]:
    """Tests wait for the end of each process they began: one that is left fails another test, minutes later."""
    before = set(Child.begun)
    yield
    left = [child.args for child in set(Child.begun) - before if child.returncode is None]
    assert not left, f"nobody waited for the end of {left}"


@pytest.fixture
def untouchable() -> Iterator[Callable[[Path], None]]:
    """Makes a file one that nobody may change, replace or remove, until the test is over."""
    made: list[Path] = []

    def make(path: Path) -> None:
        if subprocess.run(["chattr", "+i", path], capture_output=True, check=False).returncode:
            pytest.skip("no file may be made immutable here")
        made.append(path)

    yield make
    for path in made:
        subprocess.run(["chattr", "-i", path], check=True)
