"""Addresses as settings and peers write them: `host:port`, with an IPv6 host in brackets."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address

PORT_MAX = 65_535
_PORT_DIGITS_MAX = 5
_ANY_HOST = ("0.0.0.0", "::")
_NUMBER = re.compile(r"0[xX](?P<hex>[0-9a-fA-F]+)|0(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]*)", re.ASCII)
_DIGITS_MAX = 12
"""The number of a host has no more of them, however it is written."""


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port` or `*:port`. Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not bare or (":" in bare and not is_bracketed):
        raise ValueError(f"{text!r} is not an address: write host:port, with an IPv6 host in brackets")
    if not port.isascii() or not port.isdigit() or len(port) > _PORT_DIGITS_MAX or int(port) > PORT_MAX:
        raise ValueError(f"{text!r}: {port!r} is not a port from 0 to {PORT_MAX}")
    try:
        bare.encode("idna")
    except UnicodeError:
        raise ValueError(f"{text!r}: {bare!r} cannot be the name of a host") from None
    return bare, int(port)


def check_reached(text: str) -> None:
    """Raise `ValueError` for an address at which nobody can be reached, but perhaps listen: any host or any port."""
    host, port = split_address(text)
    if host == "*" or not port or _normal(host) in _ANY_HOST:
        said = f"host:port with the name or address of a host and a port from 1 to {PORT_MAX}"
        raise ValueError(f"{text!r} is not an address at which others reach anybody: write {said}")


def is_same_address(one: str, other: str) -> bool:
    """Whether two texts are one address, as far as they tell without asking for what a name stands: 127.1:80 is
    localhost:080. What is no address is the same as nothing.
    """
    try:
        (host, port), (other_host, other_port) = split_address(one), split_address(other)
    except ValueError:
        return False
    return port == other_port and _normal(host) == _normal(other_host)


def _normal(host: str) -> str:
    """The one way to write this host; of names, `localhost` is one that nobody has to be asked for."""
    name = host.lower().removesuffix(".")
    if ":" in name:
        try:
            long = IPv6Address(name)
        except ValueError:
            return name
        return str(long.ipv4_mapped or long)
    return "127.0.0.1" if name == "localhost" else _short_form(name) or name


def _short_form(name: str) -> str:
    """An IPv4 address as four numbers, of up to four of any base, the last of which fills what is left; or ""."""
    parts = name.split(".")
    found = [_NUMBER.fullmatch(part) if len(part) <= _DIGITS_MAX else None for part in parts]
    bases = {"hex": 16, "octal": 8, "decimal": 10}
    numbers = [int(one[one.lastgroup], bases[one.lastgroup]) for one in found if one is not None and one.lastgroup]
    *leading, last = numbers or [-1]
    room = 1 << 8 * (5 - len(parts))
    if len(numbers) != len(parts) or len(parts) > 4 or any(number > 255 for number in leading) or not 0 <= last < room:
        return ""
    ahead = sum(number << 8 * (3 - place) for place, number in enumerate(leading))
    return str(IPv4Address(ahead + last))
