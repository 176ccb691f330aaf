"""What the clients of one process may share: a directory, its syncs, and the connections to the proxies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from veredus.client.loops import check_loop
from veredus.kernel.addresses import split_address
from veredus.kernel.errors import Misuse
from veredus.runtime.topics_credentials import NOTHING_TO_SHOW, Credentials, check_credentials

from .asking import Questions
from .states import States

ANSWER_S_MAX = 86_400
"""No proxy is waited for longer than a day."""


class HomeSettings(NamedTuple):
    """Where clients remember, and how they ask; `owner` is who they are, in words."""

    owner: str
    path: Path
    proxies: Sequence[str]
    answer_ns: int
    retries_max: int
    body_size_max: int
    shown: Credentials = NOTHING_TO_SHOW


def check_quantities(answer_s: object, retries_max: object, body_size_max: object) -> None:
    """Raise `Misuse("bad-argument")` for what is no time, count or size of that kind."""
    if isinstance(answer_s, bool) or not isinstance(answer_s, int | float) or not 0 < answer_s <= ANSWER_S_MAX:
        said = f"answer_s must be a number of seconds above 0 and up to {ANSWER_S_MAX}, not {answer_s!r:.60}"
        raise Misuse("bad-argument", said, argument="answer_s")
    for argument, value, least, what in (
        ("retries_max", retries_max, 0, "a whole number"),
        ("body_size_max", body_size_max, 1, "a whole number of bytes"),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            said = f"{argument} must be {what} from {least}, not {value!r:.60}"
            raise Misuse("bad-argument", said, argument=argument)


class Home:
    """Owns what clients remember, and their questions; opened, used and closed on one loop."""

    def __init__(self, settings: HomeSettings) -> None:
        """Open nothing yet. Raises `Misuse`: `no-proxies`, `bad-address`; and `Refused`: `bad-token`, `bad-key`."""
        if not settings.proxies:
            raise Misuse("no-proxies", "no proxy is configured: list at least one address in `proxies`")
        for address in settings.proxies:
            try:
                split_address(str(address))
            except ValueError as error:
                raise Misuse("bad-address", f"proxies: {error}", address=address) from None
        check_credentials(settings.shown)
        self.settings = settings
        self.states = States(settings.path, settings.owner)
        self._questions: Questions | None = None
        self._is_open = self._was_opened = False

    @property
    def questions(self) -> Questions:
        """What is asked of the proxies, once it is open."""
        assert self._questions is not None
        return self._questions

    def check_open(self) -> None:
        """Raise `Misuse("not-open")` unless it is open."""
        if not self._is_open:
            raise Misuse(
                "not-open",
                f"{self.settings.owner} is not open: use it in a `with` or `async with` block",
            )

    def check_loop(self) -> None:
        """Raise `Misuse("other-loop")` in any loop but that in which it was opened, and in a thread that runs none."""
        check_loop(self._loop, self.settings.owner, "open it")

    async def open(self) -> None:
        """Take the directory. Raises `Refused`: `client-in-use`, or what the journal's recovery raises."""
        settings = self.settings
        if self._was_opened:
            raise Misuse("not-open", f"{settings.owner} was already opened before: create a new one")
        self._was_opened = True
        try:
            await self.states.open()
        except BaseException:
            self._was_opened = False
            raise
        self._is_open = True
        self._loop = asyncio.get_running_loop()
        self._questions = Questions(
            settings.proxies, settings.answer_ns, settings.retries_max, settings.body_size_max, settings.shown
        )

    async def close(self) -> None:
        """Let go of what was opened, once; no client uses it any more."""
        if not self._is_open:
            return
        self._is_open = False
        self.questions.close()
        await self.states.close()
