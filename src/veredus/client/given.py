"""What a publisher is given with each call, and how it is kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeAlias

from veredus.delivery.publication import ATTRIBUTE_NAME_SIZE_MAX, AttributeValue, microseconds_of
from veredus.kernel.errors import Misuse
from veredus.kernel.names import KEY_SIZE_MAX
from veredus.kernel.octets import Octets

Attributes: TypeAlias = Mapping[str, AttributeValue | None]
EventTime: TypeAlias = datetime | int
"""An aware datetime, or microseconds since the Unix epoch."""
EVENT_TIME_MIN_US = microseconds_of(datetime.min.replace(tzinfo=UTC))
EVENT_TIME_MAX_US = microseconds_of(datetime.max.replace(tzinfo=UTC))
Row: TypeAlias = tuple[AttributeValue | None, ...]
PLAIN_KEY_SIZE = KEY_SIZE_MAX // 4
"""A key of so many characters fits, whatever they take in UTF-8."""


def check_sizes(keys: Sequence[bytes | str], bodies: Sequence[Octets | str], body_size_max: int) -> int:
    """The size of the bodies in bytes; raises `Misuse("too-large")` for what no batch can hold."""
    if keys and max(map(len, keys)) > PLAIN_KEY_SIZE:
        size = max(len(octets_of(key)) for key in keys)
        if size > KEY_SIZE_MAX:
            raise Misuse("too-large", f"a key has at most {KEY_SIZE_MAX} bytes, this has {size}", size=size)
    size = max(map(len, bodies), default=0)
    if size > body_size_max >> 2:
        size = max(len(octets_of(body)) for body in bodies)
        if size > body_size_max:
            message = f"a body has at most {body_size_max} bytes here, this has {size}"
            raise Misuse("too-large", message, size=size)
    return sum(map(len, bodies))


def check_names(names: Collection[str], attributes_max: int) -> None:
    """Raise `Misuse` where one publication cannot have attributes of these names: `too-large`, or `bad-attribute`."""
    if len(names) > attributes_max:
        raise Misuse("too-large", f"a publication has at most {attributes_max} attributes, this has {len(names)}")
    for name in names:
        try:
            size = len(name.encode())
        except (AttributeError, UnicodeEncodeError):
            size = 0
        if not 1 <= size <= ATTRIBUTE_NAME_SIZE_MAX:
            shown = repr(name) if size <= ATTRIBUTE_NAME_SIZE_MAX else f"{name[:32]!r}… of {size} bytes"
            message = f"the name of an attribute is text of 1 to {ATTRIBUTE_NAME_SIZE_MAX} bytes of UTF-8, not {shown}"
            raise Misuse("bad-attribute", message)


def getter_of(names: tuple[str, ...]) -> Callable[[Any], Row]:
    """What takes the values of these names out of a mapping, as a tuple; `KeyError` where one is missing."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda attributes: tuple([attributes[name] for name in names])


def octets_of(value: Octets | str) -> Octets:
    """The bytes of a key or a body: text as UTF-8."""
    return value.encode() if isinstance(value, str) else value


def event_time_us(when: EventTime) -> int:
    """Microseconds since the Unix epoch. Raises `Misuse("bad-event-time")`."""
    if isinstance(when, datetime):
        try:
            return microseconds_of(when)
        except ValueError as error:
            raise Misuse("bad-event-time", str(error)) from None
    if type(when) is not int or not EVENT_TIME_MIN_US <= when <= EVENT_TIME_MAX_US:
        message = f"an event time is an aware datetime or whole microseconds, of the years 1 to 9999, not {when!r}"
        raise Misuse("bad-event-time", message)
    return when
