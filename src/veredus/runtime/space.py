"""What a node's log says of the space that its journal lacks."""

from __future__ import annotations

from veredus.journal.exchange import SegmentLacking, SpaceMissing, SpaceReturned

from .logs import Logger


def say_of_space(log: Logger, told: SegmentLacking | SpaceMissing | SpaceReturned, directory: str) -> None:
    """Say what the journal in this directory has told."""
    match told:
        case SegmentLacking(segment, size, code, reason):
            fields = {"segment": segment, "size": size, "code": code, "reason": reason}
            log.warning("journal-segment-failed", **fields, directory=directory)
        case SpaceMissing(code, reason):
            log.error("publications-refused", code=code, reason=reason, directory=directory)
        case SpaceReturned():
            log.warning("publications-taken-again", directory=directory)
