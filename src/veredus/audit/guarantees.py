"""What is judged, what each judgement needs, and what speaks against it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from veredus.recording import Kind


class Guarantee(StrEnum):
    """What Veredus promises, as far as recordings can tell."""

    KEPT = "kept"
    ONCE = "once"
    ORDER = "order"
    OFFERED = "offered"
    IN_DOUBT = "in-doubt"
    SAME = "same"


class Where(StrEnum):
    """On which way a guarantee is judged: from sources into the journal, or from there to subscriptions."""

    JOURNAL = "journal"
    SUBSCRIPTIONS = "subscriptions"


class Outcome(StrEnum):
    """Of one guarantee on one way."""

    HOLDS = "holds"
    REPORTED = "holds but for what was reported"
    REFUTED = "refuted"
    NOT_PROVED = "not proved"


@dataclass(frozen=True)
class Claim:
    """One guarantee on one way: in words, and the sides without which it cannot be proved."""

    guarantee: Guarantee
    where: Where
    words: str
    needs: tuple[Kind, ...]

    @property
    def name(self) -> str:
        """As it is asked for: `kept/journal`."""
        return f"{self.guarantee}/{self.where}"


@dataclass(frozen=True)
class Violation:
    """One way to break a claim."""

    name: str
    claim: str
    words: str
    rests_on: Kind | None = None
    """The side in which something was not found: where rows of it are missing, that speaks against nobody."""


_O, _A, _J, _P, _S = Kind.OFFERED, Kind.ACKNOWLEDGED, Kind.JOURNAL, Kind.PUSHED, Kind.SETTLED
_IN, _OUT = Where.JOURNAL, Where.SUBSCRIPTIONS

CLAIMS: Final = {
    claim.name: claim
    for claim in (
        Claim(Guarantee.KEPT, _IN, "Every acknowledged publication is in the journal", (_A, _J)),
        Claim(Guarantee.KEPT, _OUT, "Every publication reached each subscription that covers it", (_J, _P)),
        Claim(Guarantee.ONCE, _IN, "Each publication is in the journal once", (_J,)),
        Claim(Guarantee.ONCE, _OUT, "No repeated push without a mark, and none after settling", (_P, _S)),
        Claim(Guarantee.ORDER, _IN, "The journal keeps the order of each source", (_J,)),
        Claim(Guarantee.ORDER, _OUT, "Each subscription gets each source's publications in their order", (_P,)),
        Claim(Guarantee.OFFERED, _IN, "Every publication in the journal was offered", (_O, _J)),
        Claim(Guarantee.OFFERED, _OUT, "Every pushed publication is in the journal, and covered", (_J, _P)),
        Claim(Guarantee.IN_DOUBT, _IN, "A publication in doubt was taken once or never, without a hole", (_O, _A, _J)),
        Claim(
            Guarantee.IN_DOUBT,
            _OUT,
            "Subscriptions got publications in doubt only if they were taken",
            (_O, _A, _J, _P),
        ),
        Claim(Guarantee.SAME, _IN, "The journal has the offered bytes at the acknowledged sequences", (_O, _A, _J)),
        Claim(Guarantee.SAME, _OUT, "A sequence has the same bytes in the journal and in each push", (_J, _P)),
    )
}

VIOLATIONS: Final = {
    violation.name: violation
    for violation in (
        Violation("lost", "kept/journal", "acknowledged, and not in the journal", _J),
        Violation("missing", "kept/subscriptions", "in the journal, and never pushed to the subscription", _P),
        Violation("doubled", "once/journal", "in the journal more than once"),
        Violation("pushed-twice", "once/subscriptions", "pushed again without being marked as redelivered"),
        Violation("pushed-though-settled", "once/subscriptions", "pushed again though it was settled"),
        Violation("overtaken-in-journal", "order/journal", "behind a greater number of its source", _J),
        Violation("overtaken", "order/subscriptions", "first pushed after a greater number of its source", _P),
        Violation("unoffered", "offered/journal", "in the journal or acknowledged, and never offered", _O),
        Violation("phantom", "offered/subscriptions", "pushed, and not in the journal", _J),
        Violation("uncovered", "offered/subscriptions", "pushed, and not covered by the subscription"),
        Violation("hole", "in-doubt/journal", "in doubt and not in the journal, although greater numbers are", _J),
        Violation("two-outcomes", "in-doubt/journal", "in doubt, and in the journal more than once"),
        Violation("two-stories", "in-doubt/subscriptions", "in doubt, and a subscription and the journal differ", _P),
        Violation("other-bytes", "same/journal", "in the journal with bytes that were not offered", _O),
        Violation("other-sequence", "same/journal", "not in the journal at the sequence that was acknowledged"),
        Violation("changed", "same/subscriptions", "pushed with another source, number or bytes than the journal has"),
    )
}
