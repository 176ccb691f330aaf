"""Streams and subscriptions as people and tools look after them; answers are plain data."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from veredus.kernel.errors import Misuse
from veredus.node.quantities import parse_duration, parse_size

from .arguments import check_name, check_whole, shown
from .connection import Connection

_SIZES = frozenset({"retention_size", "lag_size_max"})


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

        `config`: `retention_age` (a timedelta, or text: "7d") or `retention_age_s`; `retention_size` and `lag_size_max`
        (bytes, or text: "10 GiB"); `retention_count`; `sources_max`. Raises `Misuse("bad-config")`, and `Refused` when
        the stream is there and configured otherwise.
        """
        check_name("stream", name)
        return dict(await self._connection.ask("stream.create", name=name, config=_config_of(config)))

    async def list(self) -> list[dict[str, Any]]:
        """The descriptions of all streams, by name."""
        return await _all_rows(self._connection, "stream.list")

    async def show(self, name: str) -> dict[str, Any]:
        """One stream's description, with its sources and subscriptions."""
        return dict(await self._connection.ask("stream.show", name=name))

    async def trim(self, name: str, floor: int) -> dict[str, Any]:
        """Keep nothing below the sequence `floor`, at most the one behind the newest; its description afterwards.

        A `floor` beyond that deletes everything. No publication that comes later is deleted.
        """
        check_whole("floor", floor)
        return dict(await self._connection.ask("stream.trim", name=name, floor=floor))

    async def alter(self, name: str, **config: Any) -> dict[str, Any]:
        """Change what of its configuration is named, as in `create`, from now on; its description afterwards."""
        return dict(await self._connection.ask("stream.alter", name=name, config=_config_of(config)))

    async def delete(self, name: str) -> None:
        """Delete the stream, and all that hangs on it."""
        await self._connection.ask("stream.delete", name=name)


def _config_of(given: Mapping[str, object]) -> dict[str, object]:
    """A stream's configuration as the node takes it. Raises `Misuse("bad-config")` for what is no such quantity."""
    config = dict(given)
    if "retention_age" in config:
        age = config.pop("retention_age")
        if isinstance(age, str):
            config["retention_age_s"] = _parsed("retention_age", parse_duration, age) / 1e9
        elif isinstance(age, timedelta):
            config["retention_age_s"] = age.total_seconds()
        else:
            raise Misuse("bad-config", f'retention_age must be a timedelta or text like "7d", not {shown(age)}')
    for name in _SIZES & config.keys():
        size = config[name]
        config[name] = _parsed(name, parse_size, size) if isinstance(size, str) else size
    for name, value in config.items():
        is_number = isinstance(value, int) or (name == "retention_age_s" and isinstance(value, float))
        if not is_number or isinstance(value, bool):
            seconds = "a number of seconds" if name == "retention_age_s" else "a whole number"
            advice = " (or give retention_age)" if name == "retention_age_s" else ""
            raise Misuse("bad-config", f"{name} must be {seconds}{advice}, not {shown(value)}")
    return config


def _parsed(name: str, parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise Misuse("bad-config", f"{name}: {error}") from None


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
