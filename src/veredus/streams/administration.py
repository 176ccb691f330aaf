"""One request, one answer: the verbs by which people and tools look at streams and change them.

The verbs, their arguments and their answers are listed in docs/reference/wire/native.md ("Requests").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused

from .advancing import Advancing
from .arguments import flag_in, number_in, number_of, text_in
from .configs import read_config
from .creating import Creating
from .exchange import AdminRequested, AnswerAdmin
from .facts import StreamConfigured, StreamDeleted, StreamTrimmed, SubscriptionTold
from .leases import Leases
from .listing import PAGE_COUNT, first_of, page_of
from .naming import Naming
from .orders import Orders
from .places import Place
from .publishing import Publishing
from .raising import raise_numbers, read_raise
from .remains import Remains
from .rights import (
    ALTER,
    CREATE,
    DELETE,
    DESCRIBE,
    PUBLISH,
    RAISE,
    SUBSCRIBE,
    TAKE_OVER,
    TRIM,
    Resource,
    on_sink,
    on_stream,
)
from .runs import Runs
from .showing import part_count_of, part_count_of_sink, shown_sink, shown_source, shown_subscription
from .stream import Stream
from .subscribing import Subscribing
from .subscription import Subscription
from .tables import Run, Tables
from .wishes import Wishes

SHOWN_MAX = PAGE_COUNT
ARGUMENTS_MAX = 16
"""Arguments of one request: several times as many as any has, and no more than a record of it shows."""
PAGED_VERBS = frozenset({
    "stream.list", "stream.names", "source.list", "subscription.list", "subscription.left", "sink.list", "stage.list",
})  # fmt: skip

Verb = Callable[["Administration", AdminRequested, Now], None]


def _light(_: Place) -> int:
    return 0


class Administration:
    """Answers requests about streams, sources and subscriptions."""

    __slots__ = (
        "_advancing", "_creating", "_leases", "_orders", "_publishing", "_remains", "_runs", "_subscribing", "_tables",
        "_wishes", "naming",
    )  # fmt: skip

    def __init__(
        self,
        tables: Tables,
        orders: Orders,
        creating: Creating,
        publishing: Publishing,
        subscribing: Subscribing,
        runs: Runs,
        wishes: Wishes,
        leases: Leases,
        remains: Remains,
    ) -> None:
        self._tables = tables
        self._orders = orders
        self._creating = creating
        self._runs = runs
        self._publishing = publishing
        self._subscribing = subscribing
        self._wishes = wishes
        self._leases = leases
        self._remains = remains
        self.naming = Naming(tables)
        self._advancing = Advancing(orders, subscribing, tables.limits.unsettled_max)

    def handle(self, event: AdminRequested, now: Now) -> None:
        """Answer one request. Raises `Refused`, which the engine turns into the request's refusal."""
        verb = _VERBS.get(event.verb)
        if verb is None:
            raise Refused("unknown-verb", f"unknown request {event.verb!r}; known requests: {', '.join(_VERBS)}")
        if len(event.arguments) > ARGUMENTS_MAX:
            said = f"{event.verb} has {len(event.arguments)} arguments; a request has at most {ARGUMENTS_MAX}"
            raise Refused("bad-request", said)
        verb(self, event, now)

    def _answer(self, event: AdminRequested, result: object) -> None:
        self._orders.say(AnswerAdmin(event.session, event.request, result))

    def _answer_rows(
        self,
        event: AdminRequested,
        places_behind: Callable[[Place], Iterable[Place]],
        resources_of: Callable[[Place], Iterable[Resource]],
        row_of: Callable[[Place], object],
        weigh: Callable[[Place], int] = _light,
        is_wanted: Callable[[Place], bool] = lambda _: True,
    ) -> None:
        """Answer with a row for each place of a list, those that the principal may not see left out: whoever may not
        describe all of the place's resources. `places_behind(after)` are those behind the place `after`, in order.

        Where a `limit` is given or pages are asked for, it is a page in order: {rows, next}, at most so many rows
        behind the place `after`, and the `after` of the next page, None where there is none. A page ends sooner where
        many are left out, or where its rows have very many parts: `weigh` counts them.
        """

        def may_see(place: Place) -> bool:
            return is_wanted(place) and all(self._may_describe(event, resource) for resource in resources_of(place))

        limit = number_in(event, "limit", event.page_max)
        if not (limit or "limit" in event.arguments):
            self._answer(event, [row_of(place) for place in places_behind(()) if may_see(place)])
            return
        limit, after = max(1, min(limit, event.page_max or limit)), event.arguments.get("after")
        behind = () if after is None else self._tables.places.read(event.verb, after)
        seen, last, is_more = page_of(places_behind(behind), may_see, limit, weigh)
        rows = [row_of(place) for place in seen]
        following = self._tables.places.shown(last, bool(seen) and last == seen[-1]) if is_more else None
        self._answer(event, {"rows": rows, "next": following})

    # ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def create_stream(self, event: AdminRequested, now: Now) -> None:
        """`stream.create` {name, config?}: the stream's description; idempotent if equally configured.

        Who may not describe the stream is told its name and configuration alone, which it has given.
        """
        name = text_in(event, "name")
        self._check(event, CREATE, on_stream(name))
        sources_max = self._tables.limits.config.sources_max
        config = read_config(name, event.arguments.get("config", {}), sources_max)
        if config.sources_max > sources_max:
            self._check(event, ALTER, on_stream(name))

        def created(stream: Stream, _: Now) -> None:
            self._answer_described(event, stream, "config")

        self._creating.create(event.session, event.principal, name, config, created, now, event.request)

    def list_streams(self, event: AdminRequested, now: Now) -> None:
        """`stream.list` {}: the descriptions of all streams that the principal may describe, by name."""
        streams = self._tables.streams
        self._answer_rows(event, streams.places_behind, _its_stream, lambda place: self.described(streams[place[0]]))

    def name_streams(self, event: AdminRequested, now: Now) -> None:
        """`stream.names` {}: the names of all streams that the principal may describe."""
        if event.page_max or "limit" in event.arguments:
            self._answer_rows(event, self._tables.streams.places_behind, _its_stream, lambda place: place[0])
        else:
            self._answer(event, self.naming.of(event.principal))

    def show_stream(self, event: AdminRequested, now: Now) -> None:
        """`stream.show` {name}: its description, with the first of its sources and of its subscriptions."""
        stream = self._named(event, DESCRIBE)
        described = self.described(stream)
        described["source_list"] = [shown_source(s) for s in islice(stream.sources.values(), SHOWN_MAX)]
        described["subscription_list"] = [
            self._shown(stream, s) for s in first_of(stream.subscriptions.values(), SHOWN_MAX, part_count_of)
        ]
        self._answer(event, described)

    def trim_stream(self, event: AdminRequested, now: Now) -> None:
        """`stream.trim` {name, floor}: nothing below `floor` is kept; its description afterwards."""
        stream = self._named(event, TRIM)
        floor = max(stream.floor, min(number_in(event, "floor"), stream.head_durable + 1))
        fact = StreamTrimmed(stream.stream_id, floor)
        self._creating.change(
            fact, event.session, event.request, lambda s, _: self._answer_described(event, s, "floor"), now
        )

    def alter_stream(self, event: AdminRequested, now: Now) -> None:
        """`stream.alter` {name, config}: what `config` names is kept so from now on; its description afterwards."""
        stream = self._named(event, ALTER)
        given = event.arguments.get("config")
        changed = read_config(stream.name, given)
        if not isinstance(given, dict) or not given:
            raise Refused("bad-request", f"{event.verb} needs a `config` with the settings to change")
        wanted = {name: getattr(changed, name) for name in given}
        fact = StreamConfigured(stream.stream_id, msgspec.structs.replace(self._creating.config_of(stream), **wanted))
        self._creating.change(fact, event.session, event.request, lambda s, _: self._answer_described(event, s), now)

    def delete_stream(self, event: AdminRequested, now: Now) -> None:
        """`stream.delete` {name, head?, given?}: it and all that hangs on it is gone; with a head, if that is its
        newest. `given`: another node has what it held, and so nothing is over (see `Removed`).
        """
        stream = self._named(event, DELETE)
        if "head" in event.arguments and stream.head_assigned != number_in(event, "head"):
            message = f"stream {stream.name!r} already goes up to sequence {stream.head_assigned}: nothing was deleted"
            raise Refused("stream-moved-on", message, head=stream.head_durable)

        def deleted(gone: Stream, at: Now) -> None:
            self._remains.take(gone, at)
            self._answer(event, {"name": gone.name})

        is_removed = not (flag_in(event, "given") or self._subscribing.is_given(stream))
        fact = StreamDeleted(stream.stream_id, is_removed)
        self._creating.change(fact, event.session, event.request, deleted, now)

    def _answer_described(self, event: AdminRequested, stream: Stream, *said: str) -> None:
        """Answer with the stream's description; to who may not describe it, with its name and what it has said."""
        described = self.described(stream)
        if not self._may_describe(event, on_stream(stream.name)):
            described = {name: described[name] for name in ("name", *said)}
        self._answer(event, described)

    def described(self, stream: Stream) -> dict[str, object]:
        """A stream as plain data."""
        return {
            "name": stream.name,
            "stream_id": stream.stream_id,
            "incarnation": stream.incarnation,
            "term": stream.term,
            "terms": list(stream.terms),
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
        """`source.list` {stream}: where each source stands, by id: one that comes meanwhile is behind the others."""
        name = text_in(event, "stream")
        self._check(event, DESCRIBE, on_stream(name))
        stream = self._tables.existing(name)

        def places_behind(after: Place) -> Iterator[Place]:
            for source_id in range(number_of(after) + 1, stream.next_source_id):
                source = stream.source_at(source_id)
                if source is not None and source.granted[0]:
                    yield (f"{source_id:019}",)

        def row(place: Place) -> object:
            source = stream.sources[stream.source_names[int(place[0])]]
            return {
                "source_id": source.source_id,
                "name": source.name,
                "owner": source.owner,
                "is_sparse": source.is_sparse,
                "last_number": source.last_durable,
                "token": source.token if source.token_number == source.last_durable else b"",
            }

        self._answer_rows(event, places_behind, lambda _: (on_stream(name),), row)

    def raise_sources(self, event: AdminRequested, now: Now) -> None:
        """`source.raise` {stream, sources, owners?}: each of (name, number, token) has published so far; {head,
        append_time_us}.
        """
        name = text_in(event, "stream")
        wanted = read_raise(event, self._tables.limits.token_size_max)
        for source in dict.fromkeys(source for source, _, _ in wanted.sources) or (None,):
            self._check(event, RAISE, on_stream(name, source))
        for source in wanted.owners:
            self._check(event, TAKE_OVER, on_stream(name, source))
        stream = self._tables.existing(name)

        def raised(_: Now) -> None:
            self._answer(event, {"head": stream.head_durable, "append_time_us": stream.append_time_us})

        def failed(code: str, reason: str) -> None:
            message = f"the node could not store the change ({reason}): nothing has changed"
            self._orders.refuse(event.session, code, message, event.request, is_final=False)

        raise_numbers(self._tables, self._orders, stream, wanted, raised, failed, now)

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────────

    def list_subscriptions(self, event: AdminRequested, now: Now) -> None:
        """`subscription.list` {stream?, name?}: where each durable subscription stands, or each of that name."""
        wanted = event.arguments.get("stream")
        named = None if event.arguments.get("name") is None else text_in(event, "name")
        streams = self._tables.streams
        one = ""
        if wanted is not None:
            one = text_in(event, "stream")
            self._check(event, DESCRIBE, on_stream(one))
            self._tables.existing(one)

        def places_behind(after: Place) -> Iterator[Place]:
            for name in (one,) if one else streams.keys_from(after[0] if after else ""):
                known = streams[name].subscriptions
                begin = (after[1], after[2]) if after and after[0] == name else ("", "")
                # The stream itself counts as looked at, also where it has no subscription.
                yield from ((name, "", ""),) if (name, "", "") > after else ()
                yield from (place for key in known.keys_from(begin) if (place := (name, *key)) > after)

        def is_wanted(place: Place) -> bool:
            return place[2] != "" and named in (None, place[2])

        def row(place: Place) -> object:
            return self._shown(streams[place[0]], streams[place[0]].subscriptions[place[1], place[2]])

        def weigh(place: Place) -> int:
            return part_count_of(streams[place[0]].subscriptions[place[1], place[2]])

        self._answer_rows(event, places_behind, _its_stream, row, weigh, is_wanted)

    def show_subscription(self, event: AdminRequested, now: Now) -> None:
        """`subscription.show` {stream, subscriber, name}: where it stands, its flow, its credit, and what it waits
        for.
        """
        stream, subscription = self._subscribed(event, DESCRIBE)
        self._answer(event, self._shown(stream, subscription))

    def advance_subscription(self, event: AdminRequested, now: Now) -> None:
        """`subscription.advance` {stream, subscriber, name, floor}: what was read by other means is settled; or, with
        {incarnation, first, last} as `floor`'s place, what is lost of a stream that was merged into this one is known.
        """
        stream, subscription = self._subscribed(event, SUBSCRIBE)
        named = on_stream(stream.name, subscriber=subscription.subscriber)
        self._tables.rights.check_owner(event.session, event.principal, subscription.owner, named)

        def advanced(floor: int) -> None:
            self._answer(event, {"floor": floor})

        life = event.arguments.get("incarnation")
        if isinstance(life, bytes):
            bounds = number_in(event, "first"), number_in(event, "last")
            fact = SubscriptionTold(stream.stream_id, subscription.subscriber, subscription.name, life, *bounds)
            self._advancing.tell(event, subscription, fact, advanced, now)
        else:
            self._advancing.advance(event, stream, subscription, number_in(event, "floor"), advanced, now)

    def remove_subscription(self, event: AdminRequested, now: Now) -> None:
        """`subscription.remove` {stream, subscriber, name, wish?}: its cursor is gone, its owner is told."""
        name, key, wish = self._wished(event)
        stream = self._tables.streams.get(name)
        if stream is None:
            self._wishes.remove_ahead(event, name, key, wish, now)
        else:
            self._wishes.remove(event, stream, key, wish, lambda: self._answer(event, {"removed": True}), now)

    def renew_subscription(self, event: AdminRequested, now: Now) -> None:
        """`subscription.renew` {stream, subscriber, name, wish?, left?}: it is asked for again, if not left since."""
        name, key, wish = self._wished(event)
        stream, left = self._tables.streams.get(name), number_in(event, "left", 0)
        if stream is None:
            self._wishes.renew_ahead(event, name, key, wish, left, now)
        else:
            self._wishes.renew(event, stream, key, wish, left, lambda was: self._answer(event, {"renewed": was}), now)

    def _wished(self, event: AdminRequested) -> tuple[str, tuple[str, str], int]:
        name, key = text_in(event, "stream"), (text_in(event, "subscriber"), text_in(event, "name"))
        named = on_stream(name, subscriber=key[0])
        self._check(event, SUBSCRIBE, named)
        stream = self._tables.streams.get(name)
        known = None if stream is None else stream.subscriptions.get(key)
        if known is not None:
            self._tables.rights.check_owner(event.session, event.principal, known.owner, named)
        return name, key, number_in(event, "wish", 0)

    def list_left(self, event: AdminRequested, now: Now) -> None:
        """`subscription.left` {stream, name}: who left the subscription of that name, when, by which wish, whose it
        was, and what it had.
        """
        stream, name = text_in(event, "stream"), text_in(event, "name")
        self._check(event, DESCRIBE, on_stream(stream))
        left = self._tables.existing(stream).left

        def places_behind(after: Place) -> Iterator[Place]:
            known = left.keys_from((after[1] if after else "", "", ""))
            return (place for who, named, whose in known if named == name and (place := (stream, who, whose)) > after)

        def row_of(place: Place) -> tuple[object, ...]:
            removed_us, wish, had = left[place[1], name, place[2]]
            return place[1], removed_us, wish, place[2], had

        self._answer_rows(event, places_behind, _its_stream, row_of)

    # ── sinks ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def list_sinks(self, event: AdminRequested, now: Now) -> None:
        """`sink.list` {}: each sink's run and last commit."""
        runs = self._tables.runs

        def weigh(place: Place) -> int:
            return part_count_of_sink(runs[place[0]])

        self._answer_rows(event, runs.places_behind, _its_sink, lambda place: self._sink(event, runs[place[0]]), weigh)

    def _sink(self, event: AdminRequested, run: Run) -> dict[str, object]:
        return shown_sink(run, lambda stream: self._may_describe(event, on_stream(stream)))

    def remove_sink(self, event: AdminRequested, now: Now) -> None:
        """`sink.remove` {sink}: it is forgotten, with the id of its last commit; what it committed stays. One without
        a name of its own goes with its open stages, also for who may write to it.
        """
        sink = text_in(event, "sink")
        run, resource = self._tables.runs.get(sink), on_sink(sink)
        if not (run is not None and run.is_ephemeral and self._tables.rights.may(event.principal, PUBLISH, resource)):
            self._check(event, DELETE, resource)
        self._runs.remove(event, sink, now)

    def list_stages(self, event: AdminRequested, now: Now) -> None:
        """`stage.list` {}: the open stages by number, whose they are and how large."""
        tables, stages = self._tables, self._tables.stages

        def resources_of(place: Place) -> tuple[Resource, ...]:
            stage = stages[int(place[0])]
            return on_sink(stage.sink), on_stream(tables.streams_by_id[stage.stream_id].name)

        def places_behind(after: Place) -> Iterator[Place]:
            numbers = stages.keys_from(number_of(after) + 1)
            return ((f"{number:019}",) for number in numbers if tables.open_stage(number) is not None)

        self._answer_rows(event, places_behind, resources_of, lambda place: self._leases.shown(stages[int(place[0])]))

    def drop_stages(self, event: AdminRequested, now: Now) -> None:
        """`stage.drop` {sink}: the open stages of a sink are gone, whoever writes them."""
        sink = text_in(event, "sink")
        self._tables.rights.check(event.session, event.principal, DELETE, on_sink(sink))
        self._leases.drop_stages(event, sink, now)

    def _shown(self, stream: Stream, subscription: Subscription) -> dict[str, object]:
        return shown_subscription(stream, subscription, self._subscribing.flows.get(subscription.session))

    def _check(self, event: AdminRequested, verb: str, resource: Resource) -> None:
        self._tables.rights.check(event.session, event.principal, verb, resource)

    def _may_describe(self, event: AdminRequested, resource: Resource) -> bool:
        return self._tables.rights.may(event.principal, DESCRIBE, resource)

    def _named(self, event: AdminRequested, verb: str) -> Stream:
        name = text_in(event, "name")
        self._check(event, verb, on_stream(name))
        return self._tables.existing(name)

    def _subscribed(self, event: AdminRequested, verb: str) -> tuple[Stream, Subscription]:
        name = text_in(event, "stream")
        key = (text_in(event, "subscriber"), text_in(event, "name"))
        # Rules limit the names under which one subscribes, and not of whom one sees how they stand.
        self._check(event, verb, on_stream(name, subscriber=None if verb == DESCRIBE else key[0]))
        stream = self._tables.existing(name)
        subscription = stream.subscriptions.get(key)
        if subscription is None:
            raise Refused("unknown-subscription", f"stream {name!r} has no subscription {key[0]}/{key[1]}")
        return stream, subscription


def _its_stream(place: Place) -> tuple[Resource, ...]:
    return (on_stream(place[0]),)


def _its_sink(place: Place) -> tuple[Resource, ...]:
    return (on_sink(place[0]),)


_VERBS: dict[str, Verb] = {
    "stream.create": Administration.create_stream,
    "stream.list": Administration.list_streams,
    "stream.names": Administration.name_streams,
    "stream.show": Administration.show_stream,
    "stream.trim": Administration.trim_stream,
    "stream.alter": Administration.alter_stream,
    "stream.delete": Administration.delete_stream,
    "source.list": Administration.list_sources,
    "source.raise": Administration.raise_sources,
    "subscription.list": Administration.list_subscriptions,
    "subscription.left": Administration.list_left,
    "subscription.show": Administration.show_subscription,
    "subscription.renew": Administration.renew_subscription,
    "subscription.advance": Administration.advance_subscription,
    "subscription.remove": Administration.remove_subscription,
    "sink.list": Administration.list_sinks,
    "sink.remove": Administration.remove_sink,
    "stage.list": Administration.list_stages,
    "stage.drop": Administration.drop_stages,
}
