"""Many clients of one process, which share a directory, its syncs, and the connections to the proxies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.topics.paper_server import Scene, scene
from veredus.kernel.errors import Misuse, Refused
from veredus.topics import AsyncClient, AsyncClientGroup, Message

NAMES = [f"c{number}" for number in range(20)]


class Failed(Exception):
    """What was done with messages."""


@pytest.fixture
def around() -> Iterator[Scene]:
    with scene() as around:
        yield around


Work = Callable[[AsyncClientGroup], Coroutine[None, None, None]]
Run = Callable[[Work], None]


@pytest.fixture
def in_group(around: Scene, tmp_path: Path) -> Run:
    """Does something with a group, from opening to closing it; what fails leaves it."""

    async def entered(work: Work) -> None:
        with suppress(Failed):
            async with AsyncClientGroup(proxies=around.addresses, directory=tmp_path, answer_s=1.0) as group:
                await work(group)

    return lambda work: asyncio.run(entered(work))


def test_each_client_of_a_group_puts_and_gets_as_its_own_in_one_directory(
    in_group: Run, around: Scene, tmp_path: Path
) -> None:
    async def put_and_get(group: AsyncClientGroup) -> None:
        async def one(name: str) -> None:
            client = group.client(name)
            assert group.client(name) is client
            await client.subscribe("t")
            await client.put(f"of-{name}", name.encode())

        await asyncio.gather(*map(one, NAMES))
        await group.client("c0").put("t", b"all")
        for name in NAMES:
            assert await group.client(name).get("t") == Message("t", "c0-1", b"all")

    in_group(put_and_get)
    assert [around.server.bodies(f"of-{name}") for name in NAMES] == [[name.encode()] for name in NAMES]
    assert [path.name for path in tmp_path.iterdir()] == ["clients"]


def test_a_group_that_is_opened_again_remembers_what_each_client_had(in_group: Run, around: Scene) -> None:
    async def first(group: AsyncClientGroup) -> None:
        for name in ("alice", "bob"):
            await group.client(name).subscribe("t")
        await group.client("alice").put("t", b"one")
        assert await group.client("alice").get("t") is not None
        assert await group.client("bob").get("t") is not None
        await group.client("bob").done(Message("t", "alice-1", b"one"))
        raise Failed

    async def then(group: AsyncClientGroup) -> None:
        assert await group.client("alice").get("t") == Message("t", "alice-1", b"one")
        assert await group.client("bob").get("t") is None
        await group.client("alice").put("t", b"two")

    in_group(first)
    in_group(then)
    assert around.server.bodies("t") == [b"one", b"two"]


def test_a_group_shares_its_syncs(in_group: Run, tmp_path: Path) -> None:
    async def put(group: AsyncClientGroup) -> None:
        await asyncio.gather(*(group.client(name).put("t", b"%d" % n) for name in NAMES for n in range(10)))
        written = (tmp_path / "clients").glob("*.segment")
        # The magic and the kind of a record that opens a group.
        count = sum(segment.read_bytes().count(b"\xda\xc0\x01") for segment in written)
        assert count < 100, "of two hundred puts"

    in_group(put)


def test_a_group_is_used_in_its_block_by_one_process_and_a_client_of_one_name_is_another_one(
    in_group: Run, around: Scene, tmp_path: Path
) -> None:
    async def use(group: AsyncClientGroup) -> None:
        with pytest.raises(Refused, match=r"the group of clients is in use by process \d+ \(in .*/clients\)"):
            await AsyncClientGroup(proxies=around.addresses, directory=tmp_path).__aenter__()
        with pytest.raises(Misuse, match="id 'a b'"):
            group.client("a b")
        await group.client("alice").put("t", b"x")
        async with AsyncClient("alice", proxies=around.addresses, directory=tmp_path) as alone:
            assert alone is not group.client("alice")
        kept.append(group)

    kept: list[AsyncClientGroup] = []
    in_group(use)
    with pytest.raises(Misuse, match="the group of clients is not open"):
        kept[0].client("bob")
    with pytest.raises(Misuse, match="client alice is not open"):
        asyncio.run(kept[0].client("alice").put("t", b"x"))
    with pytest.raises(Misuse, match="no proxy is configured"):
        AsyncClientGroup(proxies=[], directory=tmp_path)
