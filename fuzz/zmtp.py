"""A ZMTP connection of a node, told garbage before, in and after its handshake: nothing raises, little is held."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import main
from veredus.kernel.effects import CloseLink
from veredus.kernel.engine import Now
from veredus.kernel.events import LinkOpened, Received
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zmtp.connection import Bounds, Connection
from veredus.protocols.zmtp.framed import FramedLink, Identities
from veredus.protocols.zmtp.frames import command_body, encode_command, encode_message
from veredus.protocols.zmtp.greeting import encode_greeting
from veredus.protocols.zmtp.link import Timing, ZmtpLink
from veredus.protocols.zmtp.mechanisms import Local, Null

NOW = Now(1, 1)
SIZE_MAX = 4096
GREETING = encode_greeting(b"NULL", False)
READY = encode_command(command_body(b"READY", Local(b"DEALER", b"me").encode()))
OPENING = GREETING + READY
ATTACH = b"".join(encode_message((b"", frames.encode_attach("s"))))
PARTS = b"".join(encode_message((b"a", b"b" * 300, b"")))
PING = encode_command(command_body(b"PING", b"\0\1context"))
SEEDS = (GREETING, READY, OPENING, OPENING + ATTACH, OPENING + PING + PARTS, ATTACH, PARTS, PING, PARTS + PING + ATTACH)


def _link(number: int, identities: Identities) -> tuple[FramedLink, Connection]:
    connection = Connection({b"NULL": Null(Local(b"ROUTER"), is_server=True)}, Bounds(SIZE_MAX), is_server=True)
    limits = LinkLimits(greeting_size_max=SIZE_MAX)
    wire = ZmtpLink(connection, Timing(10, 20, 30))
    return FramedLink(number, wire, NodeLink(number, limits), identities), connection


def target(data: bytes) -> None:
    identities = Identities()
    for number, history in enumerate((b"", GREETING, OPENING, OPENING + ATTACH), 1):
        link, connection = _link(number, identities)
        link.handle(LinkOpened(number, "zeromq", "peer", "p"), NOW)
        for octets in (history, data):
            effects = link.handle(Received(number, octets), NOW)
            assert connection.held_size <= SIZE_MAX + 9
            if any(isinstance(effect, CloseLink) and effect.link == number for effect in effects):
                assert list(link.handle(Received(number, data), NOW)) == []


if __name__ == "__main__":
    main("zmtp", target, SEEDS)
