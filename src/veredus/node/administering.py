"""Administrative requests on their way through the join: what may change something is noted with how it ended.

Who asked, for what, and with which outcome is known here alone: the floor answers by number, and a link may be gone by
then. Where such requests must be recorded and cannot be, they are refused.
Source: docs/reference/audit-log.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from veredus.kernel.effects import Note
from veredus.protocols.links import SESSION_BITS
from veredus.streams.administration import ARGUMENTS_MAX
from veredus.streams.exchange import AdminRequested, AnswerAdmin, Refuse

from .exchange import RecordAwaited, RecordWritten

READING = frozenset(("list", "show", "names", "left"))
"""The last words of the verbs that change nothing."""
VALUE_SIZE_MAX = 255
ARGUMENTS_SIZE_MAX = 1024
"""Bytes of all arguments of a request together, as a record has them."""
_ENTRY_SIZE = 16
"""What an argument takes in a record beside its text."""
_RENEWAL, _REMOVAL = "subscription.renew", "subscription.remove"
_WISH = "wish"
"""Clients of topics alone give one."""
_NOT_THERE = ("unknown-subscription", "unknown-stream")
"""With these, a renewal found nothing to renew: whoever asked subscribes anew. Nor did a client of topics that leaves
one find anything to leave, as it wished. Nobody was refused anything."""


def is_changing(verb: str) -> bool:
    """Whether a request with this verb may change something."""
    return verb.rpartition(".")[2] not in READING


class Administering:
    """Owns the requests that may change something and were not answered yet."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.why_not: Callable[[], str] = _may
        """Why no such request is taken now; "" while they are."""
        self.is_recorded = False
        """Whether there is an audit log: then nobody is told how a request ended before its record is written."""
        self._asked: dict[tuple[int, int], AdminRequested] = {}
        self._held: dict[int, AnswerAdmin | Refuse] = {}
        self._last_token = 0

    def refusal(self, event: AdminRequested) -> Refuse | None:
        """What a request is told that cannot be recorded; None for one that goes on; those that change are kept."""
        if not is_changing(event.verb):
            return None
        self._asked[event.session, event.request] = event
        reason = self.why_not()
        if not reason:
            return None
        message = (
            f"the audit log cannot be written ({reason}), and audit.required allows no change without it:"
            " free its disk, or set another audit.file"
        )
        return Refuse(event.session, "not-audited", message, {}, event.request, is_final=False)

    def note_answer(self, said: AnswerAdmin | Refuse) -> list[Note]:
        """How a request ended that may have changed something; nothing for any other answer."""
        event = self._asked.pop((said.session, said.request), None)
        if event is None:
            return []
        if isinstance(said, Refuse):
            is_wish = event.verb == _RENEWAL or (event.verb == _REMOVAL and _WISH in event.arguments)
            if is_wish and said.code in _NOT_THERE:
                return []
            fields = {"code": said.code, "reason": said.message}
            return [Note("info", "administration-refused", {**_described(event), **fields})]
        return [Note("info", "administered", {**_described(event), "outcome": "done"})]

    def hold(self, said: AnswerAdmin | Refuse) -> RecordAwaited:
        """Keep an answer until its record, which was noted just now, is written; what tells when that is."""
        self._last_token += 1
        self._held[self._last_token] = said
        return RecordAwaited(self._last_token)

    def release(self, event: RecordWritten) -> AnswerAdmin | Refuse | None:
        """The answer to be given now; a refusal where a change was made that had to be recorded, and is not. None where
        it was given before.
        """
        said = self._held.pop(event.token, None)
        if not event.why_not or said is None or isinstance(said, Refuse):
            return said
        message = (
            f"the change was made, and its record is not in the audit log ({event.why_not}): make "
            "room for the log, look whether the change is what you want, and do not repeat it"
        )
        return Refuse(said.session, "not-recorded", message, {}, said.request, is_final=False)

    def note_lost(self, link: int) -> list[Note]:
        """The requests of a link that went before the answer came: they go on, and nobody says how they end."""
        lost = [key for key in self._asked if key[0] >> SESSION_BITS == link]
        return [Note("info", "administered", {**_described(self._asked.pop(key)), "outcome": "asked"}) for key in lost]


def _described(event: AdminRequested) -> dict[str, object]:
    principal = {"session": event.session, "principal": event.principal}
    arguments = _Shown().entries(event.arguments)
    return {**principal, "verb": event.verb[:VALUE_SIZE_MAX], "arguments": arguments}


class _Shown:
    """Owns how many characters of a request's arguments may still be shown: who asks has chosen all of them."""

    def __init__(self) -> None:
        self._left = ARGUMENTS_SIZE_MAX

    def entries(self, values: dict[str, Any], is_inner: bool = False) -> dict[str, object]:
        """Arguments; or the entries of one, such as a stream's configuration, of which nothing is shown inside."""
        shown: dict[str, object] = {}
        for count, (name, value) in enumerate(values.items()):
            if self._left <= 0 or count == ARGUMENTS_MAX:
                return {**shown, "...": f"{len(values) - count} more"}
            shown[self._text(name if isinstance(name, str) else _kind_of(name))] = self._value(value, is_inner)
        return shown

    def _value(self, value: object, is_inner: bool) -> object:
        match value:
            case str():
                return self._text(value)
            case bool() | int() | float() | None:
                return value
            case bytes():
                return f"{len(value)} bytes"
            case dict() if not is_inner:
                return self.entries(value, is_inner=True)
            case list() | tuple() | dict():
                return f"{len(value)} entries"
            case _:
                return _kind_of(value)

    def _text(self, text: str) -> str:
        shown = text[: min(VALUE_SIZE_MAX, max(0, self._left))]
        self._left -= len(msgspec.json.encode(shown)) + _ENTRY_SIZE
        return shown


def _kind_of(value: object) -> str:
    return type(value).__name__


def _may() -> str:
    return ""
