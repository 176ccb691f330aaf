"""What a subscriber has given back: until the node has it as a dead letter, or it may be handed out again.

    reject ──────────────► RETURN ──► RETURNED, parked
    retry ──► delay over ──► RETURN ──► RETURNED, parked, or not: it waits for the application
              application ──► RETURN, taken ──► RETURNED: it is handed out again

What is to be tried again stays here and unsettled at the node meanwhile: if the process dies, the next one is pushed it
at once. That attempt ends when the delay is over, and the next one begins when the application takes it: so the count
is right whenever the process dies. Where attempts are not counted, nothing is said of the taking.

Of what an application says about a publication in its hands, settling or giving back, the first counts. What was given
back and is not handed out again is settled by nothing; what was settled is not given back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veredus.protocols.zeps import messages as m

from .publication import Publication
from .publishing import Waiter

RETRIES_MAX = 10_000
"""So many publications of a subscription may wait to be handed out again."""
REASON_SIZE_MAX = 1024


@dataclass(slots=True)
class _Held:
    publication: Publication
    is_retry: bool
    reason: str
    tell: Waiter | None = None
    """Tells the application, which takes it again, that the node has heard so."""
    is_due: bool = False
    is_sent: bool = False


class Returns:
    """Owns what was given back and not answered; lives in the loop."""

    def __init__(
        self,
        say: Callable[[m.Return], bool],
        call_later: Callable[[float, Callable[[], None]], object],
        hand_again: Callable[[Publication], None],
        is_settled: Callable[[int], bool],
        tell_over: Callable[[], None],
    ) -> None:
        """`say` sends, and says whether it could; `hand_again` gives a publication to the subscriber once more;
        `is_settled` says whether the subscriber has settled a sequence, and the node not confirmed it. `tell_over` is
        called when something is over.
        """
        self._say = say
        self._call_later = call_later
        self._hand_again = hand_again
        self._is_settled = is_settled
        self._tell_over = tell_over
        self._held: dict[int, _Held] = {}
        self._given: dict[int, Publication] = {}
        """What is not in the application's hands, by sequence: its thread adds what it gives back and takes away what
        it is handed again, the loop takes away what is over."""
        self.retries_over = 0
        """How many that were to be tried again are not held any more; the subscriber's thread reads it."""
        self._is_over = False

    def note_given(self, publication: Publication) -> None:
        """The application has given this back; in its thread."""
        self._given[publication.sequence] = publication

    def note_handed(self, publication: Publication) -> None:
        """The application has this, or nobody: another life of the stream may have given its sequence again."""
        given = self._given.get(publication.sequence)
        if given is not None and given.batch.settling is publication.batch.settling:
            self._given.pop(publication.sequence, None)

    def not_in_hands(self, first: int, last: int) -> list[int]:
        """The sequences from `first` to `last` that settling leaves out, ascending."""
        if first == last:
            given = self._given.get(first)
            return [] if given is None or is_gone(given) else [first]
        # In one step: the loop and the application's thread change it meanwhile.
        given_back = list(self._given.items()) if self._given else ()
        return sorted(place for place, given in given_back if first <= place <= last and not is_gone(given))

    def add(self, publication: Publication, is_retry: bool, delay_s: float, reason: str) -> None:
        """The subscriber gives this back."""
        if is_gone(publication) or self._is_settled(publication.sequence):
            self.note_handed(publication)
            self.retries_over += is_retry
            self._tell_over()
            return
        before = self._held.get(publication.sequence)
        if before is not None and before.is_retry:
            self.retries_over += 1
        held = self._held[publication.sequence] = _Held(publication, is_retry, reason)
        if delay_s > 0:
            self._call_later(delay_s, lambda: self._become_due(held))
        else:
            self._become_due(held)

    def take_again(self, publication: Publication, tell: Waiter) -> None:
        """The application takes this again; call `tell` once the node has heard so, or this is over."""
        if self._is_over or is_gone(publication):
            tell()
            return
        held = self._held[publication.sequence] = _Held(publication, is_retry=True, reason="", tell=tell)
        self._become_due(held)

    def end(self) -> None:
        """The subscription is over: nobody waits any more."""
        self._is_over = True
        for held in self._held.values():
            if held.tell is not None:
                held.tell()

    def _become_due(self, held: _Held) -> None:
        held.is_due = True
        self._send(held)

    def _send(self, held: _Held) -> None:
        sequence = held.publication.sequence
        if held.is_due and not held.is_sent and self._held.get(sequence) is held:
            held.is_sent = self._say(m.Return(sequence, held.is_retry, held.reason, held.tell is not None))

    def begin(self) -> None:
        """There is a link, perhaps another one: say what is not answered."""
        for held in list(self._held.values()):
            held.is_sent = False
            self._send(held)

    def take(self, returned: m.Returned) -> None:
        """The node has answered."""
        held = self._held.pop(returned.sequence, None)
        if held is not None:
            if held.is_retry and held.tell is None and not returned.parked:
                # Before it is counted as over: whoever looks whether all is done sees the one or the other.
                self._hand_again(held.publication)
            else:
                self.note_handed(held.publication)
            self._let_go(held)
            self._tell_over()

    def be_refused(self, sequence: int, retry_s: float) -> None:
        """The node cannot take it now: say it again in a while."""
        held = self._held.get(sequence)
        if held is not None:
            held.is_sent = False
            self._call_later(retry_s, lambda: self._send(held))

    def forget_from(self, sequence: int) -> None:
        """What lay from there on is gone."""
        for lost in [place for place in self._held if place >= sequence]:
            self._let_go(self._held.pop(lost))

    def _let_go(self, held: _Held) -> None:
        if held.tell is not None:
            held.tell()
        else:
            self.retries_over += held.is_retry

    def holds_rejected(self, first: int, last: int) -> bool:
        """Whether something there was rejected, and is no dead letter yet."""
        return any(first <= place <= last and not held.is_retry for place, held in self._held.items())


def is_gone(publication: Publication) -> bool:
    """Whether the node lost it since: something else may have its sequence."""
    return publication.sequence > publication.batch.settling.last
