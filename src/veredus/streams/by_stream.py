"""Tables of what belongs to streams: who asks for that of one looks at nothing of the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class ByStream(Generic[Key, Item]):
    """Owns items by their stream, and by the key that each has there."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        """Nothing belongs to any stream yet."""
        self._streams: dict[int, dict[Key, Item]] = {}

    def of(self, stream_id: int) -> Mapping[Key, Item]:
        """What belongs to a stream, in the order in which it came."""
        return MappingProxyType(self._streams.get(stream_id, {}))

    def put(self, stream_id: int, key: Key, item: Item) -> None:
        """This belongs to the stream, in place of what has the key."""
        self._streams.setdefault(stream_id, {})[key] = item

    def take(self, stream_id: int, key: Key) -> Item | None:
        """What has the key, taken out; None where there is nothing."""
        items = self._streams.get(stream_id)
        item = None if items is None else items.pop(key, None)
        if items is not None and not items:
            del self._streams[stream_id]
        return item

    def values(self) -> Iterator[Item]:
        """What belongs to any stream."""
        for items in self._streams.values():
            yield from items.values()
