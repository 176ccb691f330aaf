"""What one session is asked and makes no sense ends that session; the others of its link go on."""

from typing import Any

import msgspec
import pytest

from tests.protocols.zeps.place import Pair, Place, batch
from veredus.delivery.batch import CODEC_FLAGS, BatchHeader, Layout, compressed, signed_record
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.kernel.octets import crc32c
from veredus.protocols.links import session_of
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native
from veredus.protocols.zeps.compiling import FILTER_NS_MAX, REGEX_NS
from veredus.protocols.zeps.native import Frame, Kind
from veredus.protocols.zeps.parsing import FrameParser
from veredus.streams import exchange as x

FREE = 9
SUBSCRIPTION, SOURCE, RUN = 1, 2, 3


@pytest.fixture
def pair() -> Pair:
    """A link with a subscription, a source and a run, in this order."""
    pair = Pair(Place())
    for opening in (
        m.Subscribe("s", credit=1 << 40),
        m.AttachSource("s", "me", b"1" * 16),
        m.OpenRun("sink", b"1" * 16),
    ):
        pair.open(opening)
    return pair


def say(pair: Pair, kind: Kind, channel: int, body: Any) -> list[Frame]:
    """Say something behind the client's back; what the node answers."""
    data = body if isinstance(body, bytes) else msgspec.msgpack.encode(body)
    return FrameParser(1 << 20).feed(pair.place.receive(1, native.encode_frame(kind, channel, data)))


def refusal(frame: Frame) -> m.Refusal:
    said = native.decode_message(frame)
    assert isinstance(said, m.Refusal)
    return said


def assert_others_go_on(pair: Pair) -> None:
    assert pair.place.closed == {}
    (answer,) = say(pair, Kind.REQUEST, 0, {"request": 7, "verb": "stream.names"})
    assert native.decode_message(answer) == m.Reply(7, {"rows": ["s"], "next": None})


OPENINGS: list[tuple[Kind, dict[str, object]]] = [
    (Kind.SUBSCRIBE, {"stream": "s", "start": "earliest"}),
    (Kind.SUBSCRIBE, {"stream": "s", "start": [0, 1, "", 4]}),
    (Kind.SUBSCRIBE, {"stream": "s", "credit": -1}),
    (Kind.SUBSCRIBE, {"stream": 5}),
    (Kind.SUBSCRIBE, {}),
    (Kind.SUBSCRIBE, {"stream": "s" * 256}),
    (Kind.ATTACH_SOURCE, {"stream": "s", "epoch": "new"}),
    (Kind.OPEN_RUN, {"sink": "k"}),
    (Kind.OPEN_STAGE, {"sink": "k", "run_epoch": 1.5, "stream": "s", "key": b""}),
]


@pytest.mark.parametrize(("kind", "body"), OPENINGS, ids=str)
def test_a_channel_that_is_opened_with_a_bad_argument_is_refused_alone(
    pair: Pair, kind: Kind, body: dict[str, object]
) -> None:
    (answer,) = say(pair, kind, FREE, body)
    assert (answer.channel, refusal(answer).code, refusal(answer).final) == (FREE, "bad-request", True)
    assert_others_go_on(pair)
    (granted,) = say(pair, Kind.SUBSCRIBE, FREE, {"stream": "s"})
    assert granted.kind == Kind.SUBSCRIBED, "the number is free again"


USES: list[tuple[Kind, int, object]] = [
    (Kind.CHANGE_FILTER, SUBSCRIPTION, {"filter": "key = 1"}),
    (Kind.STORE_TOKEN, SOURCE, {"request": 1, "number": -1, "token": b"t"}),
    (Kind.SETTLE, SUBSCRIPTION, (5).to_bytes(8, "little") + (1).to_bytes(8, "little")),
    (Kind.COMMIT, RUN, {"request": 1, "sink": "sink", "run_epoch": 1, "commit_id": "first", "stages": []}),
    (Kind.DROP_STAGES, RUN, {"request": 1, "sink": "sink", "run_epoch": 1, "stages": [-1]}),
]


@pytest.mark.parametrize(("kind", "channel", "body"), USES, ids=str)
def test_a_channel_that_is_used_with_a_bad_argument_ends_alone(
    pair: Pair, kind: Kind, channel: int, body: object
) -> None:
    (answer,) = say(pair, kind, channel, body)
    assert (answer.channel, refusal(answer).code, refusal(answer).final) == (channel, "bad-request", True)
    assert x.SessionClosed(session_of(1, channel)) in pair.place.down
    assert_others_go_on(pair)
    assert say(pair, kind, channel, body) == [], "it may have crossed the end"


def test_a_batch_of_another_version_or_with_flags_that_nobody_knows_ends_its_source_alone(pair: Pair) -> None:
    for place, value in ((4, 0), (6, 2), (8, 8), (8, 0x80)):
        data = batch(1, [(b"k", b"v")], 1, 1)
        data[ENVELOPE_SIZE + place] = value
        data[ENVELOPE_SIZE : ENVELOPE_SIZE + 4] = crc32c(data[ENVELOPE_SIZE + 4 : -4]).to_bytes(4, "little")
        channel = pair.open(m.AttachSource("s", f"other-{place}-{value}", b"1" * 16))[0]
        (answer,) = say(pair, Kind.OFFER, channel, bytes(data))
        assert (answer.channel, refusal(answer).code, refusal(answer).final) == (channel, "bad-batch", True)
    assert_others_go_on(pair)


STAGE, ANONYMOUS, DURABLE, ENDED, NEVER = 4, 5, 6, 7, 8
ROLES = {
    "connection": 0, "subscription": SUBSCRIPTION, "source": SOURCE, "run": RUN, "stage": STAGE,
    "anonymous source": ANONYMOUS, "durable subscription": DURABLE, "never opened": NEVER,
}  # fmt: skip
SAID: dict[Kind, object] = {
    Kind.OFFER: bytes(batch(1, [(b"k", b"v")], 1, 1)),
    Kind.STORE_TOKEN: {"request": 3, "number": 0, "token": b"t"},
    Kind.CREDIT: bytes(8),
    Kind.HANDED: bytes(8),
    Kind.SETTLE: bytes(16),
    Kind.RETURN: {"sequence": 1},
    Kind.CHANGE_FILTER: {"filter": None},
    Kind.COMMIT: {"request": 3, "sink": "sink", "run_epoch": 1, "commit_id": 1, "stages": []},
    Kind.DROP_STAGES: {"request": 3, "sink": "sink", "run_epoch": 1, "stages": []},
    Kind.REQUEST: {"request": 3, "verb": "stream.names"},
    Kind.CLOSE_CHANNEL: b"",
    Kind.SUBSCRIBE: {"stream": "s"},
}


@pytest.mark.parametrize("is_wrong", [False, True], ids=["sound", "wrong"])
@pytest.mark.parametrize("channel", ROLES.values(), ids=ROLES)
@pytest.mark.parametrize("kind", SAID, ids=lambda kind: kind.name)
def test_whatever_is_said_on_whatever_channel_has_an_answer_or_an_end(
    pair: Pair, kind: Kind, channel: int, is_wrong: bool
) -> None:
    epoch = pair.place.streams.tables.runs["sink"].epoch
    pair.open(m.OpenStage("sink", epoch, "s", b"2" * 16))
    pair.open(m.AttachSource("s"))
    pair.open(m.Subscribe("s", "me", "main", incarnation=b"1" * 16))
    body = SAID[kind]
    if is_wrong:
        body = body + bytes(8) if isinstance(body, bytes) else {"request": 3, "stages": "none", "sequence": -1}
    answers = say(pair, kind, channel, body)
    has_none = kind is Kind.CREDIT and channel in (SUBSCRIPTION, DURABLE)
    assert answers or pair.place.closed or (has_none and not is_wrong)


@pytest.mark.parametrize("channel", [0, SOURCE, STAGE, NEVER])
@pytest.mark.parametrize("kind", [Kind.COMMIT, Kind.DROP_STAGES])
def test_who_commits_where_there_is_no_run_is_refused_by_the_number_and_all_else_goes_on(
    pair: Pair, kind: Kind, channel: int
) -> None:
    (answer,) = say(pair, kind, channel, SAID[kind])
    said = refusal(answer)
    assert (answer.channel, said.code, said.request, said.final) == (channel, "unknown-run", 3, False)
    assert_others_go_on(pair)


def test_a_frame_on_a_channel_of_another_role_ends_that_alone(pair: Pair) -> None:
    (answer,) = say(pair, Kind.CREDIT, SOURCE, bytes(8))
    assert (answer.channel, refusal(answer).code, refusal(answer).final) == (SOURCE, "bad-request", True)
    assert say(pair, Kind.CREDIT, SOURCE, bytes(8)) == [], "it may have crossed the end"
    assert_others_go_on(pair)


def test_a_request_with_a_bad_argument_is_refused_by_its_number(pair: Pair) -> None:
    (answer,) = say(pair, Kind.REQUEST, 0, {"request": 3, "verb": 5})
    assert (refusal(answer).code, refusal(answer).request, refusal(answer).final) == ("bad-request", 3, False)
    assert_others_go_on(pair)


def test_a_request_may_have_as_many_arguments_as_the_page_says(pair: Pair) -> None:
    arguments = {f"a{number}": number for number in range(16)}
    (answer,) = say(pair, Kind.REQUEST, 0, {"request": 3, "verb": "stream.names", "arguments": arguments})
    assert native.decode_message(answer) == m.Reply(3, {"rows": ["s"], "next": None})


@pytest.mark.parametrize("value", [[], {}, 1])
def test_a_request_of_very_many_values_ends_the_link_before_any_of_them_is_made(pair: Pair, value: object) -> None:
    say(pair, Kind.REQUEST, 0, {"request": 3, "verb": "stream.show", "arguments": {"name": [value] * 20_000}})
    assert pair.place.closed == {1: "bad-frame"}


def nested(head: bytes, depth: int) -> msgspec.Raw:
    """A value in so many maps, or lists, or keys of maps, each in the one before."""
    return msgspec.Raw(head * depth + b"\x01" + (b"\x01" * depth if head == b"\x81\x91" else b""))


@pytest.mark.parametrize("head", [b"\x81\xa1x", b"\x91", b"\x81\x91"], ids=["maps", "lists", "keys"])
def test_a_request_whose_arguments_are_nested_deep_ends_the_link(pair: Pair, head: bytes) -> None:
    for request, depth in ((3, 3), (4, 600)):
        assert not pair.place.closed
        arguments = {"name": nested(head, depth)}
        say(pair, Kind.REQUEST, 0, {"request": request, "verb": "stream.delete", "arguments": arguments})
    assert pair.place.closed == {1: "bad-frame"}


def test_a_batch_that_came_as_it_was_signed_and_is_wrong_ends_its_source_alone(pair: Pair) -> None:
    header = BatchHeader(int(Layout.ROWS), 0, 0, 0, 1, 1, 1, 1, 1, 1, 5, 5)
    (answer,) = say(pair, Kind.OFFER, SOURCE, bytes(signed_record(header, [b"\xc1 no rows"])))
    assert (answer.channel, refusal(answer).code) == (SOURCE, "bad-batch")
    assert x.SessionClosed(session_of(1, SOURCE)) in pair.place.down
    assert_others_go_on(pair)


def test_a_batch_that_did_not_come_as_it_was_signed_ends_the_link(pair: Pair) -> None:
    record = batch(1, [(b"k", b"v")], 1, 1)
    record[-9] ^= 1
    say(pair, Kind.OFFER, SOURCE, bytes(record))
    assert pair.place.closed == {1: "bad-crc"}


@pytest.mark.parametrize("body", [b"\xc1", b"\x81\x01\x02", b"", b"\x93\x01\x02\x03"])
def test_a_body_that_is_no_map_ends_the_link(pair: Pair, body: bytes) -> None:
    say(pair, Kind.SUBSCRIBE, FREE, body)
    assert pair.place.closed == {1: "bad-frame"}


def test_a_bad_argument_on_a_channel_that_is_open_or_not_granted_yet_ends_the_link(pair: Pair) -> None:
    say(pair, Kind.SUBSCRIBE, SOURCE, {"stream": 5})
    assert pair.place.closed == {1: "bad-frame"}
    early = Pair(Place(), 2)
    early.place.hold_journal()
    data = native.encode_message(1, m.AttachSource("s", "me", b"1" * 16))
    data += native.encode_frame(
        Kind.OFFER, 1, bytes(signed_record(BatchHeader(0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 5, 5), [b"\xc1"]))
    )
    early.place.receive(2, data)
    assert list(early.place.closed) == [2]


MIXED = [[b"k"] * 2, [b"", b""], None, [{"a": "x" * 900_000}, {"a": 1}], None]
SHORT = [[b"k"], [bytes(900_000)], None, None]


@pytest.mark.parametrize(("rows", "count"), [(MIXED, 2), (SHORT, 1)], ids=["mixed-types", "bad-batch"])
def test_a_batch_that_is_refused_once_it_was_decompressed_costs_what_it_unpacks_to(
    pair: Pair, rows: list[object], count: int
) -> None:
    payload = compressed(msgspec.msgpack.encode(rows), "zstd")
    header = BatchHeader(int(Layout.ROWS), CODEC_FLAGS["zstd"], 0, 0, count, 1, 1, 1, count, 1, 0, 0)
    before = pair.place.work_ns
    (answer,) = say(pair, Kind.OFFER, SOURCE, bytes(signed_record(header, [payload])))
    assert answer.kind in (Kind.BATCH_REFUSED, Kind.REFUSED)
    assert 900_000 <= pair.place.work_ns - before < 2_000_000


def test_a_payload_that_claims_to_be_endless_costs_no_more_than_the_largest_that_is_unpacked(pair: Pair) -> None:
    payload = b"\xff" * 8 + compressed(bytes(1000), "zstd")[8:]
    header = BatchHeader(int(Layout.ROWS), CODEC_FLAGS["zstd"], 0, 0, 1, 1, 1, 1, 1, 1, 0, 0)
    before = pair.place.work_ns
    say(pair, Kind.OFFER, SOURCE, bytes(signed_record(header, [payload])))
    assert pair.place.work_ns - before < 20_000_000


@pytest.mark.parametrize("count", [1, 100])
def test_a_filter_costs_what_its_regular_expressions_take_to_compile(pair: Pair, count: int) -> None:
    keys = [f"regex:(a|b){{{number}}}" for number in range(1, count + 1)]
    for kind, channel, more in ((Kind.SUBSCRIBE, FREE, {"stream": "s"}), (Kind.CHANGE_FILTER, SUBSCRIPTION, {})):
        before = pair.place.work_ns
        say(pair, kind, channel, {**more, "filter": {"keys": keys, "where": None}})
        assert min(count * REGEX_NS, FILTER_NS_MAX) <= pair.place.work_ns - before
