"""The wire's pages are made from what the code says: dumps, tables of frames; REGENERATE=1 makes them anew."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from tests.reference.pages import REFERENCE, part_on_page
from veredus.delivery.batch import BatchHeader, BatchLimits, Layout, read_header, signed_record
from veredus.delivery.columns import encode_columns
from veredus.delivery.payload import columns_of, verify_payload
from veredus.delivery.publication import Rows
from veredus.delivery.record import Envelope, RecordKind, write_envelope
from veredus.delivery.rows import encode_rows
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.native import Kind
from veredus.streams.administration import _VERBS
from veredus.streams.exchange import Durability

Segment = tuple[bytes | str, str]
ME = bytes(range(16))
STREAM = bytes.fromhex("5f1d0c7a9e2b4d6680a1c3e5f7092b4d")
HINT = "REGENERATE=1 pytest tests/protocols makes it anew"


def block(title: str, segments: Iterable[Segment], expected: bytes | None = None) -> str:
    """A dump of segments, each with what it is; `expected` is what they must be together."""
    lines, whole = [], b""
    for data, meaning in segments:
        octets = bytes.fromhex(data) if isinstance(data, str) else data
        for start in range(0, len(octets), 16):
            row = octets[start : start + 16]
            what = meaning if start == 0 else ""
            lines.append(f"{len(whole) + start:04x}  {row.hex(' '):<47}  {what}".rstrip())
        whole += octets
    assert expected is None or whole == expected, title
    return f"{title}\n\n```text\n" + "\n".join(lines) + "\n```\n\n"


def zeps1_dumps() -> str:
    head = "aa a5"
    return "".join(
        (
            block(
                "ATTACH to `prices`:",
                [
                    (head + "01", "signature, ATTACH"),
                    ("04 5a 45 50 53", 'protocol "ZEPS"'),
                    ("00 01", "version 1"),
                    ("06 70 72 69 63 65 73", 'stream "prices"'),
                ],
                frames.encode_attach("prices"),
            ),
            block("ATTACH-OK:", [(head + "02", "signature, ATTACH-OK")], frames.ATTACH_OK),
            block(
                "SUBSCRIBE to keys that begin with `EWR.`, behind sequence 258:",
                [
                    (head + "03", "signature, SUBSCRIBE"),
                    ("04 45 57 52 2e", 'pattern "EWR."'),
                    ("00 00 00 00 00 00 01 02", "latest 258"),
                ],
                frames.encode_subscribe(b"EWR.", 258),
            ),
            block("SUBSCRIBE-OK:", [(head + "04", "signature, SUBSCRIBE-OK")], frames.SUBSCRIBE_OK),
            block(
                "CREDIT of 65,536 bytes:",
                [(head + "05", "signature, CREDIT"), ("00 00 00 00 00 01 00 00", "credit")],
                frames.encode_credit(65536),
            ),
            block(
                "PUBLISH of `late` under `EWR.LAX`:",
                [
                    (head + "06", "signature, PUBLISH"),
                    ("07 45 57 52 2e 4c 41 58", 'key "EWR.LAX"'),
                    ("00 00 00 04", "size of the body"),
                    (b"late", "body"),
                ],
                frames.encode_publish(b"EWR.LAX", b"late"),
            ),
            block(
                "DELIVER of the same at sequence 259 (27 bytes of credit):",
                [
                    (head + "07", "signature, DELIVER"),
                    ("00 00 00 00 00 00 01 03", "sequence 259"),
                    ("07 45 57 52 2e 4c 41 58", 'key "EWR.LAX"'),
                    ("00 00 00 04", "size of the body"),
                    (b"late", "body"),
                ],
                frames.encode_deliver(259, b"EWR.LAX", b"late"),
            ),
            block(
                "PING, PING-OK, DETACH, DETACH-OK:",
                [(head + "08", "PING"), (head + "09", "PING-OK"), (head + "0a", "DETACH"), (head + "0b", "DETACH-OK")],
                frames.PING + frames.PING_OK + frames.DETACH + frames.DETACH_OK,
            ),
            block(
                "INVALID:",
                [(head + "0c", "signature, INVALID"), (b"\x09" + b"too_large", 'reason "too_large"')],
                frames.encode_invalid("too large"),
            ),
        )
    )


# ── native ───────────────────────────────────────────────────────────────────────────────────────────────────────────

ROWS = Rows([b"EWR.LAX", b"JFK.SFO"], [b"late", b"on time"], [1_357_016_400_000_000, 1_357_017_000_000_000])
LOW, HIGH = 1_357_016_400_000_000, 1_357_017_000_000_000
FULL = Rows(
    ROWS.keys,
    ROWS.bodies,
    ROWS.event_times_us,
    [{"delay": 31, "carrier": "UA"}, {"carrier": "B6", "at": datetime(2013, 1, 1, 5, tzinfo=UTC)}],
)
BINARY = {
    Kind.OFFER: "one record, its envelope blank",
    Kind.RECEIPT: "one or more receipts of 24 bytes",
    Kind.CREDIT: "u64 size",
    Kind.DELIVER: "u64 redelivered_to, then records",
    Kind.HANDED: "u64 sequence",
    Kind.SETTLE: "one or more of u64 first, u64 last",
    Kind.SETTLED: "u64 floor, then any number of u64 first, u64 last",
    Kind.PING: "up to 64 bytes of any kind",
    Kind.PONG: "what the PING held",
    Kind.CLOSE_CHANNEL: "empty",
    Kind.CHANNEL_CLOSED: "empty",
}
FROM_CLIENT = {
    Kind.HELLO, Kind.CLOSE_CHANNEL, Kind.ATTACH_SOURCE, Kind.OFFER, Kind.STORE_TOKEN, Kind.SUBSCRIBE, Kind.CREDIT,
    Kind.SETTLE, Kind.RETURN, Kind.CHANGE_FILTER, Kind.OPEN_RUN, Kind.OPEN_STAGE, Kind.COMMIT, Kind.DROP_STAGES,
    Kind.REQUEST,
}  # fmt: skip
FROM_BOTH = {Kind.GOODBYE, Kind.PING, Kind.PONG, Kind.HANDED}


def table_of_kinds() -> str:
    lines = ["| kind | frame | said by | body |", "|---|---|---|---|"]
    for kind in Kind:
        who = "both" if kind in FROM_BOTH else "client" if kind in FROM_CLIENT else "node"
        message = native._MESSAGES.get(kind)
        body = BINARY[kind] if message is None else fields_of(message)
        lines.append(f"| `{kind:02x}` | {kind.name} | {who} | {body} |")
    return "\n".join(lines) + "\n"


def fields_of(message: type[m.Message]) -> str:
    """The fields of a map with their types, and the default of those that may be left out."""
    shown = []
    annotations = message.__annotations__
    for field in msgspec.structs.fields(message):
        kind = annotations[field.name].replace("|", "or").replace("None", "nil")
        default = "" if field.required else f" = {default_of(field)}"
        shown.append(f"`{field.encode_name}` {kind}{default}")
    return ", ".join(shown)


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return "{}"
    if field.default is None:
        return "nil"
    plain = msgspec.to_builtins(field.default)
    return json.dumps(plain)


def offered(layout: Layout, rows: Rows, token: bytes) -> bytes:
    payload = [encode_rows(rows)] if layout is Layout.ROWS else encode_columns(columns_of(rows))
    header = BatchHeader(int(layout), 0, 0, 0, 2, 7, 3, 1, 2, 1, LOW, HIGH)
    record = signed_record(header, payload, token)
    size = 64 + sum(map(len, payload)) + len(token)
    batch = memoryview(record)[32 : 32 + size]
    verify_payload(batch, read_header(batch), BatchLimits())
    return bytes(record)


def header_segments(record: bytes, layout: str, token: int) -> list[Segment]:
    def part(start: int, size: int) -> bytes:
        return record[32 + start : 32 + start + size]

    payload_size = int.from_bytes(part(12, 4), "little")
    return [
        (part(0, 4), "crc: CRC-32C of the batch from here + 4 on"),
        (part(4, 2), "magic b47c"),
        (part(6, 1), "batch version 1"),
        (part(7, 1), f"layout: {layout}"),
        (part(8, 2), "flags: no codec, whole"),
        (part(10, 2), "zero"),
        (part(12, 4), f"payload_size {payload_size}"),
        (part(16, 4), f"token_size {token}"),
        (part(20, 4), "span 2"),
        (part(24, 4), "stream_id 7"),
        (part(28, 4), "source_id 3"),
        (part(32, 4), "epoch 1"),
        (part(36, 4), "count 2"),
        (part(40, 8), "first_number 1"),
        (part(48, 8), "event_time_min, µs since 1970"),
        (part(56, 8), "event_time_max"),
    ]


def offer_dump() -> str:
    token = b"offset=2"
    record = offered(Layout.ROWS, ROWS, token)
    payload = encode_rows(ROWS)
    end = 96 + len(payload)
    head, _ = native.encode_offer(1, record)
    segments: list[Segment] = [
        (head[:4], f"size {len(record)}"),
        (head[4:5], "OFFER"),
        (head[5:6], "flags"),
        (head[6:8], "channel 1"),
        (record[:32], "envelope: blank"),
        *header_segments(record, "rows", len(token)),
        (payload, "payload: [[keys], [bodies], [event times], nil, nil]"),
        (record[end : end + len(token)], 'resume token "offset=2"'),
        (record[end + len(token) :], "zeros up to a multiple of 8"),
    ]
    title = "OFFER of two publications, laid out as rows, closed by a resume token:"
    return block(title, segments, head + record)


def deliver_dump() -> str:
    record = bytearray(offered(Layout.ROWS, ROWS, b""))
    size = 64 + int.from_bytes(record[44:48], "little")
    write_envelope(record, Envelope(RecordKind.BATCH, 0, size, 0x1234, 41, 1_357_020_000_000_000))
    head = native.encode_deliver(2, 0, len(record))
    segments: list[Segment] = [
        (head[:4], f"size {8 + len(record)}"),
        (head[4:5], "DELIVER"),
        (head[5:6], "flags"),
        (head[6:8], "channel 2"),
        (head[8:], "redelivered_to 0: nothing was pushed before"),
        (bytes(record[:4]), "envelope: CRC-32C of bytes 4 to 36 of the record"),
        (bytes(record[4:6]), "magic c0da"),
        (bytes(record[6:7]), "kind 2: a batch"),
        (bytes(record[7:8]), "flags"),
        (bytes(record[8:12]), f"size of the batch, {size}"),
        (bytes(record[12:16]), "salt: the node's own"),
        (bytes(record[16:24]), "first_sequence 41"),
        (bytes(record[24:32]), "append_time, µs since 1970"),
        (bytes(record[32:]), "the batch as its source signed it, and zeros"),
    ]
    return block("DELIVER of the same batch without its token, at sequences 41 and 42:", segments, head + record)


def columns_dump() -> str:
    record = offered(Layout.COLUMNS, FULL, b"")
    payload = record[96:]
    names = b"delaycarrierat"
    descriptors = [
        ("key: role 1, type 0, plain, no nulls", 0),
        ("body: role 2, type 0, plain, no nulls", 1),
        ("event time: role 3, type 3, plain, no nulls", 2),
        ('attribute "delay": type 3, plain, has nulls', 3),
        ('attribute "carrier": type 1, plain, no nulls', 4),
        ('attribute "at": type 5, plain, has nulls', 5),
    ]
    segments: list[Segment] = [(payload[:2], "6 columns"), (payload[2:4], "zero"), (payload[4:8], "14 bytes of names")]
    segments += [(payload[8 + 16 * i : 24 + 16 * i], text) for text, i in descriptors]
    at = 8 + 16 * len(descriptors)
    segments.append((payload[at : at + 14], "names, joined"))
    segments.append((payload[at + 14 : at + 16], "zeros"))
    assert payload[at : at + 14] == names
    at += 16
    for size, text in [
        (16, "keys: offsets 0, 7, 14"),
        (16, "  octets"),
        (16, "bodies: offsets 0, 4, 11"),
        (16, "  octets"),
        (16, "event times"),
        (8, "delay: validity, the second is null"),
        (16, "  31, and whatever"),
        (16, "carrier: offsets 0, 2, 4"),
        (8, "  octets"),
        (8, "at: validity, the first is null"),
        (16, "  whatever, and µs"),
    ]:
        segments.append((payload[at : at + size], text))
        at += size
    return block(
        "The same two publications with attributes, laid out as columns (the payload alone):", segments, payload
    )


def control_dumps() -> str:
    hello = native.encode_message(0, m.Hello("flights", "secret"))
    attach = native.encode_message(1, m.AttachSource("prices", "UA", ME))
    attached = m.SourceAttached(7, STREAM, 3, 1, 0, b"", 0, Durability.GROUP)
    subscribe = native.encode_message(2, m.Subscribe("prices", credit=65536))

    def framed(title: str, data: bytes, meaning: str) -> str:
        size = int.from_bytes(data[:4], "little")
        return block(
            title,
            [
                (data[:4], f"size {size}"),
                (data[4:5], Kind(data[4]).name),
                (data[5:6], "flags"),
                (data[6:8], f"channel {data[6]}"),
                (data[8 : 8 + size], meaning),
                (data[8 + size :], "zeros"),
            ],
            data,
        )

    return "".join(
        (
            block(
                "ATTACH with version 2, in version 1's grammar, and its answer:",
                [("aa a5 01 04 5a 45 50 53 00 02 00", "ATTACH, ZEPS, version 2, no stream"), ("aa a5 02", "ATTACH-OK")],
                frames.encode_attach("", 2) + frames.ATTACH_OK,
            ),
            framed("HELLO:", hello, '{"client": "flights", "token": "secret"}'),
            framed("ATTACH_SOURCE:", attach, '{"stream": "prices", "source": "UA", "incarnation": 16 bytes}'),
            framed("SOURCE_ATTACHED:", native.encode_message(1, attached), "see the table"),
            offer_dump(),
            framed(
                "RECEIPT: taken up to number 2, from sequence 41 on, no duplicate, synced with its group:",
                native.encode_receipt(1, 2, 41, False, Durability.GROUP),
                "last_number, first_sequence, is_duplicate, durability, zeros",
            ),
            framed("SUBSCRIBE, ephemeral, from everything kept:", subscribe, '{"stream": "prices", "credit": 65536}'),
            framed("SOURCES:", native.encode_message(2, m.Sources(((3, "UA"),))), '{"names": [[3, "UA"]]}'),
            deliver_dump(),
            framed("SETTLE of sequences 1 to 42:", native.encode_settle(2, ((1, 42),)), "first, last"),
            framed("SETTLED up to 42:", native.encode_settled(2, 42, ())[0], "floor"),
            columns_dump(),
        )
    )


# ── the pages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_dumps_of_version_1_on_the_page_are_what_is_said() -> None:
    made = zeps1_dumps()
    assert part_on_page("wire/zeps-1.md", "dumps", made) == made, HINT


def test_the_table_of_native_frames_on_the_page_is_the_codecs() -> None:
    made = table_of_kinds()
    assert part_on_page("wire/native.md", "frames", made) == made, HINT


def test_the_dumps_of_the_native_protocol_on_the_page_are_what_is_said() -> None:
    made = control_dumps()
    assert part_on_page("wire/native.md", "dumps", made) == made, HINT


def test_every_kind_of_frame_is_said_by_somebody_and_has_a_body() -> None:
    assert set(BINARY) | set(native._MESSAGES) == set(Kind)
    assert not set(BINARY) & set(native._MESSAGES)


def test_every_request_that_a_node_answers_is_on_the_page() -> None:
    text = (REFERENCE / "wire" / "native.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z]+\.[a-z]+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(_VERBS)
