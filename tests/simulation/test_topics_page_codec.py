"""Two readings of the page of topics, made apart, understand one another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.protocols.topics import messages as ours
from veredus.sim import topics_page_codec as page

WORDS = st.text("abcXYZ09_.:-é", min_size=1, max_size=12).filter(lambda word: word != page.NOTHING_GOT)
CONTENTS = st.lists(st.sampled_from([b"*", b"/", b"s", b"\r\n", b"a", b"\x00", b" ", b"\xff"]), max_size=9).map(
    b"".join
)


@st.composite
def transfers(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, bytes]]:
    messages = draw(st.dictionaries(WORDS, CONTENTS, max_size=4))
    ids = st.lists(st.sampled_from([*messages]), unique=True) if messages else st.just([])
    return draw(st.dictionaries(WORDS, ids, max_size=4)), messages


@given(transfers())
def test_a_transfer_that_one_writes_the_other_reads(data: tuple[dict[str, list[str]], dict[str, bytes]]) -> None:
    waiting, messages = data
    read = ours.decode_message(page.transfer("s", "t", waiting, messages))
    assert isinstance(read, ours.Transfer)
    assert (dict(read.subscribers), dict(read.messages)) == (
        {who: tuple(ids) for who, ids in waiting.items()},
        messages,
    )
    assert page.topic_data_in(page.heard(ours.encode_message(read)).body) == (waiting, messages)


@given(WORDS, WORDS, CONTENTS)
def test_every_other_message_is_the_same_to_both(one: str, other: str, body: bytes) -> None:
    pairs: list[tuple[bytes, ours.Message]] = [
        (page.subscribe(one, other), ours.Subscribe(one, other)),
        (page.unsubscribe(one, other), ours.Unsubscribe(one, other)),
        (page.get(one, other), ours.Get(one, other, "-1")),
        (page.get(one, other, other), ours.Get(one, other, other)),
        (page.put(one, other, 7, body), ours.Put(one, other, 7, body)),
        (page.periodic(one, [other, one]), ours.Periodic(one, (other, one))),
        (page.periodic(one, []), ours.Periodic(one, ())),
        (page.merge(one, other, one), ours.Merge(one, other, one)),
        (page.status(one, page.NONE), ours.Status(one, "NO_MESSAGES")),
        (page.status(one, page.OK, other, body), ours.Status(one, "OK", other, body)),
    ]
    for written, message in pairs:
        assert written == ours.encode_message(message)
        said = page.heard(written)
        assert (said.octets, said.sender) == (written, one)
        assert ours.decode_message(written) == message


def test_what_the_page_has_not_is_refused() -> None:
    for octets in (
        b"PUT bob prices 7\r\n",
        b"HELLO bob\r\n\r\n",
        b"GET bob prices\r\n\r\n",
        b"PUT bob  7\r\n\r\n",
        b"\r\n\r\n",
    ):
        with pytest.raises(ValueError, match=r"page|line"):
            page.heard(octets)
    for body in (b"*7\r\nseven", b"*7", b"*7\r\n/x\r\n", b"*7\r\n/"):
        with pytest.raises(ValueError, match="TRANSFER"):
            page.topic_data_in(body)


def test_a_blank_behind_a_header_is_passed_over() -> None:
    assert page.heard(b"GET bob prices -1 \r\n\r\n") == page.Said("GET", ("bob", "prices", "-1"))
