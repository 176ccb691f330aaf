"""The codec of ZEPS 1 against dumps written by hand from the grammar, in any cut, and against garbage."""

from contextlib import suppress
from itertools import pairwise
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.errors import PeerFault
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.frames import CommandParser

SIZE_MAX = 1000

DUMPS = {
    "attach": ("AA A5 01  04 5A 45 50 53  00 01  05 70 72 69 63 65", frames.Attach(b"ZEPS", 1, b"price")),
    "attach_ok": ("AA A5 02", frames.AttachOk()),
    "subscribe": ("AA A5 03  02 61 2E  00 00 00 00 00 00 01 02", frames.Subscribe(b"a.", 258)),
    "subscribe_ok": ("AA A5 04", frames.SubscribeOk()),
    "credit": ("AA A5 05  00 00 00 00 00 01 00 00", frames.Credit(65536)),
    "publish": ("AA A5 06  03 61 2E 62  00 00 00 02 68 69", frames.Publish([b"a.b"], [b"hi"])),
    "deliver": ("AA A5 07  00 00 00 00 00 00 00 09  01 6B  00 00 00 01 FF", frames.Deliver(9, b"k", b"\xff")),
    "ping": ("AA A5 08", frames.Ping()),
    "ping_ok": ("AA A5 09", frames.PingOk()),
    "detach": ("AA A5 0A", frames.Detach()),
    "detach_ok": ("AA A5 0B", frames.DetachOk()),
    "invalid": ("AA A5 0C  02 6E 6F", frames.Invalid(b"no")),
}
ENCODED = {
    "attach": frames.encode_attach("price"),
    "attach_ok": frames.ATTACH_OK,
    "subscribe": frames.encode_subscribe(b"a.", 258),
    "subscribe_ok": frames.SUBSCRIBE_OK,
    "credit": frames.encode_credit(65536),
    "publish": frames.encode_publish(b"a.b", b"hi"),
    "deliver": frames.encode_deliver(9, b"k", b"\xff"),
    "ping": frames.PING,
    "ping_ok": frames.PING_OK,
    "detach": frames.DETACH,
    "detach_ok": frames.DETACH_OK,
    "invalid": frames.encode_invalid("no"),
}
STORY = b"".join(bytes.fromhex(dump) for dump, _ in DUMPS.values()) + ENCODED["publish"] * 3


def flat(commands: list[frames.Command]) -> list[object]:
    """Commands with runs of PUBLISH taken apart: how long a run is depends on the cut."""
    taken: list[object] = []
    for command in commands:
        if isinstance(command, frames.Publish):
            taken += [frames.Publish([key], [body]) for key, body in zip(command.keys, command.bodies, strict=True)]
        else:
            taken.append(command)
    return taken


@pytest.mark.parametrize("name", DUMPS)
def test_each_command_is_what_the_grammar_says_byte_by_byte(name: str) -> None:
    dump, command = DUMPS[name]
    assert ENCODED[name] == bytes.fromhex(dump)
    assert frames.decode_command(bytes.fromhex(dump), SIZE_MAX) == command


def test_every_command_of_the_grammar_has_a_dump() -> None:
    assert [name.upper() for name in DUMPS] == [command.name for command in frames.CommandId]


@given(st.lists(st.integers(0, len(STORY))))
def test_the_same_commands_come_out_however_the_bytes_are_cut(cuts: list[int]) -> None:
    expected = flat(CommandParser(SIZE_MAX).feed(STORY))
    assert len(expected) == len(DUMPS) + 3
    parser = CommandParser(SIZE_MAX)
    got: list[frames.Command] = []
    edges = [0, *sorted(cuts), len(STORY)]
    for start, end in pairwise(edges):
        got += parser.feed(memoryview(STORY)[start:end])
    assert flat(got) == expected
    assert parser.fault is None


def test_publications_of_one_read_come_as_one_run() -> None:
    runs = CommandParser(SIZE_MAX).feed(ENCODED["publish"] * 5 + frames.PING + ENCODED["publish"])
    assert [len(run.keys) if isinstance(run, frames.Publish) else 0 for run in runs] == [5, 0, 1]


def test_a_chunk_over_the_limit_is_a_fault_before_any_of_it_is_kept() -> None:
    parser = CommandParser(SIZE_MAX)
    head = bytes.fromhex("AA A5 06 01 6B 00 00 03 E9")
    assert parser.feed(ENCODED["publish"] + head) == [frames.Publish([b"a.b"], [b"hi"])]
    assert parser.fault is not None
    assert parser.fault.code == "too-large"
    assert parser.feed(frames.PING) == []


@pytest.mark.parametrize("dump", ["AB", "AA A6", "AA A5 00", "AA A5 0D", "AA A5 FF 00", "00"])
def test_what_is_no_command_is_a_fault_at_once(dump: str) -> None:
    parser = CommandParser(SIZE_MAX)
    assert parser.feed(bytes.fromhex(dump)) == []
    assert parser.fault is not None


@pytest.mark.parametrize("name", DUMPS)
def test_a_frame_must_hold_its_command_and_nothing_else(name: str) -> None:
    dump = bytes.fromhex(DUMPS[name][0])
    with pytest.raises(PeerFault):
        frames.decode_command(dump[:-1], SIZE_MAX)
    with pytest.raises(PeerFault):
        frames.decode_command(dump + b"\x00", SIZE_MAX)
    with pytest.raises(PeerFault):
        frames.decode_command(dump + dump, SIZE_MAX)


def test_a_reason_is_printable_and_fits_a_string() -> None:
    text = "no such stream: é 100% a_b\n" + "x" * 190 + "é" * 20
    said = frames.decode_command(frames.encode_invalid(text), SIZE_MAX)
    assert isinstance(said, frames.Invalid)
    assert said.reason.startswith(b"no_such_stream:_%C3%A9_100%25_a%5Fb%0Axxx")
    assert 250 <= len(said.reason) <= 255
    assert text.startswith(unquote(said.reason.decode().replace("_", " ")))
    assert all(0x21 <= octet <= 0x7E for octet in said.reason)


def test_a_key_may_hold_any_octets() -> None:
    key = bytes(range(255))
    assert frames.decode_command(frames.encode_publish(key, b""), SIZE_MAX) == frames.Publish([key], [b""])


@given(st.binary(max_size=200), st.integers(1, 50))
def test_garbage_gives_the_same_commands_and_fault_in_any_cut(data: bytes, cut: int) -> None:
    data = b"\xaa\xa5" + data
    whole, cut_up = CommandParser(40), CommandParser(40)
    expected = flat(whole.feed(data))
    got: list[frames.Command] = []
    for start in range(0, len(data), cut):
        got += cut_up.feed(data[start : start + cut])
    assert flat(got) == expected
    assert str(whole.fault) == str(cut_up.fault)


@given(st.binary(max_size=60))
def test_a_whole_frame_decodes_or_is_the_peers_fault(data: bytes) -> None:
    for frame in (data, b"\xaa\xa5" + data):
        with suppress(PeerFault):
            assert frames.decode_command(frame, 40) is not None


def test_a_fault_that_is_kept_keeps_nothing_of_what_was_read() -> None:
    parser = frames.CommandParser(100)
    parser.feed(b"\xff" * 1000)
    assert parser.fault is not None
    assert (parser.fault.__traceback__, parser.fault.__context__, parser.fault.__cause__) == (None, None, None)


def test_a_fault_in_mid_stream_reads_the_same_wherever_the_bytes_are_cut() -> None:
    octets = frames.PING + b"\xff\xff\xff"
    told = []
    for step in (len(octets), len(frames.PING), 1):
        parser = frames.CommandParser(100)
        for start in range(0, len(octets), step):
            parser.feed(octets[start : start + step])
        told.append(str(parser.fault))
    assert told == ["a command must start with AA A5, not with FF [bad-frame]"] * 3


def test_a_fault_in_the_second_octet_is_told_with_both() -> None:
    parser = frames.CommandParser(100)
    parser.feed(b"\xaa\xa6\x08")
    assert str(parser.fault) == "a command must start with AA A5, not with AA A6 [bad-frame]"
