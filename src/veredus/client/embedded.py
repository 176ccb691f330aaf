"""A whole node inside this process, for tests and small uses: the same engines, a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from _thread import start_new_thread
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec
import structlog

from veredus.kernel.errors import Misuse, Refused, VeredusError
from veredus.kernel.last import is_over, too_late
from veredus.kernel.unbroken import unbroken
from veredus.node.rules import Rule, rule_of
from veredus.node.settings import SECTIONS, SETTINGS, NodeSettings
from veredus.runtime.logs import set_up_logs
from veredus.runtime.serve import Node as ServedNode

from .arguments import shown
from .blocking import Node
from .connection import Connection
from .endings import to_stop, watch_end
from .links import TIMEOUT_S
from .loops import Begun, LoopThread, closed_in_thread, opened_in_thread, shared_loop
from .node import AsyncNode, open_node
from .opening import Opening
from .temporary import TemporaryDirectory, remove_left_behind

SOCKET_NAME = "node.socket"
JOURNAL_NAME = "journal"
_ADDRESS_WORDS = ("port", "host", "address", "addresses")


_making = threading.Lock()
"""Taken in threads of our own alone: whoever is left is known by the next one to be waited for, or is never made."""


def _free_making() -> None:
    """In a child of a fork, which has no such threads."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_free_making)


class EmbeddedNode:
    """Owns a node in a thread, and a temporary directory for its socket, and its journal where no place was given."""

    def __init__(self, directory: str | Path | None, settings: NodeSettings | None, options: dict[str, Any]) -> None:
        """A node to be opened. `options` change sections of the settings: `journal={"sync": "none"}`."""
        _check_given(directory, settings)
        self._given = Path(directory) if directory is not None else None, settings or NodeSettings(), options
        self._process = os.getpid()
        self._turn = threading.Lock()
        """Taken in threads of our own alone, which no signal tears out of anything."""
        self._starting: Begun[None] | None = None
        self._stopping: Begun[None] | None = None
        """What an exception from a signal's handler ends is the wait for either; they go on to their ends."""
        self.is_left = False
        """Whether its user has left it: it is being closed, or will be once it is open."""

    def open(self) -> EmbeddedNode:
        """Start the node, and return it. To be called `unbroken`, or in a thread that is not the main one."""
        remove_left_behind()
        with self._turn:
            with _making:
                if self.is_left:
                    raise Misuse("closed", "this embedded node was left before it was opened")
                self._make()
            try:
                given, settings, options = self._given
                self.directory = given or self._temporary.path / JOURNAL_NAME
                self.address = f"unix://{self._temporary.path}/{SOCKET_NAME}"
                self.settings = self._settings_of(settings, options)
                self._await_former()
                self.start()
            except BaseException:
                self._let_go()
                raise
        return self

    def _make(self) -> None:
        watch_end()
        self._temporary = TemporaryDirectory()
        try:
            self._thread = LoopThread()
            if self._thread.is_parked:
                self._thread.stop()
                raise too_late("an embedded node")
        except BaseException:
            self._temporary.remove()
            raise
        to_stop[self.close] = None

    def _settings_of(self, settings: NodeSettings, options: dict[str, Any]) -> NodeSettings:
        doors = {"tcp": "", "tls": "", "zeromq": "", "metrics": "", "unix": f"{self._temporary.path}/{SOCKET_NAME}"}
        changes = {name: _checked(settings, name, section) for name, section in options.items()}
        changes["listen"] = doors | changes.get("listen", {})
        changes["node"] = {"directory": str(self.directory)} | changes.get("node", {})
        changed: dict[str, object] = {}
        for name, section in changes.items():
            changed[name] = msgspec.structs.replace(getattr(settings, name), **_read(name, section))
        return msgspec.structs.replace(settings, **changed)

    def start(self) -> None:
        """Start the node, or start it again after `stop`: what it had taken is there. Raises `Misuse("closed")`."""
        if self._thread.loop.is_closed():
            message = "this embedded node was closed: make another one with veredus.embedded, of the same directory"
            raise Misuse("closed", message)
        if self._stopping is not None:
            self.stop()
        if self._starting is None:
            if not structlog.is_configured():
                set_up_logs("warning")
            self._node = ServedNode(self.settings)
            self._starting = Begun(self._thread.loop, self._node.start)
        self._thread.see_to(self._starting)
        self._starting.result()

    def stop(self) -> None:
        """Stop the node as on SIGTERM; its journal stays."""
        if self._starting is None:
            return
        if self._stopping is None:
            self._stopping = Begun(self._thread.loop, partial(_stopped, self._node, self._starting))
        self._thread.see_to(self._stopping)
        stopped, self._starting, self._stopping = self._stopping, None, None
        stopped.result()

    def _await_former(self) -> None:
        """Let a node of the same directory end that was opened before this one, and left."""
        for close in takewhile(lambda close: close != self.close, list(to_stop)):
            former = getattr(close, "__self__", None)
            if isinstance(former, EmbeddedNode) and former.is_left and former._given[0] == self.directory:
                former.close()

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each open listener, by its name."""
        return self._node.addresses

    def close(self) -> None:
        """Stop the node, and forget its journal where it was a temporary one. Closing again does nothing, nor does it
        in a child of a fork: there is no node.

        What a signal's handler raises meanwhile ends the wait alone.
        """
        self.is_left = True
        if os.getpid() == self._process:
            unbroken(self._close)

    def _close(self) -> None:
        with self._turn:
            if self.close in to_stop:
                self._let_go()

    def _let_go(self) -> None:
        try:
            self.stop()
        finally:
            self._thread.stop()
            self._temporary.remove()
            to_stop.pop(self.close, None)


async def _stopped(node: ServedNode, starting: Begun[None]) -> None:
    """Stop the node once it has started; one that has not, or could not, has let go of everything."""
    if await starting.is_well():
        await node.stop()


def _check_given(directory: object, settings: object) -> None:
    """Raise `Misuse("bad-argument")` for what is no directory, or no settings."""
    if directory is not None and not isinstance(directory, str | os.PathLike):
        raise Misuse("bad-argument", f"directory must be a path, not {shown(directory)}", argument="directory")
    if settings is not None and not isinstance(settings, NodeSettings):
        message = (
            f'settings must be NodeSettings, not {shown(settings)}: name sections, as in journal={{"sync": "none"}}'
        )
        raise Misuse("bad-argument", message, argument="settings")


def _checked(settings: NodeSettings, name: str, section: object) -> dict[str, Any]:
    """The settings of a section. Raises `Misuse("bad-settings")` for what is no section, or no settings."""
    if not isinstance(getattr(settings, name, None), msgspec.Struct):
        sections = [setting.section for setting in SETTINGS if setting.name == name]
        hint = f'; {name!r} is a setting of a section: write {sections[0]}={{"{name}": …}}' if sections else ""
        if name in _ADDRESS_WORDS:
            hint = '; for an address to listen at, write listen={"tcp": "127.0.0.1:7071"}'
        message = f"a node has no section {name!r} of settings; there are {', '.join(SECTIONS)}{hint}"
        raise Misuse("bad-settings", message)
    if not isinstance(section, Mapping):
        raise Misuse("bad-settings", f"section {name!r} must be a dict of settings, not {shown(section)}")
    return dict(section)


def _read(name: str, section: dict[str, Any]) -> dict[str, object]:
    """Settings as a file writes them, or by their fields, as fields. Raises `Misuse("bad-settings")`."""
    known = {setting.name: setting for setting in SETTINGS if setting.section == name}
    read: dict[str, object] = {}
    for given, value in section.items():
        setting = known.get(given.removesuffix("_ns"))
        if setting is None:
            if given not in SECTIONS[name].__struct_fields__:
                names = ", ".join(known)
                raise Misuse("bad-settings", f"section {name!r} has no setting {given!r}; there are {names}")
            read[given] = _rules(value) if (name, given) == ("security", "rules") else value
        elif given != setting.name and isinstance(value, int):
            read[given] = value
        else:
            try:
                read[setting.field] = setting.parse(_written(value))
            except ValueError as error:
                raise Misuse("bad-settings", f"{setting.path}: {error}") from None
    return read


def _rules(given: object) -> tuple[Rule, ...]:
    """Rules as a file writes them, each a table. Raises `Misuse("bad-settings")`."""
    if not isinstance(given, list | tuple):
        raise Misuse("bad-settings", f"security.rules must be a list of rules, not {shown(given)}")
    return tuple(_rule(index, each) for index, each in enumerate(given))


def _rule(index: int, given: object) -> Rule:
    where = f"security.rules[{index}]"
    if isinstance(given, Rule):
        return given
    if not isinstance(given, Mapping):
        example = '{"principal": "desk-*", "may": ["publish"], "streams": ["trades"]}'
        raise Misuse("bad-settings", f"{where} must be a dict like {example}, not {shown(given)}")
    try:
        return rule_of(given)
    except Refused as refused:
        said = "\n".join(f"{where}: {fault}" for fault in refused.message.split("\n"))
        raise Misuse("bad-settings", said) from None


def _written(value: object) -> object:
    """A value as a settings file holds it."""
    match value:
        case timedelta():
            return f"{value // timedelta(microseconds=1)}us"
        case Path():
            return str(value)
        case tuple():
            return list(value)
        case _:
            return value


class Embedded(Node):
    """A connection to a node of this process's own; closing it stops the node."""

    def __init__(self, served: EmbeddedNode) -> None:
        """A connection to `served`."""
        thread = shared_loop()
        super().__init__(thread, thread.run(partial(open_node, (served.address,), "", None, "embedded", TIMEOUT_S)))
        self._node.connection.is_inside = True
        self.served = served
        self._turn = threading.Lock()

    def close(self) -> None:
        """Leave the node, and stop it; as `Node.close`. What a signal's handler raises meanwhile ends the wait alone:
        to close again is to wait again.
        """
        self.served.is_left = True
        if self._thread.is_forked:
            super().close()
            return
        self._thread.check_outside()
        if is_over():
            self._close()  # no other thread can
        else:
            unbroken(self._close)
        self._node._tell_lost()

    def _close(self) -> None:
        with self._turn:
            try:
                self._leave()
            finally:
                self.served.close()


class AsyncEmbedded(AsyncNode):
    """A connection to a node of this process's own; closing it stops the node."""

    def __init__(self, connection: Connection, served: EmbeddedNode) -> None:
        """What `connection` leads to: `served`."""
        super().__init__(connection)
        connection.is_inside = True
        self.served = served

    async def close(self) -> None:
        """Leave the node, and stop it; as `AsyncNode.close`."""
        self.connection.check_loop()
        self.served.is_left = True
        try:
            await super().close()
        except asyncio.CancelledError:
            self.connection.then(self._stop_alone)
            raise
        except VeredusError:
            await closed_in_thread(self.served.close)
            raise
        await closed_in_thread(self.served.close)

    def _stop_alone(self) -> None:
        with suppress(RuntimeError):  # there is no thread any more: the end of the program stops it
            start_new_thread(self.served.close, ())


def embedded(directory: str | Path | None = None, settings: NodeSettings | None = None, **options: Any) -> Embedded:
    """A node inside this process, and a connection to it; closed together. The same API as `connect`.

    `directory`: where its journal lies, a temporary one unless given. `options` change sections of the settings, as a
    settings file writes them: `embedded(journal={"sync": "none"}, streams={"retention_age": "7d"})`. It listens on a
    Unix socket alone unless told. Raises `Misuse("bad-settings")`.
    """
    served = EmbeddedNode(directory, settings, options)
    shared_loop().check_outside()
    try:
        return unbroken(lambda: _opened(served), Embedded.close)
    except BaseException:
        served.is_left = True
        raise


def _opened(served: EmbeddedNode) -> Embedded:
    served.open()
    try:
        return Embedded(served)
    except BaseException:
        served.close()
        raise


def embedded_async(
    directory: str | Path | None = None, settings: NodeSettings | None = None, **options: Any
) -> Opening[AsyncEmbedded]:
    """As `embedded`, for asyncio. The node runs in a thread of its own all the same."""

    async def opened() -> AsyncEmbedded:
        served = await opened_in_thread(EmbeddedNode(directory, settings, options).open, EmbeddedNode.close)
        try:
            node = await open_node((served.address,), "", None, "embedded", TIMEOUT_S)
        except BaseException:
            await closed_in_thread(served.close)
            raise
        return AsyncEmbedded(node.connection, served)

    return Opening(opened)
