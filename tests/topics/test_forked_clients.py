"""A child of a fork cannot use its parent's client, and opens one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forks import told_by_child
from tests.topics.paper_server import Scene, scene
from veredus.kernel.errors import Misuse
from veredus.topics import Client


@pytest.fixture(scope="module")
def around() -> Iterator[Scene]:
    with scene() as around:
        yield around


def test_a_child_opens_a_client_of_its_own_whether_its_parent_has_one_or_had(around: Scene, tmp_path: Path) -> None:
    def put_by_own(topic: str) -> str:
        with Client("child", proxies=around.addresses, directory=tmp_path) as child:
            child.put(topic, "from the child")
        return "put"

    def use_both(parent: Client) -> str:
        with pytest.raises(Misuse) as refused:
            parent.put("t", "from the child")
        return f"{refused.value.code}, {put_by_own('open')}"

    with Client("parent", proxies=around.addresses, directory=tmp_path) as parent:
        assert told_by_child(lambda: use_both(parent)) == "forked, put"
        parent.put("t", "from the parent")
    assert told_by_child(lambda: put_by_own("closed")) == "put"
    for topic, bodies in (("open", [b"from the child"]), ("closed", [b"from the child"]), ("t", [b"from the parent"])):
        assert around.server.bodies(topic) == bodies
