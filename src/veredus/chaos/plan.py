"""What a run does to whom and when: drawn from one number, written down before anything begins.

The same seed gives the same plan. What comes of it differs, since processes, sockets and disks keep real time: a plan
is repeated as it was, a run only nearly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

import msgspec

from veredus.kernel.errors import Misuse, field_fault

FAULTS = ("kill", "pause", "proxy", "netem", "full", "unsynced", "flip", "zombie", "clock")
"""kill      SIGKILL, of the node or a worker, and a new life
pause     SIGSTOP for a while, then SIGCONT
proxy     a connection is delayed, throttled, cut within a frame, reset, left half open, let through one way, swallowed
netem     the kernel delays, loses, doubles and reorders packets, in a network namespace of the run's own
full      the disk has no space for a while
unsynced  the power is cut: what was not synced is lost, sector by sector and name by name
flip      a bit of a sealed segment is flipped while the node is stopped
zombie    a second life begins while the first is stopped, and then the first goes on
clock     the node's wall clock steps away, and back
"""
WEATHERS = ("delay", "throttle", "cut", "reset", "half-open", "one-way", "black-hole")
STREAMS = ("orders", "trades")
SUNK = "sunk"
"""Where sinks commit; the other streams are published to."""
TOPIC = "news"
"""What clients of the topic service put to and get from."""
NODE = "node"
SECONDS_MIN, SECONDS_MAX = 3, 3600
COUNT_MAX = 16
_GAP_MS = (250, 1_300)
_CALM_MS = 1_000
"""Nothing happens so soon behind the beginning, nor so late before the end."""

Role = Literal[
    "source", "subscriber", "sink", "page-source", "page-subscriber", "topic-proxy", "topic-source", "topic-subscriber"
]
Door = Literal["proxy", "tcp", "unix", "zeromq"]
SUBSCRIBERS: tuple[Role, ...] = ("subscriber", "page-subscriber", "topic-subscriber")
PAGES: tuple[Role, ...] = ("page-source", "page-subscriber")
"""Who speaks ZEPS 1 by raw sockets: an anonymous source, and a subscriber without a cursor. Nobody fences them."""
TOPICS: tuple[Role, ...] = ("topic-source", "topic-subscriber")
"""Who speaks the topic service's page by raw sockets, through the proxy. Nobody fences them, nor that proxy."""
PROXY: Role = "topic-proxy"
_FENCED: tuple[Role, ...] = ("source", "subscriber", "sink")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One who takes part, by a process of its own, and how it goes about it."""

    name: str
    role: Role
    stream: str
    door: Door
    is_async: bool = False
    has_token: bool = False
    """A source that goes on from its resume token rather than from its last number."""
    is_individual: bool = False
    """A subscriber that settles one by one, in no order."""
    covers: str = ""
    """A subscriber with a filter: the beginning of the keys that it wants."""
    pause_ms: int = 0
    """How long it rests between batches."""
    burst_max: int = 1
    """How many publications it offers at once, at most."""

    def __str__(self) -> str:
        told = {
            "asyncio": self.is_async,
            "resume token": self.has_token,
            "settles individually": self.is_individual,
            f"keys {self.covers}…": self.covers,
            f"pauses {self.pause_ms} ms": self.pause_ms,
            f"up to {self.burst_max} at once": self.burst_max > 1,
        }
        how = ", ".join(words for words, is_so in told.items() if is_so)
        return f"{self.name:<14} {self.role:<16} {self.stream:<8} by {self.door:<6} {how}".rstrip()


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: when it comes, whom it meets, how long it lasts; `detail` and `amount` as the fault has it."""

    at_ms: int
    fault: str
    on: str
    lasts_ms: int
    detail: str = ""
    amount: int = 0

    def __str__(self) -> str:
        what = f"{self.fault} {self.detail}".strip()
        return f"{self.at_ms / 1000:7.2f} s  {what:<18} {self.on:<14} for {self.lasts_ms} ms"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a seed decides."""

    seed: int
    seconds: int
    faults: tuple[str, ...]
    members: tuple[Member, ...]
    strikes: tuple[Strike, ...]

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that somebody writes to, in the order of their names."""
        return tuple(sorted({member.stream for member in self.members if member.role not in SUBSCRIBERS}))


def faults_of(text: str) -> tuple[str, ...]:
    """The faults that a list with commas names. Raises `Misuse("unknown-fault")`, which says where in the list."""
    faults = []
    for index, name in enumerate(part.strip() for part in text.split(",")):
        if name not in FAULTS:
            message = f"fault {index + 1} of {text!r} is {name!r}: there are {', '.join(FAULTS)}"
            raise Misuse("unknown-fault", message, index=index)
        faults.append(name)
    return tuple(dict.fromkeys(faults))


def draw(
    seed: int,
    seconds: int,
    faults: Sequence[str],
    source_count: int = 3,
    subscriber_count: int = 3,
    sink_count: int = 1,
    page_count: int = 0,
    topic_count: int = 0,
) -> Plan:
    """The plan of `seed`. Raises `Misuse` for what cannot be run, and says which number it was."""
    _check("seconds", seconds, SECONDS_MIN, SECONDS_MAX)
    _check("sources", source_count, 1, COUNT_MAX)
    _check("subscribers", subscriber_count, 1, COUNT_MAX)
    _check("sinks", sink_count, 0, COUNT_MAX)
    _check("pages", page_count, 0, COUNT_MAX)
    _check("topics", topic_count, 0, COUNT_MAX)
    # A die for each concern: one more fault in the list changes nobody's nature.
    members = (
        *_sources(Random(f"{seed} sources"), source_count),
        *_subscribers(Random(f"{seed} subscribers"), subscriber_count, sink_count > 0),
        *_sinks(Random(f"{seed} sinks"), sink_count),
        *_pages(Random(f"{seed} pages"), page_count),
        *_topics(Random(f"{seed} topics"), topic_count),
    )
    strikes = tuple(_strikes(Random(f"{seed} strikes"), seconds * 1_000, tuple(faults), members))
    return Plan(seed=seed, seconds=seconds, faults=tuple(faults), members=members, strikes=strikes)


def _check(what: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise Misuse("bad-plan", f"{what} is {number}: it may be {least} to {most}", setting=what)


_DOORS: tuple[Door, ...] = ("proxy",) * 6 + ("tcp",) + ("unix",) * 2


def _door(die: Random) -> Door:
    return die.choice(_DOORS)


def _sources(die: Random, count: int) -> Iterator[Member]:
    for index in range(count):
        yield Member(
            name=f"source-{index + 1}",
            role="source",
            stream=STREAMS[index % len(STREAMS)],
            # The first goes by the proxy, so that there is somebody whose connection can be spoiled.
            door=_door(die) if index else "proxy",
            is_async=die.random() < 0.5,
            has_token=die.random() < 0.4,
            pause_ms=die.choice((10, 20, 50)),
            burst_max=die.choice((4, 15, 40)),
        )


def _subscribers(die: Random, count: int, has_sinks: bool) -> Iterator[Member]:
    streams = (*STREAMS, SUNK) if has_sinks else STREAMS
    for index in range(count):
        yield Member(
            name=f"subscriber-{index + 1}",
            role="subscriber",
            stream=streams[index % len(streams)],
            door=_door(die),
            is_async=die.random() < 0.5,
            is_individual=die.random() < 0.4,
            covers=die.choice(("", "", "even.")),
            pause_ms=die.choice((0, 0, 20, 100)),
        )


def _sinks(die: Random, count: int) -> Iterator[Member]:
    for index in range(count):
        yield Member(
            name=f"sink-{index + 1}",
            role="sink",
            stream=SUNK,
            door=_door(die),
            is_async=die.random() < 0.5,
            pause_ms=die.choice((10, 50)),
        )


def _pages(die: Random, count: int) -> Iterator[Member]:
    """By turns a source and a subscriber: half of the pairs over ZeroMQ."""
    for index in range(count):
        yield Member(
            name=f"page-{index + 1}",
            role=PAGES[index % 2],
            stream=STREAMS[index // 2 % len(STREAMS)],
            door=die.choice(("zeromq", "proxy", "tcp")),
            pause_ms=die.choice((10, 20, 50)) if index % 2 == 0 else die.choice((0, 20, 100)),
            burst_max=die.choice((4, 15, 40)),
        )


def _topics(die: Random, count: int) -> Iterator[Member]:
    """A proxy of the topic service, and by turns who gets and who puts."""
    if count:
        yield Member(name="topics-proxy", role=PROXY, stream=TOPIC, door="tcp")
    for index in range(count):
        yield Member(
            name=f"topics-{index + 1}",
            role=TOPICS[(index + 1) % 2],
            stream=TOPIC,
            door=die.choice(("proxy", "tcp")),
            pause_ms=die.choice((0, 0, 20)) if index % 2 == 0 else die.choice((10, 20, 50)),
        )


def _strikes(die: Random, length_ms: int, faults: tuple[str, ...], members: tuple[Member, ...]) -> Iterator[Strike]:
    deck: list[str] = []
    at_ms = _CALM_MS + die.randint(0, _GAP_MS[0])
    while faults and at_ms < length_ms - _CALM_MS:
        # Each fault comes before any comes again.
        if not deck:
            deck = list(faults)
            die.shuffle(deck)
        yield _strike(die, at_ms, deck.pop(), members)
        at_ms += die.randint(*_GAP_MS)


def _strike(die: Random, at_ms: int, fault: str, members: tuple[Member, ...]) -> Strike:
    lasts_ms = die.randint(50, 1_500)
    anybody = die.choice([NODE, *(member.name for member in members)])
    on, detail, amount = NODE, "", 0
    match fault:
        case "kill":
            on = NODE if die.random() < 0.5 else anybody
        case "pause":
            on, lasts_ms = anybody, die.randint(50, 4_000)
        case "proxy":
            on = die.choice([member.name for member in members if member.door == "proxy"])
            detail, lasts_ms = die.choice(WEATHERS), die.randint(200, 4_000)
            amount = die.randint(1, 4_000)
        case "netem":
            detail = die.choice(("delay", "loss", "duplicate", "reorder"))
            amount = die.randint(1, 40)
        case "unsynced":
            amount = die.choice((0, 50, 90))
        case "zombie":
            named = [member.name for member in members if member.role in _FENCED]
            on, lasts_ms = die.choice(named), die.randint(300, 3_000)
        case "clock":
            amount = die.choice((-1, 1)) * die.choice((1, 60, 86_400)) * 1_000
    return Strike(at_ms=at_ms, fault=fault, on=on, lasts_ms=lasts_ms, detail=detail, amount=amount)


def encoded(plan: Plan) -> bytes:
    """The plan as a file has it."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def decoded(data: bytes) -> Plan:
    """The plan out of a file. Raises `Misuse("bad-plan")` where it is none."""
    try:
        return msgspec.json.decode(data, type=Plan)
    except msgspec.DecodeError as error:
        raise Misuse("bad-plan", f"this is not a valid plan of a run: {field_fault(error)}") from None
