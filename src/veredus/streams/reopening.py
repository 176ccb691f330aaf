"""What opens a subscription again, as it is at one moment: quickly taken of very many, and made a fact of later.

Source: docs/internals/DESIGN.md, "Checkpoints and space".
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from veredus.delivery.settlement import Ledger, Range
from veredus.matching import Filter

from .facts import SubscriptionOpened, SubscriptionSettled
from .ranges import cursor_of, joined, without
from .tries import Tried

if TYPE_CHECKING:
    from .subscription import Subscription

_AS_THEY_ARE = (
    "stream_id", "subscriber", "name", "epoch", "incarnation", "filter", "filter_sequence", "mode", "pushed_to",
    "pushed_known", "handed_to", "attempts_max", "parked_to", "opened_us", "start", "from_us", "origins", "unwanted",
    "renewed_us", "wish", "owner", "lost",
)  # fmt: skip
"""What the fact has of a subscription as that has it; none of it is ever changed in its place."""
_fields_of = attrgetter(*_AS_THEY_ARE)


class Reopening(NamedTuple):
    """Owns a copy of all of a subscription that changes."""

    fields: tuple[Any, ...]
    ledger: Ledger
    excluded: tuple[Range, ...]
    leaving: tuple[Range, ...]
    before: tuple[tuple[Filter, int], ...]
    tried: tuple[Tried, ...]
    returned: tuple[int, ...]

    @classmethod
    def of(cls, subscription: Subscription) -> Reopening:
        """As the subscription is now."""
        tries = subscription.tries
        tried, returned = (tuple(tries), tuple(tries.returned)) if tries.size else ((), ())
        return cls(
            _fields_of(subscription),
            subscription.ledger.copy(),
            subscription.excluded,
            subscription.leaving,
            subscription.before,
            tried,
            returned if subscription.attempts_max else (),
        )

    def fact(self) -> SubscriptionOpened:
        """The fact; what is on its way to the dead letters is unsettled in it."""
        floor, settled = self.ledger.floor, settled_ranges(self.ledger, self.excluded)
        if self.leaving:
            floor, settled = cursor_of(0, without(((0, floor), *settled), self.leaving))
        return SubscriptionOpened(
            **dict(zip(_AS_THEY_ARE, self.fields, strict=True)),
            floor=floor,
            settled=settled,
            attempts=self.tried,
            before=tuple(earlier for earlier in self.before if earlier[1] > floor),
            returned=tuple(sequence for sequence in self.returned if sequence > floor),
        )


def settled_ranges(ledger: Ledger, excluded: tuple[Range, ...]) -> tuple[Range, ...]:
    """What is done with above a ledger's floor, said to the present owner or, `excluded`, to one before.

    Where each is settled by itself, what the filter rejected is among it. An ordered cursor passes that with its floor
    alone: it would be unsettled again as soon as something behind it was pushed.
    """
    own = () if ledger.is_ordered else ledger.settled
    if not excluded:
        return own
    floor = ledger.floor
    return joined((*own, *((max(a, floor + 1), b) for a, b in excluded if b > floor)))


def no_less(fact: SubscriptionSettled, floor: int, settled: tuple[Range, ...]) -> SubscriptionSettled:
    """The fact, beside what is known to be done with: all up to `floor`, and `settled`."""
    floor, settled = cursor_of(max(floor, fact.floor), (*settled, *fact.settled))
    return msgspec.structs.replace(fact, floor=floor, settled=settled)
