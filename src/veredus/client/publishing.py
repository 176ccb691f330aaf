"""A source's end in the loop: it takes from the intake, keeps the outbox, and tells whoever waits what became of it.

    caller ──► Intake ──take──► Outbox ──Offer──► channel
    caller ◄── receipts, room ◄─ Settle ◄──────── receipts

It attaches again, under its epoch, whenever there is a link; it never does so after it was fenced.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from veredus.delivery.batch import BatchLimits
from veredus.delivery.cutting import Publications
from veredus.delivery.outbox import (
    BatchRejected,
    Delay,
    Demand,
    Detached,
    Effect,
    Event,
    GiveUp,
    Granted,
    Offer,
    Outbox,
    OutboxSettings,
    Phase,
    Published,
    Settle,
    Spoil,
    Stopped,
    Taken,
)
from veredus.kernel.engine import Now
from veredus.kernel.errors import Misuse, Refused, Unavailable, VeredusError
from veredus.kernel.events import DeadlineReached
from veredus.kernel.words import are, counted, spanned
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client_exchange import (
    MessageRequested,
    OfferRequested,
    TellClosed,
    TellMessage,
    TellOpened,
    TellReceipts,
)
from veredus.runtime.clocks import read_clocks
from veredus.streams.exchange import Durability

from .attaching import SourceAttaching, StageAttaching
from .attachment import Told
from .causes import TRANSIENT, error_of
from .connection import Connection
from .granting import at_node, delayed, refuse, wait_granted
from .intake import Intake
from .tokens import Tokens

RECEIPTS_MAX = 4096
"""Receipts of so many batches are kept; older ones are answered without a sequence."""
RETRY_S = 0.2


class Receipt(NamedTuple):
    """What became of one publication: it is in the stream, at `sequence`, as durable as `durability` says.

    `sequence` is None where the node did not tell: the publication was taken while the link was down, or it repeats one
    of long ago. `is_duplicate` says that the stream had it before.
    """

    number: int
    sequence: int | None
    durability: Durability
    is_duplicate: bool


Waiter: TypeAlias = Callable[[], None]


class SourceChannel:
    """Owns one source's outbox, its place on the connection, and those who wait; see the module."""

    def __init__(
        self,
        connection: Connection,
        attaching: SourceAttaching | StageAttaching,
        intake: Intake,
        settings: OutboxSettings,
    ) -> None:
        """A source of `connection` that publishes what `intake` holds; to be made in the connection's loop."""
        self.intake = intake
        self.last_number = 0
        """The last number that the node knew when this source attached first."""
        self.resume_token = b""
        self.resume_number = 0
        """The number of the publication that the resume token closed."""
        self.stage = 0
        self.delay: Delay | None = None
        """Why the node takes nothing for now."""
        self.taken_number = 0
        self._connection = connection
        self._attaching = attaching
        self._outbox = Outbox(settings)
        self._channel = 0
        self._epoch = 0
        self._stream_incarnation = b""
        self._attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receipts: deque[Settle] = deque(maxlen=RECEIPTS_MAX)
        self._waiters: list[tuple[int, int, Waiter]] = []
        self._room_waiters: list[Waiter] = []
        self._ties = count()
        self._tokens = Tokens()
        self._is_spoiled = False
        self._named_number = 0  # what was published up to it, and not confirmed, was named
        self._timer: asyncio.TimerHandle | None = None

    # ── attach ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def attach(self) -> None:
        """Wait until the node has attached the source. Raises what it refused with, `Fenced`, or `Unavailable`."""
        self._connection.attach(self)
        await wait_granted(self._attached, self._connection, self.detach, "attached the source", lambda: self.delay)

    def begin(self) -> None:
        """A link is open: attach, under the epoch that is known."""
        if self.intake.failure is None:
            life = self._stream_incarnation if self.intake.number else b""
            opening = self._attaching.opening(self._epoch or self.stage, life)
            self._channel = self._connection.open_channel(self, opening)

    def take(self, told: Told) -> None:
        """Turn what the channel said into the outbox's facts."""
        match told:
            case TellReceipts(_, receipts):
                for last, sequence, is_duplicate, durability in receipts:
                    self._handle(Taken(last, sequence, is_duplicate, durability))
                self.pump()
            case TellOpened(_, m.SourceAttached() as grant):
                self._become_attached(grant)
            case TellOpened(_, m.StageOpened() as grant):
                self._become_stage(grant)
            case TellMessage(_, m.Reply(request)):
                self._tokens.take_answer(request)
                self.pump()
            case TellMessage(_, m.Refusal() as refusal):
                self._be_refused(error_of(refusal), self._ask_again)
            case TellMessage(_, m.BatchRefused() as refused):
                self._handle(BatchRejected(refused.first_number, refused.code, refused.message, refused.last_number))
                self.pump()
            case TellClosed(_, m.Refusal() | m.Fencing() as cause):
                self._channel = 0
                self._handle(Detached())
                self._be_refused(error_of(cause), self._begin_again)
            case TellClosed():
                self._channel = 0

    def _limits(self) -> BatchLimits:
        assert self._connection.welcome is not None
        return self._connection.welcome.limits

    def _become_attached(self, grant: m.SourceAttached) -> None:
        self._epoch, self._stream_incarnation = grant.epoch, grant.stream_incarnation
        if not self._attached.done():
            self.last_number = grant.last_number
            self.resume_token = grant.token
            self.resume_number = grant.token_number
        self._tokens.learn(grant.token_number, grant.token)
        resume = grant.token_number if self.intake.keeps_last else grant.last_number  # without a token: 0
        self._start(
            Granted(
                grant.stream_id, grant.source_id, grant.epoch, grant.last_number, resume, int(grant.durability),
                self._limits(),
            )
        )  # fmt: skip

    @property
    def kept_stage(self) -> int:
        """The stage's number, for its commit. Raises `Refused("lost")` where the node has lost rows of it."""
        failure = self.intake.failure
        if failure is not None and failure.code == "lost":
            raise self._over(self.intake.number, "", {})
        return self.stage

    def _become_stage(self, grant: m.StageOpened) -> None:
        self.stage, last, durability = grant.stage, grant.last_number, int(Durability.GROUP)
        self._start(Granted(grant.stream_id, 0, 0, last, last, durability, self._limits(), is_stage=True))

    def _start(self, granted: Granted) -> None:
        is_first = not self._attached.done()
        self._handle(granted)
        if is_first:
            self.taken_number = self._outbox.taken_number
            self.intake.start(self._outbox.last_number, granted.limits)
            self._attached.set_result(None)
        self.intake.is_gone = False
        self.pump()

    def _be_refused(self, error: VeredusError, try_again: Callable[[], None]) -> None:
        if error.code in TRANSIENT:
            self._be_delayed(Delay(error.code, error.message))
            self._connection.call_later(RETRY_S, try_again)
        else:
            self.fail(error)

    def _be_delayed(self, delay: Delay) -> None:
        where = self._attaching.words or f"stream {self._attaching.stream!r}"
        self.delay = delayed(self.delay, delay, f"takes no publications ({where})")

    def _ask_again(self) -> None:
        self._tokens.ask_again()
        self.pump()

    def _begin_again(self) -> None:
        if not self._channel:
            self._connection.begin(self)

    # ── leave ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def lose(self) -> None:
        """The link is gone; what was offered is in doubt."""
        self._channel = 0
        self._handle(Detached())
        self.intake.is_gone = True
        self.intake.bar()

    def fail(self, error: VeredusError) -> None:
        """This source is over: whoever waits, or publishes, hears why."""
        self.intake.failure = self.intake.failure or error
        self.bar(error)
        self._connection.losses.keep(self, self.unnamed(), self.intake.failure)
        self._handle(Stopped())
        self.detach()
        refuse(self._attached, error)
        waiters, self._waiters = self._waiters, []
        for _, _, tell in waiters:
            tell()
        self._tokens.tell_all()
        self._tell_room()

    def bar(self, error: VeredusError) -> None:
        """Take no more publications. What is being published gets its number before this returns; in any thread."""
        self.intake.closed = error
        self.intake.bar()
        self.intake.wait_free()

    def forbid(self, error: VeredusError) -> None:
        """Refuse every further use with this, and touch nothing: the loop belongs to another process."""
        self.intake.failure = error
        self.intake.bar()
        self.intake.free()

    def finish(self) -> str:
        """Send what waits to be sent; what the node has not confirmed yet, in words, "" for nothing."""
        words = self._unconfirmed_behind(self.taken_number, self.intake.number)
        if words and self.intake.is_free and not self._is_spoiled:
            self.intake.release(self.intake.number)
        return words

    def unnamed(self) -> str:
        """What the node has not confirmed yet, in words, but for what this has given before; in any thread."""
        named, self._named_number = self._named_number, self.intake.number
        return self._unconfirmed_behind(max(self.taken_number, named), self._named_number)

    def _unconfirmed_behind(self, number: int, last: int) -> str:
        words = self._attaching.words
        if not words or self._outbox.phase is Phase.STOPPED:
            return ""
        if last > number:
            return f"{counted(last - number, 'publication')} ({words}, the last number is {last})"
        return f"a resume token ({words})" if self._tokens.is_wanted and last == self.taken_number else ""

    @property
    def failure(self) -> VeredusError | None:
        """Why nothing can be published any more."""
        return self.intake.failure

    @property
    def hindrance(self) -> str:
        """Why the node takes nothing for now, as it has said; "" where it has said nothing."""
        return "" if self.delay is None else f"{self.delay.message} [{self.delay.code}]"

    def leave(self) -> None:
        """The publisher is closed: hang on the connection no more, and let nobody wait for room or for a token."""
        self.detach()
        self._connection.losses.drop(self)
        self._tokens.tell_all()
        self._tell_room()

    def detach(self) -> None:
        """Hang on the connection no more."""
        channel, self._channel = self._channel, 0
        self._connection.detach(self, channel)
        if self._timer is not None:
            self._timer.cancel()

    # ── take, cut, offer ─────────────────────────────────────────────────────────────────────────────────────────────

    def pump(self) -> None:
        """Cut what may be cut now; sleep only when nothing is left lying."""
        intake, outbox = self.intake, self._outbox
        if outbox.phase is Phase.STOPPED:
            return
        now = read_clocks()
        while True:
            demand = outbox.demand(now)
            taken = None if demand is Demand.NOTHING else intake.take(demand is Demand.ANY)
            if taken is not None:
                intake.is_idle = False
                self._publish(taken, now)
            elif demand is not Demand.ANY or intake.keeps_last:
                intake.is_idle = False
                break
            elif intake.is_idle:
                break
            else:
                intake.become_idle()
        intake.tell_cut(outbox.last_number, outbox.size)
        if self._room_waiters and intake.has_much_room:
            self._tell_room()
        self._ask_token()
        self._arm(now)

    def _ask_token(self) -> None:
        is_attached = self._channel > 0 and self._outbox.phase is not Phase.DETACHED
        asked = self._tokens.to_ask(self.taken_number, is_attached)
        if asked is not None:
            self._connection.handle(MessageRequested(self._channel, asked))

    def _publish(self, taken: tuple[Publications, bytes], now: Now) -> None:
        publications, token = taken
        try:
            effects = self._outbox.handle(Published(publications, token), now)
        except Exception as error:
            self.fail(Misuse("bad-publication", f"a publication cannot be encoded: {error}"))
            raise
        if token:
            self._tokens.carry(self._outbox.last_number, token)
        for effect in effects:
            self._do(effect)

    def _handle(self, event: Event) -> None:
        now = read_clocks()
        for effect in self._outbox.handle(event, now):
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Offer(record):
                self._connection.handle(OfferRequested(self._channel, record))
            case Settle():
                self._settle(effect)
            case Delay():
                self._be_delayed(effect)
            case GiveUp(code, message, last):
                self.fail(Refused(code, message, last_number=last))
            case Spoil(number, code, message):
                self._is_spoiled = True
                self.intake.failure = Misuse(code, f"publication {number} {message}", number=number)
                self.intake.bar()
                self._end_spoiled()
                self._tell_room()

    def _arm(self, now: Now) -> None:
        """See that somebody looks again when the linger or the rest is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ns = self._outbox.deadline()
        if due_ns is not None:
            self._timer = self._connection.call_later(max(due_ns - now.monotonic_ns, 0) / 1e9, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._handle(DeadlineReached())
        self.pump()

    # ── receipts and room ────────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, settled: Settle) -> None:
        self.delay = None
        self._receipts.append(settled)
        self.taken_number = taken = settled.last_number
        self._tokens.settle(taken, settled.is_duplicate)
        waiters = self._waiters
        while waiters and waiters[0][0] <= taken:
            heappop(waiters)[2]()
        self._end_spoiled()

    def _end_spoiled(self) -> None:
        """Where something cannot be encoded this is over when all before it is in the stream."""
        failure = self.intake.failure
        if self._is_spoiled and failure is not None and self._outbox.is_empty:
            self.fail(failure)

    def add_waiter(self, number: int, tell: Waiter) -> None:
        """Call `tell` once `number` was taken or cannot be any more; in the loop."""
        if number <= self.taken_number or self._outbox.phase is Phase.STOPPED:
            tell()
        else:
            heappush(self._waiters, (number, next(self._ties), tell))

    def want_token(self, number: int, token: bytes) -> None:
        """Let the node have `token`, which speaks up to `number`, once it has that; in the loop."""
        self._tokens.want(number, token)
        self.pump()

    @property
    def token_number(self) -> int:
        """The number of the last publication that the node's resume token speaks of; 0 while there is none."""
        return self._tokens.number

    def add_token_waiter(self, tell: Waiter) -> None:
        """Call `tell` once the node has the last token that it is to have, or cannot have it any more; in the loop."""
        if self._tokens.is_wanted and self.intake.failure is None:
            self._tokens.add_waiter(tell)
        else:
            tell()

    def check_token(self) -> None:
        """Raise why the node does not have the token that was waited for, if it does not."""
        if self.intake.failure is not None and self._tokens.is_wanted:
            raise self.token_in_doubt()

    def add_room_waiter(self, tell: Waiter) -> None:
        """Call `tell` once there is room or the source is over; in the loop."""
        self._room_waiters.append(tell)
        self.pump()
        if self.intake.failure is not None or self.intake.has_room:
            self._tell_room()

    def _tell_room(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for tell in waiters:
            tell()

    def receipt(self, number: int) -> Receipt:
        """What became of `number`, which was waited for. Raises why it was not taken."""
        if number > self.taken_number:
            raise self.not_taken(number)
        receipts = self._receipts
        index = bisect_left(receipts, number, key=attrgetter("last_number"))
        if index < len(receipts) and receipts[index].first_number <= number:
            found = receipts[index]
            sequence = found.first_sequence + number - found.first_number if found.first_sequence else None
            return Receipt(number, sequence, Durability(found.durability), found.is_duplicate)
        return Receipt(number, None, Durability.GROUP, False)

    def not_taken(self, number: int) -> VeredusError:
        """Why `number` is in doubt still."""
        first = self.taken_number + 1
        numbers = f"{spanned('number', first, number)} {are(number - first + 1)}"
        details: dict[str, object] = {"number": number, "taken_number": self.taken_number}
        if self.intake.failure is not None:
            return self._over(number, f"{numbers} not acknowledged", details)
        message = f"{numbers} in doubt: not acknowledged yet by the node {at_node(self._connection)}"
        return self._in_doubt(message, details)

    def token_in_doubt(self) -> VeredusError:
        """Why the node may not have the resume token yet."""
        if self.intake.failure is not None:
            return self._over(self.intake.number, "", {})
        return self._in_doubt("the resume token is in doubt: flush again to wait for it", {})

    def _over(self, number: int, more: str, details: dict[str, object]) -> VeredusError:
        """Why this source is over, for who waits for `number`, and what `more` there is to say of that."""
        assert self.intake.failure is not None
        if number == self.intake.number:
            self._connection.losses.drop(self)  # whoever waits is told of all
        return self.intake.failure.again(more, **details)

    def _in_doubt(self, message: str, details: dict[str, object]) -> VeredusError:
        code, reason = ("in-doubt", "") if self.delay is None else (self.delay.code, f": {self.delay.message}")
        return Unavailable(code, message + reason, **details)
