"""What it costs the node to make the filter of a subscription ready, before it knows how large its expressions are."""

from __future__ import annotations

from veredus.matching import Filter

REGEX_NS = 4_000_000
"""What a large regular expression costs to compile; measured, roughly."""
FILTER_NS_MAX = 40_000_000
"""What all of one filter cost at most: see `INSTRUCTION_COUNT_MAX`."""


def compiling_cost_of(wanted: Filter | None) -> int:
    """An estimate in nanoseconds."""
    if wanted is None:
        return 0
    count = sum(1 for text in wanted.keys if text.startswith("regex:"))
    return min(count * REGEX_NS, FILTER_NS_MAX)
