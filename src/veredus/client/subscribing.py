"""A subscription's end in the loop, and its feed in the subscriber's thread.

    loop:        channel ──► queue ──┐                  ┌──► credit, settlements ──► channel
    subscriber:                      └──► Feed.take ────┘

It subscribes again, under its epoch and at its place, whenever there is a link; it never does so after it was fenced.
What was handed out is not handed out again, though the node pushes it once more where it was not settled.

Invariants
    (1) What is queued is in the order in which it was pushed; a lost link empties the queue.
    (2) At most one settlement is on its way; what is settled meanwhile goes with the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from veredus.delivery.outbox import Delay
from veredus.kernel.errors import Fenced, Misuse, Unavailable, VeredusError
from veredus.matching.wanted import Filter
from veredus.protocols.zeps import client_exchange as c
from veredus.protocols.zeps import messages as m
from veredus.streams.exchange import Start, StartKind

from .arrivals import Arrival, Arrivals, Delivery, Known, Lost
from .attaching import new_incarnation
from .attachment import Told
from .causes import TRANSIENT, error_of
from .connection import Connection
from .filters import Filters, answered
from .granting import delayed, refuse, wait_granted
from .handed import Handed
from .losses import but_for_inherited
from .publication import Batch, Publication
from .publishing import RETRY_S, Waiter
from .ranges import Range, joined
from .returns import Returns
from .settling import SettleWait, Settling, Settlings
from .unconfirmed import Unconfirmed
from .wanting import Wanted

HANDED_S = 0.1
"""The node hears this often what was handed out, where nothing else is said that it could go with."""
Settleable: TypeAlias = Publication | Batch | int


class SubscriptionChannel:
    """Owns a subscription's place on the connection, its queue, and what of its settlements is not confirmed."""

    def __init__(self, connection: Connection, wanted: Wanted) -> None:
        """A subscription of `connection`; to be made in the connection's loop."""
        self.wanted = wanted
        self.queue = Arrivals()
        self.sources: dict[int, str] = {}
        self.failure: VeredusError | None = None
        self.delay: Delay | None = None
        """Why the node grants nothing for now."""
        self.grant: m.Subscribed | None = None
        self.position = 0  # the next sequence that the subscriber has not been given; the feed writes it
        self.known: Known = (wanted.term, wanted.terms)
        """The term that the position is of; the feed writes it as it tells the subscriber what is lost."""
        self._known = self.known  # that which the next grant is asked for under
        self._lost_before: Known | None = None  # the term before which is lost what the subscriber is told of
        self.link_count = 0
        """How often it was granted: credit belongs to one link."""
        self.is_waiting = False
        """Whether the subscriber waits for `tell_arrived`; it looks at the queue once more after setting this."""
        self.tell_arrived: Callable[[], None] = lambda: None
        self.tell_over: Callable[[VeredusError], None] = lambda _: None
        """Called as soon as this is fenced or closed: nothing that was pushed can be settled any more."""
        self.tell_again: Callable[[], None] = lambda: None
        self.pushed_anew = (0, 0)
        """A link, and from where on what earlier links pushed is to be taken as that one pushes it."""
        self.anew_count = 0
        """How often the subscriber has asked that what was pushed is pushed again; the loop writes it."""
        self.settlings = Settlings()
        self.unconfirmed = Unconfirmed(
            wanted.mode, self.settlings, lambda *wanted: self.returns.holds_rejected(*wanted), wanted.words
        )
        self.handed = Handed()
        self.again: deque[Publication] = deque()
        """What is handed out once more; it outlives a link."""
        self.retry_count = 0
        """How many publications were given back to be tried again; the subscriber's thread writes it."""
        tells = self._hand_again, self.unconfirmed.is_asked, self._tell_all
        self.returns = Returns(self._say_return, connection.call_later, *tells)
        self.is_settle_idle = True
        """Whether the loop must be told of settlements; it looks once more after setting this."""
        self._connection = connection
        self._channel = 0
        self._granted = 0  # the channel once it is granted: until then nothing may be said on it
        self._epoch = 0
        self._incarnation = new_incarnation()
        self._attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._handed_said = 0
        self._floor = 0
        self._passed = 0  # before this there is nothing for the subscriber, who may not have heard so
        self._filters = Filters(wanted.filter, wanted.is_durable, wanted.until)
        self._part_end = wanted.until
        self._next = 0  # where it goes on behind the part that has ended, while this link lasts

    # ── attach ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def attach(self) -> None:
        """Wait until the node has granted the subscription. Raises what it refused with, or `Unavailable`."""
        self._connection.attach(self)
        await wait_granted(
            self._attached, self._connection, self.detach, "granted the subscription", lambda: self.delay
        )

    def begin(self) -> None:
        """A link is open: subscribe, from the start the first time, then from where the subscriber is."""
        if self.failure is not None:
            return
        wanted, start = self.wanted, self.wanted.start
        incarnation = wanted.stream_incarnation
        self._granted = 0
        if self.grant is not None:
            start = Start(StartKind.SEQUENCE, max(self.position, self._floor, self._next, self._passed))
            incarnation = self.grant.stream_incarnation
        filter_, self._part_end = self._filters.part_at(start.value)
        self._channel = self._connection.open_channel(
            self,
            m.Subscribe(
                wanted.stream, wanted.subscriber, wanted.name, filter_, start, self._part_end, wanted.mode,
                self._incarnation if wanted.is_durable else b"", self._epoch, wanted.window_size, incarnation,
                wanted.attempts_max, wanted.parked_to, *self._known,
            ),
        )  # fmt: skip

    def take(self, told: Told) -> None:
        """Queue what the subscriber shall see, in order; the rest is ours."""
        match told:
            case c.TellDelivery(_, redelivered_to, records, size):
                self._queue(Delivery(records, redelivered_to, size, self.link_count))
            case c.TellMessage(_, m.Sources(names)):
                self.sources.update(names)
            case c.TellMessage(_, m.Progress() | m.Gap() | m.End() as message):
                self._queue(message)
            case c.TellHanded(_, sequence):
                self.handed.know(sequence)
            case c.TellSettled(_, floor, ranges):
                self._be_settled(joined([(0, floor), *ranges]))
            case c.TellMessage(_, m.Returned(sequence, parked) as returned):
                if parked:
                    self.settlings.confirm([(sequence, sequence)])
                self.returns.take(returned)
            case c.TellMessage(_, m.FilterChanged(position)):
                self._filters.confirm(position, self.position)
            case c.TellMessage(_, m.Refusal() as refusal):
                self._take_refusal(error_of(refusal))
            case c.TellOpened(_, m.Subscribed() as grant):
                self._become_attached(grant)
            case c.TellClosed(_, m.End() as end):
                self._channel = 0
                if self._part_end == self.wanted.until:
                    self._queue(end)
                    self._connection.detach(self, 0)
                else:
                    self._next = self._part_end
                    self._begin_again()
            case c.TellClosed(_, m.Refusal() | m.Fencing() as cause):
                self._channel = 0
                self._be_refused(error_of(cause))
            case c.TellClosed():
                self._channel = 0

    def _queue(self, item: Arrival) -> None:
        self.queue.put(item)
        self._tell_arrived()

    def _tell_arrived(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self.tell_arrived()

    def _hand_again(self, publication: Publication) -> None:
        self.again.append(publication)
        self.tell_again()

    def _tell_all(self) -> None:
        self._tell_settled()
        self._tell_arrived()

    def _say_return(self, message: m.Return) -> bool:
        if self._is_granted():
            self.say_handed()
            self._connection.handle(c.MessageRequested(self._channel, message))
            return True
        return False

    def _become_attached(self, grant: m.Subscribed) -> None:
        before, self.grant, self._granted = self.grant, grant, self._channel
        self.delay = None
        self._epoch, self._known = grant.epoch, (grant.term, grant.terms)
        self.link_count += 1
        if grant.changed_from:
            self.take_anew()
        if before is None:
            self.position = grant.position
            self.unconfirmed.begin(grant.position - 1)
            self._attached.set_result(None)
            if self.wanted.attempts_max:
                self._connection.call_later(HANDED_S, self._say_handed_again)
        elif 0 < grant.changed_from < self.position:
            settling = self._forget_from(grant.changed_from)
            self._lost_before = self._known
            self._queue(Lost(grant.changed_from, self.position, self._known, settling))
        elif max(self.position, self._passed) < (begun := min(grant.position, grant.floor)):
            # The node moved the cursor over a gap that it reported on a link before; whether that was heard or not.
            self._queue(m.Gap(self.position, begun, "trimmed"))
        if grant.changed_from:
            self.unconfirmed.begin_anew(grant.position - 1)
        if self._lost_before in (None, self.known):
            self.known = self._known
        self._handed_said = 0
        self.say_handed()
        self.returns.begin()
        self.pump_settlements()

    def take_anew(self) -> None:
        """Let what is left of earlier links be taken as this one pushes it, from where it began."""
        if self.grant is not None:
            self.pushed_anew = self.link_count, self.grant.position

    def _forget_from(self, sequence: int) -> Settling:
        """What was pushed from `sequence` on is gone: there is nothing of it to settle, nor to wait for. Into what is
        written that is done with of what comes now.
        """
        self.handed.lose_from(sequence)
        self.returns.forget_from(sequence)
        self._passed = min(self._passed, sequence)
        settling = self.unconfirmed.lose_from(sequence)
        self._tell_settled()
        return settling

    def _be_refused(self, error: VeredusError) -> None:
        floor = error.details.get("floor")
        if error.code == "below-floor" and self.grant is not None and isinstance(floor, int):
            self._floor = floor
            self._queue(m.Gap(self.position, floor, "trimmed"))
            self._begin_again()
        elif error.code in TRANSIENT:
            self.delay = delayed(
                self.delay, Delay(error.code, error.message), f"grants no subscription ({self.wanted.words})"
            )
            self.lose()
            self._connection.call_later(RETRY_S, self._begin_again)
        else:
            self.fail(error)

    def _begin_again(self) -> None:
        if not self._channel:
            self._connection.begin(self)

    # ── leave ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def lose(self) -> None:
        """The link is gone, or this channel of it; what the subscriber has not taken will be pushed again."""
        self._channel = 0
        self.unconfirmed.take_back()
        self._next = self._floor = 0  # a gap up to that floor may wait in the queue: it is reported again
        self._known, self._lost_before = self.known, None  # so is what is lost
        self._passed = max(self._passed, self.queue.passed_to())
        self.queue.clear()
        self._filters.lose()

    def ask_anew(self, link_count: int) -> None:
        """What came over that link is damaged: let the node push it again, over another one; in the loop."""
        if link_count == self.link_count:
            self._connection.break_link("what the node pushed was damaged on its way")
        self.anew_count += 1
        self.tell_arrived()

    def fail(self, error: VeredusError) -> None:
        """It is over, and the subscriber hears why: fenced or closed, at once; else behind what is queued."""
        if self.failure is None:
            self.failure = error
            if isinstance(error, Fenced) or error.code == "closed":
                self.tell_over(error)
        self.say_handed()
        self._connection.losses.keep(self, but_for_inherited(self, self.failure), self.failure)
        self.is_settle_idle = True
        self.detach()
        refuse(self._attached, error)
        self._filters.fail(error)
        self.returns.end()
        self._tell_settled()
        self.handed.lose_from(0)
        self.is_waiting = False
        self.tell_arrived()

    def check_open(self) -> None:
        """Raise why this is over, if it is: whoever takes is told, also what is lost."""
        if self.failure is not None:
            self._connection.losses.drop(self)
            raise self.failure.again()

    @property
    def is_left(self) -> bool:
        """Whether there is nothing to close any more."""
        return self.failure is not None and self.failure.code in ("closed", "forked")

    def leave(self) -> None:
        """The subscription is closed: whoever closes it is told what is lost."""
        self.fail(Misuse("closed", "this subscription was closed"))
        self._connection.losses.drop(self)

    def bar(self, error: VeredusError) -> None:
        """Nothing more is handed out, or can be settled; in any thread."""
        self.tell_over(error)

    def forbid(self, error: VeredusError) -> None:
        """Refuse every further use with this, and touch nothing: the loop belongs to another process."""
        self.failure = error
        self.queue.clear()

    def finish(self) -> str:
        """Send what waits to be sent; what the node has not confirmed yet, in words, "" for nothing."""
        self.pump_settlements()
        return self.unnamed()

    def unnamed(self) -> str:
        """What the node has not confirmed yet, in words: they are the same however much it is; in any thread."""
        return "" if self.unconfirmed.is_settled(self.unconfirmed.of_all) else f"settlements ({self.wanted.words})"

    @property
    def hindrance(self) -> str:
        """Why the node does not journal settlements for now, as it has said; "" where it has said nothing."""
        return self.unconfirmed.refused

    def detach(self) -> None:
        """Hang on the connection no more; a durable cursor stays where it is."""
        channel, self._channel = self._channel, 0
        self._connection.detach(self, channel)

    # ── what was handed out ──────────────────────────────────────────────────────────────────────────────────────────

    def say_handed(self) -> None:
        """Say what was handed out since this was said last; in the loop."""
        handed_to = self.settlings.handed_to
        if handed_to > self._handed_said and self._is_granted():
            self._handed_said = handed_to
            self._connection.handle(c.HandedOut(self._channel, handed_to))

    def _say_handed_again(self) -> None:
        if self.failure is None:
            self.say_handed()
            self._connection.call_later(HANDED_S, self._say_handed_again)

    def add_handed_waiter(self, sequence: int, tell: Waiter) -> None:
        """Call `tell` once the node knows that all up to `sequence` was handed out, or this is over; in the loop.

        What was settled is sent before, also where an answer is awaited: what is handed out may end the application,
        and what that was done with must not count as tried once more.
        """
        if self._is_granted():
            self._send_settled()
        self.say_handed()
        if self.failure is not None:
            tell()
        else:
            self.handed.wait(sequence, tell)

    # ── credit and settlements ───────────────────────────────────────────────────────────────────────────────────────

    def grant_credit(self, size: int, link_count: int) -> None:
        """The subscriber has taken so much of what came over that link; in the loop."""
        if link_count == self.link_count and self._is_granted():
            self._connection.handle(c.CreditRequested(self._channel, size))

    def pump_settlements(self) -> None:
        """Send what was settled since the last settlement, unless one is on its way; in the loop."""
        self.say_handed()
        if self.failure is not None and not self.is_left:
            self._connection.losses.keep(self, but_for_inherited(self, self.failure), self.failure)
        while not self.unconfirmed.is_on_its_way and self._is_granted():
            if not self._send_settled():
                if self.is_settle_idle:
                    return
                self.is_settle_idle = True

    def _send_settled(self) -> bool:
        """Send what is not confirmed of what was settled; whether there is something new in it."""
        ranges = self.unconfirmed.to_send()
        if not ranges:
            return False
        self.is_settle_idle = False
        self._connection.handle(c.SettleRequested(self._channel, ranges))
        return True

    def _is_granted(self) -> bool:
        return 0 < self._granted == self._channel and self._connection.is_open

    def _be_settled(self, done: list[Range]) -> None:
        """These are in the journal, whoever has settled them."""
        self.unconfirmed.confirm(done)
        if self.unconfirmed.is_on_its_way:
            self._settle_later()
        self.pump_settlements()
        self._tell_settled()

    def _tell_settled(self) -> None:
        self.unconfirmed.tell(self.failure)

    def add_settle_waiter(self, wait: SettleWait) -> None:
        """In the loop: tell `wait` once what of it is not lost is settled, or this is over; at once, if nothing was."""
        self.pump_settlements()
        self.unconfirmed.add_waiter(wait, self.failure)

    def _take_refusal(self, error: VeredusError) -> None:
        if error.details.get("filter") is True:
            self._filters.refuse(error)
        elif isinstance(returned := error.details.get("returned"), int) and error.code in TRANSIENT:
            self.returns.be_refused(returned, RETRY_S)
        elif isinstance(returned, int) and error.code == "unreadable":
            # Older nodes leave it to the subscriber: what is gone can be no dead letter.
            self.unconfirmed.add(returned)
            self.returns.take(m.Returned(returned, parked=True))
            self.pump_settlements()
        elif error.code in TRANSIENT:
            self.unconfirmed.be_refused(f"{error.message} [{error.code}]")
            self._settle_later()
        else:
            self.fail(error)

    def _settle_later(self) -> None:
        """Send what is not confirmed once more, in a while; over another link it is sent when that is granted."""
        link_count = self.link_count

        def settle() -> None:
            if link_count == self.link_count:
                self.unconfirmed.take_back()
                self.pump_settlements()

        self._connection.call_later(RETRY_S, settle)

    # ── filter ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def change_filter(self, filter_: Filter) -> int:
        """Ask for another filter; the sequence from which on it counts. Raises `Refused`, and `Unavailable`."""
        if self.failure is not None:
            raise self.failure.again()
        if not self._is_granted():
            raise Unavailable("link-lost", "no node can be reached: change the filter later")
        answer = self._filters.ask(filter_)
        self._connection.handle(c.MessageRequested(self._channel, m.ChangeFilter(filter_, self.position)))
        return await answered(answer, self._connection.settings.timeout_s)
