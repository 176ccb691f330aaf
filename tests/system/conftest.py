"""A served node for each test, stopped afterwards whatever happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.serving import ServedNode


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedNode]:
    """A node that is not started yet, over an empty directory."""
    node = ServedNode(tmp_path / "journal")
    yield node
    if node.process is not None and node.process.poll() is None:
        node.kill()
