"""From where a subscription that has no cursor yet begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from veredus.delivery.publication import TIMESTAMP_MAX_US, microseconds_of
from veredus.kernel.errors import Misuse
from veredus.streams.exchange import Start, StartKind

from .arguments import check_text, check_unit, check_whole, shown


def beginning() -> Start:
    """From everything kept."""
    return Start()


def head() -> Start:
    """After the newest publication: only what comes."""
    return Start(StartKind.HEAD)


def tail(count: int) -> Start:
    """At the newest `count` publications. Raises `Misuse("bad-start")`."""
    check_whole("count", count, code="bad-start")
    return Start(StartKind.TAIL, count)


def at(sequence: int) -> Start:
    """At `sequence`, from 1. The node refuses one that is gone (`below-floor`) or not there yet (`above-head`)."""
    if sequence == 0 and not isinstance(sequence, bool):
        raise Misuse("bad-start", "0 is no sequence, they begin with 1: begin at 1, or at the start")
    check_whole("sequence", sequence, 1, code="bad-start")
    return Start(StartKind.SEQUENCE, sequence)


def since(when: datetime | timedelta | int) -> Start:
    """At the first publication appended at `when` or later.

    An aware datetime, a timedelta before now, or microseconds since the Unix epoch. Raises `Misuse("bad-start")`,
    also for a number that looks like seconds or milliseconds.
    """
    if isinstance(when, timedelta):
        if when < timedelta():
            raise Misuse("bad-start", f"{when} before now is after now: give since a timedelta that is not negative")
        try:
            when = datetime.now(UTC) - when
        except OverflowError:
            raise Misuse("bad-start", f"{when} before now is not in the years 1 to 9999") from None
    if not isinstance(when, datetime) and type(when) is not int:
        message = f"since takes an aware datetime, a timedelta before now or microseconds since 1970, not {shown(when)}"
        raise Misuse("bad-start", message)
    if isinstance(when, int):
        if when > TIMESTAMP_MAX_US:
            message = f"since takes microseconds since 1970 up to the end of the year 9999, not {shown(when)}"
            raise Misuse("bad-start", message)
        check_unit("a start", when, "bad-start")
    try:
        return Start(StartKind.TIME, max(0, when if isinstance(when, int) else microseconds_of(when)))
    except ValueError as error:
        raise Misuse("bad-start", str(error)) from None


def after(source: str) -> Start:
    """After the last publication of `source` in the stream; from everything kept where it has none, or is not known."""
    check_text("source", source, code="bad-start")
    return Start(StartKind.AFTER_MINE, 0, source)
