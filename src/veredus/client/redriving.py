"""Moving dead letters back to the streams that they came from, each once.

A dead letter is published again to its stream by a source that is named after the stream of dead letters, with a resume
token that says which dead letter was the last. So whoever begins again after a crash goes on behind it, and what was
moved and not confirmed is recognised by its number. What was moved stays there until that stream is trimmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from veredus.kernel.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .blocking import Node
    from .publication import Publication

PREFIX = "veredus."
SOURCE_PREFIX = "redrive/"
FLUSH_COUNT = 500
"""After so many of one stream a resume token is stored."""


class Place(msgspec.Struct, frozen=True):
    """A resume token: the dead letter that was moved last, and the incarnation of their stream."""

    incarnation: bytes
    sequence: int


class _Target:
    """Owns the way back to one stream."""

    def __init__(self, node: Node, stream: str, letters: Mapping[str, Any]) -> None:
        name, floor = str(letters["name"]), int(letters["floor"])
        self._incarnation: bytes = letters["incarnation"]
        self._publisher = node.publisher(stream, source=SOURCE_PREFIX + name, resume="token")
        token = self._publisher.resume_token
        place = msgspec.msgpack.decode(token, type=Place) if token else Place(b"", 0)
        self._moved_to = place.sequence if place.incarnation == self._incarnation else 0
        self.count = 0
        self._last = 0
        self._open_count = 0
        if self._publisher.last_number > self._publisher.resume_number and floor > self._moved_to + 1:
            self._publisher.close()
            message = (
                f"some dead letters of {name!r} may have been moved to {stream!r} and then trimmed:"
                f" letters above {self._moved_to} can no longer be moved exactly once"
            )
            raise Refused("letters-trimmed", message, moved_to=self._moved_to, floor=floor)

    def move(self, letter: Publication) -> None:
        """Publish it, unless it was moved before."""
        if letter.sequence <= self._moved_to:
            return
        own = {name: value for name, value in letter.attributes.items() if not name.startswith(PREFIX)}
        self._publisher.publish(letter.key, letter.body, own or None, letter.event_time)
        self._last = letter.sequence
        self.count += 1
        self._open_count += 1
        if self._open_count >= FLUSH_COUNT:
            self._store_place()

    def _store_place(self) -> None:
        if self._open_count:
            self._open_count = 0
            place = Place(self._incarnation, self._last)
            self._publisher.flush(msgspec.msgpack.encode(place), wait=False)

    def close(self) -> None:
        """Wait until all is moved."""
        self._store_place()
        self._publisher.close()


def redrive(node: Node, name: str) -> dict[str, int]:
    """Move the dead letters in the stream `name`, up to its present end, back; how many went to which stream.

    What is no dead letter is passed over. Raises what publishing and subscribing raise, and
    `Refused("letters-trimmed")` where it cannot be known any more what was moved.
    """
    letters = node.streams.show(name)
    targets: dict[str, _Target] = {}
    with node.subscribe(name, until=int(letters["head"]) + 1, on_gap=lambda _: None) as subscription:
        for letter in subscription if letters["head"] else ():
            stream = letter.attributes.get(f"{PREFIX}stream")
            if isinstance(stream, str) and stream:
                target = targets.get(stream) or targets.setdefault(stream, _Target(node, stream, letters))
                target.move(letter)
    for target in targets.values():
        target.close()
    return {stream: target.count for stream, target in targets.items()}
