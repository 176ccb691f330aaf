"""Terms of a stream: each begins where sequences may be given again, since a restore or damage lost what had them.

Source: docs/internals/DESIGN.md, "Recovery".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeAlias

Terms: TypeAlias = tuple[tuple[int, int], ...]
"""Terms and the first sequence of each, both growing. Of many, the oldest are taken for one, the last of them."""


def parted_at(terms: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> int:
    """The first sequence that may mean something else where these terms are known than where others are; 0 for none."""
    if not terms or not others:
        return 0
    oldest = max(terms[0][0], others[0][0])
    pairs = zip_longest(_merged(terms, oldest), _merged(others, oldest))
    parted = next((pair for pair in pairs if pair[0] != pair[1]), ())
    return min((known[1] for known in parted if known is not None), default=0)


def _merged(terms: Sequence[tuple[int, int]], oldest: int) -> Sequence[tuple[int, int]]:
    """The terms, those before `oldest` taken for one with it; as they are, if it is none of them."""
    place = next((index for index, (term, _) in enumerate(terms) if term == oldest), 0)
    return [(terms[place][0], terms[0][1]), *terms[place + 1 :]]
