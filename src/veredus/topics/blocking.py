"""The client without asyncio: the same names, and calls that wait. One thread of the process does the work of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from os import PathLike
from pathlib import Path
from threading import Lock
from time import sleep
from types import TracebackType
from typing import Self

from veredus.client.closing import Closing
from veredus.client.endings import watch_end
from veredus.client.loops import Begun, LoopThread, shared_loop
from veredus.client.other_library import Blocking
from veredus.kernel.errors import VeredusError
from veredus.kernel.octets import Octets
from veredus.protocols.topics.conversation import RETRIES_MAX
from veredus.protocols.topics.many import COUNT_MAX
from veredus.runtime.topics_credentials import Credentials

from .arguments import check_wait, checked_count, octets_of, packed_of, pauses
from .client import ANSWER_S, BODY_SIZE_MAX, DIRECTORY, home_of_one
from .home import Home
from .operations import Message, Operations

_ending: dict[Begun[None], tuple[LoopThread, Path]] = {}
"""What closes homes, in which loop and directory: nobody may have waited for its end."""


class Client(Blocking):
    """One client of the topic service, as `AsyncClient`, with calls that wait. Threads may share it."""

    def __init__(
        self,
        client_id: str,
        *,
        proxies: Sequence[str],
        directory: str | PathLike[str] = DIRECTORY,
        answer_s: float = ANSWER_S,
        retries_max: int = RETRIES_MAX,
        body_size_max: int = BODY_SIZE_MAX,
        token: str = "",
        server_key: str = "",
        secret_key: str = "",
    ) -> None:
        """As `AsyncClient`; to be opened and closed, or entered."""
        self.id = client_id
        shown = Credentials(token, server_key, secret_key)
        self._home_of = partial(home_of_one, client_id, proxies, directory, answer_s, retries_max, body_size_max, shown)
        self._home = self._home_of()
        self._operations = Operations(client_id, self._home)
        self._thread = shared_loop()
        self._closing = Closing(self._thread)
        self._hands: dict[str, Lock] = {}
        """One caller has to do with a topic at a time, until it was told what became of that."""

    def open(self) -> Self:
        """Open the client's directory; returns the client. Raises `Refused("client-in-use")`.

        What is raised meanwhile by a signal's handler leaves it closed, to be opened again.
        """
        watch_end()
        self._await_former()
        home = self._home
        opening = Begun(self._thread.loop, home.open)
        try:
            self._thread.see_to(opening)
            opening.result()
            self._operations.open()
        except BaseException:
            if not opening.has_failed:
                # Nobody has got what is opened.
                self._home = self._home_of()
                self._operations = Operations(self.id, self._home)
                self._end(Begun(self._thread.loop, partial(_closed_again, home, opening)))
            raise
        return self

    def _await_former(self) -> None:
        """Let a client of the same directory end whose end was not waited for."""
        self._thread.check_caller()
        for former, place in list(_ending.items()):
            if place == (self._thread, self._home.settings.path):
                self._thread.see_to(former)

    def _end(self, closing: Begun[None]) -> None:
        _ending[closing] = (self._thread, self._home.settings.path)
        self._thread.call(closing.start)
        closing.then(lambda: _ending.pop(closing, None))

    def close(self) -> None:
        """Finish the calls in progress and release the directory; received messages count as handed over.

        What a signal's handler raises meanwhile, as Ctrl-C does, ends the wait for it: close it again.
        """
        self._leave(is_done=True)

    def subscribe(self, topic: str) -> None:
        """Subscribe to the topic; as `AsyncClient.subscribe`."""
        self._thread.run(partial(self._operations.subscribe, topic))

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from the topic; as `AsyncClient.unsubscribe`."""
        self._thread.run(partial(self._operations.unsubscribe, topic))

    def forget_last(self, topic: str) -> None:
        """Forget the last message that was got; as `AsyncClient.forget_last`."""
        self._thread.run(partial(self._operations.forget_last, topic))

    def put(self, topic: str, body: Octets | str, *, key: Octets | str = b"") -> None:
        """Put a message; as `AsyncClient.put`."""
        with self._hand(topic):
            self._thread.run(partial(self._operations.put, topic, octets_of(body), key=key))
            self._thread.run(partial(self._operations.told, topic))

    def put_many(self, topic: str, bodies: Sequence[Octets | str], *, key: Octets | str = b"") -> None:
        """Put thousands of messages together, all of them or none; as `AsyncClient.put_many`."""
        packed = packed_of(bodies)
        if not bodies:
            return
        with self._hand(topic):
            self._thread.run(partial(self._operations.put, topic, packed, is_many=True, key=key))
            self._thread.run(partial(self._operations.told, topic))

    def get(self, topic: str, *, wait_s: float = 0.0) -> Message | None:
        """The next message, or None after `wait_s` seconds; as `AsyncClient.get`."""
        messages = self._wait(topic, 0, wait_s)
        return messages[0] if messages else None

    def get_many(self, topic: str, count_max: int = COUNT_MAX, *, wait_s: float = 0.0) -> list[Message]:
        """The next messages, as many as come at once, [] when there are none; as `AsyncClient.get_many`."""
        return self._wait(topic, checked_count(count_max), wait_s)

    def done(self, message: Message) -> None:
        """Mark a message as handed over; as `AsyncClient.done`."""
        self._thread.run(partial(self._operations.done, message))

    def messages(self, topic: str) -> Iterator[Message]:
        """The messages of a topic, without end; each counts as handed over when the next one is requested."""
        while True:
            message = self.get(topic, wait_s=inf)
            assert message is not None
            yield message

    def _hand(self, topic: str) -> Lock:
        """What is held by whoever has to do with a topic. In a child of a fork it may be held for ever."""
        self._thread.check_caller()
        return self._hands.setdefault(topic, Lock())

    def _wait(self, topic: str, count_max: int, wait_s: float) -> list[Message]:
        check_wait(wait_s)
        left = pauses(wait_s)
        while not (messages := self._get(topic, count_max)):
            pause_s = next(left, None)
            if pause_s is None:
                break
            sleep(pause_s)
        return messages

    def _get(self, topic: str, count_max: int) -> list[Message]:
        messages: list[Message] = []
        failed: VeredusError | None = None
        try:
            with self._hand(topic):
                try:
                    messages = self._thread.run(partial(self._operations.take, topic, count_max))
                except VeredusError as error:
                    failed = error
                    self._thread.call(partial(self._operations.heard, topic, error))
                    raise
                if messages:
                    self._thread.call(partial(self._operations.given, topic, len(messages)))
        except BaseException as error:
            # Such as a signal's handler raises: the caller has none of them, and nothing else that it was to be told.
            if messages:
                self._thread.call(partial(self._operations.given, topic, 0))
            if failed is not None and error is not failed:
                self._thread.call(partial(self._operations.heard, topic, None))
            raise
        return messages

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(is_done=kind is None)

    def _leave(self, is_done: bool) -> None:
        if not self._closing.is_begun and not self._operations.is_open:
            return
        self._thread.check_caller()
        work = partial(_closed, self._home, self._operations, is_done)
        self._end(self._closing.begin(work))
        self._closing.wait(work)


async def _closed(home: Home, operations: Operations, is_done: bool) -> None:
    try:
        await operations.close(is_done)
    finally:
        await home.close()


async def _closed_again(home: Home, opening: Begun[None]) -> None:
    if await opening.is_well():
        await home.close()
