"""Peers that ask for much work, by lists, filters and what unpacks to much: a neighbour is served all the while."""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import suppress

import msgspec
import pyarrow as pa
import pytest

import veredus
from tests.attack.by_hand import Peer
from tests.attack.figures import Figures
from tests.attack.neighbour import Felt, neighbour, resident_size, resident_size_peak
from tests.interop import native_by_hand as hand
from tests.interop import zeps1_by_hand as zeps1
from tests.processes import beside
from tests.system.serving import ServedNode
from veredus import Subscription
from veredus.client.blocking import Node
from veredus.matching import Filter
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native

pytestmark = pytest.mark.slow

MIB = 1 << 20
ZSTD = 1
OPEN_RUN = 0x30


def test_lists_that_are_asked_for_and_never_read_leave_the_neighbour_its_turn(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    streams, requests = (2000, 3000) if is_full else (300, 600)
    with served.start() as node:
        for number in range(streams):
            node.streams.create(f"stream-{number:05d}")
    assert served.process is not None
    before = resident_size(served.process.pid)
    attacker = hand.Client("127.0.0.1", served.port)
    frames = b"".join(
        hand.HEAD.pack(len(body), hand.REQUEST, 0, 0) + hand.padded(body)
        for number in range(1, requests + 1)
        for body in [msgspec.msgpack.encode({"request": number, "verb": "stream.list", "arguments": {}})]
    )
    with neighbour(served.address) as felt, beside(_say, attacker.socket, frames):
        wait_for(felt, 200)
        attacker.close()
    growth = (resident_size_peak(served.process.pid) - before) / MIB
    attack = figures.attack("lists of streams asked for at once, none read", f"{requests:,} of {streams:,} streams")
    attack.record_felt(felt)
    attack.record("growth", growth, "MiB", "at most 64 MiB")
    assert growth < 64


def test_pages_of_a_very_long_list_leave_the_neighbour_its_turn(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    count, a_request = 100_000 if is_full else 20_000, 1_000
    served.start().close()
    with Peer(served.port) as peer, neighbour(served.address) as felt:
        peer.ask("stream.create", name="long")
        for first in range(0, count, a_request):
            sources = [[f"source-{number}", 1, b""] for number in range(first, first + a_request)]
            assert isinstance(peer.ask("source.raise", stream="long", sources=sources), m.Reply)
        felt.trips_ms.clear()
        with beside(wait_for, felt, 100) as waiting:
            pages = 0
            while waiting.is_alive():
                peer.ask("source.list", stream="long")
                pages += 1
    figures.attack("pages of a list of sources, without a pause", f"{count:,} sources").record_felt(felt)
    assert pages


def test_filters_of_very_many_terms_leave_the_neighbour_its_turn(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    subscriptions, terms = (60, 250) if is_full else (20, 250)
    node = served.start()
    with node, node.publisher("wide", source="s") as publisher, neighbour(served.address) as felt:
        opened = _costly(node, range(subscriptions), terms)
        for number in range(20):
            publisher.wait(publisher.publish("k", b"body", {"a1": number}))
        wait_for(felt, len(felt.trips_ms) + 100)
        with pytest.raises(veredus.Refused, match=r"limits\.filter_terms_per_principal_max"):
            opened += _costly(node, range(subscriptions, 200), terms)
        for subscription in opened:
            subscription.close()
    figures.attack("subscriptions of many terms", f"{subscriptions} of {terms} terms").record_felt(felt)


@pytest.mark.parametrize(
    ("what", "where"),
    [
        ("patterns of LIKE", " or ".join(f"a like '%x{number}y%z%'" for number in range(180))),
        ("LIKE with many `_` behind a `%`", f"a like '%a{'_' * 200}c%'"),
        ("patterns of LIKE with many `_`", " or ".join(f"a like '%b{number}{'_' * 60}c%'" for number in range(60))),
    ],
)
@pytest.mark.parametrize("rows", [1, 1000])
def test_a_costly_filter_on_a_long_text_leaves_the_neighbour_its_turn(
    served: ServedNode, figures: Figures, is_full: bool, what: str, where: str, rows: int
) -> None:
    text = "".join(random.Random(1).choices("ab", k=1 << 18)) * (60 if is_full and rows == 1 else 4)
    size = min(len(text), 900 << 10) // rows if rows > 1 else len(text)
    with served.start() as node, node.publisher("wide", source="s") as publisher:
        subscription = node.subscribe("wide", subscriber="costly", where=where)
        with neighbour(served.address) as felt:
            for row in range(rows):
                publisher.publish("k", b"", {"a": text[row * size :][:size]})
            wait_for(felt, len(felt.trips_ms) + 100)
        subscription.close()
    on = "a long text" if rows == 1 else "many texts"
    figures.attack(f"{what}, on {on}", f"{rows:,} of {size:,} bytes").record_felt(felt)


def test_small_frames_that_unpack_to_much_leave_the_neighbour_its_turn(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    count = 2000 if is_full else 100
    served.start().close()
    attacker = hand.Client("127.0.0.1", served.port)
    attacker.ask(1, hand.ATTACH_SOURCE, stream="bombs", source="me", incarnation=b"1" * 16)
    grant = attacker.hear(1, hand.SOURCE_ATTACHED)
    raw = msgspec.msgpack.encode([[b"k"], [bytes(15 * MIB)], None, None, None])
    packed = struct.pack("<Q", len(raw)) + pa.compress(raw, codec="zstd", asbytes=True)
    offers = []
    for number in range(1, count + 1):
        record = hand.record_of(grant, number, 1, packed, flags=ZSTD)
        offers.append(hand.HEAD.pack(len(record), hand.OFFER, 0, 1) + record)
    with neighbour(served.address) as felt, beside(_say, attacker.socket, b"".join(offers)):
        last = 0
        while last < count:
            for at in range(0, len(receipts := attacker.hear(1, hand.RECEIPT)), 24):
                (last,) = struct.unpack_from("<Q", receipts, at)
    assert felt.trips_ms
    figures.attack(
        "frames that unpack to much", f"{count:,} of {len(offers[0]):,} bytes, unpacked {len(raw) // MIB} MiB"
    ).record_felt(felt)
    attacker.close()


def test_a_flood_of_the_smallest_commands_leaves_the_neighbour_its_turn(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    count = 2_000_000 if is_full else 200_000
    served.start().close()
    attacker = zeps1.over_tcp("127.0.0.1", served.port)
    attacker.attach("flood")
    assert attacker.hear().command == attacker.ATTACH_OK
    pings = b"\xaa\xa5\x08" * count
    with neighbour(served.address) as felt, beside(_say, attacker.way.socket, pings):
        wait_for(felt, 200)
        attacker.way.socket.shutdown(socket.SHUT_RDWR)
    attacker.close()
    figures.attack("PINGs of version 1 at once, no answer read", f"{count:,}").record_felt(felt)


def _costly(node: Node, numbers: range, terms: int) -> list[Subscription]:
    """Subscriptions to `wide` whose filters differ, so that none is tried for another."""
    wheres = [" or ".join(f"a{term % 7} = {number * 1000 + term}" for term in range(terms)) for number in numbers]
    return [
        node.subscribe("wide", subscriber=f"costly-{number}", where=where)
        for number, where in zip(numbers, wheres, strict=True)
    ]


def _say(to: socket.socket, octets: bytes) -> None:
    try:
        to.sendall(octets)
    except OSError:
        # The node may let go of whoever does not read.
        return


def wait_for(felt: Felt, count: int) -> None:
    """Until the neighbour has been served so often."""
    until = time.monotonic() + 60
    while len(felt.trips_ms) < count:
        assert time.monotonic() < until, "the neighbour is not served"
        time.sleep(0.01)


def test_a_frame_of_twenty_mebibytes_that_is_no_offer_is_not_read(served: ServedNode, figures: Figures) -> None:
    served.start().close()
    assert served.process is not None
    before = resident_size(served.process.pid)
    fields = b"".join(b"\xa4" + struct.pack("<I", 0x61616161 + number) + b"\xc0" for number in range(1 << 20))
    maps = b"\xdf" + struct.pack(">I", 1 << 20) + fields
    ranges = struct.pack("<QQ", 1, 1) * (1 << 20)
    with neighbour(served.address) as felt:
        for kind, body in ((hand.SUBSCRIBE, maps), (hand.SETTLE, ranges), (OPEN_RUN, maps)):
            attacker = hand.Client("127.0.0.1", served.port)
            with suppress(OSError):
                attacker.socket.sendall(hand.HEAD.pack(len(body), kind, 0, 1) + hand.padded(body))
            attacker.close()
        wait_for(felt, 50)
    growth = (resident_size_peak(served.process.pid) - before) / MIB
    attack = figures.attack("many fields of a map, and many ranges to settle, in one frame", f"{1 << 20:,}")
    attack.record("growth", growth, "MiB", "at most 64 MiB")
    attack.record_felt(felt)
    assert growth < 64


def test_filters_of_many_large_regular_expressions_take_a_bounded_memory(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    filters = 78 if is_full else 12
    served.start().close()
    assert served.process is not None
    before = resident_size(served.process.pid)
    attacker = hand.Client("127.0.0.1", served.port)
    answers: set[int] = set()
    with neighbour(served.address) as felt:
        for number in range(filters):
            for count in (250, 30):
                keys = [f"regex:(a|b)*a(a|b){{{400 + place}}}{'c' * number}" for place in range(count)]
                attacker.ask(1 + 2 * number + count % 4, hand.SUBSCRIBE, stream="wide", filter={"keys": keys})
                size, heard, _, _ = hand.HEAD.unpack(attacker.take(8))
                attacker.take(size + -size % 8)
                answers.add(heard)
        wait_for(felt, 50)
    attacker.close()
    growth = (resident_size_peak(served.process.pid) - before) / MIB
    attack = figures.attack("filters of large regular expressions", f"{filters} of 250, {filters} of 30")
    attack.record("growth", growth, "MiB", "at most 256 MiB")
    attack.record_felt(felt)
    assert answers == {hand.REFUSED, hand.SUBSCRIBED}
    assert growth < 256


def test_bombs_that_are_refused_once_they_were_unpacked_leave_the_neighbour_its_turn(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    count = 3000 if is_full else 300
    served.start().close()
    attacker = hand.Client("127.0.0.1", served.port)
    attacker.ask(1, hand.ATTACH_SOURCE, stream="bombs", source="me", incarnation=b"1" * 16)
    grant = attacker.hear(1, hand.SOURCE_ATTACHED)
    raw = msgspec.msgpack.encode([[b"k"] * 2, [b""] * 2, None, [{"a": "x" * 900_000}, {"a": 1}], None])
    packed = struct.pack("<Q", len(raw)) + pa.compress(raw, codec="zstd", asbytes=True)
    record = hand.record_of(grant, 1, 2, packed, flags=ZSTD)
    offer = hand.HEAD.pack(len(record), hand.OFFER, 0, 1) + record
    with neighbour(served.address) as felt, beside(_say, attacker.socket, offer * count):
        for _ in range(count):
            assert attacker.hear(1, hand.BATCH_REFUSED)["code"] == "mixed-types"
    assert felt.trips_ms
    figures.attack(
        "frames that unpack to much and are refused", f"{count:,} of {len(offer):,} bytes, unpacked {len(raw):,}"
    ).record_felt(felt)
    attacker.close()


def test_thousands_of_retries_at_once_leave_the_neighbour_its_turn(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    count = 16_000 if is_full else 4_000
    with served.start() as node, node.publisher("jobs", source="s") as publisher:
        publisher.wait(publisher.publish_many(["k"] * count, ["job"] * count))
    wish = m.Subscribe(
        "jobs", "workers", "main", Filter(), mode=m.SettleMode.INDIVIDUAL, incarnation=b"i" * 16, credit=MIB
    )
    retries = b"".join(native.encode_message(1, m.Return(number, retry=True)) for number in range(1, count, 2))
    with Peer(served.port) as peer, neighbour(served.address) as felt:
        peer.send(1, wish)
        while peer.hear_kind() != native.Kind.DELIVER:
            pass
        begun = time.monotonic()
        with beside(peer.send_bytes, retries):
            for _ in range(count // 2):
                while peer.hear_kind() != native.Kind.RETURNED:
                    pass
        took_s = time.monotonic() - begun
        wait_for(felt, len(felt.trips_ms) + 50)
    attack = figures.attack("retries at once", f"{count // 2:,}")
    attack.record("until all are answered", took_s, "s")
    attack.record_felt(felt)
