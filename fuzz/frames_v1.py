"""ZEPS 1: commands off a stream in two cuts, and as whole frames; and a node's end of a link in each of its states.

However its octets are cut, a link says the same, holds no more than it may, and owes its answers in order.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.driver import main
from veredus.kernel.effects import CloseLink, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.events import LinkOpened, Received
from veredus.protocols.links import TurnGiven, TurnWanted, session_of
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zeps.version1 import Version1
from veredus.streams import exchange as x

SIZE_MAX = 4096
COMMANDS = (
    frames.encode_attach("prices"),
    frames.encode_subscribe(b"regex:a.*", 1 << 40),
    frames.encode_credit(1 << 63),
    frames.encode_publish(b"a.b", b"body" * 9),
    frames.encode_deliver(7, b"k", b"v"),
    frames.PING,
    frames.encode_invalid("no"),
    frames.DETACH,
    frames.encode_subscribe(b"", (1 << 64) - 1),
    frames.encode_subscribe(b"", 3 << 62 | 60_000_000),
)
SEEDS = (*COMMANDS, b"".join(COMMANDS), COMMANDS[3] * 20)


def flat(commands: list[frames.Command]) -> list[object]:
    taken: list[object] = []
    for command in commands:
        if isinstance(command, frames.Publish):
            taken += zip(command.keys, command.bodies, strict=True)
        else:
            taken.append(command)
    return taken


NOW = Now(1, 10**15)
ME = bytes(16)
ATTACH = frames.encode_attach("s")
GRANTED = x.GrantSource(session_of(1, 1), 4, ME, 0, 0, 0, b"", 0, x.Durability.GROUP)
ASKED = frames.encode_subscribe(b"k", 0)
PLACED = tuple(x.GrantSubscription(session_of(1, n), 4, ME, 1, 0, 1, 1, 0) for n in (2, 3))
WAITING = frames.encode_publish(b"k", b"v") + frames.PING
HISTORIES: tuple[tuple[object, ...], ...] = (
    (),
    (Received(1, ATTACH),),
    (Received(1, ATTACH), Received(1, WAITING)),
    (Received(1, ATTACH), GRANTED),
    (Received(1, ATTACH), GRANTED, Received(1, ASKED)),
    (Received(1, ATTACH), GRANTED, Received(1, ASKED), *PLACED, Received(1, frames.encode_credit(99))),
    (Received(1, ATTACH), GRANTED, Received(1, WAITING)),
    (Received(1, ATTACH), GRANTED, Received(1, WAITING + frames.DETACH)),
    (Received(1, ATTACH), GRANTED, Received(1, WAITING + frames.ATTACH_OK)),
)
AFTERWARDS = (
    GRANTED,
    *PLACED,
    *(x.ConfirmTaken(session_of(1, 1), number, number, False, x.Durability.GROUP) for number in (1, 1 << 40)),
)


def said(door: str, history: tuple[object, ...], pieces: list[bytes]) -> tuple[bytes, bool]:
    """What a link says to these octets, and whether it is closed; then nothing more may be said."""
    link = NodeLink(1, LinkLimits(greeting_size_max=1 << 10))
    octets, is_closed = b"", False
    for event in (LinkOpened(1, door, "peer", "p"), *history, *(Received(1, piece) for piece in pieces), *AFTERWARDS):
        effects = list(link.handle(event, NOW))
        while effects and isinstance(effects[-1], TurnWanted):
            effects += link.handle(TurnGiven(1), NOW)
        assert not is_closed or not any(isinstance(effect, Send | CloseLink) for effect in effects), effects
        octets += b"".join(bytes(part) for effect in effects if isinstance(effect, Send) for part in effect.buffers)
        is_closed = is_closed or any(isinstance(effect, CloseLink) for effect in effects)
        if isinstance(link.dialect, Version1):
            link.dialect._answers.check()
            link.dialect._delivering.check()
    return octets, is_closed


def try_states(data: bytes, step: int) -> None:
    """The same in any cut on a stream; on frames whatever comes, what is said are whole commands."""
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    for history in HISTORIES:
        whole, cut_up = said("tcp", history, [data]), said("tcp", history, pieces)
        assert whole == cut_up, (history, whole, cut_up)
        parser = frames.CommandParser(1 << 20)
        parser.feed(said("zeromq", history, pieces)[0])
        assert parser.fault is None
        assert parser.waiting_size == 0


def target(data: bytes) -> None:
    whole, cut_up = frames.CommandParser(SIZE_MAX), frames.CommandParser(SIZE_MAX)
    expected = flat(whole.feed(data))
    step = data[0] % 40 + 1 if data else 1
    got: list[frames.Command] = []
    for start in range(0, len(data), step):
        got += cut_up.feed(data[start : start + step])
    assert flat(got) == expected
    assert str(whole.fault) == str(cut_up.fault)
    try_states(data, step)
    reason = frames.encode_invalid(data.decode("latin-1"))
    assert frames.decode_command(reason, 0) == frames.Invalid(reason[4:])
    try:
        frames.decode_command(data, SIZE_MAX)
    except PeerFault:
        return


if __name__ == "__main__":
    main("frames_v1", target, SEEDS)
