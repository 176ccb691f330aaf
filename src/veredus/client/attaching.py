"""What who publishes asks the node for: to be a source of a stream, or to write a stage of a sink's run."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from veredus.kernel.names import INCARNATION_SIZE
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.client_exchange import Opening


@dataclass(frozen=True, slots=True)
class SourceAttaching:
    """What a source asks for: `stream` as `source`."""

    stream: str
    source: str
    incarnation: bytes
    is_sparse: bool = False

    @property
    def words(self) -> str:
        """What it publishes to, for a message."""
        return f"stream {self.stream!r}, source {self.source!r}"

    def opening(self, known: int, life: bytes) -> Opening:
        """The message that attaches it; `known`: the epoch that it was granted, 0 for none. `life`: the incarnation of
        the stream that it has published to, b"" for none; of a source with a name the node knows that.
        """
        named = b"" if self.source else life
        return m.AttachSource(self.stream, self.source, self.incarnation, known, self.is_sparse, named)


@dataclass(frozen=True, slots=True)
class StageAttaching:
    """What a sink's task asks for: a stage for `stream` in a run."""

    sink: str
    run_epoch: int
    stream: str
    key: bytes
    commit_id: int = -1

    @property
    def words(self) -> str:
        """Nothing: what is staged and not committed is no loss."""
        return ""

    def opening(self, known: int, life: bytes) -> Opening:
        """The message that opens it; `known`: the number of the stage that it was granted, 0 for none."""
        return m.OpenStage(self.sink, self.run_epoch, self.stream, self.key, self.commit_id, known)


def new_incarnation() -> bytes:
    """What tells this attachment, however often it is retried, from any other."""
    return secrets.token_bytes(INCARNATION_SIZE)
