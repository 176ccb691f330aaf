"""One connection a process and node, kept from task to task; and patience while a node is away.

Spark's Python workers are forked and used again for many tasks, so what a module holds lives longer than a task, and
must not be used by a child of the process that made it.
"""

from __future__ import annotations

import gc
import os
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pyspark import TaskContext

import veredus
from veredus.client.causes import PROVED_NO_MORE
from veredus.client.links import TIMEOUT_S
from veredus.kernel.errors import Refused, Unavailable, VeredusError
from veredus.kernel.terms import Terms
from veredus.node.rules import NamePatterns
from veredus.runtime.regular_files import FILE_SIZE_MAX, LIST_SIZE_MAX, check_regular, read_own

from .options import NodeOptions

R = TypeVar("R")
RETRY_SECONDS = 0.2
_PASSING = ("subscription-in-use",)
"""What is refused only while another start of the query is attached."""

_open: dict[tuple[int, NodeOptions], veredus.Node] = {}


@dataclass(frozen=True)
class StreamView:
    """A stream at one moment: incarnation in hexadecimal, least sequence kept, newest durable one (0: none), what the
    journal keeps of it, in bytes, when it was created, and its terms.
    """

    incarnation: str
    floor: int
    head: int
    size: int = 0
    created_us: int = 0
    terms: Terms = ()

    @property
    def row_size(self) -> int:
        """What one row takes in the journal, about, in bytes."""
        return max(1, self.size // max(1, self.head + 1 - self.floor))


def node_of(options: NodeOptions) -> veredus.Node:
    """This process's connection to the node. Raises `Unavailable` when no address answers."""
    place = (os.getpid(), options)
    node = _open.get(place)
    if node is None:
        tls = _authorities_in(options.ca_file) if options.ca_file else None
        token = options.token if options.token_file is None else _token_in(options.token_file)
        wait_s = min(TIMEOUT_S, options.timeout_seconds)
        node = _open[place] = veredus.connect(
            *options.addresses, token=token, tls=tls, client="spark", timeout_s=wait_s, refused_s=wait_s
        )
    return node


def _authorities_in(path: str) -> ssl.SSLContext:
    """The authorities that a file on this machine holds. Raises `Refused("bad-option")`."""
    try:
        check_regular(path, LIST_SIZE_MAX)
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        said = f"the option `caFile` is {path!r}, which holds no certificates to use here"
        raise Refused("bad-option", f"{said}: {error.strerror or error}") from None


def _token_in(path: str) -> str:
    """The token that a file on this machine holds. Raises `Refused("bad-option")`."""
    try:
        token = read_own(path, FILE_SIZE_MAX)[1].decode().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        said = f"the option `tokenFile` is {path!r}, which cannot be read here"
        raise Refused("bad-option", f"{said}: {reason}") from None
    if not token:
        raise Refused("bad-option", f"the option `tokenFile` is {path!r}, which is empty")
    return token


def patiently(options: NodeOptions, ask: Callable[[veredus.Node], R]) -> R:
    """What `ask` returns, asked again while the node is away, for at most `timeout_seconds`.

    `ask` must be such that asking twice does no harm. Raises `Unavailable` in the end; what the node refuses, at once,
    unless that passes. A connection that was made with a token which has gone since is made anew once: the file may
    have another one by now.
    """
    deadline = time.monotonic() + options.timeout_seconds
    is_kept = (os.getpid(), options) in _open
    while True:
        try:
            return ask(node_of(options))
        except VeredusError as error:
            if is_kept and error.code in PROVED_NO_MORE:
                is_kept = False
                _forget(options)
                continue
            if (isinstance(error, Unavailable) or error.code in _PASSING) and time.monotonic() < deadline:
                time.sleep(RETRY_SECONDS)
                continue
            if isinstance(error, Unavailable):
                raise
            _forget(options)
            if error.code == "forbidden" and error.details.get("kind") == "sink":
                raise Refused(error.code, f"{options.written}: {error.message}", **error.details) from error
            raise


def _forget(options: NodeOptions) -> None:
    """Let the next task connect anew: the node may have refused this connection for good."""
    node = _open.pop((os.getpid(), options), None)
    if node is not None:
        node.close()


def freeze_imports() -> None:
    """At the end of a task: let this worker's collections of garbage pass by all that it has loaded so far.

    Spark makes a full one after every task, and without this each takes 40 ms. Outside of a task nothing is done.
    """
    if TaskContext.get() is not None:
        _freeze_once()


@cache
def _freeze_once() -> None:
    gc.collect()
    gc.freeze()


def view_of(node: veredus.Node, stream: str) -> StreamView:
    """The stream as it is now. Raises `Refused("unknown-stream")`."""
    return _view(node.streams.show(stream))


def _view(shown: Mapping[str, Any]) -> StreamView:
    incarnation, terms = shown["incarnation"].hex(), tuple((term, first) for term, first in shown.get("terms", ()))
    return StreamView(incarnation, shown["floor"], shown["head"], shown["size"], shown["created_us"], terms)


def views_of(node: veredus.Node, streams: Iterable[str]) -> dict[str, StreamView]:
    """The streams as they are now, those left out that do not exist."""
    views: dict[str, StreamView] = {}
    for stream in streams:
        try:
            views[stream] = view_of(node, stream)
        except Refused as refused:
            if refused.code != "unknown-stream":
                raise
    return views


def views_matching(node: veredus.Node, patterns: Sequence[str]) -> tuple[dict[str, StreamView], int]:
    """The streams that match one of the patterns, as they are now, by name in order; and how many the node has."""
    wanted = NamePatterns(patterns)
    listed = {shown["name"]: shown for shown in node.streams.list()}
    names = sorted(name for name in listed if wanted.match(name))
    return {name: _view(listed[name]) for name in names}, len(listed)


def selects(patterns: Sequence[str], stream: str) -> bool:
    """Whether one of the patterns matches the name of the stream."""
    return NamePatterns(patterns).match(stream)
