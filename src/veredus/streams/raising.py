"""`source.raise`: how far sources have published elsewhere, and whose they are.

Source: docs/reference/wire/native.md, "Requests"; docs/decisions/0012 and 0019.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

import msgspec

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused, field_fault
from veredus.kernel.names import U63_MAX, checked_name

from .exchange import AdminRequested
from .facts import RaisedSource, SourcesRaised
from .orders import Orders, Then
from .source import SourceState
from .stream import Stream
from .tables import Tables

RAISED_MAX = 1_000
"""Sources of one request: more would hold everybody up, since all of them are raised at once."""
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=U63_MAX)]


class Raise(msgspec.Struct, frozen=True):
    """Each of `sources` has published up to a number, the last of it with a token; `owners` of some of them by name."""

    sources: list[tuple[str, Number, bytes]]
    owners: dict[str, str] = {}


def read_raise(event: AdminRequested, token_size_max: int) -> Raise:
    """The arguments, checked. Raises `Refused`: `bad-request`, `too-large` for a token, `bad-name` for an owner."""
    try:
        said = msgspec.convert({**event.arguments}, Raise)
    except msgspec.ValidationError as error:
        needed = f"{event.verb} needs `sources` with a name, a number and a token each: {field_fault(error)}"
        raise Refused("bad-request", needed) from None
    if len(said.sources) > RAISED_MAX:
        message = f"a request may raise {RAISED_MAX} sources, this one has {len(said.sources)}: ask several times"
        raise Refused("too-large", message)
    for source, _, token in said.sources:
        if len(token) > token_size_max:
            message = (
                f"a resume token may have at most {token_size_max} bytes, that of source {source!r} has {len(token)}"
            )
            raise Refused("too-large", message)
    for owner in said.owners.values():
        checked_name("principal", owner)
    return said


def raise_numbers(
    tables: Tables,
    orders: Orders,
    stream: Stream,
    wanted: Raise,
    done: Callable[[Now], None],
    failed: Callable[[str, str], None],
    now: Now,
) -> None:
    """Let sparse sources have published up to a number, the last with a token, in a stream that is merged into this
    one. Those that are dense here, or have come further, stay as they are; those that have come as far get the token
    where theirs speaks less far or says nothing; those that nobody owns get their owners.

    Raises `Refused`, `too-many-sources`, `tokens-too-large` or `bad-name`, before any of them has changed.
    """
    fresh = {checked_name("source", name) for name, _, _ in wanted.sources if name not in stream.sources}
    stream.check_sources(len(fresh))
    _check_shares(tables, stream, wanted)
    raised: list[RaisedSource] = []
    before: list[tuple[SourceState, int]] = []
    for name, number, token in wanted.sources:
        source = stream.sources.get(name) or stream.add_source(stream.next_source_id, name, is_sparse=True)
        owner = wanted.owners.get(name, "")
        is_told = source.is_told_by(number, token, source.last_assigned)
        if source.is_sparse and (is_told or (owner and not source.owner)):
            before.append((source, source.last_assigned))
            source.assign(max(number, source.last_assigned))
            source.own(source.owner or owner)
            raised.append(RaisedSource(source.source_id, name, number, token, owner))
    if not raised:
        orders.append((), Then(done, failed))
        return

    def known(at: Now) -> None:
        stream.raise_sources(raised)
        done(at)

    def unknown(code: str, reason: str) -> None:
        for source, last in before:
            source.unassign(last)
            source.undo_known()
            stream.forget_unmade(source)
        failed(code, reason)

    orders.append_fact(SourcesRaised(stream.stream_id, tuple(raised)), Then(known, unknown), now)


def _check_shares(tables: Tables, stream: Stream, wanted: Raise) -> None:
    more: dict[str, tuple[int, int]] = {}
    for name, _, token in wanted.sources:
        source = stream.sources.get(name)
        owner = (source.owner if source else "") or wanted.owners.get(name, "")
        is_new = source is None or source.owner != owner
        count, size = more.get(owner, (0, 0))
        kept = 0 if source is None or is_new else len(source.token)
        more[owner] = count + is_new, size + len(token) - kept
    for owner, (count, size) in more.items():
        tables.check_share(owner, count, size)
