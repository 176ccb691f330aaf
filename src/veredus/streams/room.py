"""How much each owner has left of what takes long to count, as the streams that its commits name.

What was counted stands for as long as there is room for what came since. Where there is none it is counted again, since
some may have gone; and whoever asks again and again is not counted for each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

RECOUNTED_NS = 100_000_000
"""How soon an owner without room is counted again while nothing of anybody's was removed."""

Amounts: TypeAlias = tuple[int, int]
"""How many, and how large they are together."""


class _Counted(NamedTuple):
    left: Amounts
    removed_count: int
    at_ns: int


class Room:
    """Owns what is left to each owner, at least; "" is all that prove nothing."""

    __slots__ = ("_counted", "_left_of")

    def __init__(self, left_of: Callable[[str], Amounts]) -> None:
        """`left_of(owner)` counts."""
        self._left_of = left_of
        self._counted: dict[str, _Counted] = {}

    def take(self, owner: str, wanted: Amounts, removed_count: int, now_ns: int) -> Amounts:
        """What is left to the owner, who takes what is wanted if there is enough of both.

        `removed_count` is another one whenever something was removed.
        """
        counted = self._counted.get(owner)
        if counted is None or (not _is_in(wanted, counted.left) and _is_old(counted, removed_count, now_ns)):
            counted = _Counted(self._left_of(owner), removed_count, now_ns)
        left = counted.left
        if _is_in(wanted, left):
            self._counted[owner] = counted._replace(left=(left[0] - wanted[0], left[1] - wanted[1]))
        else:
            self._counted[owner] = counted
        return left

    def forget(self, owner: str) -> None:
        """The owner has more than it has taken."""
        self._counted.pop(owner, None)


def _is_in(wanted: Amounts, left: Amounts) -> bool:
    """Whether there is enough of all of which something is wanted."""
    return all(one <= most for one, most in zip(wanted, left, strict=True) if one)


def _is_old(counted: _Counted, removed_count: int, now_ns: int) -> bool:
    return removed_count != counted.removed_count or now_ns - counted.at_ns >= RECOUNTED_NS
