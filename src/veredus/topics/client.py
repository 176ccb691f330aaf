"""Clients of the topic service, for asyncio: one, or many of one process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from math import inf
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from veredus.client.other_library import Asynchronous
from veredus.kernel.errors import Misuse, VeredusError
from veredus.kernel.octets import Octets
from veredus.protocols.topics.conversation import RETRIES_MAX
from veredus.protocols.topics.many import COUNT_MAX
from veredus.runtime.topics_credentials import Credentials

from .arguments import check_named, check_wait, checked_count, octets_of, packed_of, pauses
from .home import Home, HomeSettings, check_quantities
from .operations import Message, Operations
from .states import directory_name

ANSWER_S = 0.1
BODY_SIZE_MAX = 1 << 20
DIRECTORY = "veredus-topics"
GROUP_DIRECTORY = "clients"
"""Of a group; those of single clients begin with `client_`."""


class GroupClient:
    """One client of the topic service, by its id; in one loop. `AsyncClient` is one that has its home to itself.

    Killed at any point and run again with the same id and directory, it neither loses nor doubles: a put is finished,
    and a message that was not handed over is handed over. It is, when `get` returned it and the next operation on
    its topic begins, or the client closes.
    """

    def __init__(self, client_id: str, home: Home) -> None:
        """A client in a home that it may share. Raises `Misuse("bad-word")` for an id that no header can carry."""
        self.id = client_id
        self._operations = Operations(client_id, home)
        self._hands: dict[str, asyncio.Lock] = {}
        """One caller has to do with a topic at a time, until it was told what became of that."""

    async def subscribe(self, topic: str) -> None:
        """Subscribe to the topic: get the messages that are put from now on.

        Raises `Unavailable` (`no-proxy`, `server-unavailable`, …) or `Refused`; then the result is unknown.
        """
        await self._operations.subscribe(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe: get no more messages of the topic, not even older ones.

        Raises as `subscribe` does.
        """
        await self._operations.unsubscribe(topic)

    async def forget_last(self, topic: str) -> None:
        """Forget which message of the topic came last: where the server that gave it is lost for good, and another one
        says of a GET that it cannot know its id. What waits at that one comes then, and nothing of it is lost.
        """
        await self._operations.forget_last(topic)

    async def put(self, topic: str, body: Octets | str, *, key: Octets | str = b"") -> None:
        """Put a message: every subscriber gets it once.

        Raises `Misuse("too-large")`, `Refused`, or `Unavailable`: then nobody knows whether it was put, and the next
        put of the same body on this topic is the same put, tried again. Once this has returned, the same body is
        another put; but for one with the `key` of the last put on the topic, which is that put for ever: whoever is
        killed as it is told, and tries again, puts once. Such a key has one body: another one raises
        `Misuse("key-used")`, once the put with the first body was acknowledged, and is not put.
        """
        async with self._hand(topic):
            await self._operations.put(topic, octets_of(body), key=key)
            await self._operations.told(topic)

    async def put_many(self, topic: str, bodies: Sequence[Octets | str], *, key: Octets | str = b"") -> None:
        """Put thousands of messages together, all or none; at most `body_size_max` with 4 bytes for each.

        Raises as `put` does; then the next put of the same messages is the same put, tried again.
        """
        packed = packed_of(bodies)
        if not bodies:
            return
        async with self._hand(topic):
            await self._operations.put(topic, packed, is_many=True, key=key)
            await self._operations.told(topic)

    async def get(self, topic: str, *, wait_s: float = 0.0) -> Message | None:
        """The next message; None when there is none within `wait_s`.

        Raises `Refused("not-subscribed")`, or as `subscribe` does: then no message is lost.
        """
        messages = await self._wait(topic, 0, wait_s)
        return messages[0] if messages else None

    async def get_many(self, topic: str, count_max: int = COUNT_MAX, *, wait_s: float = 0.0) -> list[Message]:
        """The next messages, as many as come at once (a MiB or so) and `count_max` at most; [] when there are none.

        They are handed over together, as `get` hands over one. Raises as `get` does.
        """
        return await self._wait(topic, checked_count(count_max), wait_s)

    async def done(self, message: Message) -> None:
        """Mark a message as handed over before the next call on its topic: it never comes again.

        Those that came at once with it, and before it, are so too.
        Raises `Unavailable` (`disk-full`, `journal-failed`) where that cannot be written.
        """
        await self._operations.done(message)

    async def messages(self, topic: str) -> AsyncIterator[Message]:
        """The messages of a topic, without end; each counts as handed over when the next one is requested."""
        while True:
            message = await self.get(topic, wait_s=inf)
            assert message is not None
            yield message

    async def _wait(self, topic: str, count_max: int, wait_s: float) -> list[Message]:
        check_wait(wait_s)
        messages = await self._get(topic, count_max)
        for pause_s in pauses(wait_s):
            if messages:
                break
            await asyncio.sleep(pause_s)
            messages = await self._get(topic, count_max)
        return messages

    def _hand(self, topic: str) -> asyncio.Lock:
        check_named("topic", topic)
        return self._hands.setdefault(topic, asyncio.Lock())

    async def _get(self, topic: str, count_max: int) -> list[Message]:
        async with self._hand(topic):
            try:
                messages = await self._operations.take(topic, count_max)
            except VeredusError as error:
                self._operations.heard(topic, error)
                raise
            self._operations.given(topic, len(messages))
            return messages


class AsyncClient(GroupClient, Asynchronous):
    """One client of the topic service, from `open` to `close`, or in an `async with` block; in one loop.

    Leaving the block by an exception hands over nothing: the last message of each topic comes again, with the same id.
    """

    def __init__(
        self,
        client_id: str,
        *,
        proxies: Sequence[str],
        directory: str | PathLike[str] = DIRECTORY,
        answer_s: float = ANSWER_S,
        retries_max: int = RETRIES_MAX,
        body_size_max: int = BODY_SIZE_MAX,
        token: str = "",
        server_key: str = "",
        secret_key: str = "",
    ) -> None:
        """A client that asks `proxies` ("host:port"), in this order, and remembers what it must below `directory`.

        A proxy is asked `retries_max` times more if it does not answer in `answer_s`, then the next one is. Raises
        `Misuse`: `no-proxies`, `bad-address`, and `bad-word` for an id that no header can carry.

        Where proxies want to know who it is, it shows a `token` (PLAIN), or its `secret_key` (CURVE; then `server_key`
        is the public key of all its proxies, both in Z85). Raises `Refused`: `bad-token`, `bad-key`.
        """
        self._home = home_of_one(
            client_id,
            proxies,
            directory,
            answer_s,
            retries_max,
            body_size_max,
            Credentials(token, server_key, secret_key),
        )
        super().__init__(client_id, self._home)

    async def open(self) -> Self:
        """Open the client's directory; returns the client. Raises `Refused("client-in-use")`."""
        await self._home.open()
        self._operations.open()
        return self

    async def close(self) -> None:
        """Finish the calls in progress and release the directory; received messages count as handed over."""
        await self._leave(is_done=True)

    async def _leave(self, is_done: bool) -> None:
        if self._operations.is_open:
            self._home.check_loop()
            try:
                await self._operations.close(is_done)
            finally:
                await self._home.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(is_done=kind is None)


class AsyncClientGroup(Asynchronous):
    """Many clients of one process, in one `async with` block: they share a directory, its syncs, and the connections.

    Each remembers in the group's directory, and not where an `AsyncClient` of its id does: a client stays in its group.
    Leaving the block by an exception hands over nothing.
    """

    def __init__(
        self,
        *,
        proxies: Sequence[str],
        directory: str | PathLike[str] = DIRECTORY,
        answer_s: float = ANSWER_S,
        retries_max: int = RETRIES_MAX,
        body_size_max: int = BODY_SIZE_MAX,
        token: str = "",
        server_key: str = "",
        secret_key: str = "",
    ) -> None:
        """As for `AsyncClient`. Raises `Misuse`: `no-proxies`, `bad-address`."""
        path = _path_of(directory, GROUP_DIRECTORY)
        shown = Credentials(token, server_key, secret_key)
        settings = _settings_of("the group of clients", path, proxies, answer_s, retries_max, body_size_max, shown)
        self._home = Home(settings)
        self._clients: dict[str, GroupClient] = {}

    def client(self, client_id: str) -> GroupClient:
        """The client of this id, always the same. Raises `Misuse`: `bad-word`, `not-open`."""
        known = self._clients.get(client_id)
        if known is None:
            self._home.check_open()
            known = self._clients[client_id] = GroupClient(client_id, self._home)
            known._operations.open()
        return known

    async def __aenter__(self) -> Self:
        await self._home.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._home.check_loop()
        try:
            await asyncio.gather(*(client._operations.close(is_done=kind is None) for client in self._clients.values()))
        finally:
            await self._home.close()


def _path_of(directory: str | PathLike[str], name: str) -> Path:
    try:
        os.fsencode(directory)
        return Path(directory) / name
    except (TypeError, UnicodeEncodeError):
        said = f"directory must be a path, not {directory!r:.60}"
        raise Misuse("bad-argument", said, argument="directory") from None


def home_of_one(
    client_id: str,
    proxies: Sequence[str],
    directory: str | PathLike[str],
    answer_s: float,
    retries_max: int,
    body_size_max: int,
    shown: Credentials,
) -> Home:
    """The home of a client that shares it with nobody."""
    check_named("id", client_id)
    path = _path_of(directory, directory_name(client_id))
    return Home(_settings_of(f"client {client_id}", path, proxies, answer_s, retries_max, body_size_max, shown))


def _settings_of(
    owner: str,
    path: Path,
    proxies: Sequence[str],
    answer_s: float,
    retries_max: int,
    body_size_max: int,
    shown: Credentials,
) -> HomeSettings:
    check_quantities(answer_s, retries_max, body_size_max)
    for argument, text in shown._asdict().items():
        if not isinstance(text, str):
            raise Misuse("bad-argument", f"{argument} must be text, not {text!r:.60}", argument=argument)
    try:
        # A single proxy may be given as it is.
        listed = (proxies,) if isinstance(proxies, str) else tuple(proxies)
    except TypeError:
        said = f'proxies must be a list of addresses like "127.0.0.1:7075", not {proxies!r:.60}'
        raise Misuse("bad-argument", said, argument="proxies") from None
    return HomeSettings(owner, path, listed, round(answer_s * 1e9), retries_max, body_size_max, shown)
