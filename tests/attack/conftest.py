"""Attacks run small with the other tests; `make attack` runs them at their full size and writes their figures down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.figures import Figures, Page
from tests.system.serving import ServedNode

HERE = Path(__file__).parent
IS_FULL = os.environ.get("ATTACK_FULL") == "1"
PAGE = Page(HERE.parent.parent / "docs" / "security.md")


def pytest_configure(config: pytest.Config) -> None:
    """Have docs/security.md written where the attacks have their full size."""
    if IS_FULL:
        config.pluginmanager.register(PAGE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever is here is an attack, before it is asked which tests are."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.attack)


@pytest.fixture(scope="session")
def is_full() -> bool:
    """Whether the attacks are to have their full size: seconds and thousands, not a blink and tens."""
    return IS_FULL


@pytest.fixture(scope="session")
def figures() -> Figures:
    """Where attacks record what they measured."""
    return PAGE.figures


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedNode]:
    """A node that is not started yet, over an empty directory."""
    node = ServedNode(tmp_path / "journal")
    yield node
    if node.process is not None:
        node.kill()
