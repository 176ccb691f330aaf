"""What a proxy has handed on and is not answered yet, by who asked: who has much on its way waits for answers first.

    may take some ── taken ──► on its way ── answered ──► its room is free, and whoever waited is looked at again
      └── none: the link waits, and is not read from

Whatever is asked faster than it is answered would wait somewhere: at the servers and on the way to them, where it keeps
everybody else waiting, and is given up when it was nearly done. So it waits where it comes from. What one payer has on
its way is at most what is left of the room of all, and of that what one link has at most what is left to its payer: so
n that are greedy leave as much as each of them has, also to another link of the same payer.

Invariants
    (1) A payer that has nothing on its way may always ask for something.
    (2) Whoever waits is looked at again once something was answered, payers in turn, and links of one in turn.
    (3) What is on its way of all is counted with its payers, and with its links.
Source: dynamic thresholds (Choudhury and Hahne, 1998), as in `veredus.node.accounts`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from .accounts import Share

AT_ONCE_MAX = 256
"""So much may be on its way of all. A server answers some thousands a second, so what waits in front of anybody's is a
small part of the time for which an answer is waited for."""
LOOKED_MAX = 64
"""So many payers that wait, and links of one, are looked at for one answer."""

P = TypeVar("P", bound=Hashable)
L = TypeVar("L", bound=Hashable)


class HandedOn(Generic[P, L]):
    """Owns how much each payer, and each link, has on its way, and which links wait until that is less."""

    def __init__(self, most: int = AT_ONCE_MAX) -> None:
        """Nothing is on its way; at most `most` is, but for the first of each payer."""
        self._payers: Share[P] = Share(most)
        self._links: Share[L] = Share(most)
        self._waiting: dict[P, dict[L, None]] = {}
        self._payer_of: dict[L, P] = {}
        """Of each link that waits."""

    def room(self, payer: P, link: L) -> int:
        """How much of the link may be taken now: each leaves one less to all, to its payer, and to itself."""
        left = self._left(payer) - self._links.held(link)
        return max(-(-left // 3), 0 if self._payers.held(payer) else 1)

    def _left(self, payer: P) -> int:
        return self._payers.most - self._payers.size - self._payers.held(payer)

    def take(self, payer: P, link: L) -> None:
        """Something of the link is on its way."""
        self._payers.take(payer, 1)
        self._links.take(link, 1)

    def answer(self, payer: P, link: L) -> bool:
        """It was answered, though the link may be gone. Whether anybody waits who is to be looked at."""
        self._payers.give_back(payer, 1)
        self._links.give_back(link, 1)
        return bool(self._waiting)

    def wait(self, payer: P, link: L) -> None:
        """There is no room for the link: it is one of `ready` when there is."""
        if link not in self._payer_of:
            self._payer_of[link] = payer
            self._waiting.setdefault(payer, {})[link] = None

    def forget(self, link: L) -> None:
        """The link waits no more: it is gone. What it has on its way is counted until it is answered."""
        payer = self._payer_of.pop(link, None)
        if payer is not None:
            links = self._waiting[payer]
            del links[link]
            if not links:
                del self._waiting[payer]

    def ready(self) -> Iterator[L]:
        """Links for which there is room, one by one; they wait no more."""
        for payer in list(islice(self._waiting, LOOKED_MAX)):
            links = self._waiting.pop(payer, None)
            if links is None:
                continue
            # Behind the others, who are looked at first the next time.
            self._waiting[payer] = links
            for link in list(islice(links, LOOKED_MAX)):
                if link not in links:
                    continue
                if self.room(payer, link):
                    self.forget(link)
                    yield link
                elif self._left(payer) > 0:
                    del links[link]
                    links[link] = None
                else:
                    break

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        self._payers.check()
        self._links.check()
        assert self._payers.size == self._links.size, "(3)"
        waiting = [(link, payer) for payer, links in self._waiting.items() for link in links]
        assert dict(waiting) == self._payer_of
        assert all(self._waiting.values())
