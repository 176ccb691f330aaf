"""ZEPS version 1 behind ZMTP: what a node's link does with the messages of a ZeroMQ peer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.laws import kit
from tests.protocols.zmtp.by_hand import OPENING, START, frame, greeting, message, ready
from veredus.delivery.batch import BatchHeader
from veredus.kernel.effects import CloseLink, Send
from veredus.kernel.events import LinkOpened, Received
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.links import TurnGiven, TurnWanted, WorkDone, session_of
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.attachment import ATTACHES_MAX, NodeLink
from veredus.protocols.zeps.orders import AskPrincipal, LinkLimits, PrincipalKnown
from veredus.protocols.zeps.version1 import COMMAND_NS
from veredus.protocols.zmtp.connection import Bounds, Connection
from veredus.protocols.zmtp.framed import FramedLink, Identities
from veredus.protocols.zmtp.link import Timing, ZmtpLink
from veredus.protocols.zmtp.mechanisms import Local, Null
from veredus.streams import exchange as x

LINK = 1
LIMITS = LinkLimits()
GRANTED = x.GrantSource(session_of(LINK, 1), 1, b"1" * 16, 5, 1, 0, b"", 0, x.Durability.GROUP)
ATTACH = message(frames.encode_attach("s"))


def publish(body: bytes) -> bytes:
    return message(frames.encode_publish(b"k", body))


def link(principal: str = "local", identities: Identities | None = None, number: int = LINK) -> FramedLink:
    connection = Connection({b"NULL": Null(Local(b"ROUTER"), is_server=True)}, Bounds(1000), is_server=True)
    wire = ZmtpLink(connection, Timing(LIMITS.greeting_timeout_ns, 10**10, 3 * 10**10))
    engine = FramedLink(number, wire, NodeLink(number, LIMITS), identities or Identities())
    engine.handle(LinkOpened(number, "zeromq", "peer", principal), START)
    return engine


def attached() -> FramedLink:
    engine = link()
    engine.handle(Received(LINK, OPENING + ATTACH), START)
    engine.handle(GRANTED, START)
    return engine


def offered(effects: list[object]) -> list[BatchHeader]:
    return [effect.header for effect in effects if isinstance(effect, x.BatchOffered)]


def test_publications_that_come_together_make_one_batch() -> None:
    data = b"".join(publish(b"%d" % number) for number in range(100))
    batches = offered(kit.effects_of(attached(), [Received(LINK, data)]))
    assert [(batch.first_number, batch.count) for batch in batches] == [(1, 100)]


def test_pings_that_come_at_once_are_answered_in_turns_and_what_is_behind_them_comes_behind_them() -> None:
    engine = attached()
    data = message(frames.PING) * 900 + publish(b"1")
    effects = list(engine.handle(Received(LINK, data), START))
    answers: list[int] = []
    while True:
        answered = b"".join(b"".join(effect.buffers) for effect in effects if isinstance(effect, Send))
        answers.append(answered.count(frames.PING_OK))
        assert sum(effect.cost_ns for effect in effects if isinstance(effect, WorkDone)) >= COMMAND_NS * answers[-1]
        if not isinstance(effects[-1], TurnWanted):
            break
        assert not offered(effects)
        assert engine.unread_size > 0
        effects = list(engine.handle(TurnGiven(LINK), START))
    assert sum(answers) == 900
    assert max(answers) < 900 / 2
    assert [batch.count for batch in offered(effects)] == [1]


def test_a_fault_behind_pings_that_wait_for_a_turn_is_told_behind_their_answers() -> None:
    engine = attached()
    effects = list(engine.handle(Received(LINK, message(frames.PING) * 900 + b"\xff\xff"), START))
    said = b""
    while True:
        said += b"".join(b"".join(effect.buffers) for effect in effects if isinstance(effect, Send))
        if not isinstance(effects[-1], TurnWanted):
            break
        effects = list(engine.handle(TurnGiven(LINK), START))
    assert said.count(frames.PING_OK) == 900
    assert said.rindex(frames.PING_OK) < said.index(b"bad-frame")


def test_a_bad_command_between_publications_ends_the_attachment_behind_those_before_it() -> None:
    data = publish(b"1") + publish(b"2") + message(b"\xaa\xa5\x63") + publish(b"3")
    effects = kit.effects_of(attached(), [Received(LINK, data)])
    assert [batch.count for batch in offered(effects)] == [2]


def test_a_link_takes_its_input_in_any_cut() -> None:
    use = message(frames.PING, b"", frames.encode_subscribe(b"a", 4)) + publish(b"v" * 300) + message(frames.PING)
    for ending in (b"", message(frames.DETACH) + ATTACH, message(b"garbage") + publish(b"x"), b"\xff"):
        kit.check_any_cut(attached, LINK, use + ending, (1, 2, 3, 5, 8, 64))
        kit.check_any_cut(link, LINK, OPENING + ATTACH + use + ending, (1, 2, 3, 5, 64), [GRANTED])


def test_a_publication_over_the_limit_is_told_why_before_its_body_comes() -> None:
    head = frame(0, bytes(LIMITS.frame_size_max + 1))[:9]
    effects = kit.effects_of(attached(), [Received(LINK, head)])
    said = b"".join(bytes(buffer) for effect in effects if isinstance(effect, Send) for buffer in effect.buffers)
    assert b"too-large:_all_frames_of_a_message_may_have_at_most_20971520_bytes" in said
    assert any(isinstance(effect, CloseLink) for effect in effects)


def test_a_publication_over_the_greetings_size_behind_an_attach_is_told_to_wait_for_attach_ok() -> None:
    head = frame(0, bytes(LIMITS.greeting_size_max + 1))[:9]
    effects = kit.effects_of(link(), [Received(LINK, OPENING + ATTACH + head), GRANTED])
    said = b"".join(bytes(buffer) for effect in effects if isinstance(effect, Send) for buffer in effect.buffers)
    assert b"may_have_at_most_65536_bytes_before_ATTACH-OK_was_sent:_read_ATTACH-OK" in said


def test_large_publications_behind_one_that_is_refused_do_not_cost_the_socket_its_next_attach() -> None:
    engine = attached()
    large = publish(bytes(LIMITS.greeting_size_max + 1))
    reads = [message(frames.encode_subscribe(b"regex:(", 0)), large, large, ATTACH]
    effects = kit.effects_of(engine, [Received(LINK, read) for read in reads])
    assert not any(isinstance(effect, CloseLink) for effect in effects)
    assert any(isinstance(effect, x.SourceAttachRequested) for effect in effects)


def test_large_publications_behind_a_last_word_that_is_owed_do_not_cost_the_socket_its_next_attach() -> None:
    engine = attached()
    taken = x.ConfirmTaken(session_of(LINK, 1), 1, 1, False, x.Durability.GROUP)
    reads = [publish(b"1") + message(b"junk"), publish(bytes(LIMITS.greeting_size_max + 1))]
    events = [*(Received(LINK, read) for read in reads), taken, Received(LINK, ATTACH)]
    effects = kit.effects_of(engine, events)
    assert not any(isinstance(effect, CloseLink) for effect in effects)
    assert any(isinstance(effect, x.SourceAttachRequested) for effect in effects)


def test_before_the_stream_is_open_a_message_has_the_size_of_a_greeting_at_most() -> None:
    engine = link()
    effects = kit.effects_of(engine, [Received(LINK, OPENING + frame(0, bytes(LIMITS.greeting_size_max + 1))[:9])])
    assert any(isinstance(effect, CloseLink) for effect in effects)


def test_attaching_again_and_again_is_work_and_has_an_end_for_who_is_nobody() -> None:
    engine = link("")
    effects: list[object] = []
    turn = [*engine.handle(Received(LINK, OPENING + ATTACH * 1000), START)]
    while not any(isinstance(effect, CloseLink) for effect in turn):
        worked_ns = sum(effect.cost_ns for effect in turn if isinstance(effect, WorkDone))
        assert worked_ns < 2 * QUANTUM_NS
        effects += turn
        is_asking = any(isinstance(effect, AskPrincipal) for effect in turn)
        turn = [*engine.handle(PrincipalKnown(LINK, None, "unknown") if is_asking else TurnGiven(LINK), START)]
    effects += turn
    told = b"".join(bytes(buffer) for effect in effects if isinstance(effect, Send) for buffer in effect.buffers)
    assert told.count(b"unauthenticated:_") == ATTACHES_MAX
    assert told.count(b"too-large:_") == 1


def test_who_attaches_by_another_connection_ends_the_former_attachment_which_is_told_why() -> None:
    identities = Identities()
    former, latter = (link("local", identities, number) for number in (1, 2))
    former.handle(Received(1, greeting() + ready(identity=b"me") + ATTACH), START)
    former.handle(GRANTED, START)
    assert not any(
        isinstance(e, CloseLink)
        for e in latter.handle(Received(2, greeting() + ready(identity=b"me") + message(frames.PING)), START)
    )
    effects = latter.handle(Received(2, ATTACH), START)
    told = b"".join(bytes(b) for e in effects if isinstance(e, Send) and e.link == 1 for b in e.buffers)
    assert b"replaced:_another_connection_with_the_same_ZeroMQ_identity_sent_an_ATTACH" in told
    assert CloseLink(1, "replaced") in effects
    assert x.SessionClosed(GRANTED.session) in effects
    assert any(isinstance(effect, x.SourceAttachRequested) for effect in effects)


def test_who_was_let_in_may_attach_as_often_as_it_likes() -> None:
    engine = attached()
    for _ in range(3 * ATTACHES_MAX):
        effects = kit.effects_of(engine, [Received(LINK, ATTACH), TurnGiven(LINK)])
        (asked,) = [effect for effect in effects if isinstance(effect, x.SourceAttachRequested)]
        engine.handle(replace(GRANTED, session=asked.session), START)


@pytest.mark.parametrize("first", [b"junk", b""])
def test_frames_without_end_of_who_was_refused_end_its_connection_however_small_they_are(first: bytes) -> None:
    engine = link("")
    effects = [*engine.handle(Received(LINK, OPENING + message(first) + message(b"") * 2000), START)]
    while any(isinstance(effect, TurnWanted) for effect in effects[-1:]):
        effects += engine.handle(TurnGiven(LINK), START)
    assert any(isinstance(effect, CloseLink) for effect in effects)
