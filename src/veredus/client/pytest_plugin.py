"""Fixtures for those who test what they build on Veredus: a node of the test's own, on a temporary journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .embedded import Embedded


@pytest.fixture
def veredus_node() -> Iterator[Embedded]:
    """A connection to a fresh node inside the test's process; both are gone after the test."""
    from .embedded import embedded

    with embedded() as node:
        yield node
