"""What one channel of a native link is, and the numbers that channels have had."""

from __future__ import annotations

from dataclasses import dataclass

from veredus.kernel.symbol import Symbol


class Role(Symbol):
    """What a channel is for."""

    SOURCE = "source"
    SUBSCRIPTION = "subscription"
    RUN = "run"
    STAGE = "stage"


@dataclass(slots=True)
class Channel:
    """One that was opened."""

    role: Role
    is_open: bool = False
    credit: int = 0
    """What a subscription is given once it can be told that the link is congested."""


class Begun:
    """The numbers on which a channel was ever opened, a bit each: what is said on another is no latecomer."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        """None yet."""
        self._bits = 0

    def add(self, number: int) -> None:
        """A channel has this number, 1 to 65,535."""
        self._bits |= 1 << number

    def __contains__(self, number: int) -> bool:
        return self._bits >> number & 1 == 1
