"""Which lives of a name are over for good: those of the streams that were removed, and of what was merged into them.

Of a stream that was removed nothing is owed any more. So whoever names a publication of it, as clients of topics do
with the last one that they got, has not come too early: it is passed over. A stream that was *given* to another node
is deleted too, but what it held is owed there: it is not among these.

Whoever may create and delete streams can make a node remember: so it remembers `LIVES_MAX` lives in all, and
`OF_NAME_MAX` of one name and creator. Where the former is reached, the creator whose lives are most loses the name that
was removed the longest ago, and where the latter is, the oldest life: then nobody can tell any more that what is named
is over. So each creator keeps an even share, whatever others create and delete, also under the same name.
Source: docs/decisions/0012; docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections.abc import Iterable

from .departures import Lengths
from .lives import Lives
from .stream import Stream

GIVEN = "topics-given"
"""The name of a subscription that marks its stream: what it holds may be another node's by now."""
LIVES_MAX = 10_000
OF_NAME_MAX = 256
"""Of so many lives, too, it is known that they were merged into one stream."""

NOT_REMOVED_HERE = (
    "it was deleted long ago or given to another node, or this node runs on another directory than before"
    " (`node-ready` in its log names the directory)"
)
"""Why a stream may not be there that the node does not remember to have removed."""


class Removed:
    """Owns what is remembered of streams that are gone."""

    __slots__ = ("_by_creator", "_by_name", "_lengths")

    def __init__(self) -> None:
        """No stream was removed yet."""
        self._by_creator: dict[str, dict[str, tuple[bytes, ...]]] = {}
        """By creator and name; what was removed last stands last, and so does the newest of its lives."""
        self._by_name: dict[str, dict[str, None]] = {}
        """Who created streams of a name that are remembered; who lost one last stands last."""
        self._lengths: Lengths[str] = Lengths()
        """By creator, how many lives are remembered."""

    def note(self, name: str, lives: Iterable[bytes], creator: str) -> None:
        """A stream of this name and creator was removed, whose lives these were, the newest last."""
        known = self._take(name, creator)
        self._keep(name, creator, with_more(known, lives))
        while self._lengths.sum > LIVES_MAX:
            most = self._lengths.longest()
            self._take(next(iter(self._by_creator[most])), most)

    def _keep(self, name: str, creator: str, lives: tuple[bytes, ...]) -> None:
        names = self._by_creator.setdefault(creator, {})
        names[name] = lives
        self._by_name.setdefault(name, {})[creator] = None
        self._lengths.put(creator, self._lengths.of(creator) + len(lives))

    def _take(self, name: str, creator: str) -> tuple[bytes, ...]:
        """Forget the lives of a name and a creator, () for none; these are they."""
        names = self._by_creator.get(creator, {})
        lives = names.pop(name, ())
        if lives:
            self._lengths.put(creator, self._lengths.of(creator) - len(lives))
            del self._by_name[name][creator]
            if not self._by_name[name]:
                del self._by_name[name]
            if not names:
                del self._by_creator[creator]
        return lives

    def of(self, name: str) -> tuple[bytes, ...]:
        """The lives of removed streams of this name; the newest of each creator last."""
        return tuple(life for creator in self._by_name.get(name, ()) for life in self._by_creator[creator][name])

    def has(self, name: str, life: bytes = b"") -> bool:
        """Whether a stream of this name was removed: the one of this life, or with b"" any."""
        return any(life in (b"", known) for known in self.of(name))

    def rows(self) -> list[tuple[str, tuple[bytes, ...], str]]:
        """All that is remembered: names, lives and creators; of each creator, the name that was removed last behind."""
        return [(name, lives, creator) for creator, names in self._by_creator.items() for name, lives in names.items()]


def lives_in(stream: Stream) -> tuple[bytes, ...]:
    """The lives of a stream and, before them, of the streams that were merged into it."""
    return with_more(stream.merged, (life for life, _ in Lives.of(stream.incarnation, stream.terms).known))


def with_more(known: Iterable[bytes], lives: Iterable[bytes]) -> tuple[bytes, ...]:
    """Lives of one name once each, those that were named last behind, and no more of them than may be."""
    more = dict.fromkeys(lives)
    return (*(life for life in known if life not in more), *more)[-OF_NAME_MAX:]
