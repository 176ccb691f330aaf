"""Clients against a server written from the page, through real proxies."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import zmq

import veredus.topics
from tests.alarms import Interrupted, alarm_set, interrupting
from tests.client.tears import torn
from tests.processes import beside
from tests.topics.paper_server import Scene, scene
from veredus.cli.exits import Exit, exit_of
from veredus.kernel.errors import Misuse, Refused, Unavailable, VeredusError
from veredus.topics import AsyncClient, Client, Message


class Failed(Exception):
    """What was done with a message."""


@pytest.fixture
def around() -> Iterator[Scene]:
    with scene() as around:
        yield around


@pytest.fixture
def opened(around: Scene, tmp_path: Path) -> Callable[..., Client]:
    """Makes a blocking client; to be entered."""

    def make(client_id: str = "alice", **options: Any) -> Client:
        return Client(client_id, proxies=around.addresses, directory=tmp_path, **{"answer_s": 1.0, **options})

    return make


def in_loop(around: Scene, directory: Path, work: Callable[[AsyncClient], Coroutine[None, None, None]]) -> None:
    """Do something with alice's client for asyncio."""

    faults: list[object] = []

    async def entered() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        async with AsyncClient("alice", proxies=around.addresses, directory=directory, answer_s=1.0) as client:
            await work(client)

    asyncio.run(entered())
    assert faults == []


def questions(around: Scene, name: str) -> list[bytes]:
    return [data for data in around.server.heard if data.startswith(name.encode() + b" ")]


# ── the four operations ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_put_is_got_once_and_in_order_by_all_who_were_subscribed(opened: Callable[..., Client]) -> None:
    with opened("alice") as alice, opened("bob") as bob, opened("carol") as carol:
        alice.subscribe("prices")
        bob.subscribe("prices")
        for body in (b"one", b"", b"\x00three\r\n\r\n"):
            carol.put("prices", body)
        for client in (alice, bob):
            got = [client.get("prices") for _ in range(4)]
            assert got == [
                Message("prices", "carol-1", b"one"),
                Message("prices", "carol-2", b""),
                Message("prices", "carol-3", b"\x00three\r\n\r\n"),
                None,
            ]


def test_what_was_put_before_is_not_got_and_subscribing_again_changes_nothing(opened: Callable[..., Client]) -> None:
    with opened() as alice:
        alice.put("t", b"before")
        alice.subscribe("t")
        alice.put("t", b"first")
        alice.put("t", b"second")
        assert alice.get("t") == Message("t", "alice-2", b"first")
        alice.subscribe("t")
        assert alice.get("t") == Message("t", "alice-3", b"second")
        assert alice.get("t") is None


@pytest.mark.parametrize("is_many", [False, True])
def test_who_is_torn_out_of_a_get_by_a_signal_gets_the_same_next(opened: Callable[..., Client], is_many: bool) -> None:
    def got(client: Client, topic: str) -> Iterator[Message]:
        if is_many:
            yield from chain.from_iterable(iter(lambda: client.get_many(topic, 2), []))
        else:
            yield from iter(lambda: client.get(topic), None)

    with opened() as alice:
        at, where = 0, "never"
        while where:
            at += 1
            topic = f"t{at}"
            messages: list[Message] = []
            alice.subscribe(topic)
            alice.put_many(topic, [b"1", b"2", b"3"])
            with torn(frozenset(("blocking.py", "loops.py")), at) as tear:
                messages.extend(got(alice, topic))
            where = tear.where
            messages.extend(got(alice, topic))
            assert [message.body for message in messages] == [b"1", b"2", b"3"], f"torn at place {at}, {where}"
        assert at > 10
    gc.collect()


def test_whoever_is_not_subscribed_any_more_gets_nothing_also_not_what_it_had_in_hands(
    opened: Callable[..., Client],
) -> None:
    with suppress(Failed), opened() as alice:
        alice.subscribe("t")
        alice.put("t", b"1")
        alice.get("t")
        raise Failed
    with opened() as alice:
        alice.unsubscribe("t")
        with pytest.raises(Refused) as raised:
            alice.get("t")
        assert raised.value.code == "not-subscribed"
        assert raised.value.message == "client alice is not subscribed to t: subscribe first"
        alice.unsubscribe("t")
        alice.subscribe("t")
        assert alice.get("t") is None


def test_a_get_waits_for_what_comes_and_no_longer_than_it_was_told(
    opened: Callable[..., Client], around: Scene
) -> None:
    with opened("alice") as alice, opened("bob") as bob:
        alice.subscribe("t")
        assert alice.get("t", wait_s=0.05) is None
        assert len(questions(around, "GET")) >= 2

        def put_when_asked() -> None:
            before = len(questions(around, "GET"))
            while len(questions(around, "GET")) < before + 2:
                threading.Event().wait(0.005)
            bob.put("t", b"late")

        with beside(put_when_asked):
            assert alice.get("t", wait_s=30) == Message("t", "bob-1", b"late")


def test_messages_come_one_by_one_and_each_counts_as_handed_over_when_the_next_is_asked_for(
    opened: Callable[..., Client],
) -> None:
    with suppress(Failed), opened() as alice:
        alice.subscribe("t")
        for number in range(5):
            alice.put("t", b"%d" % number)
        bodies = []
        for message in alice.messages("t"):
            bodies.append(message.body)
            if len(bodies) == 3:
                raise Failed
    assert bodies == [b"0", b"1", b"2"]
    with opened() as alice:
        assert [alice.get("t"), alice.get("t"), alice.get("t")] == [
            Message("t", "alice-3", b"2"),
            Message("t", "alice-4", b"3"),
            Message("t", "alice-5", b"4"),
        ], "the third was not handed over, for what was done with it failed"


def test_closing_hands_over_and_so_does_whoever_says_it_is_done(opened: Callable[..., Client]) -> None:
    with opened() as alice:
        alice.subscribe("t")
        for number in range(3):
            alice.put("t", b"%d" % number)
        assert alice.get("t") == Message("t", "alice-1", b"0")
    with suppress(Failed), opened() as alice:
        message = alice.get("t")
        assert message == Message("t", "alice-2", b"1")
        alice.done(message)
        raise Failed
    with opened() as alice:
        assert alice.get("t") == Message("t", "alice-3", b"2")


def test_the_same_body_may_be_put_as_often_as_one_likes(opened: Callable[..., Client], around: Scene) -> None:
    with opened() as alice:
        for _ in range(3):
            alice.put("t", b"tick")
    with opened() as alice:
        alice.put("t", b"tick")
    assert around.server.bodies("t") == [b"tick"] * 4


def test_asyncio_has_the_same(around: Scene, tmp_path: Path) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe("t")
        await asyncio.gather(*(client.put("t", b"tick") for _ in range(5)))
        bodies = []
        async for message in client.messages("t"):
            bodies.append(message.body)
            if len(bodies) == 5:
                break
        assert bodies == [b"tick"] * 5
        assert await client.get("t") is None
        assert await client.get("t", wait_s=0.03) is None
        await client.unsubscribe("t")
        with pytest.raises(Refused):
            await client.get("t")

    in_loop(around, tmp_path, work)


def test_topics_side_by_side_share_their_syncs_and_each_keeps_its_order(around: Scene, tmp_path: Path) -> None:
    async def work(client: AsyncClient) -> None:
        topics = [f"t{number}" for number in range(20)]
        await asyncio.gather(*(client.subscribe(topic) for topic in topics))
        await asyncio.gather(*(client.put(topic, b"%d" % n) for n in range(10) for topic in topics))
        for topic in topics:
            assert around.server.bodies(topic) == [b"%d" % number for number in range(10)]
        for number in range(10):
            got = await asyncio.gather(*(client.get(topic) for topic in topics))
            assert [message.body for message in got if message is not None] == [b"%d" % number] * len(topics)

    in_loop(around, tmp_path, work)


def test_threads_that_share_a_client_share_out_a_topic(opened: Callable[..., Client]) -> None:
    with opened() as alice:
        alice.subscribe("t")
        for number in range(40):
            alice.put("t", b"%d" % number)
        got: list[Message] = []

        def drain() -> None:
            while (message := alice.get("t")) is not None:
                got.append(message)

        with beside(drain), beside(drain):
            drain()
        assert sorted(int(message.body) for message in got) == list(range(40))


def test_tasks_that_share_a_client_share_out_a_topic(around: Scene, tmp_path: Path) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe("t")
        await asyncio.gather(*(client.put("t", b"%d" % number) for number in range(40)))
        got = await asyncio.gather(*(client.get("t") for _ in range(45)))
        assert [message.body for message in got if message is not None] == [b"%d" % number for number in range(40)]

    in_loop(around, tmp_path, work)


@pytest.mark.parametrize("is_many", [False, True])
def test_what_was_got_while_another_operation_waited_for_its_turn_is_got_once(
    around: Scene, tmp_path: Path, is_many: bool
) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe("t")
        for number in range(3):
            await client.put("t", b"%d" % number)

        async def get() -> bytes:
            message = (await client.get_many("t", 1))[0] if is_many else await client.get("t")
            assert message is not None
            return message.body

        # To subscribe once more has its turn before the caller of the get has the message.
        first, _ = await asyncio.gather(get(), client.subscribe("t"))
        assert [first, await get(), await get()] == [b"0", b"1", b"2"]

    in_loop(around, tmp_path, work)


def test_what_was_heard_to_be_gone_while_another_operation_waited_for_its_turn_is_told_once(
    around: Scene, tmp_path: Path
) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe("t")
        around.server.answer = lambda data: (
            b"STATUS s INTERNAL_ERROR missed-7\r\n\r\nmessages are gone"
            if data.startswith(b"GET ") and not data.startswith(b"GET alice t missed-7")
            else around.server.answer_well(data)
        )

        async def get() -> None:
            with pytest.raises(Unavailable):
                await client.get("t")

        await asyncio.gather(get(), client.subscribe("t"))
        await client.get("t")
        assert questions(around, "GET")[-1].startswith(b"GET alice t missed-7")

    in_loop(around, tmp_path, work)


# ── callers that do not wait ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_put_whose_caller_left_is_the_same_put_when_it_is_tried_again(around: Scene, tmp_path: Path) -> None:
    async def work(client: AsyncClient) -> None:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell(data: bytes) -> bytes:
            loop.call_soon_threadsafe(asked.set)
            return around.server.answer_well(data)

        around.server.answer = tell
        leaving = asyncio.ensure_future(client.put("t", b"tick"))
        await asked.wait()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await client.put("t", b"tick")
        assert around.server.bodies("t") == [b"tick"]
        await client.put("t", b"tick")
        assert around.server.bodies("t") == [b"tick", b"tick"]

    in_loop(around, tmp_path, work)


def test_what_follows_a_put_whose_caller_left_as_it_was_told_is_not_forgotten(around: Scene, tmp_path: Path) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe("t")
        await client.put("t", b"1")
        states, operations = client._home.states, client._operations
        disk, told = states._disk, operations.told
        carry_out, held = disk.carry_out, list[Any]()

        async def told_while_the_disk_is_busy(topic: str) -> None:
            disk.carry_out = held.append  # type: ignore[method-assign]
            others.append(asyncio.ensure_future(client.subscribe("u")))
            while not held:
                await asyncio.sleep(0)
            await told(topic)

        others: list[asyncio.Future[None]] = []
        operations.told = told_while_the_disk_is_busy  # type: ignore[method-assign]
        leaving = asyncio.ensure_future(client.put("t", b"2"))
        while len(states._saves) < 2:
            await asyncio.sleep(0.001)
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving
        getting = asyncio.ensure_future(client.get("t"))
        for _ in range(200):
            if len(states._saves) < 3:
                await asyncio.sleep(0.005)
        disk.carry_out = carry_out  # type: ignore[method-assign]
        for order in held:
            carry_out(order)
        await asyncio.gather(*others)
        bodies = [message.body for message in (await getting, await client.get("t")) if message is not None]
        assert bodies == [b"1", b"2"]

    in_loop(around, tmp_path, work)


def test_what_was_begun_is_brought_to_its_end_also_where_nobody_waits_for_it(around: Scene, tmp_path: Path) -> None:
    async def work(client: AsyncClient) -> None:
        leaving = asyncio.ensure_future(client.put("t", b"1"))
        await asyncio.sleep(0)
        leaving.cancel()

    in_loop(around, tmp_path, work)
    assert around.server.bodies("t") == [b"1"]


def test_what_fails_behind_a_caller_who_left_is_not_printed(tmp_path: Path) -> None:
    said: list[object] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        async with AsyncClient("alice", proxies=["127.0.0.1:1"], directory=tmp_path, answer_s=0.01) as client:
            for asked in (client.put("t", b"1"), client.get("t"), client.subscribe("t"), client.unsubscribe("t")):
                leaving = asyncio.ensure_future(asked)
                await asyncio.sleep(0)
                leaving.cancel()
        gc.collect()

    asyncio.run(work())
    assert said == []


def test_a_get_whose_caller_left_gives_its_message_to_the_next_one(around: Scene, tmp_path: Path) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe("t")
        await client.put("t", b"1")
        leaving = asyncio.ensure_future(client.get("t"))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert await client.get("t") == Message("t", "alice-1", b"1")
        assert await client.get("t") is None

    in_loop(around, tmp_path, work)


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        ("SERVER_UNAVAILABLE", Unavailable, "server-unavailable"),
        ("INTERNAL_ERROR", Unavailable, "server-failed"),
        ("REFUSED", Refused, "refused"),
        ("BAD_MESSAGE", Refused, "refused"),
        ("TRANSFER_TOPIC_ERROR", Refused, "bad-answer"),
        ("WHATEVER", Refused, "bad-answer"),
    ],
)
def test_each_word_of_an_answer_is_an_error_of_its_own_with_what_the_server_said(
    opened: Callable[..., Client], around: Scene, words: str, kind: type[VeredusError], code: str
) -> None:
    server = around.server
    server.answer = lambda _: server.status(words, b"because")
    with opened() as alice:
        asks = [alice.subscribe, alice.unsubscribe, alice.get]
        if code != "bad-answer":
            asks.append(lambda topic: alice.put(topic, b"x"))
        for ask in asks:
            with pytest.raises(kind) as raised:
                ask("t")
            assert raised.value.code == code
            assert f"{server.address} answers" in raised.value.message
            assert f"{words}: because" in raised.value.message


@pytest.mark.parametrize("words", ["TEAPOT", "ok", "NO_MESSAGES", "NOT_SUBSCRIBED", "TRANSFER_TOPIC_ERROR"])
def test_a_put_whose_answer_is_none_that_a_put_can_have_is_in_doubt(
    opened: Callable[..., Client], around: Scene, words: str
) -> None:
    """It may be there, and then comes again as the same put."""
    server = around.server

    def answer_oddly(data: bytes) -> bytes:
        server.answer_well(data)
        return server.status(words, b"because")

    server.answer = answer_oddly
    with opened() as alice, pytest.raises(Unavailable) as raised:
        alice.put("t", b"1")
    assert raised.value.code == "bad-answer"
    assert raised.value.message.endswith("(it is not known whether the message was put; retrying is idempotent)")
    server.answer = server.answer_well
    with opened() as alice:
        alice.put("t", b"1")
    assert server.bodies("t") == [b"1"]


def test_messages_that_are_gone_are_an_error_of_their_own_and_end_a_command_as_a_gap(
    opened: Callable[..., Client], around: Scene
) -> None:
    server, said = around.server, b"messages 1 to 8 of t are no longer available (trimmed): retry"
    server.answer = lambda _: server.status("INTERNAL_ERROR 0123456789abcdef-1..8", said)
    with opened() as alice:
        with pytest.raises(Unavailable) as raised:
            alice.get("t")
        assert raised.value.code == "messages-gone"
        assert raised.value.details["message_id"] == "0123456789abcdef-1..8"
        assert said.decode() in raised.value.message
        assert exit_of(raised.value) == Exit.GAP
        asked: list[bytes] = []
        server.answer = lambda data: (asked.append(data), server.status("NO_MESSAGES"))[1]
        assert alice.get("t") is None
        assert asked[0].startswith(b"GET alice t 0123456789abcdef-1..8"), "it names what it was told"


@pytest.mark.parametrize("ask", [Client.get, Client.get_many, lambda client, topic: next(client.messages(topic))])
@pytest.mark.parametrize("is_caught", [True, False])
def test_what_the_caller_heard_to_be_gone_the_next_process_names_also_where_the_error_ended_the_one_before(
    opened: Callable[..., Client], around: Scene, is_caught: bool, ask: Callable[[Client, str], object]
) -> None:
    server, asked = around.server, list[bytes]()
    server.answer = lambda _: server.status("INTERNAL_ERROR 0123456789abcdef-1..8", b"gone")
    with suppress(Unavailable), opened() as alice:
        try:
            ask(alice, "t")
        except Unavailable:
            if not is_caught:
                raise
    server.answer = lambda data: (asked.append(data), server.status("NO_MESSAGES"))[1]
    with opened() as alice:
        assert alice.get("t") is None
    assert asked[0].startswith(b"GET alice t 0123456789abcdef-1..8")


def test_an_error_that_tells_what_is_gone_hands_over_no_message_of_another_topic(
    opened: Callable[..., Client], around: Scene
) -> None:
    server = around.server
    gone = server.status("INTERNAL_ERROR 0123456789abcdef-1..8", b"gone")
    server.answer = lambda data: gone if data.startswith(b"GET alice gone -1") else server.answer_well(data)
    with opened() as alice:
        alice.subscribe("t")
        alice.put("t", b"1")
    with suppress(Unavailable), opened() as alice:
        assert alice.get("t") == Message("t", "alice-1", b"1")
        alice.get("gone")
    with opened() as alice:
        assert alice.get("t") == Message("t", "alice-1", b"1")
        with pytest.raises(Refused, match="not-subscribed"):
            alice.get("gone")


def test_a_caller_who_left_before_it_was_told_what_is_gone_is_told_by_its_next_get(
    around: Scene, tmp_path: Path
) -> None:
    async def work(client: AsyncClient) -> None:
        server = around.server
        server.answer = lambda _: server.status("INTERNAL_ERROR 0123456789abcdef-1..8", b"gone")
        leaving = asyncio.ensure_future(client.get("t"))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        with pytest.raises(Unavailable, match="messages-gone"):
            await client.get("t")
        with pytest.raises(Unavailable, match="messages-gone"):
            await client.get("t")

    in_loop(around, tmp_path, work)
    named = [data.split()[3] for data in questions(around, "GET")]
    assert named == [b"-1", b"-1", b"0123456789abcdef-1..8"]


def test_who_is_torn_out_of_a_get_by_a_signal_is_told_next_what_is_gone(
    opened: Callable[..., Client], around: Scene
) -> None:
    server = around.server
    gone = server.status("INTERNAL_ERROR 0123456789abcdef-1..8", b"gone")
    server.answer = lambda data: gone if data.split()[3] == b"-1" else server.status("NO_MESSAGES")
    with opened() as alice:
        at, where = 0, "never"
        while where:
            at += 1
            is_told = False
            with torn(frozenset(("blocking.py", "loops.py")), at) as tear:
                try:
                    alice.get(f"t{at}")
                except Unavailable:
                    is_told = True
            where = tear.where
            if not is_told:
                with pytest.raises(Unavailable, match="messages-gone"):
                    alice.get(f"t{at}")
        assert at > 10
    gc.collect()


def test_a_put_in_doubt_may_be_tried_again_or_left_and_keeps_nobody_up(
    opened: Callable[..., Client], around: Scene
) -> None:
    server = around.server

    def lose(data: bytes) -> bytes:
        server.answer_well(data)
        return server.status("INTERNAL_ERROR", b"disk-full")

    with opened() as alice:
        server.answer = lose
        with pytest.raises(Unavailable) as raised:
            alice.put("t", b"1")
        assert raised.value.message.endswith(
            "disk-full (it is not known whether the message was put; retrying is idempotent)"
        )
        server.answer = server.answer_well
        alice.put("t", b"1")
        assert around.server.bodies("t") == [b"1"]
        server.answer = lambda _: server.status("REFUSED", b"too large")
        with pytest.raises(Refused):
            alice.put("t", b"2")
        server.answer = server.answer_well
        alice.put("t", b"3")
    assert around.server.bodies("t") == [b"1", b"3"]


def test_a_put_that_the_server_has_not_stored_is_in_no_doubt(opened: Callable[..., Client], around: Scene) -> None:
    server = around.server
    with opened() as alice:
        for code in ("disk-full", "too-many-files", "io-error", "journal-closed"):
            said = server.status("INTERNAL_ERROR", f"no room [{code}]".encode())
            server.answer = lambda _, said=said: said
            with pytest.raises(Unavailable) as raised:
                alice.put("t", b"1")
            assert raised.value.code == "not-stored"
            assert raised.value.message.endswith(f"no room [{code}]: it was not stored, and may be tried again")
        # A journal that has failed may hold, and find again at its next start, what it has not acknowledged.
        server.answer = lambda _: server.status("INTERNAL_ERROR", b"no more [journal-failed]")
        with pytest.raises(Unavailable, match="it is not known whether the message was put"):
            alice.put("t", b"1")
        server.answer = server.answer_well
        alice.put("t", b"1")
    assert server.bodies("t") == [b"1"]


def test_a_get_that_fails_loses_nothing(opened: Callable[..., Client], around: Scene) -> None:
    server = around.server
    with opened() as alice:
        alice.subscribe("t")
        alice.put("t", b"1")
        for answer in (server.status("OK"), server.status("OK -1", b"x"), b"GET a t 1\r\n\r\n"):
            server.answer = lambda _, answer=answer: answer
            with pytest.raises((Refused, Unavailable)):
                alice.get("t")
        server.answer = server.answer_well
        assert alice.get("t") == Message("t", "alice-1", b"1")


def test_whoever_was_told_what_it_missed_names_that_and_nothing_that_was_told_without_an_id(
    opened: Callable[..., Client], around: Scene
) -> None:
    server = around.server
    server.answer = lambda _: server.status("INTERNAL_ERROR", b"because")
    with opened() as alice:
        for _ in range(2):
            with pytest.raises(Unavailable):
                alice.get("t")
        server.answer = lambda _: server.status("INTERNAL_ERROR 0123456789abcdef-1..2", b"no longer available")
        for _ in range(2):
            with pytest.raises(Unavailable):
                alice.get("t")
    named = [data.split()[3] for data in questions(around, "GET")]
    assert named == [b"-1"] * 3 + [b"0123456789abcdef-1..2"]


@pytest.mark.parametrize("word", ["", "two words", "line\n", "\x85", "\ud800", "x" * 513])
def test_what_no_header_can_carry_is_refused_where_it_enters(
    opened: Callable[..., Client], around: Scene, word: str
) -> None:
    with pytest.raises(Misuse) as raised:
        opened(word)
    assert raised.value.code == "bad-word"
    with opened() as alice:
        heard_count = len(around.server.heard)
        for ask in (alice.subscribe, alice.unsubscribe, alice.get, lambda topic: alice.put(topic, b"")):
            with pytest.raises(Misuse) as raised:
                ask(word)
            assert raised.value.code == "bad-word"
        assert len(around.server.heard) == heard_count


def test_ids_and_topics_that_a_header_can_carry_are_carried(opened: Callable[..., Client]) -> None:
    for word in ("é" * 256, "a/../b", "%s", "-1", "*"):
        with opened(word) as client:
            client.subscribe(word)
            client.put(word, b"x")
            assert client.get(word) == Message(word, f"{word}-1", b"x")


def test_a_body_that_is_too_large_is_refused_before_anything_is_asked(
    opened: Callable[..., Client], around: Scene
) -> None:
    with opened(body_size_max=1024) as alice:
        alice.put("t", bytes(1024))
        with pytest.raises(Misuse) as raised:
            alice.put("t", bytes(1025))
        assert raised.value.code == "too-large"
    assert len(questions(around, "PUT")) == 1


def test_bodies_are_bytes_of_any_kind_or_text_and_nothing_else(opened: Callable[..., Client], around: Scene) -> None:
    with opened() as alice:
        alice.put("t", bytearray(b"1"))
        alice.put("t", memoryview(b"23")[1:])
        alice.put("t", "ä")
        for wrong in ({}, [1], 3, None):
            with pytest.raises(Misuse, match="bytes or text"):
                alice.put("t", wrong)  # type: ignore[arg-type]
    assert around.server.bodies("t") == [b"1", b"3", "ä".encode()]


def test_the_key_of_a_put_is_bytes_or_text_and_nothing_else_comes_into_the_directory(
    opened: Callable[..., Client], around: Scene
) -> None:
    for key in ("größe", "größe".encode(), bytearray("größe".encode())):
        with opened() as alice:
            alice.put("t", "once", key=key)
    with opened() as alice:
        for wrong in (5, None, 10**30, ["k"]):
            with pytest.raises(Misuse, match="key must be bytes or text, not"):
                alice.put("t", b"wrong", key=wrong)  # type: ignore[arg-type]
            with pytest.raises(Misuse, match="key must be bytes or text, not"):
                alice.put_many("t", [b"wrong"], key=wrong)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="key has 256 bytes, and the limit is 255"):
            alice.put("t", b"wrong", key="k" * 256)
        for call in (lambda: alice.put("t", "\ud800"), lambda: alice.put("t", b"", key="\ud800")):
            with pytest.raises(Misuse, match="cannot be written as UTF-8"):
                call()
    with opened():
        assert around.server.bodies("t") == [b"once"]


def test_a_put_with_the_key_of_the_last_one_is_put_again_where_its_server_was_put_back_to_a_copy(
    opened: Callable[..., Client], around: Scene
) -> None:
    with opened() as alice:
        alice.put("t", "one", key="k1")
        copy = deepcopy(around.server.topics)
        for _ in range(2):
            alice.put("t", "two", key="k2")
        alice.put_many("u", ["three", "four"], key="k3")
        around.server.topics = copy
        for _ in range(2):
            alice.put("t", "two", key="k2")
            alice.put_many("u", ["three", "four"], key="k3")
    assert around.server.bodies("t") == [b"one", b"two"]
    assert around.server.bodies("u") == [b"three", b"four"]


@interrupting
def test_opening_that_is_interrupted_leaves_a_client_that_can_be_opened_and_an_id_that_others_can_have(
    opened: Callable[..., Client], around: Scene
) -> None:
    with alarm_set() as alarm:
        for step in range(1, 16):
            client = opened()
            try:
                alarm.ring_in(step * 0.0004)
                client.open()
                alarm.is_armed = False
            except Interrupted:
                client.open()
            client.put("t", str(step))
            client.close()
    assert around.server.bodies("t") == [str(step).encode() for step in range(1, 16)]


def test_opening_returns_the_client_and_only_a_message_is_done(opened: Callable[..., Client], around: Scene) -> None:
    alice = opened()
    assert alice.open() is alice
    with pytest.raises(Misuse, match="done takes a message that get returned, not None"):
        alice.done(None)  # type: ignore[arg-type]
    alice.put_many("t", ["ä", b"1"])
    alice.close()
    assert around.server.bodies("t") == ["ä".encode(), b"1"]


def test_a_client_is_used_between_opening_and_closing(opened: Callable[..., Client]) -> None:
    alice = opened()
    with pytest.raises(Misuse) as raised:
        alice.get("t")
    assert raised.value.code == "not-open"
    alice.open()
    alice.subscribe("t")
    alice.close()
    alice.close()
    with pytest.raises(Misuse):
        alice.get("t")
    with pytest.raises(Misuse):
        alice.open()


def test_two_clients_of_one_id_are_refused_and_of_two_are_not(opened: Callable[..., Client]) -> None:
    with opened("alice"), opened("bob"):
        with pytest.raises(Refused) as raised:
            opened("alice").open()
        assert raised.value.code == "client-in-use"
    with opened("alice"):
        pass


def test_no_proxies_at_all_are_a_misuse_and_a_single_one_may_be_given_as_it_is(around: Scene, tmp_path: Path) -> None:
    with pytest.raises(Misuse) as raised:
        Client("alice", proxies=[], directory=tmp_path)
    assert raised.value.code == "no-proxies"
    with Client("alice", proxies=around.addresses[0], directory=str(tmp_path)) as alice:
        alice.put("t", b"1")


@pytest.mark.parametrize("address", ["localhost", "tcp://127.0.0.1:5551", "127.0.0.1:x", 5551])
def test_a_proxy_whose_address_is_none_is_refused_before_anything_is_asked(tmp_path: Path, address: Any) -> None:
    with pytest.raises(Misuse, match="proxies: ") as raised:
        Client("c", proxies=[address], directory=tmp_path)
    assert raised.value.code == "bad-address"


def test_the_package_has_its_names_and_no_others() -> None:
    assert {"AsyncClient", "Client", "Message"} <= set(dir(veredus.topics))
    with pytest.raises(AttributeError):
        veredus.topics.Whatever  # noqa: B018 - that is the test


def test_a_client_that_lost_its_directory_puts_what_it_is_told_to_have_put_and_once(
    around: Scene, tmp_path: Path
) -> None:
    for life in ("before", "after"):
        with Client("alice", proxies=around.addresses, directory=tmp_path / life) as alice:
            alice.put("t", b"same")
            alice.put("t", b"same")
    assert around.server.bodies("t") == [b"same"] * 4
    counters = [int(data.split()[3]) for data in around.server.heard if data.startswith(b"PUT ")]
    assert (counters, len(set(counters))) == (sorted(counters), 4), "where one was late, it was asked for again"


# ── what is given wrongly ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda client: client.put(3, b"x"), "the topic must be text, not 3"),
        (lambda client: client.put_many("t", "abc"), "put takes a single one"),
        (lambda client: client.put_many("t", b"abc"), "put takes a single one"),
        (lambda client: client.put_many("t", iter([b"a"])), "a list of bodies, not list_iterator: pass a list"),
        (lambda client: client.put_many("t", (b for b in [b"a"])), "a list of bodies, not generator: pass a list"),
        (lambda client: client.put_many("t", {"a": 1}), "a list of bodies, not dict: pass a list"),
        (lambda client: client.put_many("t", {b"a"}), "a list of bodies, not set: pass a list"),
        (lambda client: client.get("t", wait_s="10"), "wait_s must be a number from 0, not '10'"),
        (lambda client: client.get("t", wait_s=-1), "wait_s must be a number from 0, not -1"),
        (lambda client: client.get_many("t", "5"), "count_max must be a whole number, not '5'"),
    ],
)
def test_what_is_given_wrongly_is_refused_before_anything_is_asked(
    around: Scene, opened: Callable[..., Client], call: Callable[[Any], object], said: str
) -> None:
    with opened() as client, pytest.raises(Misuse, match=said):
        call(client)
    assert around.server.heard == []


def test_an_id_that_is_no_text_is_refused(opened: Callable[..., Client]) -> None:
    with pytest.raises(Misuse, match="the id must be text, not 3"):
        opened(3)  # type: ignore[arg-type]


def test_a_process_that_can_open_no_further_file_hears_so_of_the_proxy_that_it_cannot_ask(
    around: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, open_socket = threading.get_ident(), zmq.Context.socket

    def no_file(context: zmq.Context[Any], kind: int, **options: Any) -> Any:
        if threading.get_ident() == own:
            raise zmq.ZMQError(errno.EMFILE)
        return open_socket(context, kind, **options)

    async def ask(client: AsyncClient) -> None:
        monkeypatch.setattr(zmq.Context, "socket", no_file)
        with pytest.raises(Unavailable, match=r"cannot be connected to \(Too many open files\)"):
            await client.get("news")
        monkeypatch.undo()

    in_loop(around, tmp_path, ask)
