"""How long whoever opens something waits for the node's grant, and what is left when nobody waits any more: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from veredus.kernel.errors import UNSTORED, Unavailable, VeredusError

from .links import log

if TYPE_CHECKING:
    from veredus.delivery.outbox_exchange import Delay

    from .connection import Connection

HANGS = "the connection is there, but the node may hang, or be very busy"
"""Why a node that could answer has not."""


async def wait_granted(
    granted: asyncio.Future[None],
    connection: Connection,
    leave: Callable[[], None],
    wanted: str,
    delay: Callable[[], Delay | None] = lambda: None,
) -> None:
    """Wait for the grant; `leave` where it does not come in time, or whoever waits is cancelled.

    Raises what the grant failed with, or `Unavailable`: that nobody did what is `wanted` in time, and why; `delay` is
    what the node said last of that.
    """
    timeout_s = connection.settings.timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(granted)
    except TimeoutError:
        said, why = f"no node {wanted} in {timeout_s:g} s, {at_node(connection)}", delay()
        leave()
        if why is None:
            is_linked = not connection.describe()[1]
            raise Unavailable("no-answer", f"{said}: {HANGS}" if is_linked else said) from None
        raise Unavailable(why.code, f"{said}: {why.message}") from None
    except asyncio.CancelledError:
        leave()
        raise


def at_node(connection: Connection) -> str:
    """Where the node is looked for, and why there is no link where there is none."""
    where, why = connection.describe()
    return f"at {where}" + (f": {why}" if why else "")


def delayed(before: Delay | None, delay: Delay, what: str) -> Delay:
    """The node does not do `what` for now, as it has said, and is asked again: where its journal is the cause, the log
    says so once, until it does it.
    """
    if before is None and delay.code in UNSTORED:
        log.warning("the node %s for now, and is asked again: %s [%s]", what, delay.message, delay.code)
    return delay


def refuse(granted: asyncio.Future[None], error: VeredusError) -> None:
    """Let whoever waits for the grant hear that it does not come; nobody may wait for it any more."""
    if not granted.done():
        granted.set_exception(error.again())
        granted.exception()
