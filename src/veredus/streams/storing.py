"""Resume tokens that come by themselves: a source that has published nothing since its last one stores where it is.

One that a publication carries is stored with it, by veredus.streams.publishing. The session must be the one that has
the source attached: what a link that was given up still brings cannot put an older token in the place of a newer one.
Source: docs/decisions/0003.
"""

from __future__ import annotations

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused

from .exchange import AnswerAdmin
from .facts import TokenStored
from .orders import Orders, Then
from .publishing import Publishing
from .source import SourceState
from .tables import Tables
from .tokens import TokenStoreRequested


class Storing:
    """Changes the resume tokens of sources."""

    __slots__ = ("_orders", "_publishing", "_tables")

    def __init__(self, tables: Tables, orders: Orders, publishing: Publishing) -> None:
        self._tables = tables
        self._orders = orders
        self._publishing = publishing

    def store(self, event: TokenStoreRequested, now: Now) -> None:
        """Journal the token, and answer. Whoever was taken over from is not attached any more, and was told so.

        Raises `Refused`: `no-source`, `too-large`, `tokens-too-large`, or `bad-request` for a number that is not taken
        yet.
        """
        attachment = self._publishing.attachment_of(event.session)
        if attachment is None or not attachment.is_granted:
            self._orders.refuse(event.session, "not-attached", "attach as a source before storing a resume token")
            return
        stream, source = attachment.stream, attachment.source
        if source is None:
            raise Refused("no-source", "an anonymous source has no resume token: attach under a name")

        def stored(_: Now) -> None:
            source.store_token(event.number, event.token)
            if self._publishing.is_there(attachment):
                self._orders.say(AnswerAdmin(event.session, event.request, {}))

        def failed(code: str, reason: str) -> None:
            if self._publishing.is_there(attachment):
                message = f"the node could not store the resume token ({reason}): ask again later"
                self._orders.refuse(event.session, code, message, event.request, is_final=False)

        if attachment.epoch != source.epoch:
            self._publishing.put_off(attachment, source, failed)
            return
        self._check(event, source)
        fact = TokenStored(stream.stream_id, source.source_id, event.number, event.token)
        self._orders.append_fact(fact, Then(stored, failed), now, payer=attachment.principal)

    def _check(self, event: TokenStoreRequested, source: SourceState) -> None:
        size, size_max = len(event.token), self._tables.limits.token_size_max
        if size > size_max:
            raise Refused("too-large", f"a resume token may have at most {size_max} bytes, this one has {size}")
        if event.number > source.last_durable:
            message = (
                f"the token speaks up to number {event.number}, and the last of source {source.name!r} that is stored"
                f" is {source.last_durable}: wait for the receipt first"
            )
            raise Refused("bad-request", message)
        self._tables.check_share(source.owner, 0, size - len(source.token))
