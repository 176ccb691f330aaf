"""What clients remember of their topics, on disk: a journal of their own, with one fact for each state that was saved.

    <directory>/client_<id>/     of one client, <directory>/clients/ of many

What the facts say: veredus.topics.facts. Saves that come together are written and synced together. One that is not
synced is in the system's memory when it is answered, where it survives the process; it comes to the platter with the
next one that is, or a tenth of a second later.

Invariants
    (1) `of` gives what is in the journal, and only that, but for what was `held`.
    (2) What could not be saved is not remembered.
Source: seed 000, section 5.1; docs/internals/DESIGN.md, "Topics" and "Journal".
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from veredus.client.loops import closed_in_thread, opened_in_thread
from veredus.delivery.record import RecordKind
from veredus.journal import exchange as journal
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings, Recovered
from veredus.journal.steps import CheckpointLoaded, Found, Replayed
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused, Unavailable
from veredus.kernel.events import DeadlineReached
from veredus.kernel.gathered import Gathered
from veredus.kernel.last import is_no_thread_any_more, too_late
from veredus.protocols.topics.client_state import ClientState
from veredus.runtime.clocks import read_clocks
from veredus.runtime.directory import Directory, open_directory, sync_directory, unusable, user_of
from veredus.runtime.disk import Disk, drive_recovery

from .facts import (
    Snapshot,
    apply_fact,
    decode_fact,
    decode_snapshot,
    encode_fact,
    encode_snapshot,
    key_of,
    names_in,
    remember,
)

SETTINGS = LogSettings(
    segment_size=256 << 10,
    sync=journal.SyncMode.INTERVAL,
    checkpoint_interval_size=1 << 20,
    free_count_max=1,
    held_back_size=64 << 10,
)
"""A start reads what lies behind the last checkpoint, which is this little; a larger body gets a segment of its own."""
_NAME_SIZE_MAX = 200
_NOT_IN_A_NAME = re.compile(rb"[^a-z0-9_.+=@~-]")
_NEW = ClientState()


def directory_name(client: str) -> str:
    """The directory of a client. Capitals are escaped as well: some systems' names do not know them from others."""
    name = _NOT_IN_A_NAME.sub(lambda found: b"%%%02x" % found[0][0], client.encode()).decode()
    if len(name) > _NAME_SIZE_MAX:
        digest = blake2b(client.encode(), digest_size=16).hexdigest()
        name = f"{name[: _NAME_SIZE_MAX - len(digest)]}%%{digest}"
    return f"client_{name}"


class _Save(NamedTuple):
    key: str
    state: ClientState
    is_synced: bool
    saved: asyncio.Future[None]


class States:
    """Owns a directory and what is remembered in it; opened, used and closed on one loop."""

    def __init__(self, path: Path, owner: str) -> None:
        """In the directory `path`; `owner` is who remembers, in words. Nothing is opened yet."""
        self.path = path
        self._owner = owner
        self._states: Snapshot = {}
        self._saves: dict[int, _Save] = {}
        self._last_token = 0
        self._unsynced_key: str | None = None
        self._failure = ""
        self._wake_handle: asyncio.Handle | None = None
        self._wake_ns = 0
        self._checkpointed: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Take the directory, made where there is none, and read what is in it.

        Raises `Refused("client-in-use")`, which names the process that has it, what recovery raises, and
        `Misuse("closed")` in a handler of `atexit` where no thread can be started any more.
        """
        self._loop = asyncio.get_running_loop()
        self._directory, recovered = await opened_in_thread(self._recover, lambda opened: opened[0].close())
        self._journal = Log(SETTINGS, recovered)
        try:
            self._disk = Disk(self.path, self._post, self._fail_from_thread, SETTINGS.held_back_size)
        except RuntimeError as error:
            self._directory.close()
            raise (too_late("a client of topics") if is_no_thread_any_more(error) else error) from None
        self._wake_in_time()

    def of(self, client: str, topic: str) -> ClientState:
        """What a client remembers of a topic."""
        return self._states.get(key_of(client, topic), _NEW)

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """Clients and topics of which anything is remembered."""
        return [names_in(key) for key in self._states]

    def hold(self, client: str, topic: str, state: ClientState) -> None:
        """Remember this for as long as the process lives."""
        self._states[key_of(client, topic)] = state

    def save(self, client: str, topic: str, state: ClientState, is_synced: bool = True) -> asyncio.Future[None]:
        """Remember this for good, which it is when this is done; unless `is_synced`, a power failure may still take it.

        Fails with `Unavailable` (`disk-full`, `journal-failed`): then it is as it was before.
        """
        return self._save(key_of(client, topic), state, is_synced)

    def _save(self, key: str, state: ClientState, is_synced: bool) -> asyncio.Future[None]:
        saved = self._loop.create_future()
        if self._failure:
            saved.set_exception(self._failed())
            return saved
        self._last_token += 1
        self._saves[self._last_token] = _Save(key, state, is_synced, saved)
        fact = encode_fact(key, self._states.get(key, _NEW), state)
        entry = journal.fact_entry(fact, read_clocks().wall_us)
        self._tell(journal.AppendRequested(self._last_token, (entry,), is_synced))
        return saved

    async def close(self) -> None:
        """Bring all to the platter, and let go of the directory.

        Raises `Unavailable` when that failed; the directory is free all the same.
        """
        try:
            await self._bring_to_platter()
        finally:
            if self._wake_handle is not None:
                self._wake_handle.cancel()
            await closed_in_thread(self._let_go)

    def _let_go(self) -> None:
        try:
            self._disk.close()
        finally:
            self._directory.close()

    async def _bring_to_platter(self) -> None:
        try:
            if self._unsynced_key is not None and not self._failure:
                # A save that is synced takes all before it along.
                await self._save(self._unsynced_key, self._states.get(self._unsynced_key, _NEW), is_synced=True)
        finally:
            if self._checkpointed is not None:
                # Begun is half done: of its two copies one would be missing, in many short lives for ever.
                await self._checkpointed

    # ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _recover(self) -> tuple[Directory, Recovered]:
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            directory = open_directory(self.path)
        except Refused as refused:
            if refused.code != "journal-locked":
                raise
            pid, user = user_of(self.path)
            cure = "stop that process" if pid != os.getpid() else "it is this process: close it there"
            said = f"{self._owner} is in use by {user} (in {self.path}): {cure}, or use another id"
            raise Refused("client-in-use", said, path=str(self.path), pid=pid) from None
        try:
            for path in made:
                sync_directory(path.parent)
            return directory, drive_recovery(directory, SETTINGS, os.urandom(16), self._take)
        except BaseException as error:
            directory.close()
            if isinstance(error, OSError):
                raise unusable(self.path, error) from error
            raise

    def _take(self, found: Found) -> None:
        match found:
            case CheckpointLoaded(state):
                self._states = decode_snapshot(state)
            case Replayed(view) if view.envelope.kind == RecordKind.FACT:
                apply_fact(self._states, decode_fact(view.payload))
            case Note():
                self._log(found)

    # ── the journal ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _post(self, events: Sequence[journal.DiskEvent]) -> None:
        """Take answers of the disk, in whatever thread they come."""
        with suppress(RuntimeError):
            # The loop may be closed under us: then nobody waits for the disk any more.
            self._loop.call_soon_threadsafe(self._tell, *events)

    def _tell(self, *events: journal.LogEvent) -> None:
        if self._failure:
            # Whoever waited was told so: answers that come now are to nobody.
            return
        now = read_clocks()
        for event in events:
            is_checkpoint_wanted = False
            for effect in self._journal.handle(event, now):
                is_checkpoint_wanted |= isinstance(effect, journal.CheckpointWanted)
                self._carry_out(effect)
            if is_checkpoint_wanted:
                self._checkpointed = self._loop.create_future()
                self._tell(journal.CheckpointRequested(Gathered(encode_snapshot(self._states))))
        self._wake_in_time()

    def _wake_in_time(self) -> None:
        """Wake the journal when it wants that; at once means behind all that comes together, which is one group."""
        due_ns = self._journal.deadline()
        if due_ns is None or (self._wake_handle is not None and self._wake_ns <= due_ns):
            return
        if self._wake_handle is not None:
            self._wake_handle.cancel()
        left_ns = due_ns - time.monotonic_ns()
        self._wake_ns = due_ns
        self._wake_handle = (
            self._loop.call_soon(self._wake) if left_ns <= 0 else self._loop.call_later(left_ns / 1e9, self._wake)
        )

    def _wake(self) -> None:
        self._wake_handle = None
        self._tell(DeadlineReached())

    def _carry_out(self, order: journal.LogEffect) -> None:
        match order:
            case (
                journal.WriteGroup()
                | journal.CreateSegment()
                | journal.WriteFile()
                | journal.HoldBack()
                | journal.RemoveSegment()
                | journal.ReadBytes()
            ):
                self._disk.carry_out(order)
            case journal.Appended(token):
                self._appended(self._saves.pop(token))
            case journal.AppendFailed(token, code, reason):
                self._answer(self._saves.pop(token), self._not_saved(code, reason))
            case journal.LogFailed(reason):
                self._fail(reason)
            case journal.CheckpointDone():
                self._end_checkpoint()
            case journal.CheckpointFailed(reason):
                self._log(Note("error", "checkpoint-failed", {"reason": reason}))
                self._end_checkpoint()
            case Note():
                self._log(order)

    def _fail_from_thread(self, reason: str) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._fail, reason)

    def _fail(self, reason: str) -> None:
        self._failure = reason
        saves, self._saves = self._saves, {}
        for save in saves.values():
            self._answer(save, self._failed())
        self._end_checkpoint()

    def _end_checkpoint(self) -> None:
        if self._checkpointed is not None:
            self._checkpointed.set_result(None)
            self._checkpointed = None

    def _appended(self, save: _Save) -> None:
        # Here and not in `save`: a checkpoint holds exactly what was answered before it.
        remember(self._states, save.key, save.state)
        self._unsynced_key = None if save.is_synced else save.key
        self._answer(save, None)

    def _answer(self, save: _Save, error: Unavailable | None) -> None:
        if save.saved.done():
            return
        if error is None:
            save.saved.set_result(None)
        else:
            save.saved.set_exception(error)

    def _log(self, note: Note) -> None:
        # There is hardly ever anything to say, and to be able to takes a command a tenth of its time.
        import structlog

        from veredus.runtime.logs import Logger, set_up_logs

        if not structlog.is_configured():
            set_up_logs("warning")
        Logger().say(note.level, note.event, {"directory": str(self.path), **note.fields})

    def _not_saved(self, code: str, reason: str) -> Unavailable:
        said = f"the state of {self._owner} cannot be written to {self.path} ({reason})"
        return Unavailable(code, f"{said}: free space there, and try again", path=str(self.path))

    def _failed(self) -> Unavailable:
        said = f"a write or sync in {self.path} failed ({self._failure}): the client has stopped"
        return Unavailable("journal-failed", f"{said}; close it and open it again", path=str(self.path))
