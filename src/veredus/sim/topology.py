"""A topology: who is in a world and within which bounds things go wrong there, where a user says so; the rest is drawn.

    streams = 2                    a number, or [least, most], of which each seed draws
    sources = [1, 3]
    seconds = [1, 10]              for how long faults are struck
    scene = "streams"              streams, topics (servers of topics, proxies and their clients) or any
    door = "native"                native, plain (whole objects) or any
    sync = "group"                 group, interval, none or any
    faults = ["kill", "pause"]

    [ranges]                       within what the simulator can do at most, which is what it draws from by itself
    pause_s = [0.001, 120.0]

A number is taken as it is. What cannot be is refused with the key, and its place in the file.
Source: docs/internals/DESIGN.md, "Proof".
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veredus.kernel.errors import Refused
from veredus.kernel.toml_places import TooDeep, key_places, parsed_toml

from .dice import Die
from .nemesis import FAULTS
from .ranges import Ranges, Span

COUNTS_MAX = {
    "streams": 8, "sources": 20, "subscribers": 20, "sinks": 8, "clients": 8, "hostiles": 4, "servers": 4, "proxies": 4,
}  # fmt: skip
SECONDS_MAX = 600.0
BULK_MAX = 1_000_000
SCENES = ("any", "streams", "topics")
TOPICS_SHARE = 1 / 8
"""Of all worlds, those that are of topics where nobody said otherwise."""
DOORS = ("any", "native", "plain")
SYNCS = ("any", "group", "interval", "none")
_LEAST = {"streams": 1, "servers": 1, "proxies": 1}


@dataclass(frozen=True, slots=True)
class Topology:
    """What a user fixed; what is not named is drawn as in every world."""

    counts: Mapping[str, Span] = field(default_factory=dict)
    """How many, by kind: least and most."""
    seconds: Span | None = None
    scene: str = "any"
    bulk: int = 0
    """How many messages each server of a topic has before anything else begins; 0 for as drawn."""
    door: str = "any"
    sync: str = "any"
    faults: tuple[str, ...] = FAULTS
    ranges: Ranges = field(default_factory=Ranges)

    def count(self, kind: str, die: Die, low: int, high: int) -> int:
        """How many of a kind there are in a world; drawn from `low` to `high` where nobody said otherwise."""
        least, most = self.counts.get(kind, (low, high))
        return die.between(int(least), int(most))

    def is_of_topics(self, die: Die) -> bool:
        """Whether a world is one of topics; drawn where nobody said."""
        return self.scene == "topics" or (self.scene == "any" and die.chance(TOPICS_SHARE))

    def __contains__(self, kind: str) -> bool:
        """Whether somebody said how many of a kind there are."""
        return kind in self.counts


_SIZE_MAX = 1 << 20
DRAWN = Topology()
"""Everything is drawn."""


def read_topology(path: Path) -> Topology:
    """The topology in a TOML file. Raises `Refused("bad-topology")` with the place of what is wrong, and `OSError`."""
    with path.open(encoding="utf-8") as file:
        text = file.read(_SIZE_MAX + 1)
    if len(text) > _SIZE_MAX:
        raise Refused("bad-topology", f"{path}: a topology has at most {_SIZE_MAX} characters")
    try:
        said = parsed_toml(text)
    except TooDeep as error:
        raise Refused("bad-topology", f"{path}:{error.place.line}:{error.place.column}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Refused("bad-topology", f"{path}: this is not valid TOML: {error}") from None
    try:
        return topology_of(said)
    except _Fault as fault:
        place = key_places(text).get(fault.path)
        where = f"{path}:{place.line}:{place.column}" if place else str(path)
        raise Refused("bad-topology", f"{where}: {'.'.join(map(str, fault.path))}: {fault.message}") from None


class _Fault(Exception):
    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def topology_of(said: Mapping[str, Any]) -> Topology:
    """The topology that a document says."""
    known = (*COUNTS_MAX, "seconds", "scene", "bulk", "door", "sync", "faults", "ranges")
    _refuse_unknown(said, known, ())
    counts = {
        kind: _span(said[kind], (kind,), _LEAST.get(kind, 0), most, is_whole=True)
        for kind, most in COUNTS_MAX.items()
        if kind in said
    }
    seconds = _span(said["seconds"], ("seconds",), 0.01, SECONDS_MAX) if "seconds" in said else None
    return Topology(
        counts,
        seconds,
        _choice(said.get("scene", "any"), ("scene",), SCENES),
        int(_span(said.get("bulk", 0), ("bulk",), 0, BULK_MAX, is_whole=True)[1]),
        _choice(said.get("door", "any"), ("door",), DOORS),
        _choice(said.get("sync", "any"), ("sync",), SYNCS),
        _faults(said.get("faults", list(FAULTS))),
        _ranges(said.get("ranges", {})),
    )


def _refuse_unknown(said: Mapping[str, Any], known: tuple[str, ...], above: tuple[str, ...]) -> None:
    for key in said:
        if key not in known:
            raise _Fault((*above, key), f"there is no such setting; there are {', '.join(known)}")


def _span(value: Any, path: tuple[str, ...], least: float, most: float, is_whole: bool = False) -> Span:
    ends = value if isinstance(value, list) else [value, value]
    kinds = (int,) if is_whole else (int, float)
    if len(ends) != 2 or any(isinstance(end, bool) or not isinstance(end, kinds) for end in ends):
        what = "a whole number" if is_whole else "a number"
        raise _Fault(path, f"{value!r} is neither {what} nor [least, most]")
    low, high = ends
    if low > high:
        raise _Fault(path, f"{value!r} ends below where it begins")
    if low < least or high > most:
        raise _Fault(path, f"{value!r} is not within {least:g} to {most:g}")
    return low, high


def _choice(value: Any, path: tuple[str, ...], choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise _Fault(path, f"{value!r} is none of {', '.join(choices)}")
    return str(value)


def _faults(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _Fault(("faults",), f"{value!r} is no list of faults")
    for index, fault in enumerate(value):
        if fault not in FAULTS:
            raise _Fault(("faults", index), f"there is no {fault!r}; there are {', '.join(FAULTS)}")
    return tuple(value)


def _ranges(value: Any) -> Ranges:
    if not isinstance(value, dict):
        raise _Fault(("ranges",), f"{value!r} is no table")
    widest = Ranges()
    _refuse_unknown(value, Ranges._fields, ("ranges",))
    spans = {name: _span(said, ("ranges", name), *getattr(widest, name)) for name, said in value.items()}
    return widest._replace(**spans)
