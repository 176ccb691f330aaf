"""Moving dead letters back to the streams that they came from, each once.

A dead letter is published again to its stream by a source that is named after the stream of dead letters, with a resume
token that says which dead letter was the last. So whoever begins again after a crash goes on behind it, and what was
moved and not confirmed is recognised by its number. What was moved stays there until that stream is trimmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veredus.delivery.redriving import PREFIX, Return, source_of

from .arguments import check_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .blocking import Node
    from .publication import Publication
    from .wanting import Gap

FLUSH_COUNT = 500
"""After so many of one stream a resume token is stored."""


class _Target:
    """Owns the way back to one stream."""

    def __init__(self, node: Node, stream: str, letters: Mapping[str, Any], gaps: Sequence[Gap]) -> None:
        name = str(letters["name"])
        self._publisher = node.publisher(stream, source=source_of(name, letters["incarnation"]), resume="token")
        publisher = self._publisher
        self._return = Return(name, stream, publisher.resume_token, publisher.resume_number, publisher.last_number)
        self._open_count = 0
        self._return.miss(1, int(letters["floor"]) - 1, "trimmed")
        for gap in gaps:
            self.miss(gap)

    @property
    def count(self) -> int:
        """How many were moved."""
        return self._return.count

    def miss(self, gap: Gap) -> None:
        """Letters are gone. Raises `Refused("letters-lost")` where it cannot be known any more what was moved."""
        self._return.miss(gap.first_sequence, gap.next_sequence - 1, gap.code)

    def move(self, letter: Publication) -> None:
        """Publish it, unless it was moved before."""
        if not self._return.is_due(letter.sequence):
            return
        own = {name: value for name, value in letter.attributes.items() if not name.startswith(PREFIX)}
        self._publisher.publish(letter.key, letter.body, own or None, letter.event_time)
        self._open_count += 1
        if self._open_count >= FLUSH_COUNT:
            self._store_place()

    def _store_place(self) -> None:
        if self._open_count:
            self._open_count = 0
            self._publisher.flush(self._return.token, wait=False)

    def close(self) -> None:
        """Wait until all is moved."""
        self._store_place()
        self._publisher.close()


def redrive(node: Node, name: str) -> dict[str, int]:
    """Move the dead letters in the stream `name`, up to its present end, back; how many went to which stream.

    What is no dead letter is passed over. Raises what publishing and subscribing raise, and
    `Refused("letters-lost")` where it cannot be known any more what was moved.
    """
    check_name("stream for dead letters", name)
    letters = node.streams.show(name)
    targets: dict[str, _Target] = {}
    gaps: list[Gap] = []
    known = 0
    with node.subscribe(name, until=int(letters["head"]) + 1, on_gap=gaps.append) as subscription:
        for letter in subscription if letters["head"] else ():
            while known < len(gaps) and gaps[known].first_sequence < letter.sequence:
                for begun in targets.values():
                    begun.miss(gaps[known])
                known += 1
            stream = letter.attributes.get(f"{PREFIX}stream")
            if isinstance(stream, str) and stream:
                target = targets.get(stream)
                if target is None:
                    target = targets[stream] = _Target(node, stream, letters, gaps[:known])
                target.move(letter)
    for begun in targets.values():
        begun.close()
    return {stream: target.count for stream, target in targets.items()}
