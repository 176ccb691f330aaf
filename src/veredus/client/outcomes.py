"""What the application says of what it was handed: settled, to be tried again, or given up.

Invariants
    (1) What was handed out, and nothing else, may be settled.
    (2) After the subscription was fenced or closed nothing is settled, also within a batch that was begun.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from veredus.kernel.errors import Misuse, Refused, Unavailable
from veredus.streams.exchange import SettleMode
from veredus.streams.ranges import without

from .arguments import check_seconds, check_text, check_whole, shown
from .publication import Batch, Interest, Publication
from .ranges import Range, joined
from .returns import REASON_SIZE_MAX, RETRIES_MAX, is_gone
from .settling import SettleWait, Settling
from .subscribing import Settleable, SubscriptionChannel


class Outcomes(ABC):
    """Hands settlements and returns to the loop; used from the subscriber's thread alone."""

    def __init__(self, channel: SubscriptionChannel, run: Callable[[Callable[[], None]], object]) -> None:
        """Of what `channel` has pushed; `run` lets something be called in the loop."""
        self.channel = channel
        self._call = run
        self._interest = Interest()
        self._settling = channel.settlings.first
        """Of what is handed out now, and of sequences that the program names: it was told of each loss before that."""
        self._is_short = channel.wanted.is_durable and channel.wanted.mode is SettleMode.IN_ORDER
        """Whether settling a publication may go the short way; not in any other mode, nor once it is over."""
        self._interest.retry, self._interest.reject, self._interest.settle = self.retry, self.reject, self.settle

    @property
    @abstractmethod
    def position(self) -> int:
        """The sequence behind the last publication that was handed out, or that was found not to be wanted."""

    # ── give back ────────────────────────────────────────────────────────────────────────────────────────────────────

    def retry(self, publication: Publication, delay_s: float = 0.0) -> None:
        """Hand this out again after a while; the attempt counts."""
        check_seconds("delay_s", delay_s, may_be_none=False, may_be_endless=False)
        self._check_returnable(publication)
        if is_gone(publication):
            return
        channel = self.channel
        if channel.retry_count - channel.returns.retries_over >= RETRIES_MAX:
            message = f"{RETRIES_MAX} publications wait for a retry: settle or reject some, or wait"
            raise Unavailable("too-many-retries", message)
        channel.returns.note_given(publication)
        channel.retry_count += 1
        self._call(lambda: channel.returns.add(publication, True, delay_s, ""))

    def reject(self, publication: Publication, reason: str) -> None:
        """Make this a dead letter now; the node journals it soon, as a settlement."""
        check_text("reason", reason, REASON_SIZE_MAX)
        self._check_returnable(publication)
        if not self.channel.wanted.parked_to:
            message = "this subscription has no stream for dead letters: subscribe with parked_to"
            raise Misuse("no-dead-letters", message)
        if not is_gone(publication):
            self.channel.returns.note_given(publication)
            self._call(lambda: self.channel.returns.add(publication, False, 0.0, reason))

    def _check_returnable(self, publication: Publication) -> None:
        self._interest.check()
        if not isinstance(publication, Publication):
            raise Misuse("bad-argument", f"retry and reject take a publication, not {shown(publication)}")
        wanted = self.channel.wanted
        if not wanted.is_durable or wanted.mode is SettleMode.IN_ORDER:
            message = (
                'only a durable subscription with mode="individual" can retry or reject a single publication: with'
                ' mode="in-order", settling a later publication would settle this one, too'
            )
            raise Misuse("not-individual", message)
        self._check_stream(publication)
        self._check_handed_out(publication.sequence, self.settling_of(publication))

    def _check_stream(self, what: Settleable | None) -> None:
        """Raise `Misuse("bad-argument")` for what another stream gave: its sequences say nothing here."""
        batch = what.batch if isinstance(what, Publication) else what
        stream = self.channel.wanted.stream
        if isinstance(batch, Batch) and batch.stream != stream:
            message = (
                f"this is a publication of stream {batch.stream!r}, and this subscription reads {stream!r}: use the"
                " subscription that gave it"
            )
            raise Misuse("bad-argument", message, argument="what")

    # ── settle ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, what: Settleable) -> None:
        """Settle up to a publication, a batch or a sequence; individually, these alone."""
        if not self._is_short or not isinstance(what, Publication) or what.batch.interest is not self._interest:
            self._settle_slowly(what)
            return
        sequence, settling = what.sequence, what.batch.settling
        if sequence > settling.settle_to:
            settling.settle_to = sequence
            if self.channel.is_settle_idle:
                self._wake_settling()

    def _settle_slowly(self, what: Settleable) -> None:
        self._interest.check()
        self._check_stream(what)
        if isinstance(what, Batch):
            self.settle_batch(what)
        else:
            self.settle_to(what.sequence if isinstance(what, Publication) else what, self.settling_of(what))

    def settling_of(self, what: Settleable | None) -> Settling:
        """Into what its settlement goes; what another subscription was handed is no more than its sequences here."""
        batch = what.batch if isinstance(what, Publication) else what
        is_own = isinstance(batch, Batch) and batch.interest is self._interest
        return batch.settling if is_own else self._settling  # type: ignore[union-attr]

    def wait_of(self, what: Settleable | None) -> SettleWait:
        """What there is to wait for until this is settled, None for all settlements that were made.

        Raises `Misuse`, and `Refused("not-durable")`.
        """
        self._check_stream(what)
        settling = self.settling_of(what)
        if what is None:
            return SettleWait(self.channel.unconfirmed.of_all, settling, is_all=True)
        self._check_durable()
        if isinstance(what, Batch):
            return SettleWait((what.first_sequence, what.last_sequence), settling, is_all=False)
        sequence = what.sequence if isinstance(what, Publication) else what
        check_whole("what", sequence)
        return SettleWait((sequence, sequence), settling, is_all=False)

    def _check_durable(self) -> None:
        if not self.channel.wanted.is_durable:
            raise Refused("not-durable", "only a durable subscription can settle: give it a subscriber")

    def settle_to(self, sequence: int, settling: Settling) -> None:
        """Everything up to `sequence` is done with. Raises `Misuse("not-pushed")` for what was not handed out."""
        channel = self.channel
        _check_sequence(sequence)
        self._check_handed_out(sequence, settling)
        self._check_durable()
        if channel.wanted.mode is SettleMode.INDIVIDUAL:
            self.settle_range(sequence, sequence, settling)
        elif sequence > settling.settle_to:
            settling.settle_to = sequence
            if channel.is_settle_idle:
                self._wake_settling()

    def _check_handed_out(self, sequence: int, settling: Settling) -> None:
        last = self.position - 1
        # What was handed out of an earlier life is not asked for: its sequences may lie behind the position again.
        if sequence > last and settling is self._settling:
            message = f"{sequence} cannot be settled: the last sequence that was handed out is {last}"
            raise Misuse("not-pushed", message, pushed_to=last)

    def settle_range(self, first: int, last: int, settling: Settling) -> None:
        """These sequences are done with, individually; what of them was given back is not."""
        channel, not_in_hands = self.channel, self.channel.returns.not_in_hands(first, last)
        if not_in_hands:
            settling.to_settle += without([(first, last)], [(one, one) for one in not_in_hands])
        else:
            settling.to_settle.append((first, last))
        if channel.is_settle_idle:
            self._wake_settling()

    def _settle_missing(self, missing: Range | None) -> None:
        """The application knows of a gap: the node need not tell the next one that subscribes."""
        if missing is None or not self.channel.wanted.is_durable:
            return
        is_in_order = self.channel.wanted.mode is SettleMode.IN_ORDER
        (self._settling.missing if is_in_order else self._settling.to_settle).append(missing)
        if self.channel.is_settle_idle:
            self._wake_settling()

    def _wake_settling(self) -> None:
        call, pump = self._call, self.channel.pump_settlements
        self.channel.is_settle_idle = False
        call(pump)

    def settle_batch(self, batch: Batch) -> None:
        """All of a batch is done with; and, in order, all before it."""
        self._interest.check()
        settling = self.settling_of(batch)
        if self.channel.wanted.mode is SettleMode.IN_ORDER or not self.channel.wanted.is_durable:
            self.settle_to(batch.last_sequence, settling)
            return
        self._check_handed_out(batch.last_sequence, settling)
        if batch.header.is_excerpt:
            for first, last in joined([(sequence, sequence) for sequence in batch.sequences.tolist()]):
                self.settle_range(first, last, settling)
        else:
            self.settle_range(batch.first_sequence, batch.last_sequence, settling)


def _check_sequence(sequence: object) -> None:
    """Raise `Misuse("bad-argument")` for what is no publication, no batch and no sequence."""
    if not isinstance(sequence, int):
        said = f"settle takes a publication, a batch or a sequence, not {shown(sequence)}"
        raise Misuse("bad-argument", said, argument="what")
    check_whole("what", sequence)
