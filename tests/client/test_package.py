"""`import veredus` is cheap, and its names are what they say."""

import sys

import pytest

import veredus
from tests.processes import ended
from veredus.client.embedded import Embedded
from veredus.client.pytest_plugin import veredus_node  # noqa: F401


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("pyarrow", "numpy", "msgspec", "asyncio")
    script = f"import sys, veredus; print([name for name in {heavy} if name in sys.modules])"
    done = ended([sys.executable, "-c", script])
    assert done.stdout.strip() == "[]"


def test_who_publishes_and_subscribes_a_little_imports_neither_numpy_nor_pyarrow(node: Embedded, stream: str) -> None:
    script = f"""
import sys, veredus
with veredus.connect({node.served.address!r}) as node:
    with node.publisher({stream!r}) as publisher:
        publisher.wait(publisher.publish("key", "body", {{"size": 1}}))
    with node.subscribe({stream!r}, until=2) as subscription:
        print([(each.body, each.attributes) for each in subscription])
print([name for name in ("numpy", "pyarrow") if name in sys.modules])
"""
    done = ended([sys.executable, "-c", script])
    assert done.stdout.split("\n") == ["[(b'body', {'size': 1})]", "[]", ""], done.stderr


def test_every_public_name_can_be_had_and_no_other() -> None:
    for name in veredus.__all__:
        assert getattr(veredus, name).__name__ == name
    assert set(veredus.__all__) <= set(dir(veredus))
    with pytest.raises(AttributeError, match="nothing"):
        _ = veredus.nothing  # type: ignore[attr-defined]


def test_the_fixture_is_a_fresh_node_for_one_test(veredus_node: Embedded) -> None:  # noqa: F811
    assert veredus_node.streams.list() == []
    with veredus_node.publisher("s", source="a") as publisher:
        assert publisher.wait(publisher.publish("k", b"x")).sequence == 1


@pytest.mark.parametrize("part", ["spark", "audit"])
def test_a_part_that_needs_spark_says_what_to_install(part: str) -> None:
    script = f"import sys; sys.modules['pyspark'] = None\nimport veredus.{part}"
    said = ended([sys.executable, "-c", script]).stderr.strip().splitlines()
    wanted = f"ModuleNotFoundError: veredus.{part} needs Spark: pip install 'veredus[spark]', and Java 17 or newer"
    assert said[-1] == wanted
    assert not any("During handling" in line for line in said)


@pytest.mark.parametrize("package", ["spark", "topics"])
def test_a_package_of_its_own_can_be_used_by_its_full_name_without_an_import(package: str) -> None:
    done = ended([sys.executable, "-c", f"import veredus; print(veredus.{package}.__name__)"])
    assert (done.returncode, done.stdout) == (0, f"veredus.{package}\n"), done.stderr
