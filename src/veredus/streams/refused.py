"""A batch that is not taken, by its numbers or by what it is.

Part of the language of veredus.streams.exchange.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchUnfit:
    """A batch was offered that the dialect has read and that can never be taken: `too-large` or `mixed-types`."""

    session: int
    first_number: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RefuseBatch:
    """The batch that starts at `first_number` was not taken; nothing of it is in the stream. The attachment goes on.

    `last_number` is the last one that was taken, or is on its way into the journal. Codes: `gap`, `straddles`,
    `disk-full`, `too-large`, `mixed-types`, `too-busy`.
    """

    session: int
    first_number: int
    code: str
    message: str
    last_number: int
