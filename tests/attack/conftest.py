"""Attacks run small with the other tests; `make attack` runs them at their full size and writes their figures down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.figures import Figures
from tests.system.serving import ServedNode

PAGE = Path(__file__).parent.parent.parent / "docs" / "security.md"
IS_FULL = os.environ.get("ATTACK_FULL") == "1"


@pytest.fixture(scope="session")
def is_full() -> bool:
    """Whether the attacks are to have their full size: seconds and thousands, not a blink and tens."""
    return IS_FULL


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Where attacks record what they measured; on a full run in which all held, docs/security.md has it then."""
    figures = Figures()
    yield figures
    if IS_FULL and figures.rows and not request.session.testsfailed:
        figures.write(PAGE)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedNode]:
    """A node that is not started yet, over an empty directory."""
    node = ServedNode(tmp_path / "journal")
    yield node
    if node.process is not None:
        node.kill()
