"""Mistakes of who makes a client of topics: each is told when it is made, with what was meant."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from veredus.kernel.errors import Misuse
from veredus.topics.blocking import Client
from veredus.topics.client import AsyncClient, AsyncClientGroup

PROXIES = ["127.0.0.1:9"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"body_size_max": "1 MiB"}, "body_size_max must be a whole number of bytes from 1, not '1 MiB'"),
        ({"body_size_max": 0}, "body_size_max must be a whole number of bytes from 1, not 0"),
        ({"body_size_max": True}, "body_size_max must be a whole number of bytes from 1, not True"),
        ({"answer_s": "1"}, "answer_s must be a number of seconds above 0 and up to 86400, not '1'"),
        ({"answer_s": 0}, "answer_s must be a number of seconds above 0"),
        ({"answer_s": -1.0}, "answer_s must be a number of seconds above 0"),
        ({"answer_s": float("inf")}, "answer_s must be a number of seconds above 0"),
        ({"answer_s": float("nan")}, "answer_s must be a number of seconds above 0"),
        ({"retries_max": "3"}, "retries_max must be a whole number from 0, not '3'"),
        ({"retries_max": -1}, "retries_max must be a whole number from 0, not -1"),
        ({"proxies": 5}, "proxies must be a list of addresses"),
        ({"directory": 5}, "directory must be a path, not 5"),
        ({"directory": "\ud800"}, r"directory must be a path, not '\ud800'"),
        ({"token": 5}, "token must be text, not 5"),
        ({"secret_key": b"x"}, "secret_key must be text, not b'x'"),
    ],
)
@pytest.mark.parametrize("make", [Client, AsyncClient, lambda _, **given: AsyncClientGroup(**given)])
def test_a_setting_that_is_none_is_told_when_the_client_is_made(
    make: Callable[..., object], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misuse) as caught:
        make("c", **({"proxies": PROXIES} | given))
    assert (caught.value.code, caught.value.details["argument"]) == ("bad-argument", next(iter(given)))
    assert said in caught.value.message


def opened(directory: Path, loop: asyncio.AbstractEventLoop) -> AsyncClient:
    client = AsyncClient("c", proxies=PROXIES, directory=directory, answer_s=0.01)
    return loop.run_until_complete(client.open())


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.put("t", b"x"),
        lambda client: client.get("t"),
        lambda client: client.subscribe("t"),
        lambda client: client.close(),
    ],
    ids=["put", "get", "subscribe", "close"],
)
def test_a_client_that_is_used_in_another_loop_says_so(
    tmp_path: Path, use: Callable[[AsyncClient], Awaitable[object]]
) -> None:
    loop = asyncio.new_event_loop()
    client = opened(tmp_path, loop)

    async def elsewhere() -> None:
        await use(client)

    with pytest.raises(Misuse, match="was opened in another event loop") as caught:
        asyncio.run(elsewhere())
    assert caught.value.code == "other-loop"
    loop.run_until_complete(client.close())
    loop.close()


def test_a_group_that_is_left_in_another_loop_says_so(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    group = AsyncClientGroup(proxies=PROXIES, directory=tmp_path)
    loop.run_until_complete(group.__aenter__())
    with pytest.raises(Misuse, match="was opened in another event loop"):
        asyncio.run(group.__aexit__(None, None, None))
    loop.run_until_complete(group.__aexit__(None, None, None))
    loop.close()


async def _enter(client: Any) -> None:
    async with client:
        pass


def test_each_of_the_two_clients_says_that_it_is_the_other_one(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"blocking library.*AsyncClient") as caught:
        asyncio.run(_enter(Client("c", proxies=PROXIES, directory=tmp_path)))
    assert caught.value.code == "other-library"
    for asynchronous in (
        AsyncClient("c", proxies=PROXIES, directory=tmp_path),
        AsyncClientGroup(proxies=PROXIES, directory=tmp_path),
    ):
        with pytest.raises(Misuse, match="write `async with`, not `with`"), asynchronous:  # type: ignore[attr-defined]
            pass
