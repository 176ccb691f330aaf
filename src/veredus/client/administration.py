"""Streams and subscriptions as people and tools look after them; answers are plain data."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from veredus.kernel.errors import Misuse, Unavailable
from veredus.kernel.names import U63_MAX
from veredus.node.quantities import parse_duration, parse_size
from veredus.streams.facts import StreamConfig

from .arguments import U63_MAX_SHOWN, check_name, check_whole, is_number_to, shown
from .connection import Connection

_SIZES = frozenset({"retention_size", "lag_size_max"})
_SETTINGS = ("retention_age", *StreamConfig.__struct_fields__)
_LIKENESS = 0.85
"""So like one of these a name is taken for a slip."""


async def _all_rows(connection: Connection, verb: str, **arguments: Any) -> list[Any]:
    """The rows of all pages of a list. Raises `Unavailable` where a page is to follow itself."""
    rows: list[Any] = []
    after: Any = ()
    while after is not None:
        page = await connection.ask(verb, **arguments, **({"after": after} if after else {}))
        rows += page["rows"]
        if page["next"] == after:
            raise Unavailable("no-answer", f"the node answers {verb} with pages that have no end")
        after = page["next"]
    return rows


class AsyncStreams:
    """The node's streams."""

    def __init__(self, connection: Connection) -> None:
        """The streams of the node that `connection` leads to."""
        self._connection = connection

    async def create(self, name: str, **config: Any) -> dict[str, Any]:
        """Create a stream, and return its description. If it exists with the same configuration, nothing changes.

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
        check_name("stream", name)
        return dict(await self._connection.ask("stream.show", name=name))

    async def trim(self, name: str, floor: int) -> dict[str, Any]:
        """Delete all publications below the sequence `floor`; returns the new description of the stream.

        A `floor` after the newest publication deletes everything; it does not delete later publications.
        """
        check_name("stream", name)
        check_whole("floor", floor)
        return dict(await self._connection.ask("stream.trim", name=name, floor=floor))

    async def alter(self, name: str, **config: Any) -> dict[str, Any]:
        """Change the given settings of the stream, as in `create`; returns its new description."""
        check_name("stream", name)
        if not config:
            raise Misuse("bad-config", f"streams.alter needs a setting to change: {', '.join(_SETTINGS)}")
        return dict(await self._connection.ask("stream.alter", name=name, config=_config_of(config)))

    async def delete(self, name: str) -> None:
        """Delete the stream with its publications, sources and subscriptions."""
        check_name("stream", name)
        await self._connection.ask("stream.delete", name=name)


def _config_of(given: Mapping[str, object]) -> dict[str, object]:
    """A stream's configuration as the node takes it. Raises `Misuse("bad-config")` for what is no such quantity."""
    config = dict(given)
    for name in [name for name in config if name not in _SETTINGS]:
        near = get_close_matches(name, _SETTINGS, 1, _LIKENESS)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_SETTINGS)}"
        raise Misuse("bad-config", f"a stream has no setting {name!r}; {hint}")
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
        if name == "retention_age_s":
            _check_age(value, given)
        else:
            check_whole(name, value, int(name == "sources_max"), code="bad-config")
    return config


def _check_age(seconds: object, given: Mapping[str, object]) -> None:
    """Raise `Misuse("bad-config")`, in the words in which the age was given, unless a stream can have it."""
    if is_number_to(float(U63_MAX), seconds):
        return
    if "retention_age" in given:
        said = f"retention_age must be from 0 to {U63_MAX_SHOWN} seconds, not {shown(given['retention_age'])}"
    else:
        bounds = f"a number of seconds from 0 to {U63_MAX_SHOWN} (or give retention_age)"
        said = f"retention_age_s must be {bounds}, not {shown(seconds)}"
    raise Misuse("bad-config", said)


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
        """The run and the last commit of each, by name; where `is_whole` is false, it has more streams than these."""
        return await _all_rows(self._connection, "sink.list")

    async def stages(self) -> builtins.list[dict[str, Any]]:
        """The open stages of all sinks, by number: rows that are not committed yet."""
        return await _all_rows(self._connection, "stage.list")

    async def drop_stages(self, sink: str) -> builtins.list[int]:
        """Drop all open stages of a sink, even if a program still writes them; returns their numbers."""
        check_name("sink", sink)
        dropped: builtins.list[int] = (await self._connection.ask("stage.drop", sink=sink))["dropped"]
        return dropped


def _check_subscription(stream: object, subscriber: object, name: object) -> None:
    """Raise `Misuse("bad-name")` unless these can name a subscription."""
    for kind, given in (("stream", stream), ("subscriber", subscriber), ("subscription", name)):
        check_name(kind, given)


class AsyncSubscriptions:
    """The node's durable subscriptions."""

    def __init__(self, connection: Connection) -> None:
        """The subscriptions of the node that `connection` leads to."""
        self._connection = connection

    async def list(self, stream: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
        """The position of each; of one stream or of all, with this name or any."""
        given = {"stream": stream, "name": name}
        arguments = {argument: value for argument, value in given.items() if value is not None}
        return await _all_rows(self._connection, "subscription.list", **arguments)

    async def show(self, stream: str, subscriber: str, name: str = "main") -> dict[str, Any]:
        """Its position, its flow, its credit, and what it waits for."""
        _check_subscription(stream, subscriber, name)
        return dict(await self._connection.ask("subscription.show", stream=stream, subscriber=subscriber, name=name))

    async def advance(self, stream: str, subscriber: str, name: str, floor: int) -> int:
        """Settle everything up to the sequence `floor`, which the program has read in another way; the new floor.

        Raises `Refused("subscription-in-use")` while it has an owner.
        """
        _check_subscription(stream, subscriber, name)
        check_whole("floor", floor)
        given: dict[str, Any] = {"subscriber": subscriber, "name": name, "floor": floor}
        return int((await self._connection.ask("subscription.advance", stream=stream, **given))["floor"])

    async def remove(self, stream: str, subscriber: str, name: str = "main") -> None:
        """Remove the subscription with its cursor; the node informs its subscriber."""
        _check_subscription(stream, subscriber, name)
        await self._connection.ask("subscription.remove", stream=stream, subscriber=subscriber, name=name)
