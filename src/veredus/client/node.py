"""A node as an asyncio application sees it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Literal, Self

from veredus.kernel.errors import Misuse, Unavailable, VeredusError
from veredus.streams.exchange import Start

from .addresses import DEFAULT_ADDRESS, parse_addresses
from .administration import AsyncSinks, AsyncStreams, AsyncSubscriptions
from .arguments import check_seconds, check_text, shown
from .causes import tell_with
from .connection import Connection
from .endings import watch_end
from .forks import watch_forks
from .given import Policy
from .links import REFUSED_S, TIMEOUT_S, ConnectionSettings
from .loops import refuse_pickling
from .opening import Opening
from .publisher import BATCH_SIZE, OUTBOX_SIZE_MAX, AsyncPublisher, PublisherSettings
from .sinks import AsyncSink
from .subscriber import AsyncSubscription, wanted_of
from .wanting import WINDOW_SIZE, GapPolicy

TOKEN_SIZE_MAX = 4096


class AsyncNode:
    """A connection to a node, that finds it again by itself. To be used in the loop in which it was opened."""

    __reduce__ = refuse_pickling

    def __init__(self, connection: Connection) -> None:
        """What `connection` leads to; `connect_async` makes one."""
        self.connection = connection
        self.streams = AsyncStreams(connection)
        self.subscriptions = AsyncSubscriptions(connection)
        self.sinks = AsyncSinks(connection)

    @property
    def name(self) -> str:
        """The name of the node (`node.name`)."""
        return "" if self.connection.welcome is None else self.connection.welcome.node

    @property
    def principal(self) -> str:
        """The principal as which this client is authenticated."""
        return "" if self.connection.welcome is None else self.connection.welcome.principal

    def publisher(
        self,
        stream: str,
        *,
        source: str = "",
        resume: Literal["number", "token"] = "number",
        on_full: Policy = "wait",
        on_gone: Policy = "wait",
        outbox_size_max: int = OUTBOX_SIZE_MAX,
        batch_size: int = BATCH_SIZE,
        linger_ms: float = 1.0,
        compression: Literal["zstd", "lz4"] | None = None,
    ) -> Opening[AsyncPublisher]:
        """Publish to `stream` as `source`. Without a source, the node recognises no duplicates.

        `resume`: with "number", the numbers continue after the last one in the stream. With "token", they continue
        after the resume token: the source publishes again from there, and the node recognises duplicates. Batches are
        then sent when they are full or flushed. `on_full`, `on_gone`: what to do if the outbox is full, or if no node
        answers. Raises the refusal of the node when it is awaited or entered.
        """
        settings = PublisherSettings(
            stream, source, resume, on_full, on_gone, outbox_size_max, batch_size, linger_ms, compression
        )
        settings.check()

        async def opened() -> AsyncPublisher:
            publisher = AsyncPublisher(self.connection, settings)
            await publisher._attach()
            return publisher

        return Opening(opened)

    def subscribe(
        self,
        stream: str,
        *,
        subscriber: str = "",
        name: str = "",
        keys: str | Iterable[str] | None = None,
        where: str | None = None,
        start: Start | None = None,
        until: int = 0,
        mode: Literal["in-order", "individual"] = "in-order",
        window_size: int = WINDOW_SIZE,
        on_gap: GapPolicy = "raise",
        attempts_max: int = 0,
        parked_to: str = "",
    ) -> Opening[AsyncSubscription]:
        """Subscribe to `stream`, from its history to new publications, with key patterns and a condition.

        With a `subscriber` (and a `name`, "main" by default) it is durable: the node keeps its cursor, `start` has an
        effect only the first time, and settled publications never come again. Without, it is ephemeral. `until`: end
        before this sequence. `window_size`: how many bytes the node pushes ahead. `on_gap`: "raise", or a function.
        `attempts_max`: what the application was handed so often and never settled is parked, in the stream `parked_to`.
        """
        wanted = wanted_of(
            stream, subscriber, name, keys, where, start, until, mode, window_size, on_gap, attempts_max, parked_to
        )

        async def opened() -> AsyncSubscription:
            subscription = AsyncSubscription(self.connection, wanted)
            await subscription._attach()
            return subscription

        return Opening(opened)

    def sink(self, name: str) -> AsyncSink:
        """The sink `name`. Raises `Misuse("bad-name")`."""
        return AsyncSink(self.connection, name)

    async def close(self) -> None:
        """Send what is pending, at most for 5 s, and leave the node.

        Raises `Unavailable("in-doubt")` where the node has not confirmed all of it, and leaves all the same. Where this
        is cancelled, the connection goes on by itself, and names on stderr what is not confirmed.
        """
        await self._leave()
        self._tell_lost()

    async def _leave(self) -> None:
        """Send what is pending, and leave the node: whoever wanted that is to be told what is lost."""
        self.connection.check_loop()
        await self.connection.leave()

    def _tell_lost(self) -> None:
        """Raise `Unavailable("in-doubt")` where something is lost, and nobody was told."""
        if lost := self.connection.take_losses():
            message = f"the connection was closed, and {self.connection.losses.unconfirmed('; '.join(lost))}"
            raise Unavailable("in-doubt", message)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except VeredusError as failure:
            if error is None:
                raise
            tell_with(error, failure)


async def open_node(
    addresses: tuple[str, ...],
    token: str | None,
    tls: ssl.SSLContext | None,
    client: str,
    timeout_s: float | None,
    refused_s: float = REFUSED_S,
) -> AsyncNode:
    """A node at one of these addresses. Raises `Unavailable("unreachable")`, or what the node refuses with."""
    check_text("client", client)
    check_seconds("timeout_s", timeout_s)
    check_seconds("refused_s", refused_s, may_be_none=False)
    if token is None:
        token = os.environ.get("VEREDUS_TOKEN", "")
    check_text("token", token, TOKEN_SIZE_MAX)
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise Misuse("bad-argument", f"tls is an ssl.SSLContext, not {shown(tls)}", argument="tls")
    parsed = parse_addresses(addresses or (os.environ.get("VEREDUS_ADDRESS", "") or DEFAULT_ADDRESS,))
    plain = [str(address) for address in parsed if not address.is_tls and not address.path]
    if tls is not None and plain:
        message = f"tls is given, and {plain[0]} is an address without TLS: write veredus+tls://host:port"
        raise Misuse("bad-argument", message, argument="tls")
    settings = ConnectionSettings(
        parsed,
        client,
        token.strip(),
        tls,
        TIMEOUT_S if timeout_s is None else timeout_s,
        refused_s,
        max(TIMEOUT_S, refused_s) if timeout_s is None else timeout_s,
    )
    watch_forks()
    watch_end()
    connection = Connection(settings)
    await connection.open()
    return AsyncNode(connection)


def check_token(token: object) -> None:
    """Raise `Misuse("bad-argument")` for a token that is given and empty: who gives one means to show it."""
    if isinstance(token, str) and not token.strip():
        said = "token is empty: give the token (is the variable that it comes from set?), or leave it out"
        raise Misuse("bad-argument", said, argument="token")


def connect_async(
    *addresses: str,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    client: str = "",
    timeout_s: float | None = None,
    refused_s: float = REFUSED_S,
) -> Opening[AsyncNode]:
    """A connection to a node at any of several addresses, for asyncio: to be awaited, or entered with `async with`.

    Without an address it is the environment variable VEREDUS_ADDRESS, or veredus://127.0.0.1:7071.

    `token` proves who this is; where it is left out, the environment variable VEREDUS_TOKEN does, unless that is empty.
    `client` is what the node calls it in its logs. `timeout_s`: how long to wait for a node, now and with each request;
    10 s, and now at least `refused_s`, where it is left out. `refused_s`: how long to wait now where nobody listens at
    any address; longer for a node that is being started.
    """
    check_token(token)
    return Opening(lambda: open_node(addresses, token, tls, client, timeout_s, refused_s))
