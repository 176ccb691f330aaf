"""`import cursus` is cheap, and its names are what they say."""

import sys

import pytest

import cursus
from cursus.client.embedded import Embedded
from cursus.client.pytest_plugin import cursus_node  # noqa: F401
from tests.processes import ended


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("pyarrow", "numpy", "msgspec", "asyncio")
    script = f"import sys, cursus; print([name for name in {heavy} if name in sys.modules])"
    done = ended([sys.executable, "-c", script])
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_had_and_no_other() -> None:
    for name in cursus.__all__:
        assert getattr(cursus, name).__name__ == name
    assert set(cursus.__all__) <= set(dir(cursus))
    with pytest.raises(AttributeError, match="nothing"):
        _ = cursus.nothing  # type: ignore[attr-defined]


def test_the_fixture_is_a_fresh_node_for_one_test(cursus_node: Embedded) -> None:  # noqa: F811
    assert cursus_node.streams.list() == []
    with cursus_node.publisher("s", source="a") as publisher:
        assert publisher.wait(publisher.publish("k", b"x")).sequence == 1
