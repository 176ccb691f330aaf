"""Where a node is: `veredus://host:port`, `veredus+tls://host:port` or `unix:///path`."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from veredus.kernel.errors import Misuse

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
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError as error:
        raise Misuse("bad-address", f"{text!r} is not the address of a node: {error}", address=text) from None
    if parts.scheme not in _SCHEMES:
        raise Misuse("bad-address", f"{text!r}: an address begins with {', '.join(f'{s}://' for s in _SCHEMES)}")
    if parts.scheme == "unix":
        if not parts.path or parts.netloc:
            raise Misuse("bad-address", f"{text!r}: a Unix socket is written unix:///path/to/socket", address=text)
        return Address(text, path=parts.path)
    if not parts.hostname or parts.path not in ("", "/"):
        raise Misuse("bad-address", f"{text!r}: an address is {parts.scheme}://host:port", address=text)
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        said = f"{text!r}: {parts.hostname!r} cannot be the name of a host"
        raise Misuse("bad-address", said, address=text) from None
    return Address(text, parts.hostname, PORT if port is None else port, is_tls=parts.scheme == "veredus+tls")


def parse_addresses(texts: tuple[str, ...]) -> tuple[Address, ...]:
    """The addresses that these texts name, each one or several with commas between; one that comes again counts once.
    Raises `Misuse("bad-address")`.
    """
    for text in texts:
        if not isinstance(text, str):
            raise Misuse("bad-address", f"an address is text, e.g. veredus://127.0.0.1:7071, not {text!r}")
    addresses = tuple(parse_address(part.strip()) for text in texts for part in text.split(",") if part.strip())
    if not addresses:
        raise Misuse("bad-address", "name at least one address of a node, e.g. veredus://127.0.0.1:7071")
    return tuple(dict.fromkeys(addresses))
