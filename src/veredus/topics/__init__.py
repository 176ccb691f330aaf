"""Clients of the topic service: subscribe, unsubscribe, get and put, exactly once.

    from veredus.topics import Client

    with Client("alice", proxies=["127.0.0.1:7081"]) as client:
        client.subscribe("prices")
        for message in client.messages("prices"):
            print(message.id, message.body)

Names are imported when they are first used. Source: seed 000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veredus.kernel.lazily import import_whole

if TYPE_CHECKING:
    from .blocking import Client
    from .client import AsyncClient, AsyncClientGroup, GroupClient
    from .operations import Message

_HOME_OF = {
    "AsyncClient": "client",
    "AsyncClientGroup": "client",
    "Client": "blocking",
    "GroupClient": "client",
    "Message": "operations",
}

__all__ = ["AsyncClient", "AsyncClientGroup", "Client", "GroupClient", "Message"]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_whole(f"{__name__}.{home}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
