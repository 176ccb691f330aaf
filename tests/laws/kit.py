"""The laws that every engine keeps, each as one call; what they mean is said in `veredus.kernel.engine`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

import msgspec

from veredus.kernel.effects import Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import Misuse
from veredus.kernel.events import DeadlineReached, Received
from veredus.protocols.links import TurnGiven, TurnWanted, WorkDone

START = Now(1_000_000_000_000, 1_700_000_000_000_000_000)
DEADLINES_MAX = 1000


class AnyEngine(Protocol):
    """An engine of any language."""

    def handle(self, event: Any, now: Now) -> Sequence[Any]: ...

    def deadline(self) -> int | None: ...


Make = Callable[[], AnyEngine]


def at(ns: int) -> Now:
    """So many nanoseconds after the start."""
    return Now(START.monotonic_ns + ns, START.wall_ns + ns)


def effects_of(engine: AnyEngine, history: Iterable[Any], now: Now = START) -> list[Any]:
    """All that an engine orders while it is told a history; it is given each turn that it wants."""
    effects: list[Any] = []
    for event in history:
        effects += engine.handle(event, now)
        while effects and isinstance(effects[-1], TurnWanted):
            effects += engine.handle(TurnGiven(effects.pop().link), now)
    return effects


def shown(value: Any) -> Any:
    """A value as plain data: memory as the bytes that it holds."""
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if is_dataclass(value):
        return (type(value).__name__, *(shown(getattr(value, field.name)) for field in fields(value)))
    if isinstance(value, msgspec.Struct):
        return (type(value).__name__, *(shown(getattr(value, name)) for name in value.__struct_fields__))
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return value


def joined(effects: Iterable[Any]) -> list[Any]:
    """Effects as plain data, adjacent sends to one link as one run of bytes: how these are cut is nobody's concern."""
    result: list[Any] = []
    for effect in effects:
        if isinstance(effect, WorkDone):
            # What it cost does depend on how it was cut.
            continue
        if not isinstance(effect, Send):
            result.append([shown(effect)])
            continue
        data = b"".join(bytes(buffer) for buffer in effect.buffers)
        if result and isinstance(result[-1], tuple) and result[-1][0] == effect.link:
            result[-1] = (effect.link, result[-1][1] + data)
        else:
            result.append((effect.link, data))
    return result


def check_deterministic(make: Make, history: Sequence[Any]) -> None:
    """Law 1: the same events at the same times give the same effects."""
    assert repr(joined(effects_of(make(), history))) == repr(joined(effects_of(make(), history)))


def check_total(phases: Mapping[str, Make], events: Sequence[Any]) -> None:
    """Law 2: every event is answered in every phase; only a caller's misuse may be refused, and changes nothing."""
    for phase, make in phases.items():
        for event in events:
            engine = make()
            try:
                engine.handle(event, START)
            except Misuse:
                untouched = make().handle(DeadlineReached(), START)
                assert engine.handle(DeadlineReached(), START) == untouched, (phase, event)


def check_deadlines(make: Make) -> None:
    """Laws 4 and 5: a due deadline is followed by a later one or none; a spurious one changes and orders nothing."""
    engine = make()
    for _ in range(DEADLINES_MAX):
        due = engine.deadline()
        if due is None:
            return
        early = Now(due - 1, START.wall_ns)
        assert list(engine.handle(DeadlineReached(), early)) == []
        assert engine.deadline() == due
        engine.handle(DeadlineReached(), Now(due, START.wall_ns))
        after = engine.deadline()
        assert after is None or after > due


def check_any_cut(make: Make, link: int, data: bytes, cuts: Iterable[int], settle: Sequence[Any] = ()) -> None:
    """Input may be cut anywhere: however many bytes come at a time, the same is ordered, before and after `settle`."""

    def effects(cut: int) -> list[Any]:
        engine = make()
        pieces = [Received(link, data[start : start + cut]) for start in range(0, len(data), cut)]
        return joined(effects_of(engine, [*pieces, *settle]))

    whole = repr(effects(len(data) or 1))
    for cut in cuts:
        assert repr(effects(cut)) == whole, cut
