"""Both libraries in one piece of code: what the blocking one answers at once, the other is awaited for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from inspect import isawaitable
from typing import Any

import veredus

from .plan import Member

TIMEOUT_S = 120.0
"""How long a node may be away: longer than any run leaves it."""


async def either(value: Any) -> Any:
    """What a call of either library answers."""
    return await value if isawaitable(value) else value


@contextlib.asynccontextmanager
async def connected(member: Member, address: str) -> AsyncIterator[Any]:
    """A connection by the library that this member takes: an `AsyncNode`, or a `Node` that blocks."""
    connect: Any = veredus.connect_async if member.is_async else veredus.connect
    node = await either(connect(address, client=member.name, timeout_s=TIMEOUT_S, refused_s=TIMEOUT_S))
    try:
        yield node
    finally:
        await either(node.close())
