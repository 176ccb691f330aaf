"""What a publisher is given with each call, and how it is kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any, Literal, TypeAlias, cast

from veredus.delivery.batch import BatchLimits
from veredus.delivery.cutting import Listed
from veredus.delivery.publication import (
    ATTRIBUTE_NAME_SIZE_MAX,
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
    AttributeValue,
    microseconds_of,
)
from veredus.kernel.errors import Misuse
from veredus.kernel.lazily import np
from veredus.kernel.names import KEY_SIZE_MAX
from veredus.kernel.octets import Octets

from .arguments import check_list, check_unit, check_whole, place_of_no_text, shown

Attributes: TypeAlias = Mapping[str, AttributeValue | None]
EventTime: TypeAlias = datetime | int
"""An aware datetime, or microseconds since the Unix epoch."""
Row: TypeAlias = tuple[AttributeValue | None, ...]
Policy: TypeAlias = Literal["wait", "fail", "drop"]
"""What to do when no more can be held, or no node is there: wait, raise `Unavailable`, or drop and count."""
POLICIES = ("wait", "fail", "drop")
OCTET_KINDS: frozenset[object] = frozenset((bytes, str, bytearray, memoryview))
SOUND_KINDS: frozenset[object] = frozenset((bool, float, bytes, type(None)))
"""Whatever is of one of these types can be an attribute; of an int, a str and a datetime not all can."""
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
PLAIN_KEY_SIZE = KEY_SIZE_MAX // 4
"""A key of so many characters fits, whatever they take in UTF-8."""


def check_sizes(keys: Sequence[bytes | str], bodies: Sequence[Octets | str], body_size_max: int) -> int:
    """The size of the bodies in bytes; raises `Misuse("too-large")` for what no batch can hold."""
    if keys and max(map(len, keys)) > PLAIN_KEY_SIZE:
        size = max(len(octets_of(key)) for key in keys)
        if size > KEY_SIZE_MAX:
            raise Misuse("too-large", f"a key may have at most {KEY_SIZE_MAX} bytes, this one has {size}", size=size)
    size = max(map(len, bodies), default=0)
    if size > body_size_max >> 2:
        size = max(len(octets_of(body)) for body in bodies)
        if size > body_size_max:
            message = f"the node accepts bodies of at most {body_size_max} bytes, this one has {size}"
            raise Misuse("too-large", message, size=size)
    return sum(map(len, bodies))


def check_names(names: Collection[str], attributes_max: int) -> None:
    """Raise `Misuse` where one publication cannot have attributes of these names: `too-large`, or `bad-attribute`."""
    if len(names) > attributes_max:
        raise Misuse(
            "too-large", f"a publication may have at most {attributes_max} attributes, this one has {len(names)}"
        )
    for name in names:
        try:
            size = len(name.encode())
        except (AttributeError, UnicodeEncodeError):
            size = 0
        if not 1 <= size <= ATTRIBUTE_NAME_SIZE_MAX:
            shown = repr(name) if size <= ATTRIBUTE_NAME_SIZE_MAX else f"{name[:32]!r}… of {size} bytes"
            message = (
                f"the name of an attribute must be text of 1 to {ATTRIBUTE_NAME_SIZE_MAX} bytes of UTF-8, not {shown}"
            )
            raise Misuse("bad-attribute", message)


def getter_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes the values of these names out of a mapping, as a tuple; `KeyError` where one is missing."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda attributes: tuple([attributes[name] for name in names])


def check_kinds(keys: Iterable[object], bodies: Iterable[object]) -> None:
    """Raise `Misuse("bad-publication")` for a key that is no bytes or text, or a body that is neither."""
    for kind, values in (("key", keys), ("body", bodies)):
        for value in values:
            if not isinstance(value, str | bytes | bytearray | memoryview):
                hint = "; for an empty one use b''" if value is None else ""
                if isinstance(value, dict | list | tuple):
                    hint = "; encode it first, for example with json.dumps"
                raise Misuse("bad-publication", f"a {kind} must be bytes or text, not {shown(value)}{hint}")


def is_no_text(value: object) -> bool:
    """Whether this is text that UTF-8 cannot hold."""
    try:
        if isinstance(value, str) and not value.isascii():
            value.encode()
    except UnicodeEncodeError:
        return True
    return False


def is_sound(value: object) -> bool:
    """Whether this can be an attribute: of one of the types of `AttributeValue`, no subclass, and in range."""
    kind = type(value)
    if kind is int:
        return INT64_MIN <= value <= INT64_MAX  # type: ignore[operator]
    if kind is datetime:
        return _is_dated(value)  # type: ignore[arg-type]
    return kind in SOUND_KINDS or (kind is str and not is_no_text(value))


def _is_dated(when: datetime) -> bool:
    return when.utcoffset() is not None and TIMESTAMP_MIN_US <= microseconds_of(when) <= TIMESTAMP_MAX_US


def check_one(
    key: bytes | str,
    body: Octets | str,
    attributes: Attributes | None,
    event_time: EventTime | None,
    known_names: tuple[str, ...],
    limits: BatchLimits,
) -> tuple[int | None, tuple[str, ...]]:
    """The event time in microseconds, if there is one, and the names of the attributes; `known_names` are good.

    Raises `Misuse` for a publication of which a part cannot be what it is given as.
    """
    check_kinds((key,), (body,))
    if attributes is not None and type(attributes) is not dict:
        check_mapping(attributes)
    if is_no_text(key):
        raise _no_text("key", key)
    if is_no_text(body):
        raise _no_text("body", body)
    if len(key) > PLAIN_KEY_SIZE or len(body) > limits.body_size_max >> 2:
        check_sizes((key,), (body,), limits.body_size_max)
    if attributes is not None:
        names = tuple(attributes)
        if names != known_names:
            check_names(names, limits.attributes_max)
            known_names = names
        for name in names:
            if not is_sound(attributes[name]):
                raise _unsound(f"attribute {name!r}", attributes[name])
    return None if event_time is None else event_time_us(event_time), known_names


def check_listed(keys: Sequence[object], bodies: Sequence[object], mappings: Sequence[dict[str, Any] | None]) -> None:
    """As `check_one`, at once for all where nothing is to be said of them."""
    for what, values in (("keys", keys), ("bodies", bodies)):
        kinds = {*map(type, values)}
        if not kinds <= OCTET_KINDS:
            check_kinds(keys, bodies)
        if str in kinds and not (len(kinds) == 1 and all(map(str.isascii, values))):  # type: ignore[arg-type]
            for index, value in enumerate(values):
                if is_no_text(value):
                    raise _no_text(f"{what}[{index}]", value)
    for value in chain.from_iterable(map(dict.values, filter(None, mappings))):
        # As in `Intake.put`: most are told to be sound without a call.
        kind = value.__class__
        if (
            kind not in SOUND_KINDS
            and (kind is not int or not INT64_MIN <= value <= INT64_MAX)
            and (kind is not str or not value.isascii())
            and not is_sound(value)
        ):
            named = ((f"attributes[{i}][{k!r}]", v) for i, each in enumerate(mappings) for k, v in (each or {}).items())
            raise next(_unsound(what, v) for what, v in named if not is_sound(v))


def _no_text(what: str, value: object) -> Misuse:
    assert isinstance(value, str)
    message = f"{what} is {shown(value)}: UTF-8 cannot hold what is at position {place_of_no_text(value)}"
    return Misuse("bad-publication", message)


def _unsound(what: str, value: object) -> Misuse:
    if is_no_text(value):
        return _no_text(what, value)
    allowed, hint = "must be bool, int, float, str, bytes, a datetime with a time zone, or None", ""
    if type(value) is int:
        allowed = "must fit 64 bits, from -2**63 to 2**63 - 1"
    elif type(value) is datetime and value.utcoffset() is not None:
        allowed = "must be of the years 1 to 9999 in UTC"
    elif type(value) is datetime:
        hint = "; write datetime.now(UTC), for example"
    elif hasattr(value, "to_pydatetime"):
        hint = "; convert it with .to_pydatetime()"
    elif isinstance(value, np.generic):
        hint = "; convert it with .item()"
    elif isinstance(value, dict | list | tuple):
        hint = "; encode it first, for example with json.dumps"
    return Misuse("bad-argument", f"{what} {allowed}, not {shown(value)}{hint}", argument="attributes")


def check_assigned(number: int, last_number: int) -> None:
    """Raise `Misuse("unknown-number")` unless the source has assigned this, by this publisher or by an earlier one."""
    check_whole("number", number)
    if not 0 < number <= last_number:
        assigned = f"the numbers 1 to {last_number}" if last_number else "no number yet"
        raise Misuse("unknown-number", f"this source has assigned {assigned}")


def check_mapping(attributes: object) -> None:
    """Raise `Misuse("bad-attribute")` for attributes that are no mapping."""
    if not isinstance(attributes, Mapping):
        raise Misuse("bad-attribute", f"attributes must be a mapping from names to values, not {shown(attributes)}")


def listed_of(
    keys: Sequence[bytes | str],
    bodies: Sequence[Octets | str],
    attributes: Sequence[Attributes | None] | None,
    event_times: Iterable[EventTime | None] | None,
    limits: BatchLimits,
) -> tuple[Listed, int]:
    """Publications given as lists of one length, and the size of their bodies in bytes. Raises `Misuse`."""
    check_list("keys", keys)
    check_list("bodies", bodies)
    if isinstance(columns := cast(object, attributes), Mapping):
        message = (
            f"attributes must be a list with a mapping, or None, for each publication, not {shown(columns)};"
            " publish_table takes columns"
        )
        raise Misuse("bad-attribute", message)
    if attributes is not None:
        check_list("attributes", attributes)
    if event_times is not None and not isinstance(event_times, Iterator):
        check_list("event_times", event_times)
    count = len(bodies)
    for mapping in () if attributes is None else attributes:
        if mapping is not None and type(mapping) is not dict:
            check_mapping(mapping)
    times = None if event_times is None else [None if t is None else event_time_us(t) for t in event_times]
    mappings = None if attributes is None else [None if a is None else dict(a) for a in attributes]
    if len(keys) != count or any(column is not None and len(column) != count for column in (times, mappings)):
        raise Misuse("bad-lengths", "keys, bodies, attributes and event times must have the same length")
    check_listed(keys, bodies, mappings or ())
    size = check_sizes(keys, bodies, limits.body_size_max)
    for names in dict.fromkeys(map(tuple, filter(None, mappings or ()))):
        check_names(names, limits.attributes_max)
    return Listed(list(keys), list(bodies), times, mappings=mappings), size


def octets_of(value: Octets | str) -> Octets:
    """The bytes of a key or a body: text as UTF-8."""
    return value.encode() if isinstance(value, str) else value


def event_time_us(when: EventTime) -> int:
    """Microseconds since the Unix epoch. Raises `Misuse("bad-event-time")`."""
    try:
        time_us = microseconds_of(when) if isinstance(when, datetime) else when
    except ValueError as error:
        raise Misuse("bad-event-time", str(error)) from None
    if type(time_us) is not int or not TIMESTAMP_MIN_US <= time_us <= TIMESTAMP_MAX_US:
        message = (
            "an event time must be an aware datetime or whole microseconds, of the years 1 to 9999 in UTC,"
            f" not {shown(when)}"
        )
        raise Misuse("bad-event-time", message)
    if time_us is when:
        check_unit("an event time", time_us, "bad-event-time")
    return time_us
