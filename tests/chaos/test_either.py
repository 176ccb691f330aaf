"""A member of a run ends as the library says, whichever of the two it takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import veredus
from tests.system.serving import ServedNode
from veredus.chaos.either import connected, either
from veredus.chaos.plan import Member

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
def test_a_source_that_was_fenced_with_something_unconfirmed_ends_as_fenced(tmp_path: Path, is_async: bool) -> None:
    served = ServedNode(tmp_path / "node")
    member = Member(name="one", role="source", stream="orders", door="tcp", is_async=is_async)

    async def lived() -> None:
        async with connected(member, served.address) as node:
            publisher = await either(node.publisher("orders", source="one"))
            # Nothing in this loop goes on meanwhile, so asyncio's library publishes before it hears of it.
            with veredus.connect(served.address) as other, other.publisher("orders", source="one"):
                while True:
                    await either(publisher.publish("k", b"unconfirmed"))
                    await asyncio.sleep(0.001)

    served.start().close()
    try:
        with pytest.raises(veredus.Fenced) as raised:
            asyncio.run(lived())
    finally:
        served.kill()
    if is_async:
        assert "has not confirmed" in "".join(raised.value.__notes__)
