"""Which lives of a name are over for good: those of the streams that were removed, and of what was merged into them.

Of a stream that was removed nothing is owed any more. So whoever names a publication of it, as clients of topics do
with the last one that they got, has not come too early: it is passed over. A stream that was *given* to another node
is deleted too, but what it held is owed there: it is not among these.

Whoever may create and delete streams can make a node remember: so it remembers `LIVES_MAX` lives in all, and
`OF_NAME_MAX` of one name. Where that is reached, the name that was removed the longest ago is forgotten, or its oldest
life: then nobody can tell any more that what is named is over.
Source: docs/decisions/0012; docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections.abc import Iterable

from .lives import Lives
from .stream import Stream

GIVEN = "topics-given"
"""The name of a subscription that marks its stream: what it holds may be another node's by now."""
LIVES_MAX = 10_000
OF_NAME_MAX = 16


class Removed:
    """Owns what is remembered of streams that are gone."""

    __slots__ = ("_by_name", "_count")

    def __init__(self) -> None:
        """No stream was removed yet."""
        self._by_name: dict[str, tuple[bytes, ...]] = {}
        """The name that was removed last stands last, and so does the newest of its lives."""
        self._count = 0

    def note(self, name: str, lives: Iterable[bytes]) -> None:
        """A stream of this name was removed, whose lives these were, the newest last."""
        known = self._by_name.pop(name, ())
        kept = tuple(dict.fromkeys((*known, *lives)))[-OF_NAME_MAX:]
        self._by_name[name] = kept
        self._count += len(kept) - len(known)
        while self._count > LIVES_MAX:
            self._count -= len(self._by_name.pop(next(iter(self._by_name))))

    def of(self, name: str) -> tuple[bytes, ...]:
        """The lives of removed streams of this name, the newest last."""
        return self._by_name.get(name, ())

    def rows(self) -> list[tuple[str, tuple[bytes, ...]]]:
        """All that is remembered, the name that was removed last at the end."""
        return list(self._by_name.items())


def lives_in(stream: Stream) -> tuple[bytes, ...]:
    """The lives of a stream and, before them, of the streams that were merged into it, as its subscriptions know."""
    merged = {
        origin.incarnation: None for subscription in stream.subscriptions.values() for origin in subscription.origins
    }
    own = [life for life, _ in Lives.of(stream.incarnation, stream.terms).known]
    return (*(life for life in sorted(merged) if life not in own), *own)
