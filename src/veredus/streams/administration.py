"""One request, one answer: the verbs by which people and tools look at streams and change them.

The verbs, their arguments and their answers are listed in docs/reference/wire/native.md ("Requests").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

import msgspec

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused
from veredus.kernel.names import U63_MAX

from .committing import Committing
from .creating import Creating
from .exchange import AdminRequested, AnswerAdmin
from .facts import StreamConfig, StreamDeleted, StreamTrimmed, SubscriptionRemoved
from .orders import Orders
from .publishing import Publishing
from .stream import Stream
from .subscribing import Subscribing
from .subscription import Subscription
from .tables import Tables

SOURCES_SHOWN_MAX = 1000
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=U63_MAX)]

Verb = Callable[["Administration", AdminRequested, Now], None]


class Administration:
    """Answers requests about streams, sources and subscriptions."""

    __slots__ = ("_committing", "_creating", "_orders", "_publishing", "_subscribing", "_tables")

    def __init__(
        self,
        tables: Tables,
        orders: Orders,
        creating: Creating,
        publishing: Publishing,
        subscribing: Subscribing,
        committing: Committing,
    ) -> None:
        self._tables = tables
        self._orders = orders
        self._creating = creating
        self._committing = committing
        self._publishing = publishing
        self._subscribing = subscribing

    def handle(self, event: AdminRequested, now: Now) -> None:
        """Answer one request. Raises `Refused`, which the engine turns into the request's refusal."""
        verb = _VERBS.get(event.verb)
        if verb is None:
            raise Refused("unknown-verb", f"there is no request {event.verb!r}; there are {', '.join(_VERBS)}")
        verb(self, event, now)

    def _answer(self, event: AdminRequested, result: object) -> None:
        self._orders.say(AnswerAdmin(event.session, event.request, result))

    # ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def create_stream(self, event: AdminRequested, now: Now) -> None:
        """`stream.create` {name, config?}: the stream's description; idempotent if equally configured."""
        name = _text(event, "name")
        self._tables.check_may(event.principal, "create", name)
        config = _config(name, event.arguments.get("config") or {})

        def created(stream: Stream, _: Now) -> None:
            self._answer(event, self.described(stream))

        self._creating.create(event.session, event.principal, name, config, created, now, event.request)

    def list_streams(self, event: AdminRequested, now: Now) -> None:
        """`stream.list` {}: the descriptions of all streams that the principal may describe, by name."""
        streams = (self._tables.streams[name] for name in sorted(self._tables.streams))
        self._answer(
            event, [self.described(s) for s in streams if self._tables.may(event.principal, "describe", s.name)]
        )

    def name_streams(self, event: AdminRequested, now: Now) -> None:
        """`stream.names` {}: the names of all streams that the principal may describe."""
        may, principal = self._tables.may, event.principal
        self._answer(event, [name for name in self._tables.streams if may(principal, "describe", name)])

    def show_stream(self, event: AdminRequested, now: Now) -> None:
        """`stream.show` {name}: its description, with its sources and its subscriptions."""
        stream = self._named(event, "describe")
        described = self.described(stream)
        described["source_list"] = [
            {
                "name": s.name,
                "epoch": s.epoch,
                "last_number": s.last_durable,
                "last_sequence": s.last_sequence,
                "is_attached": bool(s.session),
            }
            for s in list(stream.sources.values())[:1000]
        ]
        described["subscription_list"] = [self._subscription(stream, s) for s in stream.subscriptions.values()]
        self._answer(event, described)

    def trim_stream(self, event: AdminRequested, now: Now) -> None:
        """`stream.trim` {name, floor}: nothing below `floor` is kept; its description afterwards."""
        stream = self._named(event, "trim")
        floor = max(stream.floor, min(_number(event, "floor"), stream.head_durable + 1))
        fact = StreamTrimmed(stream.stream_id, floor)
        self._creating.change(
            fact, event.session, event.request, lambda s, _: self._answer(event, self.described(s)), now
        )

    def delete_stream(self, event: AdminRequested, now: Now) -> None:
        """`stream.delete` {name, head?}: it and all that hangs on it is gone; with a head, if that is its newest."""
        stream = self._named(event, "delete")
        if "head" in event.arguments and stream.head_assigned != _number(event, "head"):
            message = f"stream {stream.name!r} goes on to {stream.head_assigned} already: nothing was deleted"
            raise Refused("stream-moved-on", message, head=stream.head_durable)

        def deleted(gone: Stream, _: Now) -> None:
            self._publishing.end_stream(gone)
            self._subscribing.end_stream(gone)
            self._answer(event, {"name": gone.name})

        self._creating.change(StreamDeleted(stream.stream_id), event.session, event.request, deleted, now)

    def described(self, stream: Stream) -> dict[str, object]:
        """A stream as plain data."""
        return {
            "name": stream.name,
            "stream_id": stream.stream_id,
            "incarnation": stream.incarnation,
            "term": stream.term,
            "floor": stream.floor,
            "head": stream.head_durable,
            "append_time_us": stream.append_time_us,
            "created_us": stream.created_us,
            "creator": stream.creator,
            "config": msgspec.to_builtins(stream.config),
            "sources": len(stream.sources),
            "subscriptions": len(stream.subscriptions),
            "sessions": len(stream.flows),
            "size": self._tables.size_of(stream.stream_id),
        }

    # ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def list_sources(self, event: AdminRequested, now: Now) -> None:
        """`source.list` {stream, after?}: up to 1,000 sources with ids above `after`: where each stands."""
        name = _text(event, "stream")
        self._tables.check_may(event.principal, "describe", name)
        stream = self._tables.existing(name)
        after = _number(event, "after") if "after" in event.arguments else 0
        found = sorted((s.source_id, s) for s in stream.sources.values() if s.source_id > after and s.granted[0])
        shown = [
            {
                "source_id": source_id,
                "name": s.name,
                "is_sparse": s.is_sparse,
                "last_number": s.last_durable,
                "token": s.token if s.token_number == s.last_durable else b"",
            }
            for source_id, s in found[:SOURCES_SHOWN_MAX]
        ]
        self._answer(event, shown)

    def raise_sources(self, event: AdminRequested, now: Now) -> None:
        """`source.raise` {stream, sources}: each of (name, number, token) has published so far elsewhere; {head}."""
        name = _text(event, "stream")
        self._tables.check_may(event.principal, "publish", name)
        stream = self._tables.existing(name)
        try:
            wanted = msgspec.convert(event.arguments.get("sources"), list[tuple[str, _Number, bytes]])
        except msgspec.ValidationError as error:
            said = f"{event.verb} needs `sources`: name, number and token of each: {error}"
            raise Refused("bad-request", said) from None

        def raised(_: Now) -> None:
            self._answer(event, {"head": stream.head_durable})

        def failed(code: str, reason: str) -> None:
            message = f"the node could not store it ({reason}): nothing has changed"
            self._orders.refuse(event.session, code, message, event.request, is_final=False)

        self._publishing.raise_numbers(stream, wanted, raised, failed, now)

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────────

    def list_subscriptions(self, event: AdminRequested, now: Now) -> None:
        """`subscription.list` {stream?, name?}: where each durable subscription stands, or each of that name."""
        wanted, named = event.arguments.get("stream"), event.arguments.get("name")
        names = sorted(self._tables.streams) if wanted is None else [self._tables.existing(str(wanted)).name]
        streams = [self._tables.streams[name] for name in names if self._tables.may(event.principal, "describe", name)]
        self._answer(
            event,
            [
                self._subscription(stream, s)
                for stream in streams
                for s in stream.subscriptions.values()
                if named in (None, s.name)
            ],
        )

    def show_subscription(self, event: AdminRequested, now: Now) -> None:
        """`subscription.show` {stream, subscriber, name}: where it stands, its flow, its credit, and what it waits
        for.
        """
        stream, subscription = self._subscribed(event, "describe")
        self._answer(event, self._subscription(stream, subscription))

    def remove_subscription(self, event: AdminRequested, now: Now) -> None:
        """`subscription.remove` {stream, subscriber, name}: its cursor is gone, its owner is told."""
        stream, subscription = self._subscribed(event, "subscribe")
        fact = SubscriptionRemoved(stream.stream_id, subscription.subscriber, subscription.name, now.wall_us)
        self._subscribing.remove(fact, stream, subscription, lambda: self._answer(event, {"removed": True}), event, now)

    def list_left(self, event: AdminRequested, now: Now) -> None:
        """`subscription.left` {stream, name}: by subscriber, when the subscription of that name was removed last."""
        stream, name = _text(event, "stream"), _text(event, "name")
        self._tables.check_may(event.principal, "describe", stream)
        left = self._tables.existing(stream).left
        self._answer(event, {who: removed_us for (who, named), removed_us in left.items() if named == name})

    # ── sinks ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def list_sinks(self, event: AdminRequested, now: Now) -> None:
        """`sink.list` {}: each sink's run and last commit."""
        runs = (self._tables.runs[name] for name in sorted(self._tables.runs))
        shown = [
            {"sink": run.sink, "epoch": run.epoch, "commit_id": run.commit_id, "streams": list(run.commit_streams)}
            for run in runs
            if self._tables.may(event.principal, "describe", run.sink)
        ]
        self._answer(event, shown)

    def remove_sink(self, event: AdminRequested, now: Now) -> None:
        """`sink.remove` {sink}: it is forgotten, with the id of its last commit; what it committed stays."""
        sink = _text(event, "sink")
        self._tables.check_may(event.principal, "delete", sink)
        self._committing.remove_sink(event, sink, now)

    def _subscription(self, stream: Stream, subscription: Subscription) -> dict[str, object]:
        flow = self._subscribing.flows.get(subscription.session)
        ledger = subscription.ledger
        shown: dict[str, object] = {
            "stream": stream.name,
            "subscriber": subscription.subscriber,
            "name": subscription.name,
            "epoch": subscription.epoch,
            "mode": "in-order" if ledger.is_ordered else "individual",
            "filter": msgspec.to_builtins(subscription.filter),
            "floor": subscription.floor,
            "pushed_to": subscription.pushed_to,
            "unsettled": sum(last - first + 1 for first, last in ledger.unsettled),
            "lag": stream.head_durable - subscription.floor,
            "is_attached": flow is not None,
            "opened_us": subscription.opened_us,
            "start": subscription.start,
            "settled": subscription.settled_ranges(),
            "origins": subscription.origins,
            "unwanted": subscription.unwanted,
        }
        if flow is not None:
            shown |= {
                "position": flow.position,
                "flow": "live" if flow.is_live else "historical",
                "credit": flow.credit,
                "waits_for": flow.waits_for,
            }
        return shown

    def _named(self, event: AdminRequested, verb: str) -> Stream:
        name = _text(event, "name")
        self._tables.check_may(event.principal, verb, name)
        return self._tables.existing(name)

    def _subscribed(self, event: AdminRequested, verb: str) -> tuple[Stream, Subscription]:
        name = _text(event, "stream")
        self._tables.check_may(event.principal, verb, name)
        stream = self._tables.existing(name)
        key = (_text(event, "subscriber"), _text(event, "name"))
        subscription = stream.subscriptions.get(key)
        if subscription is None:
            raise Refused("unknown-subscription", f"stream {name!r} has no subscription {key[0]}/{key[1]}")
        return stream, subscription


def _text(event: AdminRequested, name: str) -> str:
    value = event.arguments.get(name)
    if not isinstance(value, str) or not value:
        raise Refused("bad-request", f"{event.verb} needs a text {name!r}")
    return value


def _config(stream: str, given: object) -> StreamConfig:
    """How a stream is to be kept, every word of it understood: a fact that is read passes over unknown ones."""
    known = StreamConfig.__struct_fields__
    unknown = [str(name)[:40] for name in given if name not in known] if isinstance(given, dict) else []
    try:
        if not unknown:
            return msgspec.convert(given, StreamConfig)
        fault = f"there is no {unknown[0]!r}, but {', '.join(known)}"
    except msgspec.ValidationError as error:
        fault = str(error)
    raise Refused("bad-config", f"the configuration of stream {stream!r} is not right: {fault}")


def _number(event: AdminRequested, name: str) -> int:
    value = event.arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused("bad-request", f"{event.verb} needs a whole number {name!r} from 0")
    return value


_VERBS: dict[str, Verb] = {
    "stream.create": Administration.create_stream,
    "stream.list": Administration.list_streams,
    "stream.names": Administration.name_streams,
    "stream.show": Administration.show_stream,
    "stream.trim": Administration.trim_stream,
    "stream.delete": Administration.delete_stream,
    "source.list": Administration.list_sources,
    "source.raise": Administration.raise_sources,
    "subscription.list": Administration.list_subscriptions,
    "subscription.left": Administration.list_left,
    "subscription.show": Administration.show_subscription,
    "subscription.remove": Administration.remove_subscription,
    "sink.list": Administration.list_sinks,
    "sink.remove": Administration.remove_sink,
}
