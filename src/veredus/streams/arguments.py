"""What a request says beside its verb, checked."""

from __future__ import annotations

from veredus.kernel.errors import Refused
from veredus.kernel.names import U63_MAX

from .exchange import AdminRequested
from .places import Place

_DIGITS_MAX = 20


def text_in(event: AdminRequested, name: str) -> str:
    """A text that is not empty. Raises `Refused("bad-request")`, as all of these."""
    value = event.arguments.get(name)
    if not isinstance(value, str) or not value:
        raise Refused("bad-request", f"{event.verb} needs a text {name!r}")
    return value


def flag_in(event: AdminRequested, name: str) -> bool:
    """True or false; false where nothing is said."""
    value = event.arguments.get(name, False)
    if not isinstance(value, bool):
        raise Refused("bad-request", f"{event.verb} needs true or false as {name!r}")
    return value


def number_in(event: AdminRequested, name: str, absent: int | None = None) -> int:
    """A whole number that is not negative; `absent` where nothing is said."""
    value = event.arguments.get(name, absent)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= U63_MAX:
        raise Refused("bad-request", f"{event.verb} needs a whole number {name!r} from 0 to {U63_MAX}")
    return value


def number_of(place: Place) -> int:
    """The number that a place has in a list by numbers; 0 for a place in front of all."""
    text = place[0] if place else ""
    return int(text) if text.isdecimal() and len(text) < _DIGITS_MAX else 0
