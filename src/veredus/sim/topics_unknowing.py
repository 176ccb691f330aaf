"""Servers that keep no digests of what was put: they give topics as the page has it for those that do not know one."""

from __future__ import annotations

from msgspec.structs import replace

from veredus.protocols.topics.messages import Transfer, decode_message, encode_message
from veredus.protocols.topics.transfer import PUT_DIGEST, Attributes, RowsPart, Sources, decode_part, encode_beyond


def without_digests(data: bytes) -> bytes:
    """What such a server says instead of a part of a TRANSFER, or of anything else."""
    if not data.startswith(b"TRANSFER "):
        return data
    transfer = decode_message(data)
    assert isinstance(transfer, Transfer)
    part = decode_part(transfer)
    match part:
        case Sources():
            part = replace(part, sources=[(name, number, b"") for name, number, _ in part.sources])
        case RowsPart():
            part = replace(part, attributes=[_without_digest(known) for known in part.attributes])
        case _:
            return data
    return encode_message(transfer._replace(beyond=encode_beyond(part)))


def _without_digest(known: Attributes | None) -> Attributes | None:
    return {name: value for name, value in known.items() if name != PUT_DIGEST} if known else known
