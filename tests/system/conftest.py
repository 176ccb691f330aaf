"""A served node for each test, stopped afterwards whatever happened."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ended
from tests.system.serving import ServedNode


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedNode]:
    """A node that is not started yet, over an empty directory."""
    node = ServedNode(tmp_path / "journal")
    yield node
    if node.process is not None:
        node.kill()


@pytest.fixture(scope="session")
def failing_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What lets a write or a sync of a process fail, between it and the C library, when it is told to."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("disk") / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    made = ended([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"])
    assert made.returncode == 0, made.stderr
    return library
