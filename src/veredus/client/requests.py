"""Requests to a node that wait for their answers, over one link or several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from veredus.kernel.errors import Misuse, Unavailable, VeredusError
from veredus.protocols.zeps import messages as m

from .causes import error_of
from .granting import HANGS

ASKED_ONCE = frozenset(("stream.delete", "subscription.remove", "sink.remove"))
"""Requests that are not repeated when the link is lost before their answer: they may have been done."""
_CALLS = {"stage.list": "sinks.stages()", "stage.drop": "sinks.drop_stages()", "sink.remove": "sink.remove()"}
"""What callers have called, where the verb of the wire does not have its name."""


@dataclass(slots=True)
class _Asked:
    request: m.Request
    answer: asyncio.Future[Any]
    is_sent: bool = False


class Requests:
    """Owns the requests of one connection that are not answered yet."""

    def __init__(self, send: Callable[[m.Request], bool], describe: Callable[[], tuple[str, str]]) -> None:
        """`send` sends one and says whether there is a link; `describe`: the addresses, and why there is none."""
        self._send = send
        self._describe = describe
        self._asked: dict[int, _Asked] = {}
        self._last = 0

    async def ask(self, verb: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """The answer to one request. Raises `Refused`, `Misuse`, or `Unavailable` when no node answers in time.

        Then it is `in-doubt` where the request was sent and may have changed something, else `no-answer`.
        """
        try:
            msgspec.msgpack.encode(arguments)
        except UnicodeEncodeError as error:
            message = f"{error.object!r} cannot be sent: UTF-8 cannot hold what is at position {error.start}"
            raise Misuse("bad-argument", message) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise Misuse("bad-argument", f"an argument of {_call_of(verb)} cannot be sent: {error}") from None
        self._last += 1
        asked = _Asked(m.Request(self._last, verb, arguments), asyncio.get_running_loop().create_future())
        self._asked[self._last] = asked
        asked.is_sent = self._send(asked.request)
        try:
            async with asyncio.timeout(timeout_s):
                return await asked.answer
        except TimeoutError:
            where, why = self._describe()
            waited = f"no node answered {_call_of(verb)} in {timeout_s:g} s, at {where}: {why or HANGS}"
            if asked.is_sent and not verb.endswith((".list", ".show")):
                raise Unavailable("in-doubt", f"{waited}; the node may have done it") from None
            raise Unavailable("no-answer", waited) from None
        finally:
            self._asked.pop(asked.request.request, None)

    def begin(self) -> None:
        """There is a link: ask it all that is not answered."""
        for asked in self._asked.values():
            asked.is_sent = self._send(asked.request)

    def lose(self) -> None:
        """There is none any more: what may have been done is not asked again."""
        for number in [n for n, a in self._asked.items() if a.is_sent and a.request.verb in ASKED_ONCE]:
            asked = self._asked.pop(number)
            if not asked.answer.done():
                call = _call_of(asked.request.verb)
                told = f"the connection was lost before the answer to {call}: the node may have done it"
                asked.answer.set_exception(Unavailable("in-doubt", told))

    def end(self, error: VeredusError) -> None:
        """No answer will come any more."""
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(error.again())
        self._asked.clear()

    def take(self, message: object) -> None:
        """The node has answered one, perhaps."""
        if not isinstance(message, m.Reply | m.Refusal):
            return
        asked = self._asked.get(message.request)
        if asked is None or asked.answer.done():
            return
        if isinstance(message, m.Reply):
            asked.answer.set_result(message.result)
        else:
            asked.answer.set_exception(error_of(message))


def _call_of(verb: str) -> str:
    """A request as callers know it."""
    noun, _, does = verb.partition(".")
    return _CALLS.get(verb, f"{noun}s.{does}()")
