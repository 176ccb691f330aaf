"""What a caller may say, looked at in the caller and before anything changes: types, ranges and names.

The node looks again, and refuses the one request; but a caller learns here which argument it was, and what was meant.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Mapping, Set
from datetime import date, timedelta
from difflib import get_close_matches
from typing import Any

from veredus.kernel.errors import Misuse, Refused
from veredus.kernel.names import INCARNATION_SIZE, NAME_SIZE_MAX, U63_MAX, checked_name
from veredus.matching.wanted import Filter
from veredus.streams.exchange import Start

_STARTS = {
    "earliest": "beginning()", "beginning": "beginning()", "first": "beginning()", "oldest": "beginning()",
    "all": "beginning()", "latest": "head()", "newest": "head()", "end": "head()", "head": "head()", "now": "head()",
    "last": "tail(1)", "tail": "tail(count)",
}  # fmt: skip
"""What people say elsewhere, and what it is here."""
OTHER_UNITS = ((10**9, 10**10, "seconds"), (10**12, 4 * 10**12, "milliseconds"))
"""Numbers that are a time of these decades in another unit, and in microseconds one of early 1970."""
U63_MAX_SHOWN = "2**63 - 1"
"""What `U63_MAX` is in a message."""
_CALLER_LEVEL = 4
"""Where the application is, seen from `filter_of`: behind `wanted_of` and `subscribe`."""


def check_name(kind: str, name: object, *, may_be_empty: bool = False) -> None:
    """Raise `Misuse("bad-name")` unless this can name a stream, source, subscriber, subscription or sink."""
    if not isinstance(name, str):
        raise Misuse("bad-name", f"the name of a {kind} must be text, not {shown(name)}", kind=kind)
    if name or not may_be_empty:
        try:
            checked_name(kind, name)
        except Refused as refused:
            raise Misuse(refused.code, refused.message, **refused.details) from None


def check_whole(argument: str, value: object, least: int = 0, *, code: str = "bad-argument") -> None:
    """Raise `Misuse` unless this is a whole number from `least` to `U63_MAX`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= U63_MAX:
        message = f"{argument} must be a whole number from {least} to {U63_MAX_SHOWN}, not {shown(value)}"
        raise Misuse(code, message, argument=argument)


def check_seconds(argument: str, value: object, *, may_be_none: bool = True, may_be_endless: bool = True) -> None:
    """Raise `Misuse` unless this is a time span: a number from 0, or None where that means for ever."""
    if value is None and may_be_none:
        return
    if not (is_number_to(sys.float_info.max, value) or (value == math.inf and may_be_endless)):
        raise Misuse("bad-argument", f"{argument} must be a number from 0, not {shown(value)}", argument=argument)


def is_number_to(most: float, value: object) -> bool:
    """Whether this is a number from 0 to `most`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


def check_list(argument: str, value: object) -> None:
    """Raise `Misuse` unless this is a list of values, or something else that has a length and an order."""
    is_one = isinstance(value, str | bytes | bytearray | memoryview | Mapping | Set)
    if is_one or not (hasattr(value, "__len__") and hasattr(value, "__iter__")):
        raise Misuse("bad-argument", f"{argument} must be a list, not {shown(value)}", argument=argument)


def check_unit(what: str, when: int, code: str) -> None:
    """Raise `Misuse` for microseconds since the Unix epoch that are a time of these decades in another unit."""
    for least, end, unit in OTHER_UNITS:
        if least <= when < end:
            message = (
                f"{when} as {what} looks like {unit}: give microseconds since the Unix epoch, or an aware"
                " datetime, which may also be one of early 1970"
            )
            raise Misuse(code, message)


def check_choice(argument: str, value: object, choices: Iterable[str | None], *, code: str = "bad-argument") -> None:
    """Raise `Misuse` unless this is one of the choices; one that is written alike is offered."""
    known = list(choices)
    if value in known and not isinstance(value, bool):
        return
    names = [choice for choice in known if choice is not None]
    alike = get_close_matches(value.replace("_", "-").lower(), names, 1, 0.6) if isinstance(value, str) else []
    hint = f": did you mean {alike[0]!r}?" if alike else ""
    message = f"{argument} must be {' or '.join(map(repr, known))}, not {shown(value)}{hint}"
    raise Misuse(code, message, argument=argument)


def check_switch(argument: str, value: object) -> None:
    """Raise `Misuse` unless this is True or False."""
    if not isinstance(value, bool):
        raise Misuse("bad-argument", f"{argument} must be True or False, not {shown(value)}", argument=argument)


def check_text(argument: str, value: object, size_max: int = NAME_SIZE_MAX, *, code: str = "bad-argument") -> None:
    """Raise `Misuse` unless this is text of at most so many characters."""
    if not isinstance(value, str):
        raise Misuse(code, f"{argument} must be text, not {shown(value)}", argument=argument)
    if len(value) > size_max:
        raise Misuse(code, f"{argument} may have at most {size_max} characters, not {len(value)}", argument=argument)
    place = place_of_no_text(value)
    if place is not None:
        message = f"{argument} is {shown(value)}: UTF-8 cannot hold what is at position {place}"
        raise Misuse(code, message, argument=argument)


def place_of_no_text(text: str) -> int | None:
    """Where the first lone surrogate is, as Python makes it of a byte that is not UTF-8; None for sound text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def check_octets(argument: str, value: object, size: int | None = None) -> None:
    """Raise `Misuse` unless this is bytes, of that size where one is given."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Misuse("bad-argument", f"{argument} must be bytes, not {shown(value)}", argument=argument)
    if size is not None and len(value) != size:
        raise Misuse("bad-argument", f"{argument} must have {size} bytes, not {len(value)}", argument=argument)


def check_incarnation(argument: str, value: object) -> None:
    """Raise `Misuse` unless this is None or 16 bytes."""
    if value is not None:
        check_octets(argument, value, INCARNATION_SIZE)


def check_start(start: object) -> None:
    """Raise `Misuse("bad-start")` unless this says where to begin."""
    if start is None or isinstance(start, Start):
        return
    meant = _STARTS.get(start.lower()) if isinstance(start, str) else None
    if isinstance(start, int) and not isinstance(start, bool) and 1 <= start <= U63_MAX:
        meant = f"at({start})"
    elif isinstance(start, date | timedelta):
        meant = "since(when), with an aware datetime or a timedelta before now"
    elif callable(start) and getattr(start, "__module__", "") == "veredus.client.starts":
        meant = f"{getattr(start, '__name__', '')}(…): call it"
    hint = f"use veredus.{meant}" if meant else "use veredus.beginning(), head(), tail(count), at(sequence), …"
    raise Misuse("bad-start", f"{shown(start)} is not a valid start: {hint}", argument="start")


def filter_of(keys: str | Iterable[str] | None, where: str | None) -> Filter | None:
    """The filter that these words make, None where there are none.

    Warns of what is probably not meant. Raises `Misuse` for what is no text, and what `compile_filter` raises where
    they do not parse.
    """
    if keys is None and where is None:
        return None
    if where is not None and not isinstance(where, str):
        raise Misuse("bad-argument", f"where must be text, not {shown(where)}", argument="where")
    try:
        patterns = (keys,) if isinstance(keys, str | bytes) else tuple(keys or ())
    except TypeError:
        patterns = (keys,)  # type: ignore[assignment]
    if keys is not None and not patterns:
        raise Misuse("bad-argument", "keys is empty: leave it out for all keys, or give a pattern", argument="keys")
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise Misuse("bad-argument", f"a key pattern must be text, not {shown(pattern)}", argument="keys")
        _check_wildcards(pattern)
    from veredus.matching.filters import compile_filter  # a lot to import where nothing is filtered

    wanted = Filter(patterns, where)
    compile_filter(wanted)
    for hint in hints_on(wanted):
        warnings.warn(hint, stacklevel=_CALLER_LEVEL)
    return wanted


def warn_caller(message: str) -> None:
    """Warn with a `RuntimeWarning` that names the line of the program from which the library was called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("veredus."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def hints_on(filter_: Filter) -> list[str]:
    """A sentence for each part of a filter that is valid and probably not meant."""
    from veredus.matching.hints import hints_of
    from veredus.matching.patterns import is_like_several

    hints = []
    for pattern in filter_.keys:
        if is_like_several(pattern):
            bare = "" if ":" in pattern else f", or write 'prefix:{pattern}' if the comma is a part of the keys"
            hints.append(f"keys: {pattern!r} is one pattern with a comma in it: give several patterns one by one{bare}")
    return hints + [f"where: {hint}" for hint in (hints_of(filter_.where) if filter_.where is not None else ())]


def _check_wildcards(pattern: str) -> None:
    """Raise `Refused("bad-pattern")` for what looks like wildcards, and would be taken for the beginning of a key."""
    from veredus.matching.patterns import has_bare_wildcards

    if has_bare_wildcards(pattern):
        scheme, colon, _ = pattern.partition(":")
        said = f"begins with {scheme!r}, which is no scheme (literal, prefix, tokens, regex)"
        lacks = said if colon and scheme.isalpha() else "has no scheme"
        message = (
            f"key pattern {pattern!r} {lacks}, so its wildcards would have no effect: write 'tokens:{pattern}'"
            " for"
            f" wildcards, or 'prefix:{pattern}' for keys that begin with these characters"
        )
        raise Refused("bad-pattern", message, pattern=pattern, position=0)


def shown(value: Any) -> str:
    """A value as it is shown in a message: short, on one line, and with its type where that is not plain to see."""
    try:
        text = repr(value)
    except ValueError:
        # Python writes out no number of thousands of digits.
        is_whole = isinstance(value, int)
        return f"a whole number of {value.bit_length()} bits" if is_whole else f"a {type(value).__name__}"
    if "\n" in text:
        # Such as a table with its rows.
        return f"a {type(value).__name__}"
    text = text if len(text) <= 60 else text[:57] + "..."
    return text if value is None or isinstance(value, str | bytes | int | float) else f"{text} ({type(value).__name__})"
