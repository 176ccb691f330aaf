"""The audit log: who connected, what was refused, taken over, changed and revoked, as JSON lines in a file of its own.

    a note of any part of the node ──► the table below ──► limits ──► queue ──► thread ──► file, rotated by size

The table says which notes are records, and of which kind. Whoever notes something neither waits nor fails: a record
that cannot be written is counted, and said in a record of its own once one can (`veredus.runtime.lines`).
docs/reference/audit-log.md describes each kind; a test lets a node write each of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from veredus.node.settings import AuditSection, NodeSettings

from .lines import SLOW_S, LineWriter
from .logs import Logger, Throttle
from .regular_files import open_to_write

VERSION = 1
PEER_RECORDS_MAX = 200
"""Records of one kind in `PEER_INTERVAL_S` that peers at one address may cause; more are counted."""
RECORDS_PER_SECOND_MAX = 1000
VALUE_SIZE_MAX = 1024
"""Characters of one value: what a peer says must not fill the file."""
LOST = "records-lost"
PATIENCE_S = SLOW_S + 1
"""A disk that takes longer for a record may hang: nobody waits for it."""


class Kind(NamedTuple):
    """A kind of record: its name, the notes that become one, the switch in [audit], and what it says."""

    name: str
    notes: tuple[str, ...]
    switch: str
    meaning: str
    is_limited: bool = False
    """Whether a peer can cause many."""


KINDS = (
    Kind("node-started", ("node-ready", "proxy-ready"), "", "The node, or the proxy, has started; its addresses."),
    Kind("node-stopped", ("node-stopped", "proxy-stopped"), "", "The node, or the proxy, was stopped by a signal."),
    Kind(
        "node-failed",
        ("node-failed", "proxy-failed"),
        "",
        "The node, or the proxy, has ended because of a failure; the reason.",
    ),
    Kind(
        "settings-reloaded", ("settings-reloaded",), "", "The settings were read again; the changes that were applied."
    ),
    Kind(
        "settings-refused",
        ("settings-not-read", "certificates-not-taken", "tokens-not-read"),
        "",
        "New settings, certificates or tokens are not valid; the old ones remain.",
    ),
    Kind("connection-opened", ("connected",), "connections", "A peer has opened a connection as this principal.", True),
    Kind("connection-closed", ("disconnected",), "connections", "A connection of a principal has ended.", True),
    Kind(
        "connection-refused",
        ("connection-refused", "handshake-failed"),
        "refusals",
        "A connection was closed before its greeting: by a limit, or in the handshake of TLS or ZeroMQ.",
        True,
    ),
    Kind(
        "peer-refused",
        ("peer-unauthenticated", "peer-too-many-connections", "peer-too-busy", "certificate-names-nobody"),
        "refusals",
        "A peer is not authenticated, or its principal has reached its limit of connections.",
        True,
    ),
    Kind("request-refused", ("forbidden",), "refusals", "The rules do not allow the request of a principal.", True),
    Kind(
        "taken-over",
        ("taken-over",),
        "take_overs",
        "Another principal than the owner has taken a source, cursor or sink.",
        True,
    ),
    Kind("administered", ("administered",), "", "An administrative request of a principal has changed something."),
    Kind(
        "administration-refused",
        ("administration-refused",),
        "",
        "An administrative request was refused; the code.",
        True,
    ),
    Kind(
        "principal-revoked",
        ("principal-revoked",),
        "",
        "A connection was closed because its principal is no longer authenticated.",
    ),
)
_BY_NOTE = {note: kind for kind in KINDS for note in kind.notes}


class AuditLog:
    """Owns the file of records, and what is held back of them."""

    def __init__(self, section: AuditSection, node: str) -> None:
        """Write where `section` says; `node` is the node's name. Nothing is opened before the first record."""
        self._section = section
        self._node = node
        self._throttle = Throttle(peer_lines_max=PEER_RECORDS_MAX, lines_per_second_max=RECORDS_PER_SECOND_MAX)
        file = AuditFile(Path(section.file), section.size_max, section.files_max, section.sync == "group")
        self.writer = LineWriter(file, self._lost_line, "veredus-audit", tell=self._tell_failure)

    def take(self, note: str, fields: Mapping[str, Any]) -> None:
        """Record the note, if it is one that is recorded."""
        kind = _BY_NOTE.get(note)
        if kind is None or (kind.switch and not getattr(self._section, kind.switch)):
            return
        record = {"note": note, **fields} if len(kind.notes) > 1 else dict(fields)
        if "kind" in record:
            record["on"] = record.pop("kind")
        if kind.is_limited:
            try:
                record = dict(self._throttle(None, "", {"event": kind.name, **record}))
            except structlog.DropEvent:
                return
            del record["event"]
        self.writer.put(self._line(kind.name, record))

    def await_written(self, then: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call `then` once, on `loop`: when the records so far are written or lost, or when that takes too long.

        To be called on that loop.
        """

        def tell() -> None:
            if not late.cancelled():
                late.cancel()
                then()

        def tell_from_thread() -> None:
            # Where the loop is closed, nobody waits for it.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

        late = loop.call_later(PATIENCE_S, tell)
        self.writer.after(tell_from_thread)

    @property
    def why_not_written(self) -> str:
        """Why records cannot be written now, "" while they can."""
        return self.writer.failure or ("records wait for the disk" if self.writer.is_behind else "")

    def _tell_failure(self, reason: str) -> None:
        file, lost_count = self._section.file, self.writer.lost_count
        if reason:
            Logger().error("audit-not-written", file=file, reason=reason)
        else:
            Logger().warning("audit-written-again", file=file, lost_count=lost_count)

    def _line(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        head = {"time": time, "version": VERSION, "kind": kind, "node": self._node}
        shown = {name: _shown(value) for name, value in fields.items() if name not in head}
        return msgspec.json.encode({**head, **shown}, enc_hook=str) + b"\n"

    def _lost_line(self, count: int, reason: str) -> bytes:
        return self._line(LOST, {"count": count, "reason": reason})


def audit_log_of(settings: NodeSettings | None) -> AuditLog | None:
    """The audit log that settings ask for, None where they ask for none."""
    return AuditLog(settings.audit, settings.node.name) if settings is not None and settings.audit.file else None


class AuditedLogger(Logger):
    """Says all that it is given in the log, and hands it to the audit log, which takes what is a record."""

    def __init__(self, audit: AuditLog | None) -> None:
        """`audit` is None where nothing is audited."""
        self._audit = audit

    def say(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """Write one line, and perhaps one record. Never raises, never waits."""
        super().say(level, event, fields)
        if self._audit is not None:
            try:
                self._audit.take(event, fields)
            except Exception as error:  # noqa: BLE001 see `Logger.say`
                super().say("error", "record-not-made", {"of": event, "reason": repr(error)})


class AuditFile:
    """A file that its owner alone may read; when it is full it is renamed to `file.1`, that to `file.2`, and so on."""

    def __init__(self, path: Path, size_max: int, files_max: int, is_synced: bool) -> None:
        """`files_max` renamed ones are kept; `is_synced` brings what was written to the platter each time."""
        self._path = path
        self._size_max = size_max
        self._files_max = files_max
        self._is_synced = is_synced
        self._descriptor = -1
        self._size = 0

    def write(self, line: bytes) -> None:
        """Write one line, whole or not at all. Raises `OSError`."""
        self._open()
        if self._size and self._size + len(line) > self._size_max:
            self._rotate()
            self._open()
        try:
            waiting = memoryview(line)
            while waiting:
                waiting = waiting[os.write(self._descriptor, waiting) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(line)

    def finish(self) -> None:
        """Bring what was written to the platter, where that is wanted. Raises `OSError`."""
        if self._is_synced and self._descriptor >= 0:
            os.fsync(self._descriptor)

    def _open(self) -> None:
        """Open the file, anew where somebody has moved it away."""
        if self._descriptor >= 0:
            held = os.fstat(self._descriptor)
            try:
                there = self._path.stat()
            except FileNotFoundError:
                there = None
            if there is not None and (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino):
                self._size = held.st_size
                return
            self._close()
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = open_to_write(self._path, os.O_WRONLY | os.O_APPEND)
        os.fchmod(self._descriptor, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        self.finish()
        self._close()
        for number in range(self._files_max, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        # With none kept, what is full is begun anew.
        self._path.unlink(missing_ok=True)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def _shown(value: Any) -> Any:
    """A value as the record holds it: no longer than what a person would read."""
    if isinstance(value, str):
        return value[:VALUE_SIZE_MAX]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value[: VALUE_SIZE_MAX // 2]).hex()
    if isinstance(value, Mapping):
        return {str(name)[:VALUE_SIZE_MAX]: _shown(part) for name, part in list(value.items())[:32]}
    if isinstance(value, list | tuple):
        return [_shown(part) for part in value[:32]]
    return value
