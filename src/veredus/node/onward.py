"""What was asked of a server and is not answered yet, by who asks: one who floods it makes nobody else wait behind him.

A proxy gives a question up that is not answered in time, but the server has it all the same, in the order in which it
came. So what is on the way counts until it is answered, or so old that it was lost. Who has much on the way, the first
of which has waited for as long as an answer is waited for, is not asked for; nor is, where half of what may be
unwritten is, who has anything on the way. Both leave the server, and the connection to it, to the others.

Invariants
    (1) Whoever has nothing on the way may ask.
    (2) What is on the way of one payer stands in the order in which it was asked.
"""

from __future__ import annotations

ALWAYS_COUNT = 16
"""So much of one payer may be on the way, however slow the server is."""
LOST_NS = 10_000_000_000
"""After so long nothing is answered any more."""


class Onward:
    """Owns what is on the way to one server, by payer."""

    __slots__ = ("_by_payer", "_payers", "_wait_max_ns")

    def __init__(self, wait_max_ns: int) -> None:
        """Nothing is on the way; `wait_max_ns` is how long who has much there may have waited."""
        self._wait_max_ns = wait_max_ns
        self._by_payer: dict[str, dict[int, int]] = {}
        """By payer and token, when it was asked first."""
        self._payers: dict[int, str] = {}

    def ask(self, payer: str, token: int, is_filling: bool, now_ns: int) -> bool:
        """Whether the payer's question with this token may be asked now: then it is on the way.

        `is_filling` says that half of what may be unwritten to the server is.
        """
        asked = self._by_payer.get(payer)
        if asked is not None and token not in asked:
            self._forget_lost(asked, now_ns)
            if asked and (is_filling or self._is_slow(asked, now_ns)):
                return False
        self._by_payer.setdefault(payer, {}).setdefault(token, now_ns)
        self._payers[token] = payer
        return True

    def answer(self, token: int) -> None:
        """It was answered. Harmless for what is not on the way."""
        payer = self._payers.pop(token, None)
        if payer is not None:
            asked = self._by_payer[payer]
            del asked[token]
            if not asked:
                del self._by_payer[payer]

    def _is_slow(self, asked: dict[int, int], now_ns: int) -> bool:
        return len(asked) >= ALWAYS_COUNT and now_ns - next(iter(asked.values())) > self._wait_max_ns

    def _forget_lost(self, asked: dict[int, int], now_ns: int) -> None:
        lost = []
        for token, since_ns in asked.items():
            if now_ns - since_ns < LOST_NS:
                break
            lost.append(token)
        for token in lost:
            self.answer(token)

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        assert {token: payer for payer, asked in self._by_payer.items() for token in asked} == self._payers
        assert all(asked and list(asked.values()) == sorted(asked.values()) for asked in self._by_payer.values()), "(2)"
