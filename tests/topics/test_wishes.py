"""The numbers of SUBSCRIBE and UNSUBSCRIBE, as a server hears them from the clients."""

from __future__ import annotations

import asyncio
from itertools import groupby, pairwise
from pathlib import Path
from time import time_ns
from typing import TypeAlias

import pytest

from tests.topics.paper_server import END, Scene, scene
from veredus.topics import AsyncClient, Client

Life: TypeAlias = type[Client] | type[AsyncClient]
Heard: TypeAlias = list[tuple[bytes, int]]
OUT_AND_IN = [b"SUBSCRIBE alice t", b"UNSUBSCRIBE alice t", b"SUBSCRIBE alice t"]


def live(kind: Life, around: Scene, directory: Path) -> Heard:
    """A life of alice's, who subscribes, leaves and subscribes; the headers and numbers that the server heard.

    What is asked once more, since no answer came in time, is the same wish.
    """
    before = len(around.server.heard)
    if kind is Client:
        with Client("alice", proxies=around.addresses, directory=directory) as alice:
            alice.subscribe("t")
            alice.unsubscribe("t")
            alice.subscribe("t")
    else:
        asyncio.run(_live_in_loop(around, directory))
    parts = [data.split(END) for data, _ in groupby(around.server.heard[before:])]
    return [(header, int(body.split()[0])) for header, body in parts]


async def _live_in_loop(around: Scene, directory: Path) -> None:
    async with AsyncClient("alice", proxies=around.addresses, directory=directory) as alice:
        await alice.subscribe("t")
        await alice.unsubscribe("t")
        await alice.subscribe("t")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_each_wish_has_a_number_above_those_of_all_lives_before(kind: Life, tmp_path: Path) -> None:
    begun_us = time_ns() // 1000
    with scene() as around:
        heard = [told for _ in range(3) for told in live(kind, around, tmp_path)]
    assert [header for header, _ in heard] == OUT_AND_IN * 3
    numbers = [begun_us - 1, *(number for _, number in heard)]
    assert all(earlier < later for earlier, later in pairwise(numbers)), numbers


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_whoever_left_says_so_when_it_subscribes_again(kind: Life, tmp_path: Path) -> None:
    with scene() as around:
        first, last = live(kind, around, tmp_path), live(kind, around, tmp_path)
        bodies = [data.partition(END)[2] for data, _ in groupby(around.server.heard)]
    assert len(bodies) == 6
    assert bodies[0] == b"%d" % first[0][1]
    for body, left in ((bodies[2], first[1]), (bodies[3], first[1]), (bodies[5], last[1])):
        assert body.split()[1] == b"%d" % left[1]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_the_numbers_grow_over_lives_also_where_the_clock_was_set_back(
    kind: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene() as around:
        before = live(kind, around, tmp_path)
        monkeypatch.setattr("veredus.topics.operations.time_ns", lambda: 5_000)
        after = live(kind, around, tmp_path)
    last = before[-1][1]
    assert [number for _, number in after] == [last + 1, last + 2, last + 3]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_that_had_forgotten_a_number_asks_once_more_above_it(kind: Life, tmp_path: Path) -> None:
    above = 2 * (time_ns() // 1000)
    with scene() as around:
        answer_well, newest = around.server.answer_well, [above]

        def answer(data: bytes) -> bytes:
            number = int(data.partition(END)[2].split()[0])
            if number <= newest[0]:
                return around.server.status(f"REFUSED {newest[0]}")
            newest[0] = number
            return answer_well(data)

        around.server.answer = answer
        heard = live(kind, around, tmp_path)
    first, again, *behind = [number for _, number in heard]
    assert first < above
    assert [again, *behind] == [above + 1, above + 2, above + 3]
    assert [header for header, _ in heard] == [OUT_AND_IN[0], *OUT_AND_IN]
