"""Structured logs on standard error: text for people on a terminal, JSON lines for machines elsewhere.

An event is a stable name and its fields. What repeats too often is held back for the rest of the second and counted in
the next line of its name, so that no peer can fill a disk by misbehaving.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

LINES_PER_SECOND_MAX = 20
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_REMEMBERED_MAX = 256


class Throttle:
    """Lets an event's name pass `LINES_PER_SECOND_MAX` times a second; the next line says how many were held back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._passed: dict[str, tuple[float, int]] = {}

    def __call__(self, logger: WrappedLogger, method: str, fields: EventDict) -> EventDict:
        """Pass the line on, or raise `structlog.DropEvent`."""
        name = str(fields["event"])
        now = self._clock()
        begun, count = self._passed.get(name, (now, 0))
        if now - begun >= 1.0:
            if count > LINES_PER_SECOND_MAX:
                fields["held_back"] = count - LINES_PER_SECOND_MAX
            begun, count = now, 0
        if len(self._passed) >= _REMEMBERED_MAX:
            self._passed.clear()
        self._passed[name] = (begun, count + 1)
        if count >= LINES_PER_SECOND_MAX:
            raise structlog.DropEvent
        return fields


def set_up_logs(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Send what is logged from now on to `stream`, standard error by default; `form`: auto, json or console."""
    target = stream or sys.stderr
    is_console = form == "console" or (form == "auto" and target.isatty())
    renderer: structlog.typing.Processor
    if is_console:
        renderer = structlog.dev.ConsoleRenderer(colors=target.isatty(), pad_event_to=28)
    else:
        renderer = structlog.processors.JSONRenderer(_json)
    structlog.configure(
        processors=[
            Throttle(),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_console else "iso", utc=not is_console),
            structlog.processors.format_exc_info,
            _arranged,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, stream or _StandardError())),
        cache_logger_on_first_use=False,
    )


class _StandardError:
    """Standard error as it is when a line is written, whoever has put another in its place since."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _arranged(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    ordered = {name: fields.pop(name) for name in ("timestamp", "level", "event")}
    for name, value in fields.items():
        ordered[name] = bytes(value[:64]).hex() if isinstance(value, bytes | bytearray | memoryview) else value
    return ordered


def _json(fields: EventDict, **_: object) -> str:
    return msgspec.json.encode(fields, enc_hook=str).decode()
