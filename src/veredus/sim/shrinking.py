"""Cuts a failing world down to what its failure needs: who may be left out, which strikes, how much is published.

A world that is cut is another world: what is left happens at other moments. So a cut is kept if the world still fails
by the same oracle, whatever the message; and each try starts from the seed.
Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): by halves, then one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from .running import Outcome
from .workloads import Part

RUN_COUNT_MAX = 200
"""How many worlds are tried at most."""
FEWER = (1, 2, 5, 10, 20, 50, 100, 200)
"""How many publications of a source are tried, the fewest first."""

_T = TypeVar("_T", str, int)
Run = Callable[[Part], Outcome]


class Shrinking:
    """Owns the smallest part of one world that is known to fail."""

    def __init__(self, run: Run, outcome: Outcome) -> None:
        """`outcome`: how the whole world failed; `run` tries a part of it."""
        self._run = run
        self._oracle = outcome.oracle
        self._rest = RUN_COUNT_MAX
        self.part = Part()
        self.outcome = outcome

    def shrink(self) -> None:
        """Leave out whatever the failure does not need."""
        names = self.outcome.names
        self._keep(names, lambda kept: self.part._replace(without=frozenset(names) - frozenset(kept)))
        strikes = [number for number, _ in self.outcome.strikes]
        self._keep(strikes, lambda kept: self.part._replace(strikes=frozenset(kept)))
        for count in FEWER:
            if self._rest and self._still_fails(self.part._replace(publications=count)):
                break

    def _keep(self, all_of: Sequence[_T], part_of: Callable[[Sequence[_T]], Part]) -> None:
        kept, size = list(all_of), max(1, len(all_of) // 2)
        while kept and self._rest:
            start, has_shrunk = 0, False
            while start < len(kept) and self._rest:
                fewer = kept[:start] + kept[start + size :]
                if self._still_fails(part_of(fewer)):
                    kept, has_shrunk = fewer, True
                else:
                    start += size
            if size == 1 and not has_shrunk:
                break
            size = max(1, size // 2)

    def _still_fails(self, part: Part) -> bool:
        self._rest -= 1
        outcome = self._run(part)
        if not outcome.violation or outcome.oracle != self._oracle:
            return False
        self.part, self.outcome = part, outcome
        return True
