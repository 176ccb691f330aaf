"""What was gone of other streams before they were merged into one, as far as somebody is still to be told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from veredus.delivery.settlement import Range

from .facts import Lost
from .ranges import joined, without


def but_for(lost: Iterable[Lost], known: Iterable[Lost]) -> Iterator[Lost]:
    """What is lost and not known."""
    ranges: dict[bytes, list[Range]] = {}
    for one in known:
        ranges.setdefault(one.incarnation, []).append((one.first, one.last))
    for one in lost:
        for bounds in without(((one.first, one.last),), joined(ranges.get(one.incarnation, ()))):
            yield Lost(one.incarnation, *bounds)
