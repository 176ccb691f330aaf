"""What costs a processor much, and is done for whoever comes: by threads, one after the other, addresses in turn.

    ask ──► its address's turn (veredus.node.lookups) ── still wanted ──► checked by a thread ──► answered
               └── too many wait ──► `Crowded`               └── not ──► `Unwanted`

The hash of a token and a private key's operation cost milliseconds, and who asks for them has proved nothing: a loop
that did them itself would keep all its peers waiting. OpenSSL lets other threads go on meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from veredus.node.lookups import Lookups

ANSWER_AGAIN_S = 0.1
"""After so long a thread that lacks the memory to answer tries again."""
Found = TypeVar("Found")


class Crowded(Exception):
    """Nothing was checked: too many wait."""


class Unwanted(Exception):
    """Nothing was checked: it was not wanted any more when its turn had come."""


class _Asked(NamedTuple):
    check: Callable[[], object]
    answer: Callable[[Any], None]
    is_wanted: Callable[[], bool]


class Checks:
    """Owns the threads that check, and who waits for them; used on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, at_once_max: int, waiting_max: int) -> None:
        """Threads are called `name`, one for each check, `at_once_max` at a time; `waiting_max` may wait for them."""
        self._loop = loop
        self._name = name
        self._lookups = Lookups(at_once_max, waiting_max)
        self._asked: dict[int, _Asked] = {}
        self._last_key = 0
        self._is_closed = False

    def close(self) -> None:
        """Check nothing any more, and answer nobody."""
        self._is_closed = True

    def prove(self, address: str) -> None:
        """Somebody at this address has proved who he is: see `Lookups`."""
        self._lookups.prove(address)

    def ask(
        self,
        address: str,
        check: Callable[[], Found],
        answer: Callable[[Found | Exception], None],
        is_wanted: Callable[[], bool],
        is_begun: bool = False,
    ) -> int:
        """Have a thread `check`; `answer` hears later, on the loop, what came of it, or what was raised.

        That is `Crowded` or `Unwanted` where nothing was checked: `is_wanted` is asked when the turn has come.
        `is_begun`: it continues what was checked. The key, which is not 0, is for `forget`.
        """
        self._last_key += 1
        self._asked[self._last_key] = _Asked(check, answer, is_wanted)
        refused = self._lookups.ask(self._last_key, address, is_begun)
        if refused is not None:
            self._loop.call_soon(self._answer, refused, Crowded())
        self._go_on()
        return self._last_key

    def forget(self, key: int) -> None:
        """Nobody waits for this any more, and nobody is answered; what is being checked is checked to its end."""
        self._lookups.forget(key)
        self._asked.pop(key, None)

    def _go_on(self) -> None:
        while not self._is_closed and (key := self._lookups.next()) is not None:
            asked = self._asked[key]
            if asked.is_wanted():
                self._start(key, asked.check)
            else:
                self._lookups.finish(key)
                self._loop.call_soon(self._answer, key, Unwanted())

    def _start(self, key: int, check: Callable[[], object]) -> None:
        # No executor: where the interpreter ends, it cannot even be imported.
        try:
            Thread(target=self._check, args=(key, check), name=self._name).start()
        except RuntimeError:
            # There can be no further thread at present.
            self._check(key, check)

    def _check(self, key: int, check: Callable[[], object]) -> None:
        found: object
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 who waits is answered whatever failed, and the next one is checked
            found = error
        while True:
            try:
                self._loop.call_soon_threadsafe(self._take, key, found)
                return
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                return
            except MemoryError:
                # Its place among those that are checked at once would be lost for good.
                time.sleep(ANSWER_AGAIN_S)

    def _take(self, key: int, found: object) -> None:
        self._lookups.finish(key)
        self._go_on()
        self._answer(key, found)

    def _answer(self, key: int, found: object) -> None:
        asked = self._asked.pop(key, None)
        if asked is not None:
            asked.answer(found)
