"""Heralds: what becomes of the announcements of a server on their way to the proxies, in a world of topics.

A network may lose an announcement, bring it late, also behind a newer one, or bring only the newest of several. And a
server may be one that holds back what it has to tell while it waits for an answer. Whatever a proxy knows by then, no
message is lost or doubled.

    Ask PERIODIC ──► lost │ late, perhaps behind a newer one │ held back: the newest, once the one before is answered
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from .dice import Die
from .world import MILLISECOND, SECOND, World

Send = Callable[[str, int, bytes], None]
"""Ask whoever listens at an address something, under a token."""


class HeraldTemper(NamedTuple):
    """How announcements of one world fare: probabilities by announcement, and how long some wait at most."""

    loses: float = 0.0
    delays: float = 0.0
    holds: float = 0.0
    """How often one that comes while another is not answered waits for that."""
    wait_max_ns: int = SECOND


def drawn_temper(die: Die, period_ns: int) -> HeraldTemper:
    """In seven of ten worlds all announcements go as they come."""
    if die.chance(0.7):
        return HeraldTemper()
    return HeraldTemper(
        loses=die.uniform(0.1, 0.9) if die.chance(0.4) else 0.0,
        delays=die.uniform(0.1, 0.9) if die.chance(0.4) else 0.0,
        holds=die.uniform(0.3, 1.0) if die.chance(0.6) else 0.0,
        wait_max_ns=die.spread(10 * MILLISECOND, 3 * period_ns),
    )


@dataclass(slots=True)
class _Unanswered:
    """A proxy was told something under `token`, and has not answered."""

    token: int
    newest: tuple[int, bytes] | None = None
    """What it is to be told then."""


class Herald:
    """Owns what one process of a server announces, until it is on its way."""

    def __init__(self, world: World, die: Die, temper: HeraldTemper, send: Send) -> None:
        """Nothing was announced yet."""
        self._world = world
        self._die = die
        self._temper = temper
        self._send = send
        self._unanswered: dict[str, _Unanswered] = {}
        """By proxy."""
        self.is_open = True

    def announce(self, proxy: str, token: int, data: bytes) -> None:
        """A server tells a proxy what it has."""
        die, temper, counts = self._die, self._temper, self._world.counts
        unanswered = self._unanswered.get(proxy)
        if die.chance(temper.loses):
            counts["fault.announcement-lost"] += 1
        elif die.chance(temper.delays):
            counts["fault.announcement-late"] += 1
            self._later(lambda: self._send(proxy, token, data))
        elif unanswered is not None and die.chance(temper.holds):
            counts["fault.announcement-held"] += 1
            unanswered.newest = token, data
        else:
            self._tell(proxy, token, data)

    def answered(self, token: int) -> None:
        """Whoever was told something under a token has answered, if it was an announcement."""
        for proxy, unanswered in self._unanswered.items():
            if unanswered.token == token:
                self._go_on(proxy, unanswered)
                return

    def _tell(self, proxy: str, token: int, data: bytes) -> None:
        unanswered = self._unanswered[proxy] = _Unanswered(token)
        self._send(proxy, token, data)
        self._later(lambda: self._go_on(proxy, unanswered))

    def _go_on(self, proxy: str, unanswered: _Unanswered) -> None:
        """It is answered, or was waited for long enough."""
        if self._unanswered.get(proxy) is unanswered:
            del self._unanswered[proxy]
            if unanswered.newest is not None:
                self._tell(proxy, *unanswered.newest)

    def _later(self, action: Callable[[], None]) -> None:
        self._world.after(
            self._die.spread(MILLISECOND, self._temper.wait_max_ns), lambda: action() if self.is_open else None
        )

    def rest(self) -> None:
        """All goes as it comes from now on; what waits comes soon."""
        self._temper = HeraldTemper(wait_max_ns=self._temper.wait_max_ns)
