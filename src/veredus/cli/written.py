"""Records on their way into a pipe: lines, length-prefixed, and JSON lines, as `records` reads them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite

import msgspec

from veredus.cli.records import FLOATS, PREFIX
from veredus.delivery.publication import Attributes, AttributeValue

_encode_json = msgspec.json.Encoder().encode


def write_lines(keys: Sequence[bytes], bodies: Sequence[bytes], key_separator: bytes = b"") -> bytes:
    """One line for each body."""
    if key_separator:
        bodies = [key + key_separator + body for key, body in zip(keys, bodies, strict=True)]
    return b"\n".join(bodies) + b"\n" if bodies else b""


def write_prefixed(bodies: Sequence[bytes]) -> bytes:
    """Each body behind its size."""
    return b"".join([part for body in bodies for part in (PREFIX.pack(len(body)), body)])


def write_json(fields: Mapping[str, object], key: bytes, body: bytes, attributes: Attributes | None) -> bytes:
    """One JSON line: `fields` first, then key, attributes and body."""
    record = dict(fields)
    record |= _named("key", key)
    if attributes:
        record["attributes"] = {name: _shown(value) for name, value in attributes.items() if value is not None}
    record |= _named("body", body)
    return _encode_json(record) + b"\n"


def time_text(when: datetime) -> str:
    """RFC 3339, in UTC, with microseconds."""
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _named(name: str, octets: bytes) -> dict[str, str]:
    try:
        return {name: octets.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(octets).decode()}


def _shown(value: AttributeValue | None) -> object:
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, datetime):
        return {"$timestamp": time_text(value)}
    if isinstance(value, float) and not isfinite(value):
        return {"$float": next(text for text, known in FLOATS.items() if str(known) == str(value))}
    return value
