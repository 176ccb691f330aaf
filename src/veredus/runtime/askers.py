"""Whose token or key is it? What is known is answered at once; a token that must be hashed waits for a turn.

    ask ──► remembered, or not in the file ──► answered
              └── has a line there ──► its address's turn (veredus.node.lookups) ──► hashed by a thread ──► answered

A peer that has gone while it waited is not checked: who opens connections again and again gets no more checks by that.
What is wrong with the file of tokens, or with this machine, is the log's to tell: a peer hears that it may try again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

from veredus.kernel.errors import Refused
from veredus.node.lookups import Lookups

from .security import TokenFile

CHECKS_AT_ONCE_MAX = 2
ANSWER_AGAIN_S = 0.1
"""After so long a thread that lacks the memory to answer tries again."""
WAITING_MAX = 1024
"""Two threads do about as many checks in the time that a peer has to greet."""
_UNKNOWN = "the node does not know this token"
_EXPIRED = "unauthenticated"
"""With this code the file of tokens refuses what a peer has shown; any other is a fault of ours."""


class Known(NamedTuple):
    """Who it is; None where that is not known, with the reason as a sentence, and a code."""

    principal: str | None
    reason: str = ""
    code: str = "unauthenticated"


class _Asked(NamedTuple):
    token: str
    answer: Callable[[Known], None]
    is_wanted: Callable[[], bool]


Tokens: TypeAlias = Callable[[], TokenFile | None]


class Askers:
    """Owns the threads that check tokens, and who waits for them; used on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tokens: Tokens) -> None:
        """`tokens` gives the file that holds now, None where there is none."""
        self._loop = loop
        self._tokens = tokens
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE_MAX, "veredus-token")
        self._lookups = Lookups(CHECKS_AT_ONCE_MAX, WAITING_MAX)
        self._asked: dict[int, _Asked] = {}
        self._last_key = 0

    def close(self) -> None:
        """Answer nobody any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def holder_of(self, key: bytes) -> Known:
        """Who holds a key that a peer has proved to hold."""
        try:
            tokens = self._tokens()
            line = None if tokens is None else tokens.line_of_key(key)
        except Refused as refused:
            return _refused(refused)
        return Known(None, "the node does not know this key") if line is None else Known(line.principal)

    def ask(self, token: str, address: str, answer: Callable[[Known], None], is_wanted: Callable[[], bool]) -> None:
        """Find out whose `token` this is, and `answer`, perhaps at once; not while `is_wanted` says no."""
        found = self._found_at_once(token)
        if found is not None:
            answer(found)
            return
        self._last_key += 1
        self._asked[self._last_key] = _Asked(token, answer, is_wanted)
        refused = self._lookups.ask(self._last_key, address)
        if refused is not None:
            self._asked.pop(refused).answer(
                Known(None, "too many tokens are being checked: try again later", "too-busy")
            )
        self._go_on()

    def _found_at_once(self, token: str) -> Known | None:
        if not token:
            return Known(None, "authentication is required: connect with a token")
        try:
            tokens = self._tokens()
            if tokens is None or not tokens.has_line(token):
                return Known(None, _UNKNOWN)
            known = tokens.remembered(token)
        except Refused as refused:
            return _refused(refused)
        return None if known is None else Known(known)

    def _go_on(self) -> None:
        while (key := self._lookups.next()) is not None:
            if self._asked[key].is_wanted():
                self._threads.submit(self._check, key, self._asked[key].token)
            else:
                self._lookups.finish(key)
                del self._asked[key]

    def _check(self, key: int, token: str) -> None:
        try:
            tokens = self._tokens()
            principal = None if tokens is None else tokens.principal_of(token)
            found = Known(principal, "" if principal else _UNKNOWN)
        except Exception as error:  # noqa: BLE001 who waits is answered whatever failed, and the next one is checked
            found = _refused(error)
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

    def _take(self, key: int, found: Known) -> None:
        self._lookups.finish(key)
        asked = self._asked.pop(key)
        self._go_on()
        asked.answer(found)


def _refused(error: Exception) -> Known:
    if isinstance(error, Refused) and error.code == _EXPIRED:
        return Known(None, error.message)
    return Known(None, "the node cannot check who you are now: try again later", "too-busy")
