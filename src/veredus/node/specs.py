"""What kinds of settings there are: their units and bounds, and how a value of each kind is written and read."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, get_type_hints

import msgspec

from veredus.kernel.addresses import check_reached, split_address
from veredus.node.quantities import (
    format_duration,
    format_size,
    parse_count,
    parse_duration,
    parse_size,
    parse_switch,
)


class Unit(Enum):
    """What kind of quantity a setting is, hence how it is written."""

    SIZE = "bytes"
    DURATION = "time"
    COUNT = "count"
    SWITCH = "true or false"
    CHOICE = "one of"
    TEXT = "text"
    PATH = "path"
    ADDRESS = "host:port"
    ADDRESSES = "list of host:port"
    ENDPOINT = "ZeroMQ endpoint"


class Spec(NamedTuple):
    """What is known of a setting beside its name, type and default. `least` and `most` are in the unit of the value."""

    unit: Unit
    meaning: str
    least: int = 0
    most: int | None = None
    choices: tuple[str, ...] = ()


def size(meaning: str, least: int = 0, most: int | None = None) -> Spec:
    """A size in bytes, between `least` and `most`."""
    return Spec(Unit.SIZE, meaning, least, most)


def duration(meaning: str, least: int = 0, most: int | None = None) -> Spec:
    """A duration; the bounds are in nanoseconds."""
    return Spec(Unit.DURATION, meaning, least, most)


def count(meaning: str, least: int = 0, most: int | None = None) -> Spec:
    """A whole number."""
    return Spec(Unit.COUNT, meaning, least, most)


def choice(meaning: str, *choices: str) -> Spec:
    """One of a few words."""
    return Spec(Unit.CHOICE, meaning, choices=choices)


class Setting(NamedTuple):
    """One row of the table of settings. `field` is the attribute, `name` what people write."""

    section: str
    name: str
    field: str
    spec: Spec
    default: object

    @property
    def path(self) -> str:
        """`section.name`."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"VEREDUS_{self.section}_{self.name}".upper()

    def parse(self, given: object) -> object:
        """The value of what a file, a variable or a flag holds. Raises `ValueError` with a sentence."""
        return _PARSERS[self.spec.unit](self.spec, given)

    def format(self, value: object) -> str:
        """The value as people write it."""
        match self.spec.unit:
            case Unit.SIZE if isinstance(value, int):
                return format_size(value)
            case Unit.DURATION if isinstance(value, int):
                return format_duration(value)
            case Unit.SWITCH:
                return "true" if value else "false"
            case Unit.ADDRESSES if isinstance(value, tuple):
                return ", ".join(value)
            case _:
                return str(value)


def settings_of(section: str, kind: type[msgspec.Struct]) -> tuple[Setting, ...]:
    """The settings of one section, in the order in which they are declared."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        Setting(section, field.name.removesuffix("_ns"), field.name, spec, field.default)
        for field in msgspec.structs.fields(kind)
        for spec in getattr(hints[field.name], "__metadata__", ())
    )


def _whole(spec: Spec, value: int, shown: str, written: object) -> int:
    if value < spec.least or (spec.most is not None and value > spec.most):
        at_most = "" if spec.most is None else f" and at most {_shown(spec, spec.most)}"
        raise ValueError(f"{written!r} is out of range: it must be at least {shown}{at_most}")
    return value


def _shown(spec: Spec, value: int) -> str:
    if spec.unit is Unit.SIZE:
        return format_size(value)
    return format_duration(value) if spec.unit is Unit.DURATION else str(value)


def _parse_whole(spec: Spec, given: object) -> object:
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise ValueError(f"{given!r} is not a number: {spec.unit.value} expected")
    if isinstance(given, int):
        if spec.unit is Unit.DURATION and given:
            raise ValueError(f'{given} has no unit: write "{given}s" or "{given}ms"')
        value = given
    elif spec.unit is Unit.SIZE:
        value = parse_size(given)
    else:
        value = parse_duration(given) if spec.unit is Unit.DURATION else parse_count(given)
    return _whole(spec, value, _shown(spec, spec.least), given)


def _parse_switch(_: Spec, given: object) -> object:
    if isinstance(given, bool):
        return given
    if isinstance(given, str):
        return parse_switch(given)
    raise ValueError(f"{given!r} is neither true nor false")


def _parse_text(_: Spec, given: object) -> object:
    if not isinstance(given, str):
        raise ValueError(f"{given!r} is not text: put it between quotes")
    if any(ord(character) < 32 for character in given):
        raise ValueError(f"{given!r} contains a control character")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{given!r} is not UTF-8") from None
    return given


def _parse_choice(spec: Spec, given: object) -> object:
    if given not in spec.choices:
        raise ValueError(f"{given!r} is not one of {', '.join(spec.choices)}")
    return given


def _parse_address(spec: Spec, given: object) -> object:
    text = str(_parse_text(spec, given))
    if text:
        split_address(text)
    return text


def _parse_addresses(spec: Spec, given: object) -> object:
    """A list of texts, or one text with commas: where others are reached."""
    items = [item.strip() for item in given.split(",") if item.strip()] if isinstance(given, str) else given
    if not isinstance(items, list):
        raise ValueError(f'{given!r} is not a list: write ["host:port", "host:port"]')
    addresses = [str(_parse_text(spec, item)) for item in items]
    if "" in addresses or len(set(addresses)) < len(addresses):
        raise ValueError(f"{given!r}: an address is empty or occurs twice")
    for address in addresses:
        check_reached(address)
    return tuple(addresses)


def _parse_endpoint(spec: Spec, given: object) -> object:
    text = str(_parse_text(spec, given))
    if text and not text.startswith("ipc://"):
        if not text.startswith("tcp://"):
            raise ValueError(f"{text!r} is not an endpoint: write tcp://host:port or ipc://path")
        split_address(text.removeprefix("tcp://"))
    return text


_PARSERS = {
    Unit.SIZE: _parse_whole,
    Unit.DURATION: _parse_whole,
    Unit.COUNT: _parse_whole,
    Unit.SWITCH: _parse_switch,
    Unit.CHOICE: _parse_choice,
    Unit.TEXT: _parse_text,
    Unit.PATH: _parse_text,
    Unit.ADDRESS: _parse_address,
    Unit.ADDRESSES: _parse_addresses,
    Unit.ENDPOINT: _parse_endpoint,
}
