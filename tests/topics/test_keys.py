"""A key names one put and one body: whatever is tried again under it, only one body arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest

from tests.topics.paper_server import Scene, scene
from veredus.kernel.errors import Misuse, Refused, Unavailable
from veredus.topics import AsyncClient, Client
from veredus.topics.facts import decode_fact

Put: TypeAlias = Callable[..., None]
ADVICE = "If you meant to try again, it is done; for another message, use a new key"


@pytest.fixture
def around() -> Iterator[Scene]:
    with scene() as around:
        around.server.answer = around.server.answer_strictly
        yield around


@pytest.fixture(params=["blocking", "asyncio"])
def put(request: pytest.FixtureRequest, around: Scene, tmp_path: Path) -> Put:
    """Puts on topic t in a client that is opened for it, so that only what is on disk is known."""

    def put_blocking(*bodies: bytes, key: str) -> None:
        with Client("alice", proxies=around.addresses, directory=tmp_path, answer_s=1.0) as client:
            client.put("t", bodies[0], key=key) if len(bodies) == 1 else client.put_many("t", bodies, key=key)

    async def put_async(*bodies: bytes, key: str) -> None:
        async with AsyncClient("alice", proxies=around.addresses, directory=tmp_path, answer_s=1.0) as client:
            if len(bodies) == 1:
                await client.put("t", bodies[0], key=key)
            else:
                await client.put_many("t", bodies, key=key)

    if request.param == "blocking":
        return put_blocking
    return lambda *bodies, key: asyncio.run(put_async(*bodies, key=key))


def lost(around: Scene, is_heard: bool) -> Callable[[bytes], bytes]:
    """Answers nothing that helps, whether the server has heard the question or not."""
    answer = around.server.answer

    def lose(data: bytes) -> bytes:
        if is_heard:
            answer(data)
        return around.server.status("SERVER_UNAVAILABLE")

    return lose


def test_another_body_under_the_key_of_an_acknowledged_put_is_refused(put: Put, around: Scene) -> None:
    put(b"one", key="k")
    heard_count = len(around.server.heard)
    with pytest.raises(Misuse) as raised:
        put(b"two", key="k")
    assert raised.value.code == "key-used"
    assert raised.value.message == (
        f"the last put on t has this key and another body, and that was put: this body was not. {ADVICE}"
    )
    assert len(around.server.heard) == heard_count, "nobody was asked"
    put(b"one", key="k")
    put(b"two", key="k2")
    assert around.server.bodies("t") == [b"one", b"two"]


def test_many_and_one_with_the_same_bytes_are_two_bodies(put: Put, around: Scene) -> None:
    put(b"one", b"two", key="k")
    for bodies in ((b"one",), (b"one", b"three"), (b"one", b"two", b"three"), (b"\0\0\0\x03one\0\0\0\x03two",)):
        with pytest.raises(Misuse, match="has this key and another body"):
            put(*bodies, key="k")
    put(b"one", b"two", key="k")
    assert around.server.bodies("t") == [b"one", b"two"]


@pytest.mark.parametrize("is_heard", [False, True])
def test_another_body_under_the_key_of_a_put_in_doubt_finishes_that_put_and_is_refused(
    put: Put, around: Scene, is_heard: bool
) -> None:
    well, around.server.answer = around.server.answer, lost(around, is_heard)
    with pytest.raises(Unavailable):
        put(b"one", key="k")
    with pytest.raises(Unavailable) as raised:
        put(b"two", key="k")
    assert raised.value.code == "server-unavailable"
    assert raised.value.message.startswith(
        "the last put on t has this key and another body, and that one must be finished first: "
    )
    assert raised.value.message.endswith(". Try again, with its body")
    around.server.answer = well
    for _ in range(2):
        with pytest.raises(Misuse, match="and that was put: this body was not"):
            put(b"two", key="k")
    assert around.server.bodies("t") == [b"one"]
    put(b"one", key="k")
    put(b"two", key="k2")
    assert around.server.bodies("t") == [b"one", b"two"]


def test_a_put_that_a_server_refuses_keeps_its_key_and_no_other(put: Put, around: Scene) -> None:
    well, around.server.answer = around.server.answer, lambda _: around.server.status("REFUSED", b"too large")
    with pytest.raises(Refused, match="too large"):
        put(b"one", key="k")
    with pytest.raises(Refused, match=r"must be finished first: .*too large. Try again, with its body"):
        put(b"two", key="k")
    around.server.answer = well
    put(b"two", key="k2")
    assert around.server.bodies("t") == [b"two"]


def test_only_the_last_key_of_a_topic_is_remembered(put: Put, around: Scene) -> None:
    for key in ("k", "k2", "k"):
        put(key.encode() + b" of its own", key=key)
        put(key.encode() + b" of its own", key=key)
    put(b"without a key", key="")
    put(b"another body", key="k")
    assert len(around.server.bodies("t")) == 5


def test_a_state_that_has_a_key_and_no_digest_can_still_be_read() -> None:
    state = {"last_put_counter": 3, "last_put_key": b"k"}
    change = decode_fact(msgspec.msgpack.encode(("alice t", state))).change
    assert not isinstance(change, int)
    assert (change.last_put_key, change.last_put_digest) == (b"k", b"")
