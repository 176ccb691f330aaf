"""The lives of a stream: the one that it was made with, and one more each time that its end was lost.

    sequence   1 … 8 │ 9 10        the journal is put back to a copy that ends at 8
    life       made  │ made        what 9 and 10 meant is gone
               made  │ a new one   9 and 10 are given again, and mean something else

What names a message for good, an id or how far a merge has come, names the life beside the sequence, so that what is
given again is never taken for what was lost. All lives of a stream begin alike, so that it knows its own again, also
one that was lost as a whole: an older copy was put back.
Source: docs/internals/DESIGN.md, "Recovery".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import blake2b
from operator import itemgetter

from veredus.kernel.names import U63_MAX

_FIRST_TERM = 1
_SIZE = 16
TAG_SIZE = 4
"""So many bytes all lives of a stream begin with."""


class Lives:
    """`known` are the lives and the sequences with which they begin, ascending; at least one."""

    __slots__ = ("known",)

    def __init__(self, known: Iterable[tuple[bytes, int]]) -> None:
        self.known = tuple(known)

    @classmethod
    def of(cls, incarnation: bytes, terms: Iterable[tuple[int, int]] = ()) -> Lives:
        """Those of the stream of this incarnation, with its terms and the first sequence of each."""
        return cls([(_life(incarnation, term), first) for term, first in terms] or [(incarnation, 1)])

    @property
    def present(self) -> bytes:
        """The life that lasts."""
        return self.known[-1][0]

    def at(self, sequence: int) -> bytes:
        """The life to which what lies at a sequence belongs."""
        return self.known[self._index(sequence)][0]

    def last_with(self, sequence: int) -> int:
        """The last sequence that may belong to the same life as this one."""
        following = self._index(sequence) + 1
        return self.known[following][1] - 1 if following < len(self.known) else U63_MAX

    @property
    def tag(self) -> bytes:
        """What each life of this stream begins with, and hardly any of another."""
        return self.present[:TAG_SIZE]

    def __contains__(self, life: bytes) -> bool:
        return any(life == known for known, _ in self.known)

    def _index(self, sequence: int) -> int:
        return max(0, bisect_right(self.known, sequence, key=itemgetter(1)) - 1)


def _life(incarnation: bytes, term: int) -> bytes:
    if term == _FIRST_TERM:
        return incarnation
    return incarnation[:TAG_SIZE] + blake2b(incarnation + term.to_bytes(8), digest_size=_SIZE - TAG_SIZE).digest()
