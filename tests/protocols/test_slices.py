"""What a peer says is read a slice at a time: many small commands keep no other link waiting."""

from __future__ import annotations

from veredus.kernel.effects import Send
from veredus.kernel.engine import Now
from veredus.kernel.events import LinkOpened, Received
from veredus.protocols.links import TurnGiven, TurnWanted, WorkDone
from veredus.protocols.slices import SLICE_SIZE, Slices
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zeps.version1 import COMMAND_NS, COMMANDS_AT_ONCE_MAX
from veredus.streams.exchange import Durability, GrantSource, GrantSubscription, ReturnRequested

NOW = Now(1, 1)


def test_slices_give_every_octet_once_and_in_order() -> None:
    slices = Slices()
    data = bytes(range(256)) * 200
    slices.add(data)
    slices.add(b"")
    slices.add(b"the end")
    taken = []
    while slices:
        taken.append(bytes(slices.take()))
    assert b"".join(taken) == data + b"the end"
    assert max(map(len, taken)) == SLICE_SIZE
    slices.add(b"more")
    slices.forget()
    assert not slices


def test_a_mebibyte_of_pings_is_answered_in_many_turns() -> None:
    link = NodeLink(1, LinkLimits())
    link.handle(LinkOpened(1, "tcp", "peer", "local"), NOW)
    link.handle(Received(1, frames.encode_attach("s", 1)), NOW)
    link.handle(GrantSource(1 << 32 | 1, 1, bytes(16), 0, 0, 0, b"", 0, Durability.GROUP), NOW)
    pings = frames.PING * (1 << 16)
    effects = list(link.handle(Received(1, pings), NOW))
    turns = 0
    answers = 0
    while True:
        count = sum(len(b"".join(effect.buffers)) for effect in effects if isinstance(effect, Send)) // len(frames.PING)
        assert count <= COMMANDS_AT_ONCE_MAX
        assert sum(effect.cost_ns for effect in effects if isinstance(effect, WorkDone)) >= COMMAND_NS * count
        answers += count
        if not isinstance(effects[-1], TurnWanted):
            break
        turns += 1
        effects = list(link.handle(TurnGiven(1), NOW))
    assert turns >= (1 << 16) // COMMANDS_AT_ONCE_MAX
    assert answers == 1 << 16
    assert link.unread_size == 0


def test_publications_that_are_given_back_are_taken_back_a_few_in_each_turn() -> None:
    link = NodeLink(1, LinkLimits())
    link.handle(LinkOpened(1, "tcp", "peer", "local"), NOW)
    link.handle(Received(1, frames.encode_attach("", native.VERSION)), NOW)
    link.handle(Received(1, native.encode_message(0, m.Hello())), NOW)
    link.handle(Received(1, native.encode_message(1, m.Subscribe("s", "bob", "main", incarnation=bytes(16)))), NOW)
    link.handle(GrantSubscription(1 << 32 | 1, 1, bytes(16), 1, 1, 1, 1, 100, 0), NOW)
    returns = b"".join(native.encode_message(1, m.Return(sequence, False, "no")) for sequence in range(1, 1_001))
    effects = link.handle(Received(1, returns), NOW)
    taken = []
    while True:
        count = sum(isinstance(effect, ReturnRequested) for effect in effects)
        assert count <= 100, "each is counted at 20 us, and a turn has 2 ms"
        taken.append(count)
        if not (effects and isinstance(effects[-1], TurnWanted)):
            break
        effects = link.handle(TurnGiven(1), NOW)
    assert sum(taken) == 1_000
    assert len(taken) >= 10
