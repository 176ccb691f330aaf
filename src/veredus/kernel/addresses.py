"""Addresses as settings and peers write them: `host:port`, with an IPv6 host in brackets."""

from __future__ import annotations

PORT_MAX = 65_535
_PORT_DIGITS_MAX = 5


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
    if host == "*" or not port:
        said = f"host:port with the name or address of a host and a port from 1 to {PORT_MAX}"
        raise ValueError(f"{text!r} is not an address at which others reach anybody: write {said}")
