"""Veredus: exactly-once publish/subscribe, with Spark.

    import veredus

    with veredus.connect("veredus://127.0.0.1:7071") as node:
        with node.publisher("trades", source="desk-1") as publisher:
            publisher.publish("stock.SUN", b"31.5")

Names are imported when they are first used, so that `import veredus` costs next to nothing.
"""

from __future__ import annotations

import atexit
import threading  # the thread that imports it first counts as the main one, and a thread imports all else
from typing import TYPE_CHECKING

from .client.children import watch_children
from .kernel import last
from .kernel.lazily import import_whole

if TYPE_CHECKING:
    from .client.blocking import Node, Run, Sink, Stage, connect
    from .client.digest import RowsDigest
    from .client.embedded import Embedded, embedded, embedded_async
    from .client.ends import Publisher, Subscription
    from .client.node import AsyncNode, connect_async
    from .client.publication import Batch, Publication
    from .client.publisher import AsyncPublisher
    from .client.publishing import Receipt
    from .client.reception import Message, Reception
    from .client.sinks import AsyncRun, AsyncSink, AsyncStage, Committed
    from .client.starts import after, at, beginning, head, since, tail
    from .client.subscriber import AsyncSubscription
    from .client.wanting import Gap
    from .delivery.content import Content
    from .kernel.errors import Fenced, Misuse, Refused, Unavailable, VeredusError
    from .streams.exchange import Durability, Start

if not threading.main_thread().is_alive() and threading.current_thread() is threading.main_thread():
    last.be_over()  # a handler of `atexit` is the first to import it, and no other is registered any more
else:
    atexit.register(last.end)  # as early as can be: what the program registers itself runs before
watch_children()

__version__ = "0.1.0"

_HOMES = {
    "client.digest": ("RowsDigest",),
    "client.blocking": ("Node", "Run", "Sink", "Stage", "connect"),
    "client.embedded": ("Embedded", "embedded", "embedded_async"),
    "client.ends": ("Publisher", "Subscription"),
    "client.node": ("AsyncNode", "connect_async"),
    "client.publication": ("Batch", "Publication"),
    "client.publisher": ("AsyncPublisher",),
    "client.publishing": ("Receipt",),
    "client.reception": ("Message", "Reception"),
    "client.sinks": ("AsyncRun", "AsyncSink", "AsyncStage", "Committed"),
    "client.starts": ("after", "at", "beginning", "head", "since", "tail"),
    "client.subscriber": ("AsyncSubscription",),
    "client.wanting": ("Gap",),
    "kernel.errors": ("VeredusError", "Fenced", "Misuse", "Refused", "Unavailable"),
    "delivery.content": ("Content",),
    "streams.exchange": ("Durability", "Start"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncNode",
    "AsyncPublisher",
    "AsyncRun",
    "AsyncSink",
    "AsyncStage",
    "AsyncSubscription",
    "Batch",
    "Committed",
    "Content",
    "Durability",
    "Embedded",
    "Fenced",
    "Gap",
    "Message",
    "Misuse",
    "Node",
    "Publication",
    "Publisher",
    "Receipt",
    "Reception",
    "Refused",
    "RowsDigest",
    "Run",
    "Sink",
    "Stage",
    "Start",
    "Subscription",
    "Unavailable",
    "VeredusError",
    "after",
    "at",
    "beginning",
    "connect",
    "connect_async",
    "embedded",
    "embedded_async",
    "head",
    "since",
    "tail",
]


_PACKAGES = ("spark", "topics")
"""What a program may use by its full name without importing it."""


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if name in _PACKAGES:
        return import_whole(f"{__name__}.{name}")
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_whole(f"{__name__}.{home}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
