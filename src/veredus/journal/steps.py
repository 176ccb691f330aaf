"""What recovery and verification order from a host, and what they hand out.

They are generators: an order is yielded, the host carries it out and sends the answer, None for all but `ReadFile`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias

import msgspec

from veredus.delivery.record import RecordView
from veredus.kernel.effects import Note


class ReadFile(msgspec.Struct, frozen=True):
    """Answer with `size` bytes of a file from `offset` on, fewer where it ends, None where it cannot be read.

    `is_needed`: refuse to go on where it cannot be read, with the reason: `Refused("journal-unreadable")`.
    """

    name: str
    offset: int
    size: int
    is_needed: bool = False


class SyncFile(msgspec.Struct, frozen=True):
    """Bring all of a file, and its name, to the platter."""

    name: str


class SetAside(msgspec.Struct, frozen=True):
    """Keep these bytes of a file under a name of their own, durably."""

    name: str
    offset: int
    size: int


class MoveAside(msgspec.Struct, frozen=True):
    """Move a file, whatever its size, to where `SetAside` keeps bytes, durably."""

    name: str


class ClearFile(msgspec.Struct, frozen=True):
    """Let these bytes of a file be zeros, durably."""

    name: str
    offset: int
    size: int


class RemoveFile(msgspec.Struct, frozen=True):
    """Remove a file, durably."""

    name: str


class CheckpointLoaded(msgspec.Struct, frozen=True):
    """The state of the streams floor at the checkpoint."""

    state: bytes


class Replayed(msgspec.Struct, frozen=True):
    """The next record behind the checkpoint. Its memory is a part of a whole segment: copy what is to be kept."""

    view: RecordView


Found: TypeAlias = CheckpointLoaded | Replayed | Note
RecoveryOrder: TypeAlias = ReadFile | SyncFile | SetAside | MoveAside | ClearFile | RemoveFile | Found
Answer: TypeAlias = bytearray | memoryview | None
Steps: TypeAlias = Generator[RecoveryOrder, Answer, None]
