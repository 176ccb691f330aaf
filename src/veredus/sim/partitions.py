"""Shapes of partitions: who hears whom no longer. Each is drawn over all parties, nodes and clients alike.

    halves     two sides that do not hear one another
    isolated   one party hears nobody, and nobody hears it
    ring       each hears its two neighbours alone
    one-way    one side hears the other, and is not heard
Source: the partitions of Jepsen's nemeses; a party is a process, whichever life it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .dice import Die

Parts = Callable[[str, str], bool]
"""Whether what goes from the first party to the second is held back."""


def party_of(owner: str) -> str:
    """Who owns an end of a link: the party, without the number of its life."""
    return owner.partition("#")[0]


def halves(parties: Sequence[str], die: Die) -> Parts:
    """Two sides that do not hear one another."""
    side = frozenset(party for party in parties if die.chance(0.5))
    return lambda sender, receiver: (sender in side) != (receiver in side)


def isolated(parties: Sequence[str], die: Die) -> Parts:
    """One party alone."""
    alone = parties[die.between(0, len(parties) - 1)]
    return lambda sender, receiver: alone in (sender, receiver)


def ring(parties: Sequence[str], die: Die) -> Parts:
    """Each hears its two neighbours alone."""
    order = sorted(parties, key=lambda _: die.random())
    places = {party: place for place, party in enumerate(order)}

    def parts(sender: str, receiver: str) -> bool:
        distance = abs(places.get(sender, 0) - places.get(receiver, 0))
        return distance not in (0, 1, len(order) - 1)

    return parts


def one_way(parties: Sequence[str], die: Die) -> Parts:
    """One side hears the other, and is not heard."""
    side = frozenset(party for party in parties if die.chance(0.5))
    return lambda sender, receiver: sender in side and receiver not in side


SHAPES: dict[str, Callable[[Sequence[str], Die], Parts]] = {
    "halves": halves,
    "isolated": isolated,
    "ring": ring,
    "one-way": one_way,
}
