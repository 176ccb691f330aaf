"""A link that speaks ZMTP before a dialect: its time, its identity, and what the dialect hears and says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.laws import kit
from tests.protocols.zmtp.by_hand import (
    OPENING,
    SECOND_NS,
    at,
    command,
    frame,
    greeting,
    message,
    ready,
)
from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkOpened, Received
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.links import (
    AnswersAwaited,
    DrainRequested,
    FrameRefused,
    FramesReceived,
    ReadingPaused,
    ReadingResumed,
    TurnGiven,
    TurnWanted,
)
from veredus.protocols.zmtp.connection import COMMAND_NS, Bounds, Connection
from veredus.protocols.zmtp.framed import FramedLink, Identities
from veredus.protocols.zmtp.link import Timing, ZmtpLink
from veredus.protocols.zmtp.mechanisms import Local, Null

TIMING = Timing(5 * SECOND_NS, 10 * SECOND_NS, 30 * SECOND_NS)
SERVERS = greeting() + ready(b"ROUTER")


class Echo:
    """A dialect that says each frame back, and notes what it was told."""

    frame_size_max = 1000
    frame_size_hint = ""
    is_attached = False
    is_awaiting = False
    is_greeting = False

    def __init__(self, link: int) -> None:
        self.link = link
        self.told: list[object] = []

    def handle(self, event: object, now: Now) -> Sequence[object]:
        self.told.append(event)
        if isinstance(event, FramesReceived):
            return self._take_all(event, now)
        if isinstance(event, Received):
            self.is_attached = self.is_attached or bytes(event.data) == b"attach"
            if bytes(event.data) == b"bye":
                return [Send(self.link, (b"farewell",)), CloseLink(self.link, "asked")]
            return [Send(self.link, (event.data,))]
        if isinstance(event, FrameRefused):
            return [Send(self.link, (event.code.encode(),))]
        return []

    def _take_all(self, event: FramesReceived, now: Now) -> Sequence[object]:
        self.told.pop()
        effects: list[object] = []
        for said in event.frames:
            effects += self.handle(Received(self.link, said), now)
            if any(isinstance(effect, CloseLink) for effect in effects):
                break
        return effects

    def deadline(self) -> int | None:
        return None


class Peer:
    """One link of a listener, and the octets that its peer would read."""

    def __init__(self, identities: Identities | None = None, link: int = 1, principal: str = "local") -> None:
        null = Null(Local(b"ROUTER"), is_server=True)
        connection = Connection({b"NULL": null}, Bounds(1000), is_server=True)
        self.echo = Echo(link)
        self.engine = FramedLink(link, ZmtpLink(connection, TIMING), self.echo, identities or Identities())
        self.link = link
        self.heard = b""
        self.closed: list[CloseLink] = []
        self.now_ns = 0
        self.wants_turn = False
        self.tell(LinkOpened(link, "zeromq", "peer", principal))

    def tell(self, event: object) -> None:
        for effect in self.engine.handle(event, at(self.now_ns)):
            if isinstance(effect, Send) and effect.link == self.link:
                assert not self.closed, "nothing is said after the end"
                self.heard += b"".join(effect.buffers)
            elif isinstance(effect, CloseLink) and effect.link == self.link:
                self.closed.append(effect)
            elif isinstance(effect, TurnWanted):
                self.wants_turn = True

    def say(self, data: bytes) -> bytes:
        """What is heard because of these octets."""
        self.heard = b""
        self.tell(Received(self.link, data))
        return self.heard

    def wait(self, duration_ns: int) -> bytes:
        """What is heard while so long nothing is said."""
        self.heard = b""
        end_ns = self.now_ns + duration_ns
        while (due := self.engine.deadline()) is not None and due <= at(end_ns).monotonic_ns:
            self.now_ns = due - at(0).monotonic_ns
            self.tell(DeadlineReached())
        self.now_ns = end_ns
        return self.heard


def test_each_frame_is_the_dialects_and_each_send_is_a_frame() -> None:
    peer = Peer()
    assert peer.say(OPENING) == SERVERS[12:]
    said = message(b"one") + message(b"", b"two", b"", b"three") + message(b"")
    assert peer.say(said) == message(b"one") + message(b"two") + message(b"three") + message(b"")


def test_a_dialect_hears_of_its_link_once_the_handshake_is_done() -> None:
    peer = Peer()
    peer.say(OPENING[:-1])
    assert peer.echo.told == []
    peer.say(OPENING[-1:])
    assert peer.echo.told == [LinkOpened(1, "zeromq", "peer", "local")]


def test_frames_beyond_one_turns_work_wait_for_the_next_turn_and_keep_their_order() -> None:
    peer = Peer()
    peer.say(OPENING)
    said = b"".join(message(number.to_bytes(2, "big")) for number in range(6000))
    heard = peer.say(said)
    turns = 0
    while peer.wants_turn:
        assert heard == said[: len(heard)]
        peer.wants_turn = False
        peer.tell(TurnGiven(1))
        heard = peer.heard
        turns += 1
    assert turns >= 2
    assert heard == said


def test_a_link_whose_dialect_waits_for_an_answer_is_told_no_frame_until_it_has_it() -> None:
    peer = Peer()
    peer.say(OPENING)
    peer.echo.is_awaiting = True
    effects = peer.engine.handle(Received(1, message(b"one") + message(b"two")), at(0))
    assert effects[-1] == AnswersAwaited(1)
    assert len(peer.echo.told) == 1
    peer.echo.is_awaiting = False
    assert peer.engine.handle("an answer of the streams floor", at(0))[-1] == TurnWanted(1)
    peer.heard = b""
    peer.tell(TurnGiven(1))
    assert peer.heard == message(b"one") + message(b"two")


@pytest.mark.parametrize("ends", ["by a fault", "replaced"])
def test_a_link_that_ends_while_it_waits_for_an_answer_wants_a_turn_behind_which_it_may_be_closed(ends: str) -> None:
    identities = Identities()
    peer = Peer(identities)
    peer.say(greeting() + ready(identity=b"me") + message(b"attach"))
    peer.echo.is_awaiting = True
    peer.tell(Received(1, message(b"one")))
    peer.wants_turn = False
    if ends == "replaced":
        other = Peer(identities, 2)
        effects = [*other.engine.handle(Received(2, greeting() + ready(identity=b"me") + message(b"attach")), at(0))]
    else:
        effects = [*peer.engine.handle(DrainRequested(1), at(0))]
        peer.echo.is_awaiting = False
        effects += peer.engine.handle("the end of it", at(0))
    assert TurnWanted(1) in effects


def test_what_comes_behind_a_farewell_is_heard_by_nobody() -> None:
    peer = Peer()
    peer.say(OPENING)
    assert peer.say(message(b"bye") + message(b"more")) == message(b"farewell")
    assert peer.closed == [CloseLink(1, "asked")]
    peer.say(message(b"even more"))
    assert peer.echo.told[1:] == [Received(1, b"bye")]


def test_a_broken_bound_is_told_the_dialect_which_says_why_and_then_the_link_is_closed() -> None:
    peer = Peer()
    peer.say(OPENING)
    assert peer.say(message(b"a") + frame(1, b"x" * 800) + frame(0, b"x" * 800)) == message(b"a") + message(
        b"too-large"
    )
    assert [order.reason for order in peer.closed] == ["too-large"]


def test_a_dialect_that_owes_answers_has_a_greetings_time_for_its_last_word() -> None:
    for waits in (True, False):
        peer = Peer()
        peer.say(OPENING)
        peer.echo.is_attached = True
        assert peer.say(b"\xff") == message(b"bad-frame")
        assert peer.closed == []
        if waits:
            peer.wait(5 * SECOND_NS)
        else:
            peer.echo.is_attached = False
            peer.tell("an answer of the streams floor")
        assert [order.reason for order in peer.closed] == ["bad-frame"]


def test_a_frame_that_the_node_takes_no_more_of_ends_the_link() -> None:
    peer = Peer()
    peer.say(OPENING + frame(1, b"x" * 900))
    peer.heard = b""
    peer.tell(FrameRefused(1, "too-slow", "others wait"))
    assert peer.heard == message(b"too-slow")
    assert [order.reason for order in peer.closed] == ["too-slow"]
    assert peer.engine.unfinished == (0, 0)


@pytest.mark.parametrize("said", [b"", OPENING[:11], OPENING[:64], OPENING[:-1]])
def test_who_does_not_finish_the_handshake_in_time_is_let_go(said: bytes) -> None:
    peer = Peer()
    peer.say(said)
    peer.wait(5 * SECOND_NS - 1)
    assert peer.closed == []
    peer.wait(1)
    assert [order.reason for order in peer.closed] == ["greeting-timeout"]
    assert peer.echo.told == []


def test_a_node_that_was_away_while_a_peer_shook_hands_gives_it_the_whole_time_anew() -> None:
    peer = Peer()
    peer.say(OPENING[:11])
    peer.now_ns = 500 * SECOND_NS
    peer.tell(DeadlineReached())
    assert peer.closed == []
    peer.wait(5 * SECOND_NS - 1)
    assert peer.closed == []
    peer.wait(1)
    assert [order.reason for order in peer.closed] == ["greeting-timeout"]


def test_a_silent_peer_is_pinged_and_one_that_answers_lives() -> None:
    peer = Peer()
    peer.say(OPENING)
    for _ in range(5):
        assert peer.wait(10 * SECOND_NS) == command(b"PING", bytes(2))
        peer.say(command(b"PONG"))
    assert peer.closed == []


def test_a_peer_that_answers_nothing_is_let_go() -> None:
    peer = Peer()
    peer.say(OPENING)
    assert peer.wait(29 * SECOND_NS) == command(b"PING", bytes(2)) * 2
    peer.wait(SECOND_NS)
    assert [order.reason for order in peer.closed] == ["silent"]


def test_a_peer_of_3_0_is_not_pinged_and_its_silence_says_nothing() -> None:
    peer = Peer()
    peer.say(greeting(version=b"\x03\x00") + ready())
    assert peer.wait(1000 * SECOND_NS) == b""
    assert peer.closed == []


def test_the_time_to_live_of_a_peers_ping_is_kept() -> None:
    for version in (b"\x03\x00", b"\x03\x01"):
        peer = Peer()
        peer.say(greeting(version=version) + ready())
        peer.say(command(b"PING", b"\x00\x14"))
        peer.wait(SECOND_NS)
        peer.say(message(b"alive"))
        peer.wait(2 * SECOND_NS - 1)
        assert peer.closed == []
        peer.wait(1)
        assert [order.reason for order in peer.closed] == ["silent"]


def test_a_peer_is_not_silent_while_nobody_reads_from_it() -> None:
    peer = Peer()
    peer.say(OPENING)
    peer.tell(ReadingPaused(1))
    peer.wait(100 * SECOND_NS)
    peer.tell(ReadingResumed(1))
    peer.wait(29 * SECOND_NS)
    assert peer.closed == []
    peer.wait(31 * SECOND_NS)
    assert [order.reason for order in peer.closed] == ["silent"]


def test_for_how_long_the_node_comes_late_is_not_the_peers_silence() -> None:
    peer = Peer()
    peer.say(OPENING)
    peer.now_ns, peer.heard = 500 * SECOND_NS, b""
    peer.tell(DeadlineReached())
    assert peer.heard == command(b"PING", bytes(2))
    peer.wait(20 * SECOND_NS - 1)
    assert peer.closed == []
    peer.wait(1)
    assert [order.reason for order in peer.closed] == ["silent"]


def test_a_new_link_with_the_identity_of_another_replaces_it_when_it_attaches() -> None:
    identities = Identities()
    former, latter = Peer(identities, 1), Peer(identities, 2)
    former.say(greeting() + ready(identity=b"me") + message(b"attach"))
    latter.say(greeting() + ready(identity=b"me") + message(b"not yet"))
    assert former.say(message(b"here I am")) == message(b"here I am"), "to connect is not enough"
    effects = latter.engine.handle(Received(2, message(b"attach")), at(0))
    assert [effect for effect in effects if isinstance(effect, CloseLink)] == [CloseLink(1, "replaced")]
    assert [(note.level, note.event) for note in effects if isinstance(note, Note)] == [
        ("warning", "identity-taken-over")
    ]
    drained, closed = former.echo.told[-2:]
    assert isinstance(drained, DrainRequested)
    assert drained.code == "replaced"
    assert closed == LinkClosed(1, "replaced")
    assert former.say(message(b"from my former life")) == b""
    assert latter.say(message(b"here I am")) == message(b"here I am")
    former.tell(LinkClosed(1, "closed"))
    third = Peer(identities, 3)
    third.say(greeting() + ready(identity=b"me") + message(b"attach"))
    assert latter.echo.told[-1] == LinkClosed(2, "replaced"), "what the former link left behind is the latter's"


def test_nobody_replaces_a_link_of_another_principal_or_without_an_identity() -> None:
    identities = Identities()
    peers = [Peer(identities, 1, "alice"), Peer(identities, 2, "bob"), Peer(identities, 3), Peer(identities, 4)]
    for peer in peers[:2]:
        peer.say(greeting() + ready(identity=b"me") + message(b"attach"))
    for peer in peers[2:]:
        peer.say(OPENING)
    assert [peer.say(message(b"here")) for peer in peers] == [message(b"here")] * 4


def test_a_node_that_stops_closes_links_that_have_not_greeted_yet() -> None:
    peer = Peer()
    peer.say(OPENING[:30])
    peer.tell(DrainRequested(1))
    assert peer.closed == [CloseLink(1, "draining")]


PHASES = {
    "waiting": lambda: Peer().engine,
    "greeted": lambda: _told(OPENING[:64]),
    "open": lambda: _told(OPENING),
    "within a message": lambda: _told(OPENING + frame(1, b"a")),
    "over": lambda: _told(OPENING + b"\xff"),
}
EVENTS = [
    LinkOpened(1, "zeromq", "peer"),
    LinkClosed(1),
    DeadlineReached(),
    DrainRequested(1),
    ReadingPaused(1),
    ReadingResumed(1),
    *(Received(1, data) for data in (b"", b"\xff", OPENING, message(b"a", b"b"), command(b"PING", b"\0\1"))),
]


def _told(data: bytes) -> kit.AnyEngine:
    peer = Peer()
    peer.say(data)
    return peer.engine


def test_a_framed_link_answers_every_event_in_every_phase() -> None:
    kit.check_total(PHASES, EVENTS)


@pytest.mark.parametrize("phase", PHASES)
def test_its_deadlines_make_progress(phase: str) -> None:
    kit.check_deadlines(PHASES[phase])


def test_it_takes_its_input_in_any_cut() -> None:
    data = OPENING + message(b"a", b"", b"b" * 300) + command(b"PING", bytes(3)) + message(b"c")
    for ending in (b"", b"\xff" * 30, message(b"bye") + message(b"d")):
        kit.check_any_cut(PHASES["waiting"], 1, data + ending, (1, 2, 3, 5, 8, 64, 65))


def test_commands_of_who_is_attached_are_work_that_waits_for_turns() -> None:
    peer = Peer()
    pings = command(b"PING", bytes(2)) * 2000
    heard = peer.say(OPENING + pings)
    turns = 1
    while peer.wants_turn:
        peer.wants_turn = False
        peer.heard = b""
        peer.tell(TurnGiven(1))
        heard += peer.heard
        turns += 1
    assert heard.count(b"PONG") == 2000
    assert turns == 2000 * COMMAND_NS // QUANTUM_NS + 1


def test_who_sends_commands_before_it_attaches_is_let_go() -> None:
    peer = Peer()
    peer.echo.is_greeting = True
    peer.say(OPENING + command(b"PING", bytes(2)) * 8000)
    for _ in range(10):
        peer.tell(TurnGiven(1))
    assert [order.reason for order in peer.closed] == ["too-large"]
