"""Both libraries in one piece of code: what the blocking one answers at once, the other is awaited for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import isawaitable
from typing import Any

import veredus

from .plan import Member

TIMEOUT_S = 120.0
"""How long a node may be away: longer than any run leaves it."""


async def either(value: Any) -> Any:
    """What a call of either library answers."""
    return await value if isawaitable(value) else value


@asynccontextmanager
async def connected(member: Member, address: str) -> AsyncIterator[Any]:
    """A connection by the library that this member takes: an `AsyncNode`, or a `Node` that blocks."""
    connect: Any = veredus.connect_async if member.is_async else veredus.connect
    node = await either(connect(address, client=member.name, timeout_s=TIMEOUT_S, refused_s=TIMEOUT_S))
    # By its own end: what is lost as it closes is said beside what the member ends with, and does not take its place.
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(node) if member.is_async else stack.enter_context(node)
