"""Redrivers: processes that move dead letters back to the stream that they came from, as `node.redrive` does.

    show the letters ──► read them to the head of then ──► publish each that is due ──► trim what was moved, perhaps

A process is one run. It reads the letters by a subscription without a cursor, and publishes them as one source, whose
resume token says which letter was the last: `veredus.delivery.redriving` decides, as it does in the library. Runs are
killed, stopped and followed while they live, as those of any player; another one begins a while after a run was done,
and the last one after all faults.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from veredus.delivery.cutting import Listed
from veredus.delivery.outbox import Granted, OutboxSettings, Published
from veredus.delivery.publication import AttributeValue
from veredus.delivery.redriving import PREFIX, Return, source_of
from veredus.kernel.errors import Refused
from veredus.streams.exchange import (
    AdminRequested,
    AnswerAdmin,
    CreditGranted,
    EndSubscription,
    GrantSource,
    GrantSubscription,
    Push,
    PushGap,
    PushProgress,
    Refuse,
    SourceAttachRequested,
    Start,
    StartKind,
    SubscribeRequested,
)

from .content import letters_in
from .network import Network
from .oracles import Oracles
from .sources import CHANNEL, Source, SourceProcess, SourceTemper
from .world import MICROSECOND, MILLISECOND, SECOND, Violation, World

LETTERS, ADMIN = CHANNEL + 1, CHANNEL + 2
"""Channels beside that of the source."""


class Letter(NamedTuple):
    """A dead letter, or letters that are not there: then `gap` says why, and `last` is the last of them."""

    sequence: int
    key: bytes = b""
    body: bytes = b""
    attributes: dict[str, AttributeValue | None] | None = None
    last: int = 0
    gap: str = ""


class RedriveProcess(SourceProcess):
    """One run."""

    def __init__(self, world: World, network: Network, name: str, address: str, redriver: Redriver) -> None:
        """A run for `redriver`."""
        super().__init__(world, network, name, address, redriver)
        self._redriver = redriver
        self.is_last = redriver.is_resting
        """Whether it began after all faults."""
        self._request = 0
        self._shown: dict[str, Any] | None = None
        self._position = 1
        self._unread: list[tuple[list[Letter], int]] = []
        """What came, with the credit that is owed for it on this link."""
        self._open: list[Letter] = []
        """What is due, and not published yet."""
        self._return: Return | None = None
        self._unreadable = 0
        """The first letter that the node cannot read: there this run stops."""

    def lose(self) -> None:
        """The next link's subscription begins with all of its credit: nothing is owed for what came over this one."""
        super().lose()
        self._unread = [(letters, 0) for letters, _ in self._unread]

    def attach(self) -> None:
        """Ask what there is, or go on."""
        if self._shown is None:
            self._ask_admin("stream.show", {"name": self._redriver.letters})
        else:
            self._go_on(self._shown)

    def _ask_admin(self, verb: str, arguments: dict[str, object]) -> None:
        self._request += 1
        self.ask(AdminRequested(ADMIN, self._request, self.principal, verb, arguments))

    def _go_on(self, shown: dict[str, Any]) -> None:
        redriver = self._redriver
        name = source_of(redriver.letters, shown["incarnation"])
        self.ask(SourceAttachRequested(CHANNEL, self.principal, redriver.stream, name, self._incarnation, self._epoch))
        if not self._is_read:
            start = Start(StartKind.SEQUENCE, self._position if self._position > 1 else 0)
            self.ask(SubscribeRequested(LETTERS, self.principal, redriver.letters, start=start, credit=redriver.credit))

    @property
    def _is_read(self) -> bool:
        return self._shown is not None and self._position > self._last

    def hear(self, order: Any) -> None:
        """Take letters; all else is as with any source."""
        match order:
            case AnswerAdmin():
                self._show(order.result)
            case Refuse(code="unknown-stream") if self._shown is None:
                self._over("there are no letters")
            case Refuse(code="below-floor"):
                # Another run has moved these meanwhile, and trimmed them.
                floor = int(order.details["floor"])  # type: ignore[call-overload]
                self._come([Letter(self._position, last=floor - 1, gap="trimmed")], 0)
                self._position = floor
                super().hear(order)
            case GrantSubscription():
                self._position = max(self._position, order.position)
                self._end_reading()
            case Push():
                self._position = order.last_sequence + 1
                self._come([Letter(*letter) for letter in letters_in(order.buffers)], order.size + 16)
            case PushGap(_, first, next_sequence, code):
                self._position = next_sequence
                self._come([Letter(first, last=next_sequence - 1, gap=code)], 0)
            case PushProgress() | EndSubscription():
                pass
            case _:
                super().hear(order)

    def _show(self, shown: Any) -> None:
        self._shown = shown
        if shown["head"] < shown["floor"]:
            self._finish()
        else:
            self._go_on(shown)

    def _granted(self, grant: GrantSource) -> None:
        is_first = self._return is None
        super()._granted(grant)
        if is_first and self.is_alive and self._shown is not None:
            redriver = self._redriver
            spoken = grant.token_number if grant.token else 0
            self._return = Return(redriver.letters, redriver.stream, grant.token, spoken, grant.last_number)
            if self._shown["floor"] > 1:
                self._may_miss(self._return, Letter(1, last=self._shown["floor"] - 1, gap="trimmed"))
            self._read()
        # All may have been taken before the link was lost, and then no more is said of it.
        self._see_end()

    def _come(self, letters: list[Letter], size: int) -> None:
        """What came is read a while later, in its order."""
        self._unread.append((letters, size))
        self.later(self.die.spread(MICROSECOND, self._redriver.work_max_ns), self._read)

    def _publish(self) -> None:
        """What there is to publish comes from the letters."""

    def _read(self) -> None:
        if self._return is None or not self._unread or not self.is_alive:
            return
        letters, size = self._unread.pop(0)
        if size:
            self.ask(CreditGranted(LETTERS, size))
        for letter in letters:
            if letter.gap and letter.gap != "trimmed":
                self._stop_before(letter)
            elif letter.gap:
                if not self._may_miss(self._return, letter):
                    return
            elif letter.sequence <= self._last and self._return.is_due(letter.sequence):
                self._open.append(letter)
                if len(self._open) >= self._redriver.flush_count:
                    self._flush(self._return)
        if self._unread:
            self.later(self.die.spread(MICROSECOND, self._redriver.work_max_ns), self._read)
        self._end_reading()

    def _end_reading(self) -> None:
        """Publish the rest where nothing is to come any more: what was left may have been trimmed meanwhile."""
        if self._return is not None and self._is_read and not self._unread:
            self._flush(self._return)
        self._see_end()

    def _stop_before(self, letter: Letter) -> None:
        if not self._unreadable:
            self._unreadable = letter.sequence
            self.world.counts["redrives stopped"] += 1

    @property
    def _last(self) -> int:
        """The last letter that this run moves."""
        shown = 0 if self._shown is None else int(self._shown["head"])
        return min(shown, self._unreadable - 1) if self._unreadable else shown

    def _may_miss(self, way: Return, letter: Letter) -> bool:
        try:
            way.miss(letter.sequence, letter.last)
        except Refused as refused:
            if self.source.is_sure:
                raise Violation("redriven", f"{self.name} is refused: {refused.message}") from refused
            self.world.counts["redrives refused"] += 1
            self._redriver.give_up()
            self.stop(f"cannot tell: {refused.code}")
            return False
        return True

    def _flush(self, way: Return) -> None:
        letters, self._open = self._open, []
        if letters:
            self.world.counts["redriven"] += len(letters)
            listed = Listed(
                [letter.key for letter in letters],
                [letter.body for letter in letters],
                mappings=[_own(letter.attributes or {}) for letter in letters],
            )
            self._tell(Published(listed, way.token))

    def _tell(self, event: Any) -> None:
        super()._tell(event)
        if not isinstance(event, Published | Granted):
            self._see_end()

    def _see_end(self) -> None:
        """All is read, published and taken: the letters may go."""
        is_moved = self._return is not None and self._outbox.is_empty and not (self._unread or self._open)
        if self.is_alive and self._is_read and is_moved:
            self._finish()

    def _finish(self) -> None:
        redriver = self._redriver
        redriver.moved(self._last)
        if self.die.chance(redriver.trims):
            floor = redriver.oracles.asks_to_trim(redriver.letters, self._last + 1)
            self._ask_admin("stream.trim", {"name": redriver.letters, "floor": floor})
        self._over(f"moved {self._return.count if self._return is not None else 0}")

    def _over(self, why: str) -> None:
        self.stop(why)
        self._redriver.ended(self)


def _own(attributes: dict[str, AttributeValue | None]) -> dict[str, AttributeValue | None]:
    return {name: value for name, value in attributes.items() if not name.startswith(PREFIX)}


class Redriver(Source):
    """Owns the runs that move one stream's letters to one other stream."""

    def __init__(
        self, world: World, network: Network, name: str, letters: str, stream: str, address: str, oracles: Oracles
    ) -> None:
        """Who moves `letters` back to `stream`."""
        die = world.dice.die(f"redriver/{letters}")
        settings = OutboxSettings(batch_count=die.spread(1, 16), window_size=die.spread(2 << 10, 64 << 10))
        super().__init__(world, network, name, stream, address, SourceTemper(1 << 60, 1, 1, False, settings))
        # Its tokens are those of letters, and no list of its own.
        self.temper.uses_tokens = True
        self.letters = letters
        self.oracles = oracles
        oracles.redrives[letters] = stream, 0
        self.flush_count = die.spread(1, 20)
        self.credit = die.spread(64, 8 << 10)
        self.trims = 0.5 if die.chance(0.5) else 0.0
        self.pause_max_ns = die.spread(50 * MILLISECOND, 3 * SECOND)
        self.work_max_ns = die.spread(10 * MICROSECOND, 300 * MILLISECOND)
        self.is_resting = False
        """Whether the next run is the last one."""

    def process_of(self, name: str) -> RedriveProcess:
        """A run."""
        return RedriveProcess(self.world, self.network, name, self.address, self)

    def judge_token(self, process: str, grant: GrantSource) -> None:
        """A run may have been killed anywhere, so any of its tokens may be the last."""

    def moved(self, head: int) -> None:
        """A run has moved every letter up to there."""
        _, known = self.oracles.redrives[self.letters]
        self.oracles.redrives[self.letters] = self.stream, max(known, head)

    def ended(self, process: RedriveProcess) -> None:
        """A run is over; another one follows, unless it was the last."""
        self.is_done = self.is_done or process.is_last
        if process is self.process and not self.is_done:
            self.world.after(self.die.spread(20 * MILLISECOND, self.pause_max_ns), self._follow)

    def give_up(self) -> None:
        """Nobody can tell any more which letters were moved: no run moves any."""
        self.is_abandoned = True
