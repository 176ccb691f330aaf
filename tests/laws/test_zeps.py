"""The laws, kept by both ends of a ZEPS link."""

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws import kit
from tests.processes import ended
from tests.protocols.zeps.place import batch
from veredus.kernel.engine import Now
from veredus.kernel.events import (
    DeadlineReached,
    LinkClosed,
    LinkCongested,
    LinkDrained,
    LinkOpened,
    LinkTaking,
    Received,
)
from veredus.matching import Filter
from veredus.protocols.links import DrainRequested, FrameRefused, ReadingPaused, ReadingResumed, session_of
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.client import ClientLink, ClientSettings
from veredus.protocols.zeps.client_exchange import (
    CloseRequested,
    CreditRequested,
    LeaveRequested,
    MessageRequested,
    OfferRequested,
    OpenRequested,
    SettleRequested,
)
from veredus.protocols.zeps.multicast import Multicaster
from veredus.protocols.zeps.orders import LinkLimits, PrincipalKnown
from veredus.streams import exchange as x
from veredus.streams.exchange import Durability

LINK = 1
SOURCE, SUBSCRIPTION, LEG = session_of(LINK, 1), session_of(LINK, 2), session_of(LINK, 3)
CUTS = (1, 2, 3, 5, 8, 13, 64)
ME = b"1" * 16

ATTACH_2 = frames.encode_attach("", 2)
HELLO = native.encode_message(0, m.Hello(client="c", token="t"))
OPENING = native.encode_message(1, m.AttachSource("s", "me", ME)) + native.encode_message(2, m.Subscribe("s"))
GRANTED = [
    x.GrantSource(SOURCE, 1, ME, 5, 1, 0, b"", 0, Durability.GROUP),
    x.GrantSubscription(SUBSCRIPTION, 1, ME, 1, 0, 1, 1, 0),
]
RECORD = batch(1, [(b"k", b"v")], 1, 5)
USE_2 = b"".join(
    (
        *native.encode_offer(1, RECORD),
        native.encode_credit(2, 100),
        native.encode_settle(2, ((1, 2),)),
        native.encode_frame(200, 9, b"?"),
        native.encode_message(0, m.Request(1, "stream.list")),
        native.encode_frame(native.Kind.PING, 0, b"echo"),
        native.encode_frame(native.Kind.CLOSE_CHANNEL, 1),
    )
)
USE_1 = b"".join(
    (
        frames.encode_subscribe(b"a", 4),
        frames.encode_publish(b"k", b"v" * 50),
        frames.PING,
        frames.encode_publish(b"k", b""),
        frames.encode_credit(7),
        frames.encode_subscribe(b"b", 0),
        frames.DETACH,
    )
)


def told(engine: kit.AnyEngine, *events: object) -> kit.AnyEngine:
    for event in events:
        engine.handle(event, kit.START)
    return engine


def waiting() -> NodeLink:
    return NodeLink(LINK, LinkLimits())


def listening(principal: str = "local", door: str = "tcp") -> kit.AnyEngine:
    return told(waiting(), LinkOpened(LINK, door, "peer", principal))


def native_asking() -> kit.AnyEngine:
    return told(listening(""), Received(LINK, ATTACH_2 + HELLO))


def native_open() -> kit.AnyEngine:
    return told(native_asking(), PrincipalKnown(LINK, "p"))


def native_granted() -> kit.AnyEngine:
    return told(native_open(), Received(LINK, OPENING), *GRANTED)


def zeps1_asking() -> kit.AnyEngine:
    return told(listening(""), Received(LINK, frames.encode_attach("s")))


def zeps1_attaching(door: str = "tcp") -> kit.AnyEngine:
    return told(listening("local", door), Received(LINK, frames.encode_attach("s")))


def zeps1_open(door: str = "tcp") -> kit.AnyEngine:
    return told(zeps1_attaching(door), GRANTED[0])


def zeps1_subscribed() -> kit.AnyEngine:
    return told(zeps1_open(), Received(LINK, frames.encode_subscribe(b"k", 0) + frames.PING), GRANTED[1])


def zeps1_walking(door: str = "tcp") -> kit.AnyEngine:
    asked = told(zeps1_open(door), Received(LINK, frames.encode_subscribe(b"k", 0)), GRANTED[1])
    return told(asked, x.GrantSubscription(LEG, 1, ME, 1, 0, 1, 1, 0), Received(LINK, frames.encode_credit(9)))


def zeps1_pinging() -> kit.AnyEngine:
    return told(zeps1_walking(), Received(LINK, frames.encode_publish(b"k", b"") + frames.PING))


def zeps1_blamed() -> kit.AnyEngine:
    return told(zeps1_open(), Received(LINK, frames.encode_publish(b"k", b"") + frames.SUBSCRIBE_OK))


def zeps1_again() -> kit.AnyEngine:
    return told(zeps1_walking("zeromq"), Received(LINK, frames.encode_attach("s")))


def zeps1_again_and_owed() -> kit.AnyEngine:
    said = (frames.encode_publish(b"k", b""), frames.PING, frames.encode_attach("s"))
    return told(zeps1_open("zeromq"), *(Received(LINK, frame) for frame in said))


def feeding() -> kit.AnyEngine:
    feed = Multicaster(LINK, "s", 1_400, 10**9)
    return told(feed, LinkOpened(LINK, "multicast", "s"), x.GrantSubscription(SOURCE, 1, ME, 1, 0, 1, 1, 0))


FEED_PHASES = {
    "waiting": lambda: Multicaster(LINK, "s", 1_400, 10**9),
    "asking": lambda: told(Multicaster(LINK, "s", 1_400, 10**9), LinkOpened(LINK, "multicast", "s")),
    "feeding": feeding,
    "resting": lambda: told(feeding(), x.EndSubscription(SOURCE, 5)),
    "closed": lambda: told(feeding(), DrainRequested(LINK)),
}


def zeps1_leaving() -> kit.AnyEngine:
    return told(zeps1_open(), Received(LINK, frames.encode_publish(b"k", b"") + frames.DETACH))


NODE_PHASES = {
    "waiting": waiting,
    "listening": listening,
    "listening at zeromq": lambda: listening("local", "zeromq"),
    "native greeting": lambda: told(listening(), Received(LINK, ATTACH_2)),
    "native asking": native_asking,
    "native open": native_open,
    "native granted": native_granted,
    "native closed": lambda: told(native_granted(), DrainRequested(LINK)),
    "1 asking": zeps1_asking,
    "1 attaching": zeps1_attaching,
    "1 open": zeps1_open,
    "1 at zeromq that attaches again": zeps1_again_and_owed,
    "1 at zeromq": lambda: zeps1_open("zeromq"),
    "1 subscribed": zeps1_subscribed,
    "1 walking": zeps1_walking,
    "1 pinging": zeps1_pinging,
    "1 blamed": zeps1_blamed,
    "1 attached again": zeps1_again,
    "1 leaving": zeps1_leaving,
    "1 closed": lambda: told(zeps1_subscribed(), LinkClosed(LINK)),
}
BYTES = [
    b"",
    b"\x00",
    ATTACH_2,
    HELLO,
    OPENING,
    USE_2,
    USE_1,
    frames.encode_attach("s"),
    *(frames.SIGNATURE + bytes((n,)) + bytes(20) for n in range(14)),
    *(native.encode_frame(kind, channel, b"\x80") for kind in native.Kind for channel in (0, 1, 2, 7)),
]
NODE_EVENTS = [
    LinkOpened(LINK, "tcp", "peer"),
    LinkClosed(LINK),
    LinkCongested(LINK),
    LinkDrained(LINK),
    LinkTaking(LINK),
    DeadlineReached(),
    DrainRequested(LINK),
    PrincipalKnown(LINK, "p"),
    PrincipalKnown(LINK, None, "no"),
    ReadingPaused(LINK),
    ReadingResumed(LINK),
    FrameRefused(LINK, "too-large", "no"),
    x.Push(SUBSCRIPTION + 5, [bytes(RECORD)], 0, 1, 1, 0, ((5, "me"),)),
    *(Received(LINK, data) for data in BYTES),
    *(
        order
        for session in (session_of(LINK, 0), SOURCE, SUBSCRIPTION, session_of(LINK, 9))
        for order in (
            x.GrantSource(session, 1, ME, 2, 3, 4, b"", 0, Durability.GROUP),
            x.ConfirmTaken(session, 1, 1, False, Durability.GROUP),
            x.RefuseBatch(session, 1, "gap", "no", 0),
            x.GrantSubscription(session, 1, ME, 1, 1, 1, 1, 1),
            x.PushProgress(session, 5),
            x.PushGap(session, 1, 2, "trimmed"),
            x.EndSubscription(session, 5),
            x.ConfirmSettled(session, 1, ((3, 4),)),
            x.ConfirmFilter(session, 1),
            x.GrantRun(session, 1, -1, b""),
            x.GrantStage(session, 1, 1),
            x.ConfirmCommitted(session, 1, 1, False, b"\x90"),
            x.AnswerAdmin(session, 1, {}),
            x.Refuse(session, "no", "no"),
            x.Refuse(session, "no", "no", is_final=False),
            x.Fence(session, 2, "no"),
        )
    ),
]


def greeted_client() -> kit.AnyEngine:
    welcome = m.Welcome("n", "p", 2, 1 << 20, 10, 30_000, 1, 1, 1, 1, 1)
    data = frames.ATTACH_OK + native.encode_message(0, welcome)
    return told(ClientLink(LINK, ClientSettings()), LinkOpened(LINK, "tcp", "node"), Received(LINK, data))


CLIENT_PHASES = {
    "connecting": lambda: ClientLink(LINK, ClientSettings()),
    "attaching": lambda: told(ClientLink(LINK, ClientSettings()), LinkOpened(LINK, "tcp", "node")),
    "greeting": lambda: told(
        ClientLink(LINK, ClientSettings()), LinkOpened(LINK, "tcp", "node"), Received(LINK, frames.ATTACH_OK)
    ),
    "open": greeted_client,
    "opening": lambda: told(greeted_client(), OpenRequested(1, m.Subscribe("s"))),
    "closing": lambda: told(greeted_client(), OpenRequested(1, m.Subscribe("s")), CloseRequested(1)),
    "closed": lambda: told(greeted_client(), LinkClosed(LINK)),
}
ANSWERS = [
    frames.ATTACH_OK,
    frames.encode_invalid("no"),
    native.encode_message(0, m.Welcome("n", "p", 2, 1 << 20, 10, 0, 1, 1, 1, 1, 1)),
    native.encode_message(1, m.Subscribed(1, ME, 1, 0, 1, 1, 0)),
    native.encode_deliver(1, 0, 0),
    *native.encode_settled(1, 0, ()),
    native.encode_receipt(1, 1, 1, False, 0),
    native.encode_message(1, m.Progress(5)),
    native.encode_message(1, m.End(5)),
    native.encode_message(1, m.Refusal("no", "no", final=False)),
    native.encode_message(0, m.Refusal("no", "no")),
    native.encode_message(0, m.Reply(1, None)),
    native.encode_message(0, m.Goodbye("draining")),
    native.encode_frame(native.Kind.PING, 0, b"x"),
]
CLIENT_EVENTS = [
    LinkOpened(LINK, "tcp", "node"),
    LinkClosed(LINK),
    LinkCongested(LINK),
    LinkDrained(LINK),
    LinkTaking(LINK),
    DeadlineReached(),
    OpenRequested(1, m.Subscribe("s")),
    OpenRequested(0, m.Subscribe("s")),
    OfferRequested(1, b""),
    CreditRequested(1, 5),
    SettleRequested(1, ((1, 1),)),
    MessageRequested(0, m.Request(1, "stream.list")),
    MessageRequested(1, m.ChangeFilter(Filter())),
    MessageRequested(0, m.ChangeFilter(Filter())),
    CloseRequested(1),
    CloseRequested(5),
    LeaveRequested(),
    *(Received(LINK, data) for data in (*BYTES, *ANSWERS)),
]


HISTORIES = st.lists(st.sampled_from(NODE_EVENTS), max_size=12)


def test_a_nodes_link_answers_every_event_in_every_phase() -> None:
    kit.check_total(NODE_PHASES, NODE_EVENTS)


def test_a_feed_answers_every_event_in_every_phase() -> None:
    kit.check_total(FEED_PHASES, NODE_EVENTS)


@pytest.mark.parametrize("phase", FEED_PHASES)
def test_a_feeds_deadlines_make_progress(phase: str) -> None:
    kit.check_deadlines(FEED_PHASES[phase])


def test_a_clients_link_answers_every_event_in_every_phase() -> None:
    kit.check_total(CLIENT_PHASES, CLIENT_EVENTS)


@pytest.mark.parametrize("phase", NODE_PHASES)
def test_a_nodes_deadlines_make_progress(phase: str) -> None:
    kit.check_deadlines(NODE_PHASES[phase])


@pytest.mark.parametrize("phase", CLIENT_PHASES)
def test_a_clients_deadlines_make_progress(phase: str) -> None:
    kit.check_deadlines(CLIENT_PHASES[phase])


def test_a_native_link_takes_its_input_in_any_cut() -> None:
    kit.check_any_cut(lambda: listening(""), LINK, ATTACH_2 + HELLO, CUTS, [PrincipalKnown(LINK, "p")])
    kit.check_any_cut(native_granted, LINK, USE_2, CUTS)
    kit.check_any_cut(native_granted, LINK, USE_2 + b"\xff" * 50 + USE_2, CUTS)


def test_a_version_1_link_takes_its_input_in_any_cut() -> None:
    kit.check_any_cut(listening, LINK, frames.PING + frames.encode_attach("s") + USE_1, CUTS, [GRANTED[0]])
    kit.check_any_cut(zeps1_open, LINK, USE_1, CUTS)
    kit.check_any_cut(zeps1_open, LINK, USE_1[:-3] + frames.ATTACH_OK + USE_1, CUTS)


def test_a_clients_link_takes_its_input_in_any_cut() -> None:
    welcome = native.encode_message(0, m.Welcome("n", "p", 2, 1 << 20, 10, 30_000, 1, 1, 1, 1, 1))
    attaching = CLIENT_PHASES["attaching"]
    kit.check_any_cut(attaching, LINK, frames.ATTACH_OK + welcome + ANSWERS[-1] * 3 + ANSWERS[-2], CUTS)
    kit.check_any_cut(CLIENT_PHASES["opening"], LINK, b"".join(ANSWERS[3:10]), CUTS)


@given(st.binary(max_size=120), st.sampled_from(sorted(NODE_PHASES)))
def test_what_a_peer_says_never_raises_out_of_a_nodes_link(data: bytes, phase: str) -> None:
    for said in (data, frames.SIGNATURE + data):
        NODE_PHASES[phase]().handle(Received(LINK, said), kit.START)


@given(HISTORIES, st.sampled_from(sorted(NODE_PHASES)))
def test_any_history_gives_the_same_orders_again(history: list[object], phase: str) -> None:
    kit.check_deterministic(NODE_PHASES[phase], history)


@given(HISTORIES, st.sampled_from(["1 open", "native open", "native granted"]))
def test_no_session_is_closed_twice_whatever_happens(history: list[object], phase: str) -> None:
    facts = kit.effects_of(NODE_PHASES[phase](), [*history, LinkClosed(LINK)])
    open_sessions = {"1 open": [SOURCE], "native open": [], "native granted": [SOURCE, SUBSCRIPTION]}[phase]
    for fact in facts:
        if isinstance(fact, x.SourceAttachRequested | x.SubscribeRequested | x.RunOpenRequested | x.StageOpenRequested):
            assert fact.session not in open_sessions
            open_sessions.append(fact.session)
        elif isinstance(fact, x.SessionClosed):
            open_sessions.remove(fact.session)
    assert open_sessions == []


STORY = """
from tests.laws import kit
from tests.laws.test_zeps import NODE_EVENTS, NODE_PHASES
for name, make in NODE_PHASES.items():
    for event in NODE_EVENTS:
        print(name, kit.joined(kit.effects_of(make(), [event, event])))
"""


def test_the_same_story_is_told_under_every_hash_seed() -> None:
    outputs = [
        ended(
            [sys.executable, "-c", STORY],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
        for seed in ("0", "1")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 100_000


def test_a_law_that_is_broken_is_noticed() -> None:
    class Forgetful:
        def __init__(self) -> None:
            self.heard: set[int] = set()

        def handle(self, event: object, now: Now) -> list[object]:
            return [len(getattr(event, "data", b""))]

        def deadline(self) -> int | None:
            return kit.START.monotonic_ns

    with pytest.raises(AssertionError):
        kit.check_any_cut(Forgetful, LINK, b"abc", (1,))
    with pytest.raises(AssertionError):
        kit.check_deadlines(Forgetful)
