"""Moving dead letters back to the streams that they came from, each once.

A dead letter is published again to its stream by a source that is named after the stream of dead letters. So many
letters as make one batch go together with a resume token that says which was the last: the stream has all of them and
the token, or nothing. So whoever begins again after a crash goes on behind it, and what was moved and not confirmed is
recognised by its number. What was moved stays there until that stream is trimmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veredus.delivery.redriving import PREFIX, Return, source_of
from veredus.kernel.errors import Refused
from veredus.kernel.words import spanned

from .arguments import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .blocking import Node
    from .given import Attributes
    from .publication import Publication
    from .wanting import Gap

BATCH_COUNT, BATCH_SIZE = 500, 64 << 10
"""So many letters of one stream, of so many bytes, go together: few enough to be a batch wherever they go."""


class _Target:
    """Owns the way back to one stream."""

    def __init__(self, node: Node, stream: str, letters: Mapping[str, Any]) -> None:
        name = str(letters["name"])
        self._publisher = node.publisher(stream, source=source_of(name, letters["incarnation"]), resume="token")
        publisher = self._publisher
        self._return = Return(name, stream, publisher.resume_token, publisher.resume_number, publisher.last_number)
        self._batch: list[Publication] = []
        self._batch_size = 0
        self.failure: Refused | None = None
        """Why no more is moved there; the other streams' letters are."""
        self.miss(1, int(letters["floor"]) - 1)

    @property
    def count(self) -> int:
        """How many were moved."""
        return self._return.count

    def miss(self, first: int, last: int) -> None:
        """Letters were trimmed: where it cannot be known any more which of them were moved, no more are."""
        try:
            self._return.miss(first, last)
        except Refused as failure:
            self.failure = failure

    def move(self, letter: Publication) -> None:
        """Publish it, unless it was moved before."""
        size = _size_of(letter)
        if len(self._batch) == BATCH_COUNT or self._batch_size + size > BATCH_SIZE:
            self._publish()
        if self.failure is None and self._return.is_due(letter.sequence):
            self._batch.append(letter)
            self._batch_size += size

    def _publish(self) -> None:
        letters = self._batch
        if letters:
            self._publisher.publish_many(
                [letter.key for letter in letters],
                [letter.body for letter in letters],
                [_own_attributes(letter) for letter in letters],
                [letter.event_time for letter in letters],
            )
            self._publisher.flush(self._return.token, wait=False)
            self._batch, self._batch_size = [], 0

    def close(self) -> None:
        """Wait until all is moved."""
        self._publish()
        self._publisher.close()


def _ends_of(gap: Gap) -> tuple[int, int]:
    return gap.first_sequence, gap.next_sequence - 1


def _first_unread(gaps: list[Gap]) -> Gap | None:
    """What is there and cannot be read; what was trimmed is gone by somebody's wish."""
    return next((gap for gap in gaps if gap.code != "trimmed"), None)


def _cannot_read(name: str, gap: Gap) -> Refused:
    first, last = _ends_of(gap)
    message = (
        f"the node cannot read {spanned('dead letter', first, last)} of {name!r} ({gap.code}): all letters before were"
        " moved, and none behind. Redrive again: the node may be able to read it then. If it is not, give it up, with"
        f" what was moved: `veredus stream trim {name} --before {last + 1}`, and redrive once more"
    )
    return Refused("letters-damaged", message, first=first, last=last)


def _size_of(letter: Publication) -> int:
    texts = [value for value in letter.attributes.values() if isinstance(value, str | bytes)]
    return len(letter.key) + len(letter.body) + sum(map(len, texts))


def _own_attributes(letter: Publication) -> Attributes | None:
    """What it had before it became a dead letter."""
    return {name: value for name, value in letter.attributes.items() if not name.startswith(PREFIX)} or None


class _Run:
    """Owns the ways back of one run, and the streams to which no way leads."""

    def __init__(self, node: Node, letters: Mapping[str, Any]) -> None:
        self._node = node
        self._letters = letters
        self._targets: dict[str, _Target] = {}
        self._failures: dict[str, Refused] = {}
        """By stream why its letters stay: those of the others are moved."""
        self._trimmed: list[Gap] = []

    def miss(self, gap: Gap) -> None:
        """Letters were trimmed."""
        self._trimmed.append(gap)
        for target in self._targets.values():
            target.miss(*_ends_of(gap))

    def move(self, letter: Publication) -> None:
        """Move a letter to its stream; nothing else that somebody has published there is one, whatever it says."""
        if letter.batch.header.is_parked:
            stream = str(letter.attributes[f"{PREFIX}stream"])
            self._try(stream, lambda: self._target(stream).move(letter))

    def _target(self, stream: str) -> _Target:
        target = self._targets.get(stream)
        if target is None:
            target = self._targets[stream] = _Target(self._node, stream, self._letters)
            for gap in self._trimmed:
                target.miss(*_ends_of(gap))
        return target

    def _try(self, stream: str, work: Callable[[], None]) -> None:
        if stream not in self._failures:
            try:
                work()
            except Refused as failure:
                name = self._letters["name"]
                message = f"no dead letter of {name!r} is moved to {stream!r} any more: {failure.message}"
                self._failures[stream] = Refused(failure.code, message, **failure.details)

    def close(self) -> dict[str, int]:
        """Wait until all is moved; how many went to which stream. Raises why some could not, once all others have."""
        for stream, target in self._targets.items():
            self._try(stream, target.close)
        for failure in (*self._failures.values(), *(target.failure for target in self._targets.values())):
            if failure is not None:
                raise failure
        return {stream: target.count for stream, target in self._targets.items()}


def redrive(node: Node, name: str) -> dict[str, int]:
    """Move the dead letters in the stream `name`, up to its present end, back; how many went to which stream.

    What is no dead letter is passed over. A letter that the node cannot read stops the run once all before it are
    moved: behind it, nobody would come back for it. Raises what subscribing raises, `Refused("letters-damaged")` then,
    what publishing to a stream raises once the letters of all others are moved, and `Refused("letters-lost")` at the
    end where it cannot be known any more what was moved to one of the streams.
    """
    check_name("stream for dead letters", name)
    letters = node.streams.show(name)
    run = _Run(node, letters)
    gaps: list[Gap] = []
    known = 0
    with node.subscribe(name, until=int(letters["head"]) + 1, on_gap=gaps.append) as subscription:
        for letter in subscription if letters["head"] else ():
            unread = _first_unread(gaps)
            if unread is not None and unread.first_sequence < letter.sequence:
                break
            while known < len(gaps) and gaps[known].first_sequence < letter.sequence:
                run.miss(gaps[known])
                known += 1
            run.move(letter)
    moved = run.close()
    unread = _first_unread(gaps)
    if unread is not None:
        raise _cannot_read(name, unread)
    return moved
