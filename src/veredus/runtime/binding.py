"""The sockets that a node listens on: bound before its journal is touched, and listening once it is up.

    directory locked ─► bound ─► journal recovered, or begun ─► listening

So a start that finds an address taken has recovered nothing, and has made nothing. Whoever comes in between by TCP is
refused, as where no node runs. A Unix socket listens at once, because one that does not is taken for one that was left
behind: whoever comes by it waits until the node is up.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import Any

from veredus.kernel.addresses import split_address
from veredus.kernel.errors import Unavailable
from veredus.node.settings import NodeSettings

from .unix_paths import short_enough

BACKLOG = 4096
TCP, IPC = "tcp://", "ipc://"
"""How the endpoint of a ZeroMQ socket begins."""


class Bound:
    """Owns the sockets that are bound to one address, and the path of a Unix one, until `close`."""

    def __init__(self, sockets: list[socket.socket], address: str, setting: str, path: UnixPath | None = None) -> None:
        """`setting` says which one named the address."""
        self._sockets = sockets
        self._address = address
        self._setting = setting
        self._path = path

    @property
    def is_unix(self) -> bool:
        """Whether peers come by a path, and are users of this machine."""
        return self._path is not None

    @property
    def names(self) -> set[object]:
        """What the sockets are bound to, as the system has it."""
        return {bound.getsockname() for bound in self._sockets}

    def listen(self) -> list[socket.socket]:
        """Let peers come; the sockets. Raises `Unavailable("port-in-use")`: another may listen there by now."""
        try:
            for bound in self._sockets:
                bound.listen(BACKLOG)
        except OSError as error:
            raise _unbound(self._address, error, self._setting) from None
        return self._sockets

    def close(self) -> None:
        """Let nobody come any more, and take the path away."""
        for bound in self._sockets:
            bound.close()
        if self._path is not None:
            self._path.remove()


class BoundListeners:
    """Owns what all listeners of one node are bound to until `close`, by the settings that name the addresses."""

    def __init__(self) -> None:
        """Nothing is bound yet."""
        self._bound: dict[str, Bound] = {}

    def bind(self, settings: NodeSettings) -> None:
        """Bind all that the settings name. Raises `Unavailable("port-in-use")`, which names each address that is not
        to be had; what was bound is for `close`.
        """
        listen = settings.listen
        wanted = {
            "listen.tcp": listen.tcp,
            "listen.tls": listen.tls,
            "listen.metrics": listen.metrics,
            "topics.listen": settings.topics.listen,
            "listen.zeromq": listen.zeromq.removeprefix(TCP),
            "listen.unix": listen.unix and IPC + listen.unix,
        }
        refused = []
        for setting, address in wanted.items():
            try:
                if address.startswith(IPC):
                    path = address.removeprefix(IPC)
                    unix = bind_unix(path, int(listen.unix_mode, 8))
                    self._bound[setting] = Bound([unix], path, setting, UnixPath(path))
                elif address:
                    self._bind_tcp(setting, address)
            except Unavailable as error:
                refused.append(error.message)
        if refused:
            raise Unavailable("port-in-use", "; ".join(refused))

    def _bind_tcp(self, setting: str, address: str) -> None:
        bound = self._bound[setting] = bind_tcp(address, setting)
        for other_setting, other in self._bound.items():
            # The system minds two on one address only when the second one listens.
            if other is not bound and not bound.names.isdisjoint(other.names):
                said = f"cannot listen on {address}: {other_setting} has this address too: change {setting}"
                raise Unavailable("port-in-use", said)

    def __getitem__(self, setting: str) -> Bound:
        """What is bound to the address that this setting names."""
        return self._bound[setting]

    def close(self) -> None:
        """Close all, and take the paths of Unix sockets away."""
        for bound in self._bound.values():
            bound.close()
        self._bound.clear()


# ── TCP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def bind_tcp(address: str, setting: str) -> Bound:
    """Sockets bound to `host:port`; `*` is every address. Raises `Unavailable("port-in-use")`.

    Waits for the name of the host: for where nobody else waits for the loop yet.
    """
    host, port = _bindable(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _unbound(address, error, setting) from None
    sockets = _bind_all(address, [(family, place) for family, _, _, _, place in found], setting)
    return Bound(sockets, address, setting)


def _bindable(address: str) -> tuple[str | None, int]:
    host, port = split_address(address)
    return None if host == "*" else host, port


def _bind_all(address: str, places: list[tuple[int, tuple[Any, ...]]], setting: str) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for family, place in dict.fromkeys(places):
            bound = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(bound)
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            taken = sockets[0].getsockname()[1] if len(sockets) > 1 else place[1]
            bound.bind((place[0], taken, *place[2:]))
    except OSError as error:
        for bound in sockets:
            bound.close()
        raise _unbound(address, error, setting) from None
    return sockets


def _unbound(address: str, error: OSError, setting: str) -> Unavailable:
    other = "stop the process that uses it, or " if error.errno == errno.EADDRINUSE else ""
    return Unavailable(
        "port-in-use", f"cannot listen on {address} ({error.strerror or error}): {other}change {setting}"
    )


# ── Unix ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def bind_unix(path: str, mode: int) -> socket.socket:
    """A socket that listens at `path`, which users have access to by `mode`. Raises `Unavailable("port-in-use")`.

    What lies there already is taken away only if it is a socket on which nobody listens any more.
    """
    _make_way(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.setblocking(False)
    # Between `bind` and `chmod` nobody else may come in.
    before = os.umask(0o177)
    try:
        with short_enough(path) as short:
            listening.bind(short)
        Path(path).chmod(mode)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise Unavailable("port-in-use", f"cannot listen on {path} ({error.strerror or error})") from None
    finally:
        os.umask(before)
    return listening


def _make_way(path: str) -> None:
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise Unavailable(
            "port-in-use",
            f"cannot listen on {path}: a file that is not a socket has this path: move the file, or set another path",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            with short_enough(path) as short:
                probe.connect(short)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            reason = "another process listens there"
    raise Unavailable("port-in-use", f"cannot listen on {path} ({reason}): set another path")


class UnixPath:
    """Owns the path of a listening Unix socket, and takes it away when it is still that socket's."""

    def __init__(self, path: str) -> None:
        """The socket that lies at `path` now."""
        self._path = Path(path)
        self._found = self._identity()

    def remove(self) -> None:
        """Take the path away, unless something else lies there by now."""
        if self._found is not None and self._identity() == self._found:
            self._path.unlink(missing_ok=True)
        self._found = None

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.lstat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
