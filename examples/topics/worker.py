"""Some of the clients, in one process: each subscribes, puts its share of the flights, and gets what its topics have.

Killed anywhere, it is started again and goes on by the accounts: what a client was told to be put is not put again, and
what it was not told of is, which is the same put to the service. A message that was written down before the kill may
come again, with the same id, as the first one of its topic: that is for the audit to judge.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from accounts import FAILED, GOT, PUT, SUBSCRIBED, Account, body_of, digest_of, index_of, read_account
from by_page import PageClient
from scene import END, OPEN, Scene, load_scene, read_flights

from veredus.kernel.errors import Refused, Unavailable
from veredus.topics import AsyncClient

AGAIN_SECONDS = 0.1
WAIT_SECONDS = 0.5
POLL_SECONDS = 0.05
T = TypeVar("T")


class Signs:
    """Owns what the conductor has said to all clients of the process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.is_open = asyncio.Event()
        """Puts may begin."""
        self.began = 0.0
        self.has_ended = False
        """Nothing more is put, and every topic is at one server."""

    async def watch(self) -> None:
        """Look for the signs until the last one is there."""
        while not self.has_ended:
            self.has_ended = (self._directory / END).exists()
            if not self.is_open.is_set() and (self._directory / OPEN).exists():
                self.began = float((self._directory / OPEN).read_text())
                self.is_open.set()
            await asyncio.sleep(POLL_SECONDS)


class Life:
    """One client in this process, from its account on."""

    def __init__(self, name: str, scene: Scene, directory: Path, flights: list[tuple[str, str]], signs: Signs) -> None:
        path = directory / "accounts" / name
        lines = read_account(path)
        self._subscribed = {line.topic for line in lines if line.kind == SUBSCRIBED}
        self._account = Account(path)
        self._scene, self._signs, self._topics = scene, signs, scene.subscriptions[name]
        self._pace = scene.seconds / len(flights)
        put = {line.index for line in lines if line.kind == PUT}
        self._share = [
            (index, topic, body_of(index, flight))
            for index, (topic, flight) in enumerate(flights)
            if scene.putter_of(index) == name and index not in put
        ]
        """What is still to be put, in order."""
        proxies = scene.proxies_of(name)
        self._client: AsyncClient | PageClient
        if scene.is_by_page(name):
            last_ids = {line.topic: line.message_id for line in lines if line.kind == GOT}
            self._client = PageClient(name, proxies=proxies, last_ids=last_ids)
        else:
            self._client = AsyncClient(name, proxies=proxies, directory=directory / "clients")

    async def live(self) -> None:
        """Do all that is left to do; ends when nothing more can come."""
        async with self._client, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._put())
            for topic in self._topics:
                tasks.create_task(self._take_part(topic))
        self._account.close()

    async def _take_part(self, topic: str) -> None:
        if topic not in self._subscribed:
            await self._told("subscribe", partial(self._client.subscribe, topic))
            self._account.write(SUBSCRIBED, topic)
        has_ended = False
        while not has_ended:
            # Nothing there counts only if all was there before it was asked for.
            is_last = self._signs.has_ended
            message = await self._told("get", partial(self._client.get, topic, wait_s=WAIT_SECONDS))
            if message is None:
                has_ended = is_last
            else:
                # Before anything else can happen in this process: the next GET lets go of the message.
                self._account.write(GOT, topic, message.id, index_of(message.body), digest_of(message.body))

    async def _put(self) -> None:
        await self._signs.is_open.wait()
        for index, topic, body in self._share:
            due = self._signs.began + index * self._pace
            await asyncio.sleep(due - time.monotonic())
            await self._told("put", partial(self._client.put, topic, body))
            # As soon as that: whoever is killed a moment later puts the same again, and the service must know it.
            self._account.write(PUT, topic, index, digest_of(body))

    async def _told(self, operation: str, ask: Callable[[], Awaitable[T]]) -> T:
        """What the service says at last; asked again as long as somebody on the way is away.

        A subscription that is not known is one that another server has, as long as two have the topic.
        """
        while True:
            try:
                return await ask()
            except Unavailable as error:
                self._account.write(FAILED, operation, error.code)
            except Refused as error:
                if (operation, error.code) != ("get", "not-subscribed"):
                    raise
                self._account.write(FAILED, operation, error.code)
            await asyncio.sleep(AGAIN_SECONDS)


async def live(directory: Path, worker: int) -> None:
    """All clients of one worker, side by side."""
    scene, flights, signs = load_scene(directory), read_flights(directory), Signs(directory)
    lives = [Life(name, scene, directory, flights, signs) for name in scene.clients_of(worker)]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(signs.watch())
        for life in lives:
            tasks.create_task(life.live())


def main() -> int:
    """Live until nothing more can come."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--worker", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run(live(arguments.directory, arguments.worker))
    return 0


if __name__ == "__main__":
    sys.exit(main())
