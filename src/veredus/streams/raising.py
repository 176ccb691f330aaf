"""What `source.raise` says: how far sources have published elsewhere, and whose they are.

Source: docs/reference/wire/native.md, "Requests"; docs/decisions/0012 and 0019.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from veredus.kernel.errors import Refused, field_fault
from veredus.kernel.names import U63_MAX, checked_name

from .exchange import AdminRequested

RAISED_MAX = 1_000
"""Sources of one request: more would hold everybody up, since all of them are raised at once."""
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=U63_MAX)]


class Raise(msgspec.Struct, frozen=True):
    """Each of `sources` has published up to a number, the last of it with a token; `owners` of some of them by name."""

    sources: list[tuple[str, Number, bytes]]
    owners: dict[str, str] = {}


def read_raise(event: AdminRequested, token_size_max: int) -> Raise:
    """The arguments, checked. Raises `Refused`: `bad-request`, `too-large` for a token, `bad-name` for an owner."""
    try:
        said = msgspec.convert({**event.arguments}, Raise)
    except msgspec.ValidationError as error:
        needed = f"{event.verb} needs `sources` with a name, a number and a token each: {field_fault(error)}"
        raise Refused("bad-request", needed) from None
    if len(said.sources) > RAISED_MAX:
        message = f"a request may raise {RAISED_MAX} sources, this one has {len(said.sources)}: ask several times"
        raise Refused("too-large", message)
    for source, _, token in said.sources:
        if len(token) > token_size_max:
            message = (
                f"a resume token may have at most {token_size_max} bytes, that of source {source!r} has {len(token)}"
            )
            raise Refused("too-large", message)
    for owner in said.owners.values():
        checked_name("principal", owner)
    return said
