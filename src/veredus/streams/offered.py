"""What a source waits for: an epoch or a batch on its way to the journal, and what is said and undone by its answer.

Source: docs/internals/DESIGN.md, "Sources".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from veredus.delivery.batch import BatchHeader
from veredus.journal.exchange import Entry
from veredus.kernel.engine import Now

from .exchange import Durability
from .source import SourceState
from .tables import Stage

if TYPE_CHECKING:
    from .publishing import Attachment, Publishing


@dataclass(slots=True)
class OpenedSource:
    """An epoch of a source, for an attachment."""

    publishing: Publishing
    attachment: Attachment
    source: SourceState
    incarnation: bytes
    owner: str

    def become_durable(self, durability: Durability, now: Now) -> None:
        """It is in the journal."""
        self.source.become_granted(self.attachment.epoch, self.incarnation, self.owner)
        self.publishing.granted(self.attachment, self.source, durability)

    def fail(self, code: str, reason: str, now: Now) -> None:
        """The journal did not take it."""
        self.source.undo_open(self.attachment.epoch)
        self.publishing.attach_failed(self.attachment, code, reason)


@dataclass(slots=True)
class OfferedBatch:
    """A batch that comes next."""

    publishing: Publishing
    attachment: Attachment
    header: BatchHeader
    entry: Entry
    before: int
    """The source's last number when this one was offered: a sparse one's is not the number below it."""

    def become_durable(self, durability: Durability, now: Now) -> None:
        """It is in the journal."""
        self.publishing.batch_durable(self.attachment, self.header, self.entry, durability)

    def fail(self, code: str, reason: str, now: Now) -> None:
        """The journal did not take it."""
        self.publishing.batch_failed(self.attachment, self.header, self.entry, self.before, code, reason)


@dataclass(slots=True)
class OfferedStaged:
    """A batch of a stage."""

    publishing: Publishing
    attachment: Attachment
    stage: Stage
    header: BatchHeader

    def become_durable(self, durability: Durability, now: Now) -> None:
        """It is in the journal."""
        self.stage.count_durable += self.header.count
        self.publishing.tell_taken(self.attachment, self.header.last_number, 0, False, durability)

    def fail(self, code: str, reason: str, now: Now) -> None:
        """The journal did not take it."""
        self.stage.count_assigned -= self.header.count
        self.attachment.number = min(self.attachment.number, self.header.first_number - 1)
        self.publishing.tell_failed(self.attachment, self.header.first_number, code, reason)


@dataclass(slots=True)
class OfferedAgain:
    """Nothing of its own: a batch that was there before, or that is on its way before this."""

    publishing: Publishing
    attachment: Attachment
    last: int
    count: int

    def become_durable(self, durability: Durability, now: Now) -> None:
        """It is in the journal."""
        source = self.attachment.source
        assert source is not None
        if source.last_durable < self.last:
            self.publishing.tell_failed(
                self.attachment, self.last - self.count + 1, "disk-full", "the batch it repeats was not stored"
            )
            return
        self.publishing.count_duplicate()
        sequence = source.sequence_of(self.last)
        first = sequence - self.count + 1 if sequence >= self.count else 0
        self.publishing.tell_taken(self.attachment, self.last, first, True, durability)

    def fail(self, code: str, reason: str, now: Now) -> None:
        """The journal did not take it."""
        self.publishing.tell_failed(self.attachment, self.last - self.count + 1, code, reason)
