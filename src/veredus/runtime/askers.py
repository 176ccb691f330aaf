"""Whose token or key is it? What is known is answered at once; a token that must be hashed waits for a turn.

    ask ──► remembered, or not in the file ──► answered
              └── has a line there ──► its address's turn (veredus.runtime.checks) ──► hashed by a thread ──► answered

A peer that has gone while it waited is not checked: who opens connections again and again gets no more checks by that.
What is wrong with the file of tokens, or with this machine, is the log's to tell: a peer hears that it may try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from veredus.kernel.errors import Refused

from .checks import Checks, Crowded
from .security import TokenFile

CHECKS_AT_ONCE_MAX = 2
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


Tokens: TypeAlias = Callable[[], TokenFile | None]


class Askers:
    """Owns the checks of tokens; used on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tokens: Tokens) -> None:
        """`tokens` gives the file that holds now, None where there is none."""
        self._tokens = tokens
        self._checks = Checks(loop, "veredus-token", CHECKS_AT_ONCE_MAX, WAITING_MAX)

    def close(self) -> None:
        """Answer nobody any more."""
        self._checks.close()

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

        def take(checked: Known | Exception) -> None:
            known = _answer_to(checked)
            if known.principal is not None:
                self._checks.prove(address)
            # Who does not wait any more hears nothing.
            if is_wanted():
                answer(known)

        self._checks.ask(address, partial(self._check, token), take, is_wanted)

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

    def _check(self, token: str) -> Known:
        tokens = self._tokens()
        principal = None if tokens is None else tokens.principal_of(token)
        return Known(principal, "" if principal else _UNKNOWN)


def _answer_to(checked: Known | Exception) -> Known:
    if isinstance(checked, Crowded):
        return Known(None, "too many tokens are being checked: try again later", "too-busy")
    return _refused(checked) if isinstance(checked, Exception) else checked


def _refused(error: Exception) -> Known:
    if isinstance(error, Refused) and error.code == _EXPIRED:
        return Known(None, error.message)
    return Known(None, "the node cannot check who you are now: try again later", "too-busy")
