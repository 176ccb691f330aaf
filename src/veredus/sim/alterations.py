"""What somebody had altered of how streams are kept: it is so from its answer on, and behind every restart.

A question that was not answered may have been carried out, or not; one that was refused was not.
"""

from __future__ import annotations

from typing import Any

from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine

from .world import Violation

ALTER = "stream.alter"
_UNKNOWN = "unknown"
"""How it was before anybody altered it."""


class Alterations:
    """Owns what is known of each setting of a stream that was altered."""

    def __init__(self) -> None:
        """Nothing was altered."""
        self._possible: dict[tuple[str, str], list[Any]] = {}
        """By stream and setting: what was confirmed last, and what was asked for since; ascending."""
        self._asked: dict[tuple[int, int], tuple[str, dict[str, Any]]] = {}

    def clear(self) -> None:
        """Another process: its sessions are others."""
        self._asked.clear()

    def hear(self, fact: Any) -> None:
        """The floor was told something."""
        if isinstance(fact, x.AdminRequested) and fact.verb == ALTER and isinstance(fact.arguments.get("config"), dict):
            stream = str(fact.arguments["name"])
            config: dict[str, Any] = fact.arguments["config"]  # type: ignore[assignment]
            self._asked[fact.session, fact.request] = stream, config
            for setting, value in config.items():
                self._possible.setdefault((stream, setting), [_UNKNOWN]).append(value)

    def see(self, effect: Any) -> None:
        """The floor said something. Raises `Violation` where it confirms something else than was asked for."""
        if not isinstance(effect, x.AnswerAdmin):
            return
        asked = self._asked.pop((effect.session, effect.request), None)
        if asked is None:
            return
        stream, config = asked
        for setting, value in config.items():
            shown = effect.result["config"][setting]  # type: ignore[index]
            possible = self._possible[stream, setting]
            if shown != value:
                raise Violation("altered", f"{setting} of {stream} was to be {value}, and is said to be {shown}")
            del possible[: possible.index(value)]

    def recovered(self, floor: StreamsEngine, may_forget: bool) -> None:
        """A process read the journal: each stream is kept as was said, or asked for since."""
        for (stream, setting), possible in self._possible.items():
            known = floor.tables.streams.get(stream)
            if known is None:
                possible[:] = [_UNKNOWN]
                continue
            found = getattr(known.config, setting)
            if not may_forget and _UNKNOWN not in possible and found not in possible:
                raise Violation("altered", f"{setting} of {stream} is {found}, and was to be one of {possible}")
            possible[:] = [found]
