"""Where a page of a list ended, as whoever asked for it may know it.

A page may end at something that the principal may not see: its name must not be read from where the next page begins.
Such a place is sealed with a key of this process, and means nothing to another one.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b, shake_256
from typing import TypeAlias

import msgspec

from veredus.kernel.errors import Refused

Place: TypeAlias = tuple[str, ...]
"""Where a row stands in a list: the name of a stream or a sink, then of what belongs to it."""
PARTS = {"subscription.list": 3, "subscription.left": 3}
"""Of how many parts a place in such a list is; in any other, of one."""
_MARK_SIZE = 16
_decode = msgspec.msgpack.Decoder(Place).decode


class Places:
    """Owns the key that seals places."""

    __slots__ = ("_ids", "_key")

    def __init__(self, ids: Callable[[], bytes]) -> None:
        """`ids` gives 16 random bytes at each call."""
        self._ids = ids
        self._key = b""

    def shown(self, place: Place, may_see: bool) -> list[str] | bytes:
        """The place, sealed unless whoever is told `may_see` what is there."""
        if may_see:
            return list(place)
        data = msgspec.msgpack.encode(place)
        mark = self._mark(data)
        return mark + self._crossed(mark, data)

    def read(self, verb: str, given: object) -> Place:
        """The place that `shown` had said. Raises `Refused("bad-request")` for anything else."""
        place = self._place_in(given)
        if len(place) == PARTS.get(verb, 1):
            return place
        message = f"{verb} needs as `after` the value of `next` in the page before: ask for the first page again"
        raise Refused("bad-request", message)

    def _place_in(self, given: object) -> Place:
        try:
            if not isinstance(given, bytes):
                return msgspec.convert(given, Place)
            mark, crossed = given[:_MARK_SIZE], given[_MARK_SIZE:]
            data = self._crossed(mark, crossed)
            return _decode(data) if self._mark(data) == mark else ()
        except msgspec.MsgspecError:
            return ()

    def _mark(self, data: bytes) -> bytes:
        self._key = self._key or self._ids()
        return blake2b(data, key=self._key, digest_size=_MARK_SIZE).digest()

    def _crossed(self, mark: bytes, data: bytes) -> bytes:
        self._key = self._key or self._ids()
        stream = shake_256(self._key + mark).digest(len(data))
        return bytes(one ^ other for one, other in zip(data, stream, strict=True))
