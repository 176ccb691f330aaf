"""A node inside the tests' process, shared by a module; every test has streams of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

import veredus
from veredus.client.embedded import Embedded

_numbers = count(1)


@pytest.fixture(scope="module")
def node() -> Iterator[Embedded]:
    with veredus.embedded(journal={"sync": "none"}) as node:
        yield node


@pytest.fixture
def stream() -> str:
    """The name of a stream that no other test knows."""
    return f"stream-{next(_numbers)}"
