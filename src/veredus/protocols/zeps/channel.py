"""What one channel of a native link is, the numbers that channels have had, and which wait for answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veredus.kernel.symbol import Symbol

REQUESTS_MAX: Final = 256
"""So many are not answered yet at most: those that wait for the disk are all answered at once, in one piece."""


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


class Awaited:
    """How many answers are to come that may say where a whole commit lies, by the channel of the run.

    They come all at once when the disk has done what is before them, and they may be large: so few are asked for at a
    time, and what the peer says behind them waits.
    """

    COUNT_MAX: Final = 16
    """More than a client waits for on one link; and each of them has what one commit names at most."""
    __slots__ = ("_by_channel", "count")

    def __init__(self) -> None:
        """None yet."""
        self._by_channel: dict[int, int] = {}
        self.count = 0

    def is_full(self) -> bool:
        """Whether nothing more is to be asked for until one has come."""
        return self.count >= self.COUNT_MAX

    def add(self, number: int) -> None:
        """Something was asked for on this channel, which is a run's."""
        self._by_channel[number] = self._by_channel.get(number, 0) + 1
        self.count += 1

    def take(self, number: int) -> None:
        """An answer has come on this channel; nothing changes for one that is no run's."""
        left = self._by_channel.pop(number, 0) - 1
        self.count -= left >= 0
        if left > 0:
            self._by_channel[number] = left

    def forget(self, number: int) -> None:
        """The channel has ended, and whatever comes on it is dropped."""
        self.count -= self._by_channel.pop(number, 0)
