"""A client's engine and a node's link as a pair over the real streams floor: fed whole, and byte by byte."""

import pytest

from veredus.delivery.batch import BatchLimits
from veredus.kernel.effects import Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import Misuse
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkCongested, LinkDrained, LinkOpened, Received
from veredus.matching import Filter
from veredus.protocols.links import DrainRequested, session_of
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client import ClientLink, ClientSettings
from veredus.protocols.zeps.client_exchange import (
    CloseRequested,
    CreditRequested,
    FramesReceived,
    LeaveRequested,
    MessageRequested,
    OfferRequested,
    OpenRequested,
    SettleRequested,
    TellClosed,
    TellDelivery,
    TellLinkClosed,
    TellMessage,
    TellOpened,
    TellReceipts,
    TellSettled,
    TellWelcome,
)
from veredus.protocols.zeps.native import Kind, Receipt
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zeps.parsing import FrameParser
from veredus.streams import exchange as x
from veredus.streams.exchange import Durability

from .place import SECOND_NS, START_NS, WALL_NS, Pair, Place, batch, rows_in

ME, OTHER = b"1" * 16, b"2" * 16
MUCH = 1 << 40
CUTS = [1 << 30, 1, 7]


@pytest.fixture(params=CUTS, ids=["whole", "byte by byte", "by sevens"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(Place(), cut=request.param)


def attach(pair: Pair, source: str = "me", incarnation: bytes = ME, epoch: int = 0) -> tuple[int, m.SourceAttached]:
    channel, grant = pair.open(m.AttachSource("s", source, incarnation, epoch))
    assert isinstance(grant, m.SourceAttached)
    return channel, grant


def offer(pair: Pair, channel: int, grant: m.SourceAttached, first: int, *keys: bytes) -> list[object]:
    record = batch(first, [(key, b"v" + key) for key in keys], grant.stream_id, grant.source_id, grant.epoch)
    return pair.ask(OfferRequested(channel, record))


# ── greeting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_is_welcomed_with_its_principal_and_the_limits(pair: Pair) -> None:
    (welcome,) = pair.heard(TellWelcome)
    assert (welcome.welcome.node, welcome.welcome.principal, welcome.welcome.version) == ("veredus", "somebody", 2)
    assert welcome.welcome.limits == BatchLimits()
    assert pair.client.is_open


def test_a_principal_proved_by_the_transport_needs_no_token() -> None:
    pair = Pair(Place(), settings=ClientSettings("c"), principal="certified")
    assert pair.heard(TellWelcome)[0].welcome.principal == "certified"


def test_a_token_that_is_not_known_is_refused_and_the_link_closed(pair: Pair) -> None:
    stranger = Pair(pair.place, 2, ClientSettings("c", "stolen"), pair.cut)
    assert stranger.told == [TellLinkClosed("unauthenticated", "this token is not known here")]
    assert pair.place.closed == {2: "unauthenticated"}


@pytest.mark.parametrize(
    "answer",
    [frames.encode_invalid("version 2 is not spoken here"), b"HTTP/1.1 400 Bad Request", frames.DETACH],
    ids=["invalid", "another protocol", "another command"],
)
def test_a_server_that_does_not_speak_version_2_is_named_as_such(answer: bytes) -> None:
    client = ClientLink(1, ClientSettings())
    now = Now(START_NS, START_NS)
    client.handle(LinkOpened(1, "tcp", "node"), now)
    told = client.handle(Received(1, answer), now)
    assert [t.code for t in told if isinstance(t, TellLinkClosed)] == ["version-unknown"]


def test_a_greeting_that_does_not_come_is_given_up_on_both_sides() -> None:
    place = Place()
    place.open(1)
    client = ClientLink(1, ClientSettings())
    client.handle(LinkOpened(1, "tcp", "node"), place.now)
    assert place.receive(1, frames.encode_attach("", 2)) == frames.ATTACH_OK
    place.wait(place.limits.greeting_timeout_ns)
    assert place.closed == {1: "greeting-timeout"}
    told: list[object] = []
    while not told:
        due = client.deadline()
        assert due is not None
        told += client.handle(DeadlineReached(), Now(due, due))
    assert due == START_NS + ClientSettings().greeting_timeout_ns
    assert [t.code for t in told if isinstance(t, TellLinkClosed)] == ["greeting-timeout"]


@pytest.mark.parametrize("said", [b"", frames.encode_attach("", 2)], ids=["nothing", "ATTACH"])
@pytest.mark.parametrize("is_told_first", [True, False])
def test_a_node_that_was_away_while_a_peer_greeted_gives_it_the_whole_time_anew(
    said: bytes, is_told_first: bool
) -> None:
    place = Place()
    place.open(1)
    if is_told_first:
        place.receive(1, said)
    place.monotonic_ns += 10 * place.limits.greeting_timeout_ns
    place.wait(0)
    if not is_told_first:
        place.receive(1, said)
    place.wait(place.limits.greeting_timeout_ns - 1)
    assert place.closed == {}
    place.wait(1)
    assert len(place.closed) == 1


def test_who_has_greeted_and_whose_token_is_not_checked_in_time_is_told_that_and_may_try_again() -> None:
    place = Place()
    place.is_known_who_asks = False
    place.open(1)
    place.receive(1, frames.encode_attach("", 2))
    place.receive(1, native.encode_message(0, m.Hello(token="t")))
    place.wait(place.limits.greeting_timeout_ns)
    assert place.closed == {1: "too-busy"}
    assert b"too many tokens are being checked" in place.sent[1][-1]


@pytest.mark.parametrize("kind", [Kind.ATTACH_SOURCE, Kind.OFFER, Kind.REQUEST, Kind.WELCOME, Kind.CLOSE_CHANNEL])
def test_nothing_is_heard_before_the_greeting(kind: Kind) -> None:
    place = Place()
    place.open(1)
    place.receive(1, frames.encode_attach("", 2))
    place.receive(1, native.encode_frame(kind, 1, b"\x80"))
    assert place.closed == {1: "bad-frame"}
    assert place.down == []


def test_bytes_before_the_greeting_are_bounded() -> None:
    place = Place()
    place.open(1)
    place.receive(1, frames.encode_attach("", 2))
    pings = native.encode_frame(Kind.PING, 0, bytes(56)) * (place.limits.greeting_size_max // 64)
    place.receive(1, pings)
    assert place.closed == {}
    place.receive(1, native.encode_frame(Kind.PING, 0))
    assert place.closed == {1: "too-large"}


def test_a_frame_over_the_announced_size_ends_the_link(pair: Pair) -> None:
    limit = pair.heard(TellWelcome)[0].welcome.frame_size_max
    pair.place.receive(1, (limit + 1).to_bytes(4, "little") + bytes((Kind.OFFER, 0, 1, 0)))
    assert pair.place.closed == {1: "too-large"}


# ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_offered_taken_and_recognised_when_it_is_offered_again(pair: Pair) -> None:
    channel, grant = attach(pair)
    assert (grant.epoch, grant.last_number, grant.durability) == (1, 0, Durability.GROUP)
    assert offer(pair, channel, grant, 1, b"a", b"b") == [TellReceipts(channel, [Receipt(2, 1, False, 0)])]
    assert offer(pair, channel, grant, 1, b"a", b"b") == [TellReceipts(channel, [Receipt(2, 1, True, 0)])]


def test_a_number_gap_is_refused_and_the_channel_goes_on(pair: Pair) -> None:
    channel, grant = attach(pair)
    (told,) = offer(pair, channel, grant, 5, b"a")
    assert isinstance(told, TellMessage)
    assert isinstance(told.message, m.BatchRefused)
    assert (told.message.code, told.message.first_number, told.message.last_number) == ("gap", 5, 0)
    assert isinstance(offer(pair, channel, grant, 1, b"a")[0], TellReceipts)


def test_a_body_over_the_limit_is_refused_by_its_number_and_the_channel_goes_on() -> None:
    limits = LinkLimits()
    pair = Pair(Place(limits._replace(batch=limits.batch._replace(body_size_max=3))))
    channel, grant = attach(pair)
    (told,) = offer(pair, channel, grant, 1, b"key that makes a long body")
    assert (told.message.code, told.message.first_number, told.message.last_number) == ("too-large", 1, 0)
    assert isinstance(offer(pair, channel, grant, 1, b"a", b"b")[0], TellReceipts)
    (told,) = offer(pair, channel, grant, 3, b"key that makes a long body")
    assert (told.message.code, told.message.first_number, told.message.last_number) == ("too-large", 3, 2)
    assert isinstance(offer(pair, channel, grant, 3, b"a")[0], TellReceipts)


def test_a_garbled_batch_ends_the_link(pair: Pair) -> None:
    channel, grant = attach(pair)
    record = batch(1, [(b"a", b"b")], grant.stream_id, grant.source_id)
    record[100] ^= 1
    told = pair.ask(OfferRequested(channel, record))
    assert [t.code for t in told if isinstance(t, TellLinkClosed)] == ["bad-crc"]
    assert [f.session for f in pair.place.down if isinstance(f, x.SessionClosed)] == [session_of(1, channel)]


def test_a_second_incarnation_fences_the_first_which_hears_of_it_once(pair: Pair) -> None:
    channel, grant = attach(pair)
    other = Pair(pair.place, 2, cut=pair.cut)
    _, taken_over = attach(other, incarnation=OTHER)
    assert taken_over.epoch == grant.epoch + 1
    pair.exchange()
    (closed,) = pair.heard(TellClosed)
    assert (closed.channel, closed.cause.epoch) == (channel, 2)
    assert offer(pair, channel, grant, 1, b"a") == []


def test_offers_that_cross_the_end_of_their_channel_are_dropped(pair: Pair) -> None:
    channel, grant = attach(pair)
    record = bytes(batch(1, [(b"a", b"b")], grant.stream_id, grant.source_id))
    pair.place.tell(x.Fence(session_of(1, channel), 9, "another took over"))
    pair.place.receive(1, b"".join(native.encode_offer(channel, record)))
    assert pair.place.closed == {}
    assert not [f for f in pair.place.down if isinstance(f, x.BatchOffered)]


def test_a_record_is_handed_down_in_memory_that_the_node_may_write_to(pair: Pair) -> None:
    channel, grant = attach(pair)
    offer(pair, channel, grant, 1, b"a")
    (offered,) = [f for f in pair.place.down if isinstance(f, x.BatchOffered)]
    assert not memoryview(offered.record).readonly


# ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_published_is_pushed_by_credit_settled_and_not_pushed_again(pair: Pair) -> None:
    source, grant = attach(pair)
    offer(pair, source, grant, 1, b"a", b"b", b"c")
    channel, subscribed = pair.open(m.Subscribe("s", "app", "main", incarnation=ME, credit=1))
    assert (subscribed.epoch, subscribed.position, subscribed.head) == (1, 1, 3)
    (delivery,) = pair.heard(TellDelivery)
    assert [row[:2] for row in rows_in(delivery.records)] == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert delivery.size == x.PUSH_OVERHEAD + len(delivery.records)
    (names,) = [t.message for t in pair.heard(TellMessage)]
    assert names == m.Sources(((grant.source_id, "me"),))
    offer(pair, source, grant, 4, b"d")
    assert len(pair.heard(TellDelivery)) == 1
    pair.ask(CreditRequested(channel, MUCH))
    assert len(pair.heard(TellDelivery)) == 2
    assert pair.ask(SettleRequested(channel, ((1, 2),))) == [TellSettled(channel, 2, ())]
    other = Pair(pair.place, 2, cut=pair.cut)
    other.open(m.Subscribe("s", "app", "main", incarnation=OTHER, credit=MUCH))
    deliveries = other.heard(TellDelivery)
    assert [row[0] for d in deliveries for row in rows_in(d.records)] == [3, 4]
    assert deliveries[0].redelivered_to == 4


def test_a_filter_brings_excerpts_and_can_be_changed(pair: Pair) -> None:
    source, grant = attach(pair)
    offer(pair, source, grant, 1, b"a", b"b", b"a")
    channel, _ = pair.open(m.Subscribe("s", filter=Filter(("literal:a",)), credit=MUCH))
    assert pair.ask(MessageRequested(channel, m.ChangeFilter(Filter(("literal:b",))))) == [
        TellMessage(channel, m.FilterChanged(4))
    ]
    offer(pair, source, grant, 4, b"a", b"b")
    keys = [row[:2] for d in pair.heard(TellDelivery) for row in rows_in(d.records)]
    assert keys == [(1, b"a"), (3, b"a"), (5, b"b")]


def test_a_subscription_with_an_end_ends_and_frees_its_channel(pair: Pair) -> None:
    source, grant = attach(pair)
    offer(pair, source, grant, 1, b"a", b"b", b"c")
    channel, _ = pair.open(m.Subscribe("s", until=3, credit=MUCH))
    assert pair.heard(TellClosed) == [TellClosed(channel, m.End(3))]
    again = pair.ask(OpenRequested(channel, m.Subscribe("s", until=2)))
    assert isinstance(again[0], TellOpened)


def test_a_durable_subscription_is_told_of_its_end_and_settles_behind_it(pair: Pair) -> None:
    source, grant = attach(pair)
    offer(pair, source, grant, 1, b"a", b"b", b"c")
    channel, _ = pair.open(m.Subscribe("s", "app", "main", incarnation=ME, until=3, credit=MUCH))
    assert pair.heard(TellMessage)[-1] == TellMessage(channel, m.End(3, final=False))
    assert pair.ask(SettleRequested(channel, ((1, 2),))) == [TellSettled(channel, 2, ())]


def test_a_filter_that_does_not_parse_is_refused_with_its_position(pair: Pair) -> None:
    channel = pair.client.free_channel()
    (told,) = pair.ask(OpenRequested(channel, m.Subscribe("s", filter=Filter((), "a = = 1"))))
    assert isinstance(told, TellClosed)
    assert isinstance(told.cause, m.Refusal)
    assert (told.cause.code, told.cause.details["position"]) == ("bad-predicate", 4)


def test_a_congested_link_is_pushed_nothing_until_it_has_drained(pair: Pair) -> None:
    source, grant = attach(pair)
    pair.open(m.Subscribe("s", credit=MUCH))
    pair.place.tell(LinkCongested(1))
    offer(pair, source, grant, 1, b"a")
    assert pair.heard(TellDelivery) == []
    pair.place.tell(LinkDrained(1))
    pair.exchange()
    assert len(pair.heard(TellDelivery)) == 1


def test_a_node_that_delivers_more_than_there_is_credit_for_is_let_go(pair: Pair) -> None:
    source, grant = attach(pair)
    channel, _ = pair.open(m.Subscribe("s", credit=1))
    offer(pair, source, grant, 1, b"a")
    (delivery,) = pair.heard(TellDelivery)
    pushed = b"".join((native.encode_deliver(channel, 0, len(delivery.records)), delivery.records))
    told = pair.client.handle(Received(1, pushed), pair.place.now)
    assert [t.code for t in told if isinstance(t, TellLinkClosed)] == ["over-credit"]


def test_a_gap_and_progress_are_told_as_they_are(pair: Pair) -> None:
    channel, _ = pair.open(m.Subscribe("s"))
    session = session_of(1, channel)
    pair.place.tell(x.PushProgress(session, 70))
    pair.place.tell(x.PushGap(session, 70, 90, "trimmed"))
    pair.exchange()
    assert [t.message for t in pair.heard(TellMessage)] == [m.Progress(70), m.Gap(70, 90, "trimmed")]


# ── sinks and requests ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_stages_rows_on_another_link_and_commits_them_once(pair: Pair) -> None:
    run, opened = pair.open(m.OpenRun("sink", ME))
    assert (opened.epoch, opened.commit_id) == (WALL_NS // 1_000, -1)
    task = Pair(pair.place, 2, cut=pair.cut)
    stage, staged = task.open(m.OpenStage("sink", opened.epoch, "s", OTHER))
    record = batch(1, [(b"a", b"1"), (b"b", b"2")], staged.stream_id, 0, 0)
    assert task.ask(OfferRequested(stage, record)) == [TellReceipts(stage, [Receipt(2, 0, False, 0)])]
    committed = [TellMessage(run, m.Committed(7, 0, repeated, (("s", 1, 2),))) for repeated in (False, True)]
    assert pair.ask(MessageRequested(run, m.Commit(7, "sink", opened.epoch, 0, (staged.stage,)))) == [committed[0]]
    assert pair.ask(MessageRequested(run, m.Commit(7, "sink", opened.epoch, 0, (staged.stage,)))) == [committed[1]]


def test_stages_that_are_dropped_are_answered_for(pair: Pair) -> None:
    run, opened = pair.open(m.OpenRun("sink", ME))
    _, staged = pair.open(m.OpenStage("sink", opened.epoch, "s", OTHER))
    told = pair.ask(MessageRequested(run, m.DropStages(3, "sink", opened.epoch, (staged.stage, 99))))
    assert told == [TellMessage(run, m.Reply(3, {"dropped": [staged.stage]}))]


def test_a_refused_commit_leaves_the_run_open(pair: Pair) -> None:
    run, opened = pair.open(m.OpenRun("sink", ME))
    (told,) = pair.ask(MessageRequested(run, m.Commit(7, "sink", opened.epoch, 0, (99,))))
    assert isinstance(told.message, m.Refusal)
    assert (told.message.code, told.message.request, told.message.final) == ("unknown-stage", 7, False)
    assert isinstance(pair.ask(MessageRequested(run, m.Commit(8, "sink", opened.epoch, 0, ())))[0].message, m.Committed)


def test_a_commit_a_drop_and_a_token_without_a_number_end_their_channel_for_nothing_could_name_them(pair: Pair) -> None:
    for said in (m.Commit(0, "sink", 1, 0, (99,)), m.DropStages(0, "sink", 1, ())):
        run, _ = pair.open(m.OpenRun("sink", ME))
        (told,) = pair.ask(MessageRequested(run, said))
        assert isinstance(told, TellClosed)
        assert isinstance(told.cause, m.Refusal)
        assert (told.cause.code, told.cause.final) == ("bad-request", True)
    source, _ = attach(pair)
    (told,) = pair.ask(MessageRequested(source, m.StoreToken(0, 0, b"t")))
    assert (told.cause.code, told.cause.final) == ("bad-request", True)


def test_a_request_is_answered_or_refused_by_its_number(pair: Pair) -> None:
    (reply,) = pair.ask(MessageRequested(0, m.Request(1, "stream.create", {"name": "t"})))
    assert (reply.message.request, reply.message.result["name"]) == (1, "t")
    (refusal,) = pair.ask(MessageRequested(0, m.Request(2, "stream.shout")))
    assert (refusal.message.code, refusal.message.request) == ("unknown-verb", 2)


def test_the_number_of_a_request_is_free_again_once_it_was_answered_or_refused(pair: Pair) -> None:
    for verb in ("stream.shout", "stream.names", "stream.names"):
        (told,) = pair.ask(MessageRequested(0, m.Request(1, verb)))
        assert told.message.request == 1
    assert pair.client.is_open


def test_a_request_with_more_arguments_than_a_record_shows_is_refused(pair: Pair) -> None:
    arguments = {"name": "t"} | {f"word-{number}": number for number in range(16)}
    (refusal,) = pair.ask(MessageRequested(0, m.Request(1, "stream.create", arguments)))
    assert (refusal.message.code, refusal.message.request) == ("bad-request", 1)


# ── channels ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_channel_that_is_closed_is_answered_and_its_number_free_again(pair: Pair) -> None:
    channel, _ = attach(pair)
    assert pair.ask(CloseRequested(channel)) == [TellClosed(channel, None)]
    assert pair.ask(CloseRequested(channel)) == []
    assert isinstance(pair.ask(OpenRequested(channel, m.Subscribe("s")))[0], TellOpened)


def test_a_close_that_crosses_an_end_is_answered_once(pair: Pair) -> None:
    channel, _ = attach(pair)
    session = session_of(1, channel)
    pair.place.tell(x.Refuse(session, "stream-deleted", "gone"))
    crossing = pair.place.take(1)
    pair._carry(pair.client.handle(CloseRequested(channel), pair.place.now))
    for piece in pair._pieces(crossing):
        pair._carry(pair.client.handle(Received(1, piece), pair.place.now))
    pair.exchange()
    assert pair.heard(TellClosed) == [TellClosed(channel, None)]


def test_free_channels_run_out_at_the_nodes_limit() -> None:
    pair = Pair(Place(LinkLimits(channel_count_max=2)))
    first, _ = attach(pair, "one")
    pair.open(m.Subscribe("s"))
    with pytest.raises(Misuse, match="2 channels"):
        pair.client.free_channel()
    pair.ask(CloseRequested(first))
    assert pair.client.free_channel() not in pair.client._channels


def test_more_channels_than_the_limit_end_the_link() -> None:
    place = Place(LinkLimits(channel_count_max=1))
    pair = Pair(place)
    attach(pair)
    place.receive(1, native.encode_message(9, m.Subscribe("s")))
    assert place.closed == {1: "too-many-channels"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (native.encode_message(1, m.Subscribe("s")), "cannot be opened"),
        (native.encode_message(0, m.Subscribe("s")), "cannot be opened"),
        (native.encode_credit(9, 5), "never opened"),
        (native.encode_credit(0, 5), "never opened"),
        (native.encode_message(0, m.StoreToken(1, 1, b"t")), "never opened"),
        (native.encode_message(2, m.Request(1, "stream.list")), "channel 0"),
        (native.encode_message(0, m.Request(0, "stream.list")), "number from 1"),
        (native.encode_frame(Kind.CLOSE_CHANNEL, 0), "CLOSE_CHANNEL"),
        (native.encode_frame(Kind.PING, 0, bytes(65)), "64 bytes"),
        (native.encode_receipt(1, 1, 1, False, 0), "not expected from a client"),
        (native.encode_message(0, m.Hello()), "not expected from a client"),
    ],
)
def test_what_a_client_may_not_say_ends_the_link_with_the_reason(data: bytes, reason: str) -> None:
    pair = Pair(Place())
    attach(pair)
    parser = FrameParser(1 << 20)
    goodbye = native.decode_message(parser.feed(pair.place.receive(1, data))[-1])
    assert isinstance(goodbye, m.Goodbye)
    assert reason in goodbye.message
    assert 1 in pair.place.closed


def test_an_offer_before_the_grant_ends_the_link() -> None:
    pair = Pair(Place())
    pair.place.hold_journal()
    early = native.encode_message(1, m.AttachSource("s", "me", ME)) + b"".join(
        native.encode_offer(1, batch(1, [(b"a", b"")], 1, 1))
    )
    assert b"not granted yet" in pair.place.receive(1, early)


def test_what_is_not_known_and_optional_is_skipped_on_both_sides(pair: Pair) -> None:
    later = native.encode_frame(250, 3, b"later")
    assert pair.place.receive(1, later) == b""
    pair._carry(pair.client.handle(Received(1, later), pair.place.now))
    assert pair.client.is_open
    assert pair.place.closed == {}


# ── heartbeat and end ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_silent_peer_is_pinged_and_then_let_go() -> None:
    place = Place()
    pair = Pair(place)
    place.wait(place.limits.heartbeat_interval_ns)
    assert place.take(1) == native.encode_frame(Kind.PING, 0)
    place.wait(place.limits.silence_max_ns)
    assert place.closed == {1: "silent"}
    assert [note.fields["code"] for note in place.notes if note.event == "peer-broke-protocol"] == ["silent"]
    assert pair.client.is_open


def test_an_answered_ping_keeps_the_link() -> None:
    place = Place()
    pair = Pair(place)
    for _ in range(10):
        place.wait(place.limits.heartbeat_interval_ns)
        pair.exchange()
    assert place.closed == {}


def test_a_client_pings_a_quiet_node_and_gives_a_silent_one_up() -> None:
    place = Place()
    pair = Pair(place)
    said: list[object] = []
    while pair.client.is_open:
        due = pair.client.deadline()
        assert due is not None
        assert due > place.monotonic_ns
        place.monotonic_ns = due
        said += pair.client.handle(DeadlineReached(), place.now)
    assert place.monotonic_ns - START_NS >= place.limits.silence_max_ns
    pings = [effect for effect in said if getattr(effect, "buffers", None) == (native.encode_frame(Kind.PING, 0),)]
    assert pings
    assert [t.code for t in said if isinstance(t, TellLinkClosed)] == ["silent"]
    assert pair.client.deadline() is None


def test_a_client_that_comes_late_to_look_gives_no_node_up_that_it_did_not_ask_meanwhile() -> None:
    place = Place()
    pair = Pair(place)
    place.monotonic_ns += 10 * place.limits.silence_max_ns
    (said,) = pair.client.handle(DeadlineReached(), place.now)
    assert isinstance(said, Send)
    assert said.buffers == (native.encode_frame(Kind.PING, 0),)
    while pair.client.is_open:
        place.monotonic_ns = due = pair.client.deadline() or 0
        pair.told += pair.client.handle(DeadlineReached(), place.now)
        assert due < START_NS + 11 * place.limits.silence_max_ns
    assert [told.code for told in pair.heard(TellLinkClosed)] == ["silent"]


def test_a_client_that_comes_late_to_look_hears_of_a_link_that_was_closed_meanwhile() -> None:
    place = Place()
    pair = Pair(place)
    place.monotonic_ns += 10 * place.limits.silence_max_ns
    pair.ask(DeadlineReached())
    assert [told.code for told in pair.ask(LinkClosed(1, "reset"))] == ["link-lost"]


def test_a_client_that_sends_what_needs_no_answer_pings_a_quiet_node_all_the_same() -> None:
    place = Place()
    pair = Pair(place)
    channel, _ = pair.open(m.Subscribe("s", credit=1))
    for _ in range(100):
        place.monotonic_ns += place.limits.silence_max_ns // 10
        pair.ask(CreditRequested(channel, 1))
        pair.ask(DeadlineReached())
    assert pair.client.is_open


def test_a_client_that_is_late_during_the_greeting_waits_for_its_answer_as_long() -> None:
    client, timeout_ns = ClientLink(1, ClientSettings()), ClientSettings().greeting_timeout_ns
    client.handle(LinkOpened(1, "tcp", "node"), Now(START_NS, 0))
    now_ns = START_NS + 10 * timeout_ns
    assert client.handle(DeadlineReached(), Now(now_ns, 0)) == []
    told: list[object] = []
    while not told:
        due = client.deadline()
        assert due is not None
        told += client.handle(DeadlineReached(), Now(due, 0))
    assert due < now_ns + timeout_ns
    assert [told.code for told in told if isinstance(told, TellLinkClosed)] == ["greeting-timeout"]


def test_a_ping_is_given_back(pair: Pair) -> None:
    longest = native.encode_frame(Kind.PING, 0, bytes(native.PING_SIZE_MAX))
    assert pair.place.receive(1, longest) == native.encode_frame(Kind.PONG, 0, bytes(native.PING_SIZE_MAX))
    assert pair.place.receive(1, native.encode_frame(Kind.PING, 0, b"echo")) == native.encode_frame(
        Kind.PONG, 0, b"echo"
    )


def test_a_node_that_stops_says_goodbye(pair: Pair) -> None:
    attach(pair)
    pair.place.tell(DrainRequested(1, "maintenance"))
    pair.exchange()
    assert pair.told[-1] == TellLinkClosed("draining", "maintenance")
    assert not pair.client.is_open


def test_a_client_that_leaves_closes_its_sessions(pair: Pair) -> None:
    channel, _ = attach(pair)
    assert pair.ask(LeaveRequested("done")) == [TellLinkClosed("leaving", "done")]
    assert [f.session for f in pair.place.down if isinstance(f, x.SessionClosed)] == [session_of(1, channel)]


def test_a_lost_link_is_told_once_and_what_is_asked_afterwards_dropped(pair: Pair) -> None:
    channel, grant = attach(pair)
    assert [t.code for t in pair.ask(LinkClosed(1, "reset"))] == ["link-lost"]
    assert pair.ask(LinkClosed(1, "reset")) == []
    assert offer(pair, channel, grant, 1, b"a") == []
    assert pair.ask(Received(1, b"anything")) == []


@pytest.mark.parametrize(
    "data",
    [
        native.encode_receipt(5, 1, 1, False, 0),
        native.encode_deliver(5, 0, 0),
        native.encode_message(5, m.SourceAttached(1, ME, 1, 1, 0, b"", 0, Durability.GROUP)),
        native.encode_message(1, m.Subscribed(1, ME, 1, 1, 1, 1, 1)),
        native.encode_frame(Kind.CHANNEL_CLOSED, 1),
        native.encode_message(5, m.Refusal("x", "y")),
        native.encode_message(0, m.End(4)),
        native.encode_message(0, m.Hello()),
        native.encode_frame(Kind.GOODBYE, 0, b"\xc1"),
    ],
)
def test_a_node_that_breaks_the_protocol_is_left(data: bytes) -> None:
    pair = Pair(Place())
    attach(pair)
    told = pair.client.handle(Received(1, data), pair.place.now)
    assert [t.code for t in told if isinstance(t, TellLinkClosed)] == ["bad-frame"]


def test_nothing_may_be_asked_before_the_link_is_open() -> None:
    client = ClientLink(1, ClientSettings())
    for asked in (OpenRequested(1, m.Subscribe("s")), MessageRequested(0, m.Request(1, "stream.list"))):
        with pytest.raises(Misuse, match="wait until the link is open"):
            client.handle(asked, Now(0, 0))
    with pytest.raises(Misuse):
        client.free_channel()


def test_nothing_may_be_asked_of_a_channel_before_its_grant() -> None:
    place = Place()
    pair = Pair(place)
    place.hold_journal()
    pair.ask(OpenRequested(1, m.AttachSource("s", "me", ME)))
    with pytest.raises(Misuse, match="wait for its grant"):
        pair.client.handle(OfferRequested(1, b""), place.now)
    with pytest.raises(Misuse, match="in use"):
        pair.client.handle(OpenRequested(1, m.Subscribe("s")), place.now)


def test_frames_that_the_host_has_cut_itself_are_the_same(pair: Pair) -> None:
    channel, grant = attach(pair)
    record = batch(1, [(b"a", b"b")], grant.stream_id, grant.source_id)
    answer = FrameParser(1 << 20).feed(pair.place.receive(1, b"".join(native.encode_offer(channel, record))))
    told = pair.client.handle(FramesReceived(1, answer), pair.place.now)
    assert told == [TellReceipts(channel, [Receipt(1, 1, False, 0)])]


def test_time_between_heartbeats_costs_nothing_when_the_peer_talks() -> None:
    place = Place()
    pair = Pair(place)
    for _ in range(5):
        place.wait(place.limits.heartbeat_interval_ns - SECOND_NS)
        place.receive(1, native.encode_frame(Kind.PONG, 0))
    assert place.sent[1] == []
    assert pair.client.is_open


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (native.encode_message(1, m.Gap(100, 50, "damaged")), "a gap from 100 to before 50 is none"),
        (native.encode_message(1, m.Gap(50, 50, "damaged")), "a gap from 50 to before 50 is none"),
        (native.encode_message(1, m.Gap(1, 2, "x" * 60_000)), "a code may have 255 characters"),
        (native.encode_message(0, m.Reply(1, [()] * 2_000_000)), "a REPLY frame may have 1048576 values"),
        (native.HEAD.pack((4 << 20) + 8, Kind.SETTLED, 0, 1), "a SETTLED frame may have 4194304 bytes"),
    ],
    ids=["gap backwards", "empty gap", "long code", "many values", "many ranges"],
)
def test_what_cannot_be_or_is_too_much_is_refused_before_it_is_believed_or_kept(
    pair: Pair, said: bytes, why: str
) -> None:
    source, grant = attach(pair)
    channel, _ = pair.open(m.Subscribe("s", credit=1))
    assert (channel, grant.last_number) == (source + 1, 0)
    head = bytearray(said)
    if head[6]:
        head[6] = channel
    (told,) = [t for t in pair.client.handle(Received(1, bytes(head)), pair.place.now) if isinstance(t, TellLinkClosed)]
    assert (told.code, why in told.message) == ("bad-frame", True), told


def test_a_delivery_may_exceed_the_credit_by_one_record_of_the_size_that_nodes_take(pair: Pair) -> None:
    attach(pair)
    channel, _ = pair.open(m.Subscribe("s", credit=1))
    head = native.HEAD.pack(17 << 20, Kind.DELIVER, 0, channel)
    assert pair.client.handle(Received(1, head), pair.place.now) == []
