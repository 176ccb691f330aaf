"""Clients that put and get many messages at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.topics.paper_server import Scene, scene
from veredus.kernel.errors import Misuse, Refused, Unavailable
from veredus.protocols.topics.many import COUNT_MAX
from veredus.topics import AsyncClient, Client, Message
from veredus.topics.states import directory_name


class Failed(Exception):
    """What was done with messages."""


@pytest.fixture
def around() -> Iterator[Scene]:
    with scene() as around:
        yield around


@pytest.fixture
def opened(around: Scene, tmp_path: Path) -> Callable[..., Client]:
    """Makes a blocking client; to be entered."""

    def make(**options: Any) -> Client:
        return Client("alice", proxies=around.addresses, directory=tmp_path, **{"answer_s": 1.0, **options})

    return make


def messages(*numbers: int) -> list[Message]:
    return [Message("t", f"alice-{number}", b"%d" % number) for number in numbers]


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def test_what_is_put_at_once_is_got_one_by_one_or_at_once_in_order(opened: Callable[..., Client]) -> None:
    with opened() as alice:
        alice.subscribe("t")
        alice.put("t", b"1")
        alice.put_many("t", bodies(2, 9))
        alice.put_many("t", [])
        assert alice.get_many("t", 2) == messages(1, 2)
        assert alice.get("t") == messages(3)[0]
        assert alice.get_many("t") == messages(4, 5, 6, 7, 8, 9)
        assert alice.get_many("t") == []
        assert alice.get_many("t", wait_s=0.03) == []
        assert alice.get("t") is None


def test_asyncio_has_the_same(around: Scene, tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncClient("alice", proxies=around.addresses, directory=tmp_path, answer_s=1.0) as client:
            await client.subscribe("t")
            got = asyncio.ensure_future(client.get_many("t", 3, wait_s=5))
            await client.put_many("t", [memoryview(b"1"), bytearray(b"2"), b"3", b"4"])
            await client.put_many("t", [])
            assert await got == messages(1, 2, 3)
            assert await client.get_many("t") == messages(4)

    asyncio.run(work())


def test_what_was_got_at_once_comes_again_unless_it_was_handed_over(opened: Callable[..., Client]) -> None:
    with opened() as alice:
        alice.subscribe("t")
        alice.put_many("t", bodies(1, 5))
    with suppress(Failed), opened() as alice:
        assert alice.get_many("t") == messages(1, 2, 3, 4, 5)
        raise Failed
    with suppress(Failed), opened() as alice:
        got = alice.get_many("t", 4)
        assert got == messages(1, 2, 3, 4), "what came is kept, also where fewer are wanted"
        alice.done(got[1])
        raise Failed
    with suppress(Failed), opened() as alice:
        assert [alice.get("t"), alice.get("t")] == messages(3, 4), "one by one, too"
        raise Failed
    with opened() as alice:
        assert alice.get_many("t") == messages(4, 5)
        assert alice.get_many("t") == []


def test_handing_over_one_by_one_what_came_at_once_writes_it_down_once(
    opened: Callable[..., Client], tmp_path: Path
) -> None:
    size = 100_000
    with opened() as alice:
        alice.subscribe("t")
        alice.put_many("t", [bytes(size)] * 10)
    with suppress(Failed), opened() as alice:
        alice.get_many("t")
        raise Failed
    before = written_size(tmp_path)
    with opened() as alice:
        for _ in range(10):
            assert alice.get("t") is not None
        assert written_size(tmp_path) - before < size
        assert alice.get("t") is None


def written_size(directory: Path) -> int:
    """Bytes that are not zero at the ends of the journal's segments."""
    segments = (directory / directory_name("alice")).glob("*.segment")
    return sum(len(segment.read_bytes().rstrip(b"\0")) for segment in segments)


def test_the_same_messages_put_at_once_are_the_same_put_where_nobody_was_told(
    opened: Callable[..., Client], around: Scene
) -> None:
    server = around.server

    def fail(data: bytes) -> bytes:
        server.answer_well(data)
        return server.status("INTERNAL_ERROR")

    with opened() as alice:
        alice.put("t", b"1")
        server.answer = fail
        with pytest.raises(Unavailable, match="it is not known whether the message was put"):
            alice.put_many("t", bodies(2, 5))
    server.answer = server.answer_well
    with opened() as alice:
        alice.put_many("t", bodies(2, 5))
        alice.put_many("t", bodies(2, 5))
        alice.put("t", b"6")
    assert server.bodies("t") == [*bodies(1, 5), *bodies(2, 5), b"6"]


def test_an_answer_of_many_that_cannot_be_read_loses_nothing(opened: Callable[..., Client], around: Scene) -> None:
    server = around.server
    with opened() as alice:
        alice.subscribe("t")
        alice.put_many("t", bodies(1, 3))
        server.answer = lambda data: server.answer_well(data)[:-1] if data.startswith(b"GET") else b""
        with pytest.raises(Refused, match="answers GET_MANY with an invalid body") as raised:
            alice.get_many("t")
        assert raised.value.code == "bad-answer"
        server.answer = server.answer_well
        assert alice.get_many("t") == messages(1, 2, 3)


def test_too_many_and_too_few_are_refused_before_anything_is_asked(
    opened: Callable[..., Client], around: Scene
) -> None:
    with opened(body_size_max=1000) as alice:
        with pytest.raises(Misuse, match="one put_many may have at most 65536 messages, and these are 65537"):
            alice.put_many("t", [b""] * (COUNT_MAX + 1))
        with pytest.raises(Misuse, match="the body has 1044 bytes, and the limit is 1000: put it in parts"):
            alice.put_many("t", [bytes(100)] * 10)
        with pytest.raises(Misuse, match="0 is not a valid count of messages to get: ask for at least one"):
            alice.get_many("t", 0)
        with pytest.raises(Misuse, match="topic"):
            alice.put_many("a topic", [b"1"])
    assert around.server.heard == []
