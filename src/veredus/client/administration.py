"""Streams and subscriptions as people and tools look after them; answers are plain data."""

from __future__ import annotations

import builtins
from typing import Any

from .connection import Connection


async def _all_rows(connection: Connection, verb: str, **arguments: Any) -> list[Any]:
    """The rows of all pages of a list."""
    rows: list[Any] = []
    after: Any = ()
    while after is not None:
        page = await connection.ask(verb, **arguments, **({"after": after} if after else {}))
        rows += page["rows"]
        after = page["next"]
    return rows


class AsyncStreams:
    """The node's streams."""

    def __init__(self, connection: Connection) -> None:
        """The streams of the node that `connection` leads to."""
        self._connection = connection

    async def create(self, name: str, **config: Any) -> dict[str, Any]:
        """Create a stream, unless it is there with the same configuration; its description.

        `config`: `retention_age_s`, `retention_size`, `retention_count`, `lag_size_max`, `sources_max` and what else
        docs/reference/settings.md lists for streams. Raises `Refused` when it is there and configured otherwise.
        """
        return dict(await self._connection.ask("stream.create", name=name, config=config))

    async def list(self) -> list[dict[str, Any]]:
        """The descriptions of all streams, by name."""
        return await _all_rows(self._connection, "stream.list")

    async def show(self, name: str) -> dict[str, Any]:
        """One stream's description, with its sources and subscriptions."""
        return dict(await self._connection.ask("stream.show", name=name))

    async def trim(self, name: str, floor: int) -> dict[str, Any]:
        """Keep nothing below the sequence `floor`; its description afterwards."""
        return dict(await self._connection.ask("stream.trim", name=name, floor=floor))

    async def alter(self, name: str, **config: Any) -> dict[str, Any]:
        """Change what of its configuration is named, from now on; its description afterwards."""
        return dict(await self._connection.ask("stream.alter", name=name, config=config))

    async def delete(self, name: str) -> None:
        """Delete the stream, and all that hangs on it."""
        await self._connection.ask("stream.delete", name=name)


class AsyncSinks:
    """The node's sinks."""

    def __init__(self, connection: Connection) -> None:
        """The sinks of the node that `connection` leads to."""
        self._connection = connection

    async def list(self) -> list[dict[str, Any]]:
        """The run and the last commit of each, by name."""
        return await _all_rows(self._connection, "sink.list")

    async def stages(self) -> builtins.list[dict[str, Any]]:
        """The open stages of all sinks, by number: rows that no commit has made visible yet."""
        return await _all_rows(self._connection, "stage.list")

    async def drop_stages(self, sink: str) -> builtins.list[int]:
        """Drop a sink's open stages, whoever writes them; their numbers."""
        dropped: builtins.list[int] = (await self._connection.ask("stage.drop", sink=sink))["dropped"]
        return dropped


class AsyncSubscriptions:
    """The node's durable subscriptions."""

    def __init__(self, connection: Connection) -> None:
        """The subscriptions of the node that `connection` leads to."""
        self._connection = connection

    async def list(self, stream: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
        """Where each stands; of one stream or of all, of one name or of any."""
        given = {"stream": stream, "name": name}
        arguments = {argument: value for argument, value in given.items() if value is not None}
        return await _all_rows(self._connection, "subscription.list", **arguments)

    async def show(self, stream: str, subscriber: str, name: str = "main") -> dict[str, Any]:
        """Where it stands, its flow, its credit, and what it waits for."""
        return dict(await self._connection.ask("subscription.show", stream=stream, subscriber=subscriber, name=name))

    async def advance(self, stream: str, subscriber: str, name: str, floor: int) -> int:
        """Have everything up to `floor` settled, which was read by other means; where the cursor's floor is then.

        Raises `Refused("subscription-in-use")` while it has an owner.
        """
        given: dict[str, Any] = {"subscriber": subscriber, "name": name, "floor": floor}
        return int((await self._connection.ask("subscription.advance", stream=stream, **given))["floor"])

    async def remove(self, stream: str, subscriber: str, name: str = "main") -> None:
        """Remove its cursor; its owner is told."""
        await self._connection.ask("subscription.remove", stream=stream, subscriber=subscriber, name=name)
