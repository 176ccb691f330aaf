"""ZEPS, sentence by sentence: each test quotes one of seed 004, and a client of the page alone finds that it is so.

What a node does otherwise is in the table at the end of docs/reference/wire/zeps-1.md; its tests are here, too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.protocols.zeps.place import SECOND_NS, Place
from veredus.kernel.events import LinkCongested, LinkDrained
from veredus.protocols.links import DrainRequested
from veredus.protocols.zeps.orders import LinkLimits
from veredus.sim import page_codec as page
from veredus.sim.page_codec import Ear, Word

MUCH = 1 << 40
OK, SUBSCRIBED, PONG = Word("attach_ok"), Word("subscribe_ok"), Word("ping_ok")
PAGE = Path(__file__).parents[2] / "docs/reference/wire/zeps-1.md"


class Client:
    """A client of the page, on a link of a place."""

    def __init__(self, place: Place, link: int = 1, stream: str = "s") -> None:
        self.place, self.link, self.ear = place, link, Ear()
        place.open(link)
        self.opened = self.say(page.attach(stream))

    def say(self, *commands: bytes) -> list[Word]:
        return self.ear.hear(self.place.receive(self.link, b"".join(commands)))

    def hear(self) -> list[Word]:
        return self.ear.hear(self.place.take(self.link))

    def publish(self, *pairs: tuple[bytes, bytes]) -> list[Word]:
        return self.say(*(page.publish(key, body) for key, body in pairs))

    def subscribe(self, pattern: bytes = b"", latest: int = 0, credit: int = MUCH) -> list[Word]:
        return self.say(page.subscribe(pattern, latest), page.credit(credit))


def delivered(words: list[Word]) -> list[int]:
    return [int(word.fields[0]) for word in words if word.name == "deliver"]


def filled(count: int, keys: bytes = b"ab", limits: LinkLimits | None = None, tail_size_max: int = 1 << 20) -> Place:
    place = Place(limits, tail_size_max=tail_size_max)
    writer = Client(place, 99)
    for number in range(1, count + 1):
        writer.publish((keys[(number - 1) % len(keys)].to_bytes(), b"%d" % number))
    return place


# ── Overall Design ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_can_request_messages_from_a_past_sequence() -> None:
    """'When a client subscribes, it can request messages from a certain past point (… a message sequence).'"""
    assert delivered(Client(filled(9)).subscribe(latest=6)) == [7, 8, 9]


def test_a_client_can_request_messages_of_a_time_period() -> None:
    """'… a certain past point (a time period …)'"""
    place = Place()
    writer = Client(place, 99)
    for _ in range(5):
        writer.publish((b"k", b"v"))
        place.wait(SECOND_NS)
    assert delivered(Client(place).subscribe(latest=(3 << 62) + 2_000_000)) == [4, 5]


def test_the_broker_replays_its_journal_filtering_by_the_pattern_then_switches_to_the_real_time_flow() -> None:
    """'The broker will then replay its journal, filtering messages according to the subscription pattern. When it has
    finished replaying historical data, the broker switches the client to receiving the real-time flow.'"""
    place = filled(6, tail_size_max=1)
    client = Client(place)
    words = client.subscribe(b"a")
    Client(place, 2).publish((b"a", b"live"), (b"b", b"live"), (b"a", b"live"))
    assert delivered(words + client.hear()) == [1, 3, 5, 7, 9]


def test_a_congested_client_is_switched_to_historical_data_and_back_unseen() -> None:
    """'a client that is congested will stop receiving real-time data and be switched to receiving historical data.
    These switches … are invisible to clients.'"""
    place = filled(1, tail_size_max=1)
    client = Client(place)
    words = client.subscribe()
    place.tell(LinkCongested(1))
    writer = Client(place, 2)
    for _ in range(40):
        writer.publish((b"k", bytes(100)))
    assert client.hear() == []
    place.tell(LinkDrained(1))
    writer.publish((b"k", b"live"))
    assert delivered(words + client.hear()) == list(range(1, 43))


def test_publishing_is_asynchronous_and_not_confirmed() -> None:
    """'a ZEPS broker can always accept new published messages, without confirmation.'"""
    assert Client(Place()).publish((b"k", b"v"), (b"k", b"w")) == []


def test_differs_what_a_ping_ok_follows_is_on_disk() -> None:
    """'with no possibilty of message loss': a broker may crash, so PING-OK says what has outlived that."""
    place = Place()
    client = Client(place)
    place.hold_journal()
    assert client.say(page.publish(b"k", b"v"), page.PING) == []
    place.release_journal()
    assert client.hear() == [PONG]


def test_differs_a_message_is_delivered_when_it_is_durable_not_before() -> None:
    """'delivered without any … disk I/O': what is not on disk could be lost after it was delivered."""
    place = Place()
    client = Client(place)
    client.subscribe()
    place.hold_journal()
    assert client.publish((b"k", b"v")) == []
    place.release_journal()
    assert delivered(client.hear()) == [1]


# ── Protocol Specification ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_is_opened_by_attach() -> None:
    """'open-stream = C:ATTACH ( S:ATTACH-OK / error )'"""
    assert Client(Place()).opened == [OK]
    (refused,) = Client(Place(), stream="").opened
    assert refused.name == "invalid"


@pytest.mark.parametrize(
    "command", [page.PING, page.DETACH, page.subscribe(b"", 0), page.credit(1), page.publish(b"k", b"v")]
)
def test_nothing_comes_before_attach(command: bytes) -> None:
    """'ZEPS = open-stream *use-stream [ close-stream ]'"""
    place = Place()
    place.open(1)
    (answer,) = Ear().hear(place.receive(1, command))
    assert answer.name == "invalid"
    assert page.reason_of(bytes(answer.fields[0])) == "unexpected: the first command must be ATTACH"  # type: ignore[arg-type]


def test_a_subscribe_is_answered_subscribe_ok_or_an_error() -> None:
    """'C:SUBSCRIBE ( S:SUBSCRIBE-OK / error )'"""
    client = Client(filled(3))
    assert client.say(page.subscribe(b"a", 3)) == [SUBSCRIBED]
    (refused,) = client.say(page.subscribe(b"regex:(", 0), page.publish(b"k", b"v"), page.PING)
    assert refused.name == "invalid"
    assert client.say(page.PING) == [], "an error ends the attachment"


def test_credit_and_publish_have_no_answer() -> None:
    """'/ C:CREDIT … / C:PUBLISH'"""
    assert Client(Place()).say(page.credit(5), page.publish(b"k", b"v")) == []


def test_deliver_needs_no_question() -> None:
    """'/ S:DELIVER'"""
    place = Place()
    client = Client(place)
    client.subscribe()
    Client(place, 2).publish((b"k", b"v"))
    assert client.hear() == [Word("deliver", (1, b"k", b"v"))]


def test_each_ping_is_answered_ping_ok() -> None:
    """'/ C:PING S:PING-OK'"""
    assert Client(Place()).say(page.PING, page.PING, page.PING) == [PONG] * 3


def test_client_or_server_sends_a_heartbeat_and_client_or_server_answers_it() -> None:
    """'Client or server sends a heartbeat', 'Client or server answers a heartbeat'"""
    place = Place()
    client = Client(place)
    for _ in range(9):
        place.wait(place.limits.heartbeat_interval_ns)
        assert client.hear() == [Word("ping")]
        assert client.say(page.PING_OK) == []
    place.wait(place.limits.silence_max_ns)
    assert client.hear()[-1] == Word("detach")


def test_either_side_closes_and_the_server_shakes_hands() -> None:
    """'close-stream = C:DETACH / S:DETACH', 'Server handshake the close'"""
    assert Client(Place()).say(page.DETACH) == [Word("detach_ok")]
    place = Place()
    client = Client(place)
    place.tell(DrainRequested(1))
    assert client.hear() == [Word("detach")]


def test_a_client_that_sends_an_invalid_message_is_told_so() -> None:
    """'Server tells client it sent an invalid message', 'reason = string ; Printable explanation'"""
    for wrong in (page.command(13), page.command(2), b"\xaa\xa6", page.attach("s")):
        (answer,) = Client(Place()).say(wrong)
        assert answer.name == "invalid"
        assert re.fullmatch(rb"[\x21-\x7e]{1,255}", bytes(answer.fields[0]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("octets", "meaning"),
    [
        (page.attach("s"), "attach = signature %d1 protocol version stream"),
        (page.subscribe(b"", 0), "subscribe = signature %d3 pattern latest"),
        (page.credit(7), "credit = signature %d5 credit"),
        (page.publish(b"k", b"v"), "publish = signature %d6 key body"),
        (page.PING, "ping = signature %d8"),
        (page.PING_OK, "ping_ok = signature %d9"),
        (page.DETACH, "detach = signature %d10"),
    ],
    ids=["attach", "subscribe", "credit", "publish", "ping", "ping_ok", "detach"],
)
def test_a_command_of_the_grammar_is_understood_whole_and_octet_by_octet(octets: bytes, meaning: str) -> None:
    assert octets[:2] == b"\xaa\xa5", "signature = %xAA %xA5"
    assert octets[2] == int(re.findall(r"%d(\d+)", meaning)[0])
    said = []
    for size in (1, len(octets)):
        place = Place()
        ear = Ear()
        place.open(1)
        whole = octets if octets[2] == 1 else page.attach("s") + octets
        words = [w for at in range(0, len(whole), size) for w in ear.hear(place.receive(1, whole[at : at + size]))]
        assert words[0] == OK
        said.append(words)
    assert said[0] == said[1]
    assert "invalid" not in {word.name for word in said[0]}


def test_numbers_are_unsigned_and_in_network_byte_order() -> None:
    """'Numbers are unsigned integers in network byte order'"""
    assert page.number(8, 258) == bytes(6) + b"\x01\x02"
    client = Client(filled(300))
    assert delivered(client.say(page.command(3, page.string(b""), bytes(6) + b"\x01\x02"), page.credit(1))) == [259]
    assert len(delivered(client.say(page.credit((1 << 64) - 1)))) == 41


def test_a_string_has_at_most_255_octets_and_a_chunk_more() -> None:
    """'string = number-1 *VCHAR', 'chunk = number-4 *OCTET'"""
    client = Client(Place())
    client.subscribe()
    assert client.publish((b"k" * 255, bytes(range(256)) * 300)) == [
        Word("deliver", (1, b"k" * 255, bytes(range(256)) * 300))
    ]


# ── Detailed Design Notes ────────────────────────────────────────────────────────────────────────────────────────────


def test_streams_isolate_traffic_from_each_other() -> None:
    """'The broker uses "streams" to segregate and isolate traffic.'"""
    place = Place()
    reader, other = Client(place, 1, "one"), Client(place, 2, "two")
    reader.subscribe()
    other.publish((b"k", b"v"))
    assert reader.hear() == []


def test_messages_are_sequenced_per_stream() -> None:
    """'Messages are sequenced per stream.'"""
    place = Place()
    clients = [Client(place, link, name) for link, name in ((1, "one"), (2, "two"))]
    for client in clients:
        client.subscribe()
        assert delivered(client.publish((b"a", b""), (b"b", b""))) == [1, 2]


def test_without_credit_the_broker_stops_sending_and_with_it_goes_on_from_history() -> None:
    """'When there is no credit, the broker stops sending to the client, and switches it to historical replay.'"""
    place = filled(9, tail_size_max=1)
    client = Client(place)
    assert delivered(client.subscribe(credit=1)) == [1]
    Client(place, 2).publish((b"k", b"live"))
    assert client.hear() == []
    assert delivered(client.say(page.credit(MUCH))) == list(range(2, 11))


def test_credit_is_counted_in_bytes() -> None:
    """'credit = number-8 ; Credit, in bytes'"""
    size = page.size_of_deliver(b"a", b"1")
    assert delivered(Client(filled(9)).subscribe(credit=4 * size)) == [1, 2, 3, 4]


def test_credit_and_messages_flow_asynchronously() -> None:
    """'These two flows happen asynchronously.'"""
    place = filled(2)
    client = Client(place)
    assert client.say(page.credit(MUCH)) == []
    assert delivered(client.say(page.subscribe(b"", 0))) == [1, 2]


def test_a_ping_is_answered_while_what_credit_brings_is_read_from_the_disk() -> None:
    """'These two flows happen asynchronously': credit has no answer that a PING-OK behind it would have to wait for."""
    place = filled(9, tail_size_max=1)
    client = Client(place)
    assert client.say(page.subscribe(b"", 0)) == [SUBSCRIBED]
    place.hold_reads()
    assert client.say(page.credit(MUCH), page.PING) == [PONG]
    place.release_reads()
    assert delivered(client.hear()) == list(range(1, 10))


@pytest.mark.parametrize(
    ("pattern", "expected"), [(b"ab", [1, 2]), (b"prefix:b", [3]), (b"regex:.*b$", [1, 3]), (b"literal:ab", [1])]
)
def test_clients_subscribe_to_sub_streams_by_patterns_of_the_routing_key(pattern: bytes, expected: list[int]) -> None:
    """'clients can subscribe to sub-streams of messages using pattern matching on a message "routing key" … prefix
    matching … regular expression matching'"""
    place = Place()
    Client(place, 99).publish((b"ab", b""), (b"abc", b""), (b"bb", b""))
    assert delivered(Client(place).subscribe(pattern)) == expected


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_row_of_the_pages_table_names_a_test_that_there_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("## Conformance") :]
    named = re.findall(r"`(test_[a-z_0-9]+)`", table)
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) == len([row for row in rows if "`test_" in row])
    tests = "".join(path.read_text(encoding="utf-8") for path in (PAGE.parents[3] / "tests").rglob("test_*.py"))
    assert [name for name in named if f"def {name}(" not in tests] == []
