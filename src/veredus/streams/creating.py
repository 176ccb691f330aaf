"""Streams come into being, are trimmed and deleted; each by one fact that is journaled before it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from veredus.journal.exchange import StreamDropped
from veredus.journal.exchange import StreamTrimmed as TrimJournal
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused, VeredusError
from veredus.kernel.names import checked_name

from .exchange import Durability, Refuse
from .facts import Fact, StreamConfig, StreamConfigured, StreamCreated, StreamDeleted, StreamTrimmed, TermRaised
from .orders import Orders
from .removed import NOT_REMOVED_HERE
from .rights import CREATE, DESCRIBE, on_stream
from .shares import STREAMS
from .stream import Stream
from .tables import Tables

Continuation = Callable[[Stream, Now], None]


class Creating:
    """Owns the creations that are on their way to the journal, and who waits for them."""

    __slots__ = ("_awaited", "_coming", "_coming_by", "_configs", "_orders", "_tables")

    def __init__(self, tables: Tables, orders: Orders) -> None:
        self._tables = tables
        self._orders = orders
        self._coming: dict[str, _Creation] = {}
        self._coming_by: Counter[str] = Counter()
        """How many of them are of each creator."""
        self._awaited: dict[int, dict[str, None]] = {}
        """By session the names of those that it waits for."""
        self._configs: dict[int, StreamConfig] = {}
        """Configurations on their way to the journal, by stream."""

    def use(
        self,
        session: int,
        principal: str,
        name: str,
        then: Continuation,
        now: Now,
        request: int = 0,
        *,
        is_noted: bool = True,
    ) -> None:
        """Go on with the stream of this name; make it first where that is allowed on first use.

        `is_noted` as for `Rights.check`.
        """
        stream = self._tables.streams.get(name)
        if stream is not None:
            then(stream, now)
        elif not self._tables.limits.creates_on_use:
            message = (
                f"there is no stream {name!r}, and this node creates none on first use:"
                f" create it with `veredus stream create {name}`"
            )
            raise Refused("unknown-stream", message, stream=name)
        else:
            self._tables.rights.check(session, principal, CREATE, on_stream(name), is_noted=is_noted)
            self.create(session, principal, name, self._tables.limits.config, then, now, request)

    def check_there(self, name: str, life: bytes = b"") -> None:
        """Raise `Refused` for whoever comes back to a stream that is gone: `stream-deleted`, as it is not made again,
        or `stream-replaced`.

        `life` is the one of the stream that it knew, b"" where it does not say.
        """
        stream = self._tables.streams.get(name)
        if stream is not None and life in (b"", stream.incarnation):
            return
        was_removed = self._tables.removed.has(name, life)
        if stream is None:
            cause = "was deleted" if was_removed else f"is not at this node any more: {NOT_REMOVED_HERE}"
            raise Refused("stream-deleted", f"stream {name!r} {cause}", stream=name)
        cause = "was deleted and created again" if was_removed else f"is another one now ({NOT_REMOVED_HERE})"
        raise Refused(
            "stream-replaced",
            f"stream {name!r} {cause}: its sequences now belong to other publications; start again",
            incarnation=stream.incarnation,
        )

    def create(
        self,
        session: int,
        principal: str,
        name: str,
        config: StreamConfig,
        then: Continuation,
        now: Now,
        request: int = 0,
    ) -> None:
        """Make a stream, or go on with the one that is there if it is equally configured."""
        checked_name("stream", name)
        waiting = _Waiting(session, request, then)
        stream = self._tables.streams.get(name)
        if stream is not None:
            self._check_equal(principal, name, stream.config, config)
            then(stream, now)
            return
        coming = self._coming.get(name)
        if coming is not None:
            self._check_equal(principal, name, coming.fact.config, config)
            self._wait(coming, waiting)
            return
        self._check_owned(principal)
        count = len(self._tables.streams) + len(self._coming)
        if count >= self._tables.limits.streams_max:
            raise Refused(
                "too-many-streams",
                f"this node has {count} streams, its limit: delete some, or raise limits.streams_max",
            )
        fact = StreamCreated(self._tables.next_stream_id, name, self._tables.ids(), config, now.wall_us, principal)
        self._tables.next_stream_id += 1
        creation = self._coming[name] = _Creation(self, fact)
        self._coming_by[principal] += 1
        self._wait(creation, waiting)
        self._orders.append_fact(fact, creation, now)

    def _wait(self, coming: _Creation, waiting: _Waiting) -> None:
        coming.waiting.append(waiting)
        self._awaited.setdefault(waiting.session, {})[coming.fact.name] = None

    def _end(self, fact: StreamCreated, waiting: list[_Waiting]) -> None:
        """The journal has answered: it is on its way no more, and nobody waits for it."""
        del self._coming[fact.name]
        self._coming_by[fact.creator] -= 1
        if not self._coming_by[fact.creator]:
            del self._coming_by[fact.creator]
        for session in dict.fromkeys(one.session for one in waiting):
            names = self._awaited[session]
            del names[fact.name]
            if not names:
                del self._awaited[session]

    def _check_equal(self, principal: str, name: str, there: StreamConfig, wanted: StreamConfig) -> None:
        if there == wanted:
            return
        said = ""
        if self._tables.rights.may(principal, DESCRIBE, on_stream(name)):
            differences = [
                f"{field} is {_shown(given)}, and {_shown(asked)} was requested"
                for field in wanted.__struct_fields__
                if (given := getattr(there, field)) != (asked := getattr(wanted, field))
            ]
            said = f": {'; '.join(differences)}"
        message = f"stream {name!r} exists with another configuration{said}; `veredus stream alter` changes it"
        raise Refused("exists-otherwise", message)

    def _check_owned(self, principal: str) -> None:
        most = self._tables.limits.streams_per_principal_max
        count = self._tables.created_by.get(principal, 0) + self._coming_by[principal]
        if principal:
            STREAMS.check(principal, 1, most - count, most)

    def forget(self, session: int) -> None:
        """The session is over: what it waited for goes on without it."""
        for name in self._awaited.pop(session, ()):
            coming = self._coming[name]
            coming.waiting = [waiting for waiting in coming.waiting if waiting.session != session]

    def change(
        self,
        fact: StreamConfigured | StreamTrimmed | StreamDeleted,
        session: int,
        request: int,
        then: Continuation,
        now: Now,
    ) -> None:
        """Configure, trim or delete a stream: journaled first, then applied, then gone on with."""
        stream = self._tables.streams_by_id[fact.stream_id]
        if isinstance(fact, StreamConfigured):
            self._configs[fact.stream_id] = fact.config
        self._orders.append_fact(fact, _Changed(self, fact, stream, _Waiting(session, request, then)), now)

    def config_of(self, stream: Stream) -> StreamConfig:
        """How a stream is kept, or will be once what is on its way to the journal is there."""
        return self._configs.get(stream.stream_id, stream.config)

    def changed(self, fact: StreamConfigured | StreamTrimmed | StreamDeleted) -> None:
        """The journal has answered."""
        if isinstance(fact, StreamConfigured) and self._configs.get(fact.stream_id) is fact.config:
            del self._configs[fact.stream_id]

    def apply(self, fact: Fact) -> None:
        """What a durable or replayed fact does to the table of streams."""
        tables = self._tables
        match fact:
            case StreamCreated():
                tables.add_stream(Stream(fact, tables.budget, tables.shares))
            case StreamConfigured(stream_id, config):
                if stream_id in tables.streams_by_id:
                    tables.streams_by_id[stream_id].config = config
            case StreamTrimmed(stream_id, floor):
                stream = tables.streams_by_id.get(stream_id)
                if stream is not None and floor > stream.floor:
                    stream.floor = floor
                    self._orders.say(TrimJournal(stream_id, floor))
            case StreamDeleted(stream_id, is_removed):
                if stream_id in tables.streams_by_id:
                    tables.remove_stream(stream_id, is_removed)
                    self._orders.say(StreamDropped(stream_id))
            case TermRaised(stream_id, term, first_sequence):
                if stream_id in tables.streams_by_id:
                    tables.streams_by_id[stream_id].raise_term(term, first_sequence)
            case _:
                pass

    def created(self, fact: StreamCreated, waiting: list[_Waiting], now: Now) -> None:
        """A stream is in the journal: go on with it."""
        self._end(fact, waiting)
        self.apply(fact)
        stream = self._tables.streams[fact.name]
        for one in waiting:
            try:
                one.then(stream, now)
            except VeredusError as error:
                self._orders.say(
                    Refuse(one.session, error.code, error.message, error.details, one.request, not one.request)
                )

    def create_failed(self, fact: StreamCreated, waiting: list[_Waiting], code: str, reason: str) -> None:
        """A stream could not be journaled: it does not exist."""
        self._end(fact, waiting)
        for one in waiting:
            message = f"the node could not store the new stream {fact.name!r} ({reason}): try again later"
            self._orders.refuse(one.session, code, message, one.request, is_final=not one.request)


def _shown(value: float) -> str:
    return f"{value:.16g}" if isinstance(value, float) else str(value)


@dataclass(slots=True)
class _Waiting:
    session: int
    request: int
    then: Continuation


@dataclass(slots=True)
class _Creation:
    creating: Creating
    fact: StreamCreated
    waiting: list[_Waiting] = field(default_factory=list)

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.creating.created(self.fact, self.waiting, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.creating.create_failed(self.fact, self.waiting, code, reason)


@dataclass(slots=True)
class _Changed:
    creating: Creating
    fact: StreamConfigured | StreamTrimmed | StreamDeleted
    stream: Stream
    waiting: _Waiting

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.creating.changed(self.fact)
        self.creating.apply(self.fact)
        self.waiting.then(self.stream, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.creating.changed(self.fact)
        message = f"the node could not store the change of stream {self.stream.name!r} ({reason}): nothing has changed"
        self.creating._orders.refuse(self.waiting.session, code, message, self.waiting.request, is_final=False)
