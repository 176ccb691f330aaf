"""The messages of the topic service against bytes written by hand from the page, and against garbage."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.pages import part_on_page
from veredus.kernel.errors import PeerFault, Refused
from veredus.protocols.topics import messages as m
from veredus.protocols.topics.many import SEQUENCE_SIZE, count_of, pack, pack_numbered, sequences_in, unpack
from veredus.protocols.topics.messages import HEADER_SIZE_MAX, decode_message, encode_message

FILES = Path(__file__).parent / "golden"
GOLDEN: dict[str, tuple[bytes, m.Message]] = {
    "subscribe": (b"SUBSCRIBE alice prices\r\n\r\n", m.Subscribe("alice", "prices")),
    "subscribe-wish": (b"SUBSCRIBE alice prices\r\n\r\n7", m.Subscribe("alice", "prices", 7)),
    "subscribe-left": (b"SUBSCRIBE alice prices\r\n\r\n9 8", m.Subscribe("alice", "prices", 9, 8)),
    "unsubscribe": (b"UNSUBSCRIBE alice prices\r\n\r\n", m.Unsubscribe("alice", "prices")),
    "unsubscribe-wish": (b"UNSUBSCRIBE alice prices\r\n\r\n8", m.Unsubscribe("alice", "prices", 8)),
    "get": (b"GET alice prices -1\r\n\r\n", m.Get("alice", "prices", "-1")),
    "get-behind": (b"GET alice prices bob-7\r\n\r\n", m.Get("alice", "prices", "bob-7")),
    "put": (b"PUT bob prices 7\r\n\r\nEWR 12.5\r\n\r\n*", m.Put("bob", "prices", 7, b"EWR 12.5\r\n\r\n*")),
    "put-nothing": (b"PUT bob prices 8\r\n\r\n", m.Put("bob", "prices", 8, b"")),
    "put-many": (
        b"PUT_MANY bob prices 9\r\n\r\n\2\0\0\0\3\0\0\0\0\0\0\0EWR",
        m.PutMany("bob", "prices", 9, pack([b"EWR", b""])),
    ),
    "get-many": (b"GET_MANY alice prices bob-7..9 100\r\n\r\n", m.GetMany("alice", "prices", "bob-7..9", 100)),
    "periodic": (b"PERIODIC 127.0.0.1:5561\r\n\r\nprices news", m.Periodic("127.0.0.1:5561", ("prices", "news"))),
    "periodic-none": (b"PERIODIC 127.0.0.1:5561\r\n\r\n", m.Periodic("127.0.0.1:5561", ())),
    "merge": (
        b"MERGE 127.0.0.1:5551 prices 127.0.0.1:5561\r\n\r\n",
        m.Merge("127.0.0.1:5551", "prices", "127.0.0.1:5561"),
    ),
    "transfer": (
        (
            b"TRANSFER 127.0.0.1:5562 prices\r\n\r\n"
            b"alice bob-7 bob-8 \r\ncarol \r\n"
            b"*bob-7\r\n1 /s 2 // 3\r\n"
            b"*bob-8\r\ntwo\r\nlines\r\n\r\n"
        ),
        m.Transfer(
            "127.0.0.1:5562",
            "prices",
            (("alice", ("bob-7", "bob-8")), ("carol", ())),
            (("bob-7", b"1 * 2 / 3"), ("bob-8", b"two\r\nlines\r\n")),
        ),
    ),
    "transfer-beyond": (
        b"TRANSFER s prices\r\n\r\n*-1\r\n{///s}\r\n",
        m.Transfer("s", "prices", (), (), b"{/*}"),
    ),
    "transfer-none": (b"TRANSFER s prices\r\n\r\n", m.Transfer("s", "prices", (), ())),
    "status": (b"STATUS 127.0.0.1:5561 OK\r\n\r\n", m.Status("127.0.0.1:5561", "OK")),
    "status-message": (b"STATUS s OK bob-7\r\n\r\nEWR 12.5", m.Status("s", "OK", "bob-7", b"EWR 12.5")),
    "status-many": (
        (b"STATUS s OK bob-10..12\r\n\r\n\2\0\0\0\1\0\0\0\2\0\0\0abc\12\0\0\0\0\0\0\0\14\0\0\0\0\0\0\0"),
        m.Status("s", "OK", "bob-10..12", pack_numbered([b"a", b"bc"], [10, 12])),
    ),
    "status-error": (b"STATUS s NOT_SUBSCRIBED\r\n\r\nsubscribe", m.Status("s", "NOT_SUBSCRIBED", "", b"subscribe")),
}
BAD = {
    "no end": (b"GET alice prices -1\r\n", "an empty line ends a header, and there is none in the first 21 bytes"),
    "too long": (b"GET " + b"x" * HEADER_SIZE_MAX + b"\r\n\r\n", "none in the first 2048 bytes"),
    "no name": (b"\r\n\r\n", "a word must have at least one character"),
    "unknown": (b"FETCH alice\r\n\r\n", "unknown message 'FETCH'; known: SUBSCRIBE, UNSUBSCRIBE, GET, PUT"),
    "too few": (b"GET alice prices\r\n\r\n", "GET <SENDER_ID> <TOPIC> <LAST_MESSAGE_ID> has 3 fields, this one has 2"),
    "too many": (b"SUBSCRIBE a b c\r\n\r\n", "SUBSCRIBE <SENDER_ID> <TOPIC> has 2 fields, this one has 3"),
    "two spaces": (b"GET alice  -1\r\n\r\n", "a word must have at least one character"),
    "tab": (b"GET alice a\tb -1\r\n\r\n", r"character '\t' at position 1 is not allowed in a header"),
    "line": (b"GET alice a\nb -1\r\n\r\n", r"character '\n' at position 1"),
    "not UTF-8": (b"GET \xff a -1\r\n\r\n", "a header must be UTF-8: byte 4"),
    "a body": (b"GET alice a -1\r\n\r\nx", "GET has no body, this one has 1 bytes"),
    "no counter": (b"PUT bob a x1\r\n\r\n", "a counter must be a whole number from 0 to 9223372036854775806, not 'x1'"),
    "counter below": (b"PUT bob a -1\r\n\r\n", "from 0 to"),
    "counter above": (b"PUT bob a 9223372036854775808\r\n\r\n", "from 0 to"),
    "counter of other digits": ("PUT bob a ١\r\n\r\n".encode(), "from 0 to"),
    "endless counter": (b"PUT bob a " + b"9" * 1000 + b"\r\n\r\n", "from 0 to"),
    "many of nothing": (b"PUT_MANY bob a 1\r\n\r\n", "begins with their count, 1 to 65536, and the length of each"),
    "none": (b"PUT_MANY bob a 1\r\n\r\n\0\0\0\0", "this one has 4 bytes and announces 0"),
    "too many at once": (b"PUT_MANY bob a 1\r\n\r\n\1\0\1\0" + bytes(4 * 65537), "and announces 65537"),
    "more than there is": (b"PUT_MANY bob a 1\r\n\r\n\2\0\0\0\1\0\0\0", "and announces 2"),
    "many cut off": (GOLDEN["put-many"][0][:-1], "2 messages with their lengths need 15 bytes, and the body has 14"),
    "many and more": (GOLDEN["put-many"][0] + b"x", "2 messages with their lengths need 15 bytes, and the body has 16"),
    "counter of the last above": (
        GOLDEN["put-many"][0].replace(b" 9\r", b" 9223372036854775807\r"),
        "a counter must be a whole number from 0 to 9223372036854775805",
    ),
    "many of no number": (b"GET_MANY alice a -1 x\r\n\r\n", "a count must be a whole number from 1 to"),
    "many, none wanted": (b"GET_MANY alice a -1 0\r\n\r\n", "a count must be a whole number from 1 to"),
    "cut off": (
        GOLDEN["transfer"][0][:-3],
        "a TRANSFER must end with a line end, and this one has none after 68 bytes",
    ),
    "a line of its own kind": (b"TRANSFER s t\r\n\r\na b-7\n*b-7\r\n1\r\n", "and this one has no line end: 'a b-7\\n'"),
    "the last line joined": (
        b"TRANSFER s t\r\n\r\na b-7\r\nb b-7 *b-7\r\n1\r\n",
        "and this one has no line end: 'b b-7 '",
    ),
    "cut off in an id": (b"TRANSFER s t\r\n\r\n*b-7\r\n", "a message of a TRANSFER is an id, a line and its content"),
    "not there": (b"TRANSFER s t\r\n\r\na b-7 \r\n", "a still has to receive b-7, and that message is missing"),
    "twice": (b"TRANSFER s t\r\n\r\n*b-7\r\n1\r\n*b-7\r\n2\r\n", "needs an id of its own other than -1"),
    "the id of none": (b"TRANSFER s t\r\n\r\n*-1\r\n1\r\n*b\r\n2\r\n", "needs an id of its own other than -1"),
    "two lines": (
        b"TRANSFER s t\r\n\r\na b-7\r\na b-8\r\n*b-7\r\n1\r\n*b-8\r\n2\r\n",
        "a TRANSFER has one line for each subscriber, and a has two",
    ),
    "too many messages": (b"TRANSFER s t\r\n\r\n" + b"*" * 200_001, "200000 messages and lines of subscribers"),
    "too many lines": (b"TRANSFER s t\r\n\r\n" + b"\r\n" * 200_001, "and this one has 200001: give the topic when"),
    "escape": (b"TRANSFER s t\r\n\r\n*b-7\r\n/x\r\n", "in a TRANSFER, / must be followed by / or s, not by 'x'"),
    "half an escape": (b"TRANSFER s t\r\n\r\n*b-7\r\na/\r\n", "not by ''"),
    "status of nobody": (b"STATUS\r\n\r\n", "STATUS <ID> <STATUS> has 2 fields, this one has 0"),
}
WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters=" "), min_size=1, max_size=20)
COUNTERS = st.integers(1, (1 << 63) - 2)
MANY = st.lists(st.binary(max_size=20), min_size=1, max_size=20)
BODIES = st.one_of(st.binary(max_size=50), st.lists(st.sampled_from([b"*", b"/", b"s", b"\r\n"])).map(b"".join))


@st.composite
def transfers(draw: st.DrawFn) -> m.Transfer:
    """Any TRANSFER, whose subscribers wait for some of its messages."""
    ids = draw(st.lists(WORDS.filter(lambda word: word != "-1"), unique=True, max_size=5))
    waiting = st.lists(st.sampled_from(ids)) if ids else st.just([])
    subscribers = draw(st.lists(st.tuples(WORDS, waiting.map(tuple)), max_size=4, unique_by=lambda line: line[0]))
    held = tuple((message_id, draw(BODIES)) for message_id in ids)
    return m.Transfer(draw(WORDS), draw(WORDS), tuple(subscribers), held, draw(BODIES))


MESSAGES = st.one_of(
    st.builds(m.Subscribe, WORDS, WORDS, st.just(0) | COUNTERS, st.just(0)),
    st.builds(m.Subscribe, WORDS, WORDS, COUNTERS, COUNTERS),
    st.builds(m.Unsubscribe, WORDS, WORDS, st.just(0) | COUNTERS),
    st.builds(m.Get, WORDS, WORDS, WORDS),
    st.builds(m.Put, WORDS, WORDS, COUNTERS, BODIES),
    st.builds(m.PutMany, WORDS, WORDS, COUNTERS.filter(lambda one: one < 1 << 62), MANY.map(pack)),
    st.builds(m.GetMany, WORDS, WORDS, WORDS, COUNTERS),
    st.builds(m.Periodic, WORDS, st.lists(WORDS).map(tuple)),
    st.builds(m.Merge, WORDS, WORDS, WORDS),
    transfers(),
    st.builds(m.Status, WORDS, WORDS, st.one_of(st.just(""), WORDS), BODIES),
)


@pytest.mark.parametrize("name", GOLDEN)
def test_each_message_is_what_the_page_says_byte_by_byte(name: str) -> None:
    data, message = GOLDEN[name]
    assert encode_message(message) == data
    assert decode_message(data) == message
    assert decode_message(memoryview(data)) == message


@pytest.mark.parametrize("name", GOLDEN)
def test_each_message_is_still_what_it_was(name: str) -> None:
    """The files are what other programs were written against: they never change."""
    assert (FILES / f"{name}.bin").read_bytes() == GOLDEN[name][0]


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith("transfer")])
def test_a_last_word_may_be_followed_by_one_space(name: str) -> None:
    data, message = GOLDEN[name]
    assert decode_message(data.replace(b"\r\n\r\n", b" \r\n\r\n", 1)) == message


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_message_is_refused_with_words(name: str) -> None:
    data, said = BAD[name]
    with pytest.raises(PeerFault) as raised:
        decode_message(data)
    assert raised.value.code == "bad-message"
    assert said in raised.value.message


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (m.Subscribe("al ice", "a"), "id 'al ice': character ' ' at position 2 is not allowed in a header"),
        (m.Get("alice", "a\r", "-1"), r"topic 'a\r': character '\r' at position 1"),
        (m.Put("alice", "", 1, b""), "a topic must have at least one character"),
        (m.Periodic("s", ("a", "b c")), "topic 'b c'"),
        (m.Transfer("s", "t", (("a b", ()),), ()), "id 'a b'"),
        (m.Transfer("s", "t", (), (("b 7", b""),)), "message id 'b 7'"),
    ],
)
def test_what_a_header_cannot_carry_is_refused_where_it_enters(message: m.Message, said: str) -> None:
    with pytest.raises(Refused) as raised:
        encode_message(message)
    assert raised.value.code == "bad-word"
    assert said in raised.value.message


@given(MESSAGES)
def test_every_message_comes_back_as_it_was_said(message: m.Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(
    st.sampled_from([data for data, _ in GOLDEN.values()]), st.integers(0, 200), st.integers(0, 255), st.integers(0, 40)
)
def test_garbage_is_refused_as_the_peers_fault_or_is_another_message(data: bytes, at: int, byte: int, cut: int) -> None:
    at %= len(data)
    spoiled = data[:at] + bytes([byte]) + data[at + 1 : len(data) - cut]
    with suppress(PeerFault):
        decode_message(spoiled)


@given(MANY, st.data())
def test_many_messages_come_back_as_they_were_packed(bodies: list[bytes], data: st.DataObject) -> None:
    sequences = data.draw(st.lists(COUNTERS, min_size=len(bodies), max_size=len(bodies)))
    packed = pack_numbered(bodies, sequences)
    assert (unpack(pack(bodies)), count_of(pack(bodies))) == (bodies, len(bodies))
    assert (unpack(packed), list(sequences_in(packed))) == (bodies, sequences)
    assert count_of(packed, SEQUENCE_SIZE) == len(bodies)


@given(st.binary(max_size=100))
def test_noise_is_refused_as_the_peers_fault(data: bytes) -> None:
    with suppress(PeerFault):
        decode_message(data)


def test_the_bytes_on_the_page_are_those_of_the_golden_files() -> None:
    made = "```\n" + "".join(f"{name:16} {repr(data)[2:-1]}\n" for name, (data, _) in GOLDEN.items()) + "```\n"
    assert part_on_page("wire/topics.md", "messages", made) == made, "REGENERATE=1 pytest makes it anew"
