"""Sizes, durations, counts and switches as people write them, and back.

    64 MiB   1.5 GiB   500 kB   4096        bytes; the binary units are powers of 1,024, the decimal ones of 1,000
    250ms    5s        1h30m    7d          durations; always with a unit, but for 0
    10_000   10000                          counts

Each pair keeps `parse_x(format_x(value)) == value`.
"""

from __future__ import annotations

import re
from fractions import Fraction

SIZE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
DURATION_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
}
_SHOWN_SIZES = ("TiB", "GiB", "MiB", "KiB")
_SHOWN_DURATIONS = ("d", "h", "m", "s", "ms", "us", "ns")
_NUMBER = r"\d+(?:_\d+)*(?:\.\d+)?"
_SIZE = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)", re.ASCII)
_DURATION_PART = re.compile(rf"\s*({_NUMBER})\s*([a-zµ]+)\s*")
_COUNT = re.compile(r"\d+(?:_\d+)*", re.ASCII)
_TEXT_SIZE_MAX = 64
_ON = frozenset(("true", "yes", "on", "1"))
_OFF = frozenset(("false", "no", "off", "0"))


def parse_size(text: str) -> int:
    """Bytes. Raises `ValueError` with a sentence that says how to write one."""
    match = _SIZE.fullmatch(text.strip()[:_TEXT_SIZE_MAX])
    unit = SIZE_UNITS.get(match[2] or "B") if match else None
    if match is None or unit is None:
        raise ValueError(f'{text!r} is not a size: write a number and one of {", ".join(SIZE_UNITS)}, like "64 MiB"')
    size = Fraction(match[1].replace("_", "")) * unit
    if size.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size)


def format_size(size: int) -> str:
    """The shortest exact text: `67108864` is "64 MiB", `67108865` is "67108865 B"."""
    for unit in _SHOWN_SIZES:
        if size and size % SIZE_UNITS[unit] == 0:
            return f"{size // SIZE_UNITS[unit]} {unit}"
    return f"{size} B"


def parse_duration(text: str) -> int:
    """Nanoseconds. Raises `ValueError` with a sentence that says how to write one."""
    stripped = text.strip()[:_TEXT_SIZE_MAX]
    if stripped == "0":
        return 0
    total, place = Fraction(0), 0
    while match := _DURATION_PART.match(stripped, place):
        unit_ns = DURATION_UNITS_NS.get(match[2])
        if unit_ns is None:
            break
        total += Fraction(match[1].replace("_", "")) * unit_ns
        place = match.end()
    if not stripped or place != len(stripped):
        units = ", ".join(DURATION_UNITS_NS)
        raise ValueError(f'{text!r} is not a duration: write numbers with one of {units}, like "250ms" or "1h30m"')
    if total.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of nanoseconds")
    return int(total)


def format_duration(duration_ns: int) -> str:
    """The duration in falling units: `5_400_000_000_000` is "1h30m"; 0 is "0s"."""
    parts = []
    for unit in _SHOWN_DURATIONS:
        count, duration_ns = divmod(duration_ns, DURATION_UNITS_NS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_count(text: str) -> int:
    """A whole number from 0. Raises `ValueError` for anything else."""
    stripped = text.strip()[:_TEXT_SIZE_MAX]
    if not _COUNT.fullmatch(stripped):
        raise ValueError(f"{text!r} is not a count: write a whole number, like 10_000")
    return int(stripped)


def parse_switch(text: str) -> bool:
    """On or off. Raises `ValueError` for anything but true, false, yes, no, on, off, 1 and 0."""
    lowered = text.strip().lower()
    if lowered in _ON:
        return True
    if lowered in _OFF:
        return False
    raise ValueError(f"{text!r} is neither true nor false")
