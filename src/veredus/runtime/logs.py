"""Structured logs on standard error: text for people on a terminal, JSON lines for machines elsewhere.

An event is a stable name and its fields. Who says one never waits and never fails: a full disk, a closed pipe or one
that nobody reads costs lines, which are counted (`veredus.runtime.lines`). What repeats too often is held back and
counted, by event, and for what a peer causes by event and the peer's address, so that no peer can fill a disk by
misbehaving, or hide what another one does; a line of its own says how much was held back once it is over.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO, TypeAlias

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

from veredus.kernel.errors import ending_of
from veredus.node.admission import address_of

from .lines import LineWriter

LINES_PER_SECOND_MAX = 20
"""Lines of one event in a second."""
PEER_LINES_MAX = 5
"""Lines of one event that peers at one address may cause in `PEER_INTERVAL_S`."""
PEER_INTERVAL_S = 10.0
HELD_BACK = "lines-held-back"
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_REMEMBERED_MAX = 1024
_LOST = "log-lines-lost"


class Logger:
    """What our parts say something with; see the module. It holds nothing, and any thread may use it."""

    def say(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """Write one line: `level` is debug, info, warning or error. Never raises, never waits."""
        try:
            structlog.get_logger("veredus").log(_LEVELS[level], event, **fields)
        except Exception:  # noqa: BLE001 a log that fails must not end what it tells of
            _losses.unrendered_count += 1

    def debug(self, event: str, **fields: Any) -> None:
        """Something that only who looks for it wants to know."""
        self.say("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Something that happened as it should."""
        self.say("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that should not be, and that the process copes with."""
        self.say("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something that costs somebody something."""
        self.say("error", event, fields)


class _Window(NamedTuple):
    """Lines of one event, by peers at one address where one caused them, since `begun`, in seconds."""

    begun: float
    passed_count: int
    held_back: int


_Key: TypeAlias = tuple[str, str]


class Throttle:
    """Lets an event's name pass so and so often; the next line, or `ended`, says how many were held back."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        peer_lines_max: int = PEER_LINES_MAX,
        lines_per_second_max: int = LINES_PER_SECOND_MAX,
    ) -> None:
        """`clock` gives seconds; an event passes so often in `PEER_INTERVAL_S` for one address, and in a second."""
        self._clock = clock
        self._peer_lines_max = peer_lines_max
        self._lines_per_second_max = lines_per_second_max
        self._windows: OrderedDict[_Key, _Window] = OrderedDict()
        self.is_holding = False
        """Whether something was held back that perhaps no line says yet."""

    def __call__(self, logger: WrappedLogger, method: str, fields: EventDict) -> EventDict:
        """Pass the line on, or raise `structlog.DropEvent`."""
        name = str(fields["event"])
        if name in (HELD_BACK, _LOST):
            return fields
        peer = fields.get("peer")
        if isinstance(peer, str) and peer:
            self._count(fields, (name, address_of(peer)), PEER_INTERVAL_S, self._peer_lines_max)
        self._count(fields, (name, ""), 1.0, self._lines_per_second_max)
        return fields

    def ended(self) -> list[tuple[str, str, int]]:
        """Event, address and count of what was held back in times that are over, and in no line yet."""
        now = self._clock()
        over = [
            (key, window)
            for key, window in self._windows.items()
            if window.held_back and now - window.begun >= _interval_of(key)
        ]
        for key, _ in over:
            del self._windows[key]
        self.is_holding = any(window.held_back for window in self._windows.values())
        return [(name, address, window.held_back) for (name, address), window in over]

    def _count(self, fields: EventDict, key: _Key, interval_s: float, count_max: int) -> None:
        now = self._clock()
        window = self._windows.pop(key, _Window(now, 0, 0))
        if now - window.begun >= interval_s:
            if window.held_back:
                fields["held_back"] = fields.get("held_back", 0) + window.held_back
            window = _Window(now, 0, 0)
        if len(self._windows) >= _REMEMBERED_MAX:
            # The one that was quiet longest; its count goes with it only if nobody asked for it in all that time.
            self._windows.popitem(last=False)
        is_over = window.passed_count >= count_max
        self._windows[key] = window._replace(
            passed_count=window.passed_count + (not is_over), held_back=window.held_back + is_over
        )
        if is_over:
            self.is_holding = True
            raise structlog.DropEvent


def _interval_of(key: _Key) -> float:
    return PEER_INTERVAL_S if key[1] else 1.0


def set_up_logs(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> LineWriter:
    """Send what is logged from now on to `stream`, standard error by default; `form`: auto, json or console.

    Returns what writes it: ask that for what was lost.
    """
    target = stream or sys.stderr
    is_terminal = _is_terminal(target)
    is_console = form == "console" or (form == "auto" and is_terminal)
    renderer: structlog.typing.Processor
    if is_console:
        renderer = structlog.dev.ConsoleRenderer(colors=is_terminal, pad_event_to=28)
    else:
        renderer = structlog.processors.JSONRenderer(_json)
    throttle = Throttle()

    def lost_line(count: int, reason: str) -> bytes:
        fields: EventDict = {"event": _LOST, "count": count, "reason": reason}
        for processor in processors[1:]:
            fields = processor(None, "warning", fields)  # type: ignore[assignment]
        return f"{fields}\n".encode(errors="backslashreplace")

    processors: list[structlog.typing.Processor] = [
        throttle,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_console else "iso", utc=not is_console),
        structlog.processors.format_exc_info,
        *([_printable] if is_console else []),
        _arranged,
        renderer,
    ]
    writer = LineWriter(_StandardError() if stream is None else _Stream(stream), lost_line, "veredus-log")
    _losses.writers.append(writer)
    _losses.throttle = throttle
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: structlog.WriteLogger(_Lines(writer)),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    return writer


class _Losses:
    """Owns the count of lines that could not even be made, and knows who counts the others."""

    def __init__(self) -> None:
        self.unrendered_count = 0
        self.writers: list[LineWriter] = []
        self.throttle = Throttle()


_losses = _Losses()


def lost_line_count() -> int:
    """Lines of the log that this process has lost."""
    return _losses.unrendered_count + sum(writer.lost_count for writer in _losses.writers)


def say_held_back() -> None:
    """Say what was held back in times that are over; to be called now and then, from one thread."""
    if _losses.throttle.is_holding:
        for event, address, count in _losses.throttle.ended():
            Logger().say("warning", HELD_BACK, {"of": event, "count": count} | ({"peer": address} if address else {}))


def log_loop_failures(loop: asyncio.AbstractEventLoop, end: Callable[[BaseException], None]) -> None:
    """Let the loop say in the log what nobody caught; it would write to standard error by itself, and wait for that.

    A lack of memory ends the process by `end`: what is there would go on, and be deaf to all.
    """

    def say(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        fields: dict[str, Any] = {"message": context.get("message", "")}
        if error is not None:
            fields["exc_info"] = error
        Logger().say("error", "callback-failed", fields)
        if isinstance(error, MemoryError):
            end(ending_of(error))

    loop.set_exception_handler(say)


class _Lines:
    """A file of text that gives whole lines to a writer."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def write(self, text: str) -> int:
        self._writer.put(text.encode(errors="backslashreplace"))
        return len(text)

    def flush(self) -> None:
        return


class _StandardError:
    """Standard error as it is when a line is written, whoever has put another in its place since."""

    def __init__(self) -> None:
        self._is_torn = False

    def write(self, line: bytes) -> None:
        stream = sys.stderr
        if stream is None:
            raise OSError("standard error is closed")
        try:
            descriptor = stream.fileno()
        except (AttributeError, OSError, ValueError):
            stream.write(line.decode())
            stream.flush()
            return
        # Not through the stream: its lock, held by a thread that waits for a pipe, would hold the process's end.
        waiting = memoryview(b"\n" + line if self._is_torn else line)
        try:
            while waiting:
                waiting = waiting[_write(descriptor, waiting) :]
                self._is_torn = True
        finally:
            self._is_torn = self._is_torn and bool(waiting)

    def finish(self) -> None:
        return


class _Stream:
    """A file of text that was given."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: bytes) -> None:
        self._stream.write(line.decode())

    def finish(self) -> None:
        self._stream.flush()


def _write(descriptor: int, data: memoryview) -> int:
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:
            # Whoever shares it with us has made it so.
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def _arranged(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    ordered = {name: fields.pop(name) for name in ("timestamp", "level", "event")}
    for name, value in fields.items():
        ordered[name] = bytes(value[:64]).hex() if isinstance(value, bytes | bytearray | memoryview) else value
    return ordered


def _printable(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """What a peer has said must not steer a terminal. Lines stay lines where the text is ours: in a traceback."""
    for name, value in fields.items():
        if isinstance(value, str):
            kept = "\n" if name == "exception" else ""
            fields[name] = "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in value)
    return fields


def _json(fields: EventDict, **_: object) -> str:
    return msgspec.json.encode(fields, enc_hook=str).decode()
