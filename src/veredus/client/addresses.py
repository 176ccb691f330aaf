"""Where a node is: `veredus://host:port`, `veredus+tls://host:port` or `unix:///path`."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from veredus.kernel.errors import Misuse

from .arguments import place_of_no_text

PORT = 7071
DEFAULT_ADDRESS = f"veredus://127.0.0.1:{PORT}"
_SCHEMES = ("veredus", "veredus+tls", "unix")


@dataclass(frozen=True, slots=True)
class Address:
    """One place to find a node: a Unix socket's `path`, or `host` and `port`, perhaps by TLS."""

    text: str = field(compare=False)
    host: str = ""
    port: int = 0
    path: str = ""
    is_tls: bool = False

    def __str__(self) -> str:
        return self.text


def parse_address(text: str) -> Address:
    """The address that `text` names. Without a scheme it is `host:port`. Raises `Misuse("bad-address")`."""
    written = text if "://" in text else f"veredus://{text}"
    if place_of_no_text(text) is not None:
        raise Misuse("bad-address", f"{text!r} is not the address of a node: UTF-8 cannot hold it", address=text)
    try:
        parts = urlsplit(written)
    except ValueError as error:
        raise Misuse("bad-address", f"{text!r} is not the address of a node: {error}", address=text) from None
    if parts.scheme not in _SCHEMES:
        raise Misuse(
            "bad-address", f"{text!r}: an address begins with {', '.join(f'{s}://' for s in _SCHEMES)}", address=text
        )
    if text.startswith("unix:") and parts.scheme != "unix":
        raise Misuse("bad-address", f"{text!r}: a Unix socket is written unix:///path/to/socket", address=text)
    if "@" in parts.netloc:
        # What stands before the @ may be a secret: it is not repeated.
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        message = f"an address has no user and no password: write {where}, and give a token apart"
        raise Misuse("bad-address", message, address=where)
    if parts.query or parts.fragment:
        message = f"{text!r}: an address ends with its port or its path; what is behind ? and # is not known"
        raise Misuse("bad-address", message, address=text)
    if parts.scheme == "unix":
        if not parts.path or parts.netloc:
            raise Misuse("bad-address", f"{text!r}: a Unix socket is written unix:///path/to/socket", address=text)
        return Address(text, path=parts.path)
    if parts.netloc.count(":") > 1 and "[" not in parts.netloc:
        raise Misuse("bad-address", f"{text!r}: an IPv6 host is written in brackets, [::1]:7071", address=text)
    if text.startswith("/"):
        raise Misuse("bad-address", f"{text!r}: a Unix socket is written unix://{text}", address=text)
    if not parts.hostname or parts.path not in ("", "/"):
        raise Misuse("bad-address", f"{text!r}: an address is {parts.scheme}://host:port", address=text)
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        said = f"{text!r}: {parts.hostname!r} cannot be the name of a host"
        raise Misuse("bad-address", said, address=text) from None
    return Address(text, parts.hostname, _port_of(text, parts), is_tls=parts.scheme == "veredus+tls")


def _port_of(text: str, parts: SplitResult) -> int:
    try:
        port = PORT if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise Misuse("bad-address", f"{text!r}: a port is a number from 1 to 65535", address=text)
    return port


def parse_addresses(texts: tuple[str, ...]) -> tuple[Address, ...]:
    """The addresses that these texts name, each one or several with commas between; one that comes again counts once.
    Raises `Misuse("bad-address")`.
    """
    for text in texts:
        if not isinstance(text, str):
            raise Misuse(
                "bad-address", f"an address is text, e.g. veredus://127.0.0.1:7071, not {text!r}", address=text
            )
    addresses = tuple(parse_address(part.strip()) for text in texts for part in text.split(",") if part.strip())
    if not addresses:
        raise Misuse("bad-address", "name at least one address of a node, e.g. veredus://127.0.0.1:7071")
    return tuple(dict.fromkeys(addresses))
