"""How long whoever opens something waits for the node's grant, and what is left when nobody waits any more: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from veredus.kernel.errors import Unavailable, VeredusError


async def wait_granted(
    granted: asyncio.Future[None], timeout_s: float, leave: Callable[[], None], denied: Callable[[], Unavailable]
) -> None:
    """Wait for the grant; `leave` where it does not come in time, or whoever waits is cancelled.

    Raises what the grant failed with, or what `denied` gives: that the node has not done it in time, and why.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(granted)
    except TimeoutError:
        failure = denied()
        leave()
        raise failure from None
    except asyncio.CancelledError:
        leave()
        raise


def refuse(granted: asyncio.Future[None], error: VeredusError) -> None:
    """Let whoever waits for the grant hear that it does not come; nobody may wait for it any more."""
    if not granted.done():
        granted.set_exception(error.again())
        granted.exception()
