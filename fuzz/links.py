"""A node's link and a client's, each told garbage in every phase: nothing raises, a fault closes the link."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz import frames_v1, frames_v2
from fuzz.driver import main
from veredus.kernel.effects import CloseLink, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import LinkOpened, Received
from veredus.protocols.links import session_of
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.client import ClientLink, ClientSettings
from veredus.protocols.zeps.client_exchange import OpenRequested
from veredus.protocols.zeps.orders import LinkLimits, PrincipalKnown
from veredus.streams import exchange as x

NOW = Now(1, 1)
ME = bytes(16)
GREETING = frames.encode_attach("", 2) + native.encode_message(0, m.Hello(token="t"))
OPENING = native.encode_message(1, m.AttachSource("s", "me", ME)) + native.encode_message(2, m.Subscribe("s"))
WELCOME = frames.ATTACH_OK + native.encode_message(0, m.Welcome("n", "p", 2, 1 << 20, 9, 9, 1, 1, 1, 1, 1))
SEEDS = (*frames_v1.SEEDS, *frames_v2.SEEDS, GREETING, frames.encode_attach("s") + frames_v1.SEEDS[-2], WELCOME)
GRANTS = (
    x.GrantSource(session_of(1, 1), 4, ME, 5, 1, 0, b"", 0, x.Durability.GROUP),
    x.GrantSubscription(session_of(1, 2), 4, ME, 1, 0, 1, 1, 0),
)
NODE_HISTORIES: tuple[tuple[object, ...], ...] = (
    (),
    (Received(1, GREETING), PrincipalKnown(1, "p")),
    (Received(1, GREETING), PrincipalKnown(1, "p"), Received(1, OPENING), *GRANTS),
    (Received(1, frames.encode_attach("s")), PrincipalKnown(1, "p"), GRANTS[0]),
)
CLIENT_HISTORIES: tuple[tuple[object, ...], ...] = (
    (),
    (Received(1, frames.ATTACH_OK),),
    (Received(1, WELCOME), OpenRequested(1, m.Subscribe("s"))),
)


def target(data: bytes) -> None:
    for door in ("tcp", "zeromq"):
        for history in NODE_HISTORIES:
            node = NodeLink(1, LinkLimits())
            for event in (LinkOpened(1, door, "peer"), *history):
                node.handle(event, NOW)
            effects = node.handle(Received(1, data), NOW)
            if any(isinstance(effect, CloseLink) for effect in effects):
                after = node.handle(Received(1, data), NOW)
                assert not any(isinstance(effect, Send | CloseLink) for effect in after)
    for history in CLIENT_HISTORIES:
        client = ClientLink(1, ClientSettings())
        for event in (LinkOpened(1, "tcp", "node"), *history):
            client.handle(event, NOW)
        client.handle(Received(1, data), NOW)
        client.check()


if __name__ == "__main__":
    main("links", target, SEEDS)
